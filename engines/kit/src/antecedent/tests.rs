//! What short requests refer to in generated transcripts.

use ctxhost_engine_api::testing::TranscriptBuilder;
use proptest::prelude::*;

use super::*;

fn antecedent(talk: &TranscriptBuilder) -> Option<Antecedent> {
    let transcript = talk.transcript();
    Antecedent::find(&transcript, &transcript.newest_user_message()?)
}

fn answer(answer: &str, request: &str) -> Option<String> {
    let mut talk = TranscriptBuilder::new();
    talk.user("Port the billing service.").assistant(answer).user(request);
    antecedent(&talk).map(|antecedent| antecedent.text)
}

#[test]
fn a_short_request_has_the_part_that_it_answers() {
    let stores = "Three stores:\n\n1. Redis\n2. **Postgres 16** with `wal`\n3. files\n\nWhich one?";
    let options = "Option A: all at once\nOption B: blue-green by zeta-lb";
    let ways = "I can either rewrite the parser or patch the tokenizer. I recommend the patch.";
    let proposal = "The loop is wrong.\n\nI propose to cap it at 7 attempts.";
    for (text, request, part) in [
        (stores, "the second one, from now on", "2. Postgres 16 with wal"),
        (
            stores,
            "files it is",
            "Three stores: 1. Redis 2. Postgres 16 with wal 3. files Which one?",
        ),
        (options, "use option B", "Option B: blue-green by zeta-lb"),
        (options, "B", "Option B: blue-green by zeta-lb"),
        (proposal, "yes, do that", "I propose to cap it at 7 attempts."),
        (proposal, "go with your proposal", "I propose to cap it at 7 attempts."),
        (proposal, "ok", "I propose to cap it at 7 attempts."),
        (ways, "no, the other", ways),
        (ways, "后者", ways),
        (ways, "no", ways),
        (stores, "no, the other one", "1. Redis / 2. Postgres 16 with wal / 3. files Which one?"),
        ("Soll ich sie umbenennen?", "ja, genau so", "Soll ich sie umbenennen?"),
        ("Build 88417 passed. All is well.", "remember that build number", "Build 88417 passed."),
    ] {
        let found = answer(text, request);
        assert!(
            found.as_deref().is_some_and(|found| part.ends_with(found)),
            "{request}: {found:?}"
        );
    }
}

#[test]
fn other_requests_pay_nothing() {
    for request in [
        "thanks",
        "continue",
        "Now port the ledger module and run its tests, then report what you changed in it.",
        &"Use the second one, but only where the table is larger than the limit. ".repeat(4),
    ] {
        assert_eq!(
            answer("I ported the storage layer. All tests pass.", request),
            None,
            "{request}"
        );
    }
    assert_eq!(answer("The tests pass.", "ok"), None, "nothing was proposed");
    let mut talk = TranscriptBuilder::new();
    talk.user("yes, do that");
    assert_eq!(antecedent(&talk), None);
}

#[test]
fn a_name_is_also_found_in_the_output_of_the_turn() {
    let mut talk = TranscriptBuilder::new();
    talk.user("Build it.").calls(&[("a", "bash", r#"{"command":"make"}"#)]);
    talk.result("a", "bash", "compiling\nbuild number: 88417\ndone").assistant("It is built.");
    talk.user("remember that build number");
    let found = antecedent(&talk).unwrap();
    assert_eq!((found.seq, found.text.as_str()), (2, "build number: 88417"));
}

#[test]
fn a_summary_hands_the_antecedent_on() {
    let quoted = quote_note("yes, do that", "Shall I drop the table?");
    let mut talk = TranscriptBuilder::with_epoch(1);
    talk.summary(&crate::ledger::render_requests(std::iter::once(quoted.clone())));
    talk.user("yes, do that");
    let found = antecedent(&talk).unwrap();
    assert_eq!(found.append_to("yes, do that"), quoted);
    talk.assistant("I propose to restore it.").user(&quoted);
    assert_eq!(antecedent(&talk), None, "it shows it already");
}

#[test]
fn a_secret_is_not_quoted() {
    let text = answer("I can use the key ghp_0123456789abcdef0123456789abcdef0123 for it.", "yes");
    assert!(!text.unwrap().contains("ghp_"));
}

proptest! {
    #[test]
    fn an_antecedent_is_short_and_one_line(
        text in "([A-C1-3][.)] |- |Shall I |\\*\\*)?[a-zäß字 .?\n]{0,400}",
        request in "(yes|the second one|remember that id|option b|[a-z ]{0,40})",
    ) {
        if let Some(text) = answer(&text, &request) {
            let chars = ctxhost_engine_api::transcript::tokens::weighted_chars(&text);
            prop_assert!(chars <= MOST_QUOTE_CHARS && !text.contains('\n') && !text.is_empty());
        }
    }
}

#[test]
fn words_that_only_agree_or_ask_to_go_on_state_no_task() {
    for request in [
        "yes",
        "Yes.",
        "go on",
        "继续",
        "weiter",
        "続けて",
        "تابع",
        "да",
        "oui",
        "はい。",
        "ok, go ahead!",
        "no",
        "danke",
        "…",
    ] {
        assert!(!states_task(request), "{request}");
    }
    for request in [
        "Rename it.",
        "yes, but keep the table",
        "继续检查仓库的库存",
        "why?",
        "はい、CSVで書き出して",
        "weiter mit Modul 2",
        "yes (to: Shall I delete the table?)",
    ] {
        assert!(states_task(request), "{request}");
    }
}
