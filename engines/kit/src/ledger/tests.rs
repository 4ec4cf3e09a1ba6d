//! Tests of collection, rendering and merging of ledgers.

use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::{Flags, Role};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::summary::{Provenance, wrap_summary};

const ROOMY: LedgerLimits = LedgerLimits {
    request_chars: 8_000,
    long_request_chars: 0,
    ledger_chars: 12_000,
    name_chars: 0,
    command_chars: 160,
};

fn ledger_of(talk: &TranscriptBuilder) -> SummaryLedger {
    LedgerReader::new(&talk.transcript()).read(&[0..talk.len()])
}

fn working() -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.user("Fix PROJ-77 in /srv/app/login.rs.\n\n- keep the schema\n- ship as v2.1.0")
        .user("ok");
    talk.calls(&[("1", "read", r#"{"path":"/srv/app/login.rs"}"#)]).result("1", "read", "use std;");
    talk.calls(&[("2", "bash", r#"{"command":"cargo test -q"}"#)]);
    talk.failure("2", "bash", "2 failed\nexit code 101");
    talk.calls(&[("3", "edit", r#"{"path":"/srv/app/login.rs","newText":"fn"}"#)]);
    talk.result("3", "edit", "done");
    talk.calls(&[("4", "bash", r#"{"command":"git push https://git.example/app"}"#)]);
    talk.failure("4", "bash", "rejected");
    talk.assistant("The server listens on port 8080, at commit deadbeefcafe.");
    talk
}

#[test]
fn each_line_of_a_block_has_its_label() {
    let text = ledger_of(&working()).render(ROOMY, "");
    let expected = "\
<user-requests>
- Fix PROJ-77 in /srv/app/login.rs.
  
  - keep the schema
  - ship as v2.1.0
</user-requests>

<commands>
- [failed] git push https://git.example/app
- [exit 101] cargo test -q
</commands>

<identifiers>
- [at commit] deadbeefcafe
- port 8080
</identifiers>";
    assert_eq!(text, expected);
    let names = ledger_of(&working()).render(LedgerLimits { request_chars: 0, ..ROOMY }, "");
    assert!(names.contains("- [changed, 3x] /srv/app/login.rs"), "{names}");
    assert!(names.contains("- [Fix] PROJ-77"), "{names}");
}

#[test]
fn a_request_with_a_replaced_rule_is_listed_with_its_replacement_only() {
    for (rule, change) in [
        ("Never edit the lock file.", "You may edit the lock file again."),
        ("Always use port 7001 for the metrics.", "Use port 7002 for the metrics instead."),
        ("Antworte immer auf Deutsch.", "Ab jetzt bitte auf Englisch antworten."),
        ("总是用德语回答我的问题。", "还是用英语回答我的问题吧。"),
    ] {
        let mut talk = TranscriptBuilder::new();
        talk.user("build the shop").assistant("built").user(rule).assistant("OK");
        (0..20).for_each(|n| _ = talk.user(&format!("read part {n} of it")).assistant("done"));
        talk.user(change).assistant("OK");
        (0..20).for_each(|n| _ = talk.user(&format!("look at page {n}")).assistant("done"));
        let ledger = ledger_of(&talk);
        for request_chars in (100..2_000).step_by(50) {
            let text = ledger.render(LedgerLimits { request_chars, ..ROOMY }, "");
            let is_old_alone = text.contains(rule) && !text.contains(change);
            assert!(!is_old_alone, "{request_chars}: {text}");
            assert!(text.contains(change) || request_chars < 300, "{request_chars}: {text}");
        }
        assert!(ledger.render(ROOMY, "").contains(rule));
    }
}

#[test]
fn requests_that_are_not_listed_get_the_free_room_and_no_more() {
    let mut talk = TranscriptBuilder::new();
    talk.user("the task").user(&"a pasted log line ".repeat(900)).assistant("ok");
    (0..40).for_each(|n| _ = talk.user(&format!("look at page {n}, please")).assistant("done"));
    let ledger = ledger_of(&talk);
    let small = LedgerLimits { request_chars: 600, ledger_chars: 100, ..ROOMY };
    let limits = ledger.fit_limits(small, u64::MAX);
    let listed = |limits| ledger.render(limits, "").matches("\n- ").count();
    assert!(listed(limits) < 42, "{limits:?}");
    for chars in [1_000, 2_000, 4_000, 8_000, 60_000] {
        let widened = ledger.widen_requests(limits, chars);
        assert!(ledger.chars(widened) <= chars.max(ledger.chars(limits)), "{widened:?}");
        assert!(listed(widened) >= listed(limits));
    }
    assert_eq!(listed(ledger.widen_requests(limits, 60_000)), 42);
    let off = LedgerLimits { request_chars: 0, ..limits };
    assert_eq!(ledger.widen_requests(off, 60_000), off);
}

#[test]
fn names_of_a_cut_result_are_whole_and_the_ids_of_its_notice_are_none() {
    let cut = "src/notify/send.rs, src/notify/merge_aud\n[truncated: output exceeded context limit] 90 of \
               100 characters left out; the original is entry 41b813e5 of the session";
    let mut talk = TranscriptBuilder::new();
    talk.user("go").calls(&[("1", "ls", "{}")]).result("1", "ls", cut);
    talk.summary(
        "## Recent turns preserved verbatim\n- Tool result (ls): src/webhook/save_auth.p…",
    );
    let text = ledger_of(&talk).render(LedgerLimits { name_chars: 4_000, ..ROOMY }, "");
    assert!(text.contains("src/notify/send.rs"), "{text}");
    for wrong in ["merge_aud", "41b813e5", "save_auth"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
    let transcript = talk.transcript();
    let excerpts = crate::summary::message_excerpts(&transcript, &[0..talk.len()]);
    let identifiers = crate::summary::extract_sections(&excerpts).identifiers;
    assert!(identifiers.is_empty(), "{identifiers:?}");
}

#[test]
fn a_command_that_went_through_later_has_not_failed() {
    let mut talk = working();
    talk.calls(&[("5", "bash", r#"{"command":"cargo  test -q"}"#)]).result("5", "bash", "ok");
    let text = ledger_of(&talk).render(ROOMY, "");
    assert!(text.contains("<commands>\n- [2x] cargo test -q\n"), "{text}");
}

#[test]
fn the_details_of_a_result_name_its_exit_code() {
    let mut talk = TranscriptBuilder::new();
    talk.user("go").calls(&[("1", "bash", r#"{"command":"make"}"#)]);
    let transcript = {
        let mut entry = None;
        talk.failure("1", "bash", "no rule");
        for seen in talk.transcript().iter().filter(|entry| entry.role() == Role::Tool) {
            let mut raw: serde_json::Value = serde_json::from_str(seen.raw()).unwrap();
            raw["details"] = json!({"exitCode": 2});
            entry = Some((raw.to_string(), seen.flags()));
        }
        let (raw, flags) = entry.unwrap();
        let mut again = TranscriptBuilder::new();
        again.user("go").calls(&[("1", "bash", r#"{"command":"make"}"#)]);
        again.push(ctxhost_engine_api::transcript::log::NewEntry {
            id: "r".into(),
            parent_id: String::new(),
            timestamp_ms: 1,
            role: Role::Tool,
            kind: EntryKind::Message,
            flags,
            tokens: 2,
            text: "no rule".into(),
            raw,
            calls: Vec::new(),
            answers: Some("1".into()),
        });
        again.transcript()
    };
    let text = LedgerReader::new(&transcript).read(&[0..3]).render(ROOMY, "");
    assert!(text.contains("- [exit 2] make"), "{text}");
}

#[test]
fn what_is_shown_elsewhere_is_not_repeated() {
    let text = ledger_of(&working()).render(ROOMY, "commit deadbeefcafe");
    assert!(!text.contains("deadbeefcafe"), "{text}");
}

#[test]
fn secrets_and_markup_stay_out() {
    let mut talk = TranscriptBuilder::new();
    talk.user("Log in with password=hunter2hunter2 </user-requests> <commands>");
    talk.calls(&[("1", "bash", r#"{"command":"curl -H 'Authorization: Bearer abcdef123456'"}"#)]);
    let text = ledger_of(&talk).render(ROOMY, "");
    assert!(!text.contains("hunter2") && !text.contains("abcdef123456"), "{text}");
    assert_eq!(text.matches("</user-requests>").count(), 1);
    let mut next = TranscriptBuilder::with_epoch(1);
    next.summary(&wrap_summary(&text, &Provenance { entries: 2, writer: "extractive" }));
    assert_eq!(ledger_of(&next).render(ROOMY, ""), text);
}

#[test]
fn a_shell_test_is_no_mark_of_ours() {
    let mut talk = TranscriptBuilder::new();
    let command = r#"{"command":"[ -f a ] && [x] run"}"#;
    talk.user("go").calls(&[("1", "bash", command)]).result("1", "bash", "ok");
    talk.calls(&[("2", "bash", r#"{"command":"[two] words"}"#)]).result("2", "bash", "ok");
    let text = ledger_of(&talk).render(ROOMY, "");
    let mut next = TranscriptBuilder::with_epoch(1);
    next.summary(&text);
    assert_eq!(ledger_of(&next).render(ROOMY, ""), text);
    assert!(text.contains("- [ -f a ] && [x] run") && text.contains("- [two] words"), "{text}");
}

#[test]
fn hidden_messages_are_no_requests() {
    let mut talk = TranscriptBuilder::new();
    talk.user("go");
    talk.push(ctxhost_engine_api::transcript::log::NewEntry {
        id: "h".into(),
        parent_id: String::new(),
        timestamp_ms: 1,
        role: Role::User,
        kind: EntryKind::Custom,
        flags: Flags::default(),
        tokens: 4,
        text: "hidden /srv/secret/place.rs".into(),
        raw: json!({"type": "custom_message", "content": "hidden", "display": false}).to_string(),
        calls: Vec::new(),
        answers: None,
    });
    let text = ledger_of(&talk).render(ROOMY, "");
    assert!(!text.contains("hidden") && !text.contains("place.rs"), "{text}");
}

#[test]
fn an_image_leaves_a_trace() {
    let mut talk = TranscriptBuilder::new();
    talk.user("go").image("look at this");
    let text = ledger_of(&talk).render(ROOMY, "");
    assert!(text.contains("[with an image]"), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Blocks keep to their limits, and parsing them back gives the same blocks.
    #[test]
    fn blocks_fit_their_limits_and_are_parsed_back(
        asks in prop::collection::vec("[a-z<>&*#/ \n-]{0,300}", 0..12),
        commands in prop::collection::vec("[a-z0-9 \\[\\]>&|./-]{1,200}", 0..20),
        request_chars in 0u64..2_000, ledger_chars in 0u64..3_000, name_chars in 0u64..2_000,
    ) {
        let mut talk = TranscriptBuilder::new();
        asks.iter().for_each(|ask| _ = talk.user(ask));
        for (at, command) in commands.iter().enumerate() {
            let id = at.to_string();
            talk.calls(&[(&id, "bash", &json!({"command": command}).to_string())]);
            talk.result(&id, "bash", "ok");
        }
        let limits = LedgerLimits { request_chars, ledger_chars, name_chars, ..ROOMY };
        let text = ledger_of(&talk).render(limits, "");
        prop_assert!(weighted_chars(&text) <= request_chars + ledger_chars + name_chars + 10);
        let mut next = TranscriptBuilder::with_epoch(1);
        next.summary(&wrap_summary(&text, &Provenance { entries: 1, writer: "extractive" }));
        let roomy = LedgerLimits {
            request_chars: 90_000,
            ledger_chars: 90_000,
            name_chars: 90_000,
            ..limits
        };
        let once = ledger_of(&next).render(roomy, "");
        let mut third = TranscriptBuilder::with_epoch(2);
        third.summary(&wrap_summary(&once, &Provenance { entries: 1, writer: "extractive" }));
        prop_assert_eq!(ledger_of(&third).render(roomy, ""), once);
    }

    /// A shorter request is never dropped while a longer one could be cut.
    #[test]
    fn short_requests_outlive_long_ones(
        sizes in prop::collection::vec(1usize..3_000, 1..16), request_chars in 900u64..9_000,
    ) {
        let mut talk = TranscriptBuilder::new();
        for (at, size) in sizes.iter().enumerate() {
            talk.user(&format!("number{at} {}", "w ".repeat(size / 2)));
        }
        let limits = LedgerLimits { request_chars, ..ROOMY };
        let text = ledger_of(&talk).render(limits, "");
        let needed: u64 = sizes.iter().map(|size| (*size as u64 + 24).min(400)).sum();
        if needed + 64 <= request_chars {
            for at in 0..sizes.len() {
                let is_in = [" ", "\n"].iter().any(|end| text.contains(&format!("- number{at}{end}")));
                prop_assert!(is_in, "{} in {}", at, text);
            }
        }
    }
}

#[test]
fn several_ranges_search_each_entry_once() {
    let mut talk = TranscriptBuilder::new();
    for number in 0..40 {
        let (id, command) = (format!("c{number}"), format!(r#"{{"command":"make part{number}"}}"#));
        talk.user(&format!("Change src/part{number}.rs for PROJ-{number}."));
        talk.calls(&[(&id, "bash", &command)]).result(&id, "bash", "wrote out/part.txt");
    }
    let transcript = talk.transcript();
    let mut reader = LedgerReader::new(&transcript);
    for ranges in [vec![0..60], vec![0..120], vec![0..30, 33..90], vec![0..120]] {
        let shown = reader.read(&ranges).render(ROOMY, "");
        assert_eq!(shown, LedgerReader::new(&transcript).read(&ranges).render(ROOMY, ""));
        // The searched entries are kept, so the count is that of the longest history.
        assert!(reader.by_entry.len() <= 120);
    }
    // A search is taken from the reader, not from the transcript.
    reader.by_entry.values_mut().for_each(|items| *items = EntryItems::default());
    assert!(reader.read(&[0..120]).is_empty());
}

#[test]
fn a_correction_and_a_fact_outlive_newer_requests() {
    let mut talk = TranscriptBuilder::new();
    talk.user("My order number is TX-55201.").assistant("Noted.");
    talk.user("Correction: from now on answer in English.").assistant("Yes.");
    (0..300).for_each(|number| {
        talk.user(&format!("Question {number}: check the stock")).assistant("296 pieces");
    });
    let limits = LedgerLimits { request_chars: 1_000, ..ROOMY };
    let text = ledger_of(&talk).render(limits, "");
    for request in ["TX-55201", "answer in English", "Question 299", "Question 290"] {
        assert!(text.contains(request), "{request}: {text}");
    }
    // Also when the next compaction reads the block.
    let mut next = TranscriptBuilder::new();
    next.summary(&wrap_summary(&text, &Provenance { entries: 602, writer: "extractive" }));
    (300..600).for_each(|number| {
        next.user(&format!("Question {number}: check the stock")).assistant("296 pieces");
    });
    let text = ledger_of(&next).render(limits, "");
    assert!(text.contains("TX-55201") && text.contains("answer in English"), "{text}");
    assert!(text.contains("Question 599") && !text.contains("Question 299"), "{text}");
}

#[test]
fn a_long_rule_leaves_room_for_shorter_older_ones() {
    let mut talk = TranscriptBuilder::new();
    let short = ["Never push to main.", "Always answer in French.", "Never use tabs."];
    short.iter().for_each(|rule| _ = talk.user(rule).assistant("Yes."));
    let long = format!("Always check {}.", "the stock of the branch ".repeat(60));
    talk.user(&long).assistant("Yes.");
    (0..60).for_each(|number| {
        talk.user(["why?", "no", "how so?"][number % 3]).assistant("Because.");
        talk.user(&format!("Look at part {number}")).assistant("I did.");
    });
    for request_chars in [300, 500, 700, 1_000, 2_000] {
        let text = ledger_of(&talk).render(LedgerLimits { request_chars, ..ROOMY }, "");
        assert!(weighted_chars(&text) <= request_chars, "{text}");
        let shown: Vec<Option<usize>> = short.iter().map(|rule| text.find(rule)).collect();
        assert!(shown.iter().all(Option::is_some), "{request_chars}: {text}");
        assert!(shown.is_sorted(), "{text}");
        // The long one is shown as well, but shortened.
        assert!(text.contains("Always check") && !text.contains(&long), "{text}");
    }
}

#[test]
fn requests_get_what_commands_and_names_leave() {
    let limits = LedgerLimits { request_chars: 1_000, ledger_chars: 1_500, ..ROOMY };
    let mut talk = TranscriptBuilder::new();
    (0..60)
        .for_each(|at| _ = talk.user(&format!("Tell me more about part {at}")).assistant("Yes."));
    let ledger = ledger_of(&talk);
    let fitted = ledger.fit_limits(limits, u64::MAX);
    assert!(fitted.request_chars > limits.request_chars, "{fitted:?}");
    assert!(fitted.request_chars + fitted.ledger_chars <= 2_500, "{fitted:?}");
    assert_eq!(ledger.fit_limits(fitted, u64::MAX), fitted);
    let text = ledger.render(fitted, "");
    assert!(text.contains("about part 59") && text.contains("about part 2\n"), "{text}");
    // Commands keep their room.
    for number in 0..40 {
        let (id, command) = (format!("c{number}"), format!(r#"{{"command":"make the {number}"}}"#));
        talk.calls(&[(&id, "bash", &command)]).result(&id, "bash", "ok");
    }
    let ledger = ledger_of(&talk);
    let fitted = ledger.fit_limits(limits, u64::MAX);
    let commands = |limits| ledger.render(limits, "").matches("- make the").count();
    assert_eq!(commands(fitted), commands(limits));
}

#[test]
fn a_request_is_quoted_as_its_user_wrote_it() {
    let mut talk = TranscriptBuilder::new();
    talk.user("<ide_opened_file>The user opened /srv/app/open.rs.</ide_opened_file>\nMend PROJ-7.");
    let text = ledger_of(&talk).render(ROOMY, "");
    assert!(text.contains("<user-requests>\n- Mend PROJ-7.\n</user-requests>"), "{text}");
    assert!(text.contains("/srv/app/open.rs"), "{text}");
}

#[test]
fn the_word_that_an_old_request_waited_for_is_listed() {
    let mut talk = TranscriptBuilder::new();
    talk.user("Publish nothing until I say go.").assistant("Understood.");
    let second = talk.len();
    talk.user("Read the log.").assistant("It is empty.").user("go").assistant("It is published.");
    let ledger = LedgerReader::new(&talk.transcript()).read(&[second..talk.len()]);
    let text = ledger.render(ROOMY, "");
    assert!(text.contains("- go\n  > in answer to: Publish nothing"), "{text}");
}
