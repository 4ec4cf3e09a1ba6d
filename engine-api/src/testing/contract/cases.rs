//! Transcripts and budgets of the suite. Each covers a failure seen in an engine.

use std::sync::OnceLock;

use crate::testing::TranscriptBuilder;
use crate::transcript::Transcript;

/// Characters of the giant tool result: one careless `cat` of a log file.
const GIANT_RESULT_CHARS: usize = 5_000_000;

/// A transcript with its name.
pub(super) struct ContractCase {
    pub(super) name: &'static str,
    pub(super) transcript: Transcript,
}

/// All cases, the cheap ones first. Built once per process.
pub(super) fn all() -> &'static [ContractCase] {
    static CASES: OnceLock<Vec<ContractCase>> = OnceLock::new();
    CASES.get_or_init(build_all)
}

fn build_all() -> Vec<ContractCase> {
    let case = |name, talk: TranscriptBuilder| ContractCase { name, transcript: talk.transcript() };
    vec![
        case("no entries", TranscriptBuilder::new()),
        case("one entry", one()),
        case("two entries", two()),
        case("fifty entries", working(50)),
        case("a tool loop at the end", tool_loop()),
        case("an unanswered call at the end", unanswered()),
        case("a summary at the head", summarised()),
        case("no user message", without_user()),
        case("a giant result", giant()),
        case("three thousand entries", working(3_000)),
    ]
}

/// A session of typical work with `entries` entries.
pub(super) fn working(entries: u64) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.system("You are careful.").user("Rename the field everywhere, then run the tests.");
    let mut round = 0;
    while talk.len() + 8 < entries {
        work_round(&mut talk, round);
        round += 1;
    }
    while talk.len() < entries {
        talk.assistant("Next.");
    }
    talk
}

/// At most eight entries: text, parallel calls with results, a failure, CJK, empty texts, images.
pub(super) fn work_round(talk: &mut TranscriptBuilder, round: u64) {
    let (first, second) = (format!("r{round}a"), format!("r{round}b"));
    let path = format!(r#"{{"path":"src/part{round}.rs"}}"#);
    let lines = format!("fn part{round}() {{ work(); }}\n").repeat(20);
    match round % 3 {
        0 => talk.user(&format!("And now part {round}, please.")),
        1 => talk.user("次の部分もお願いします。変更点を説明してください。"),
        _ => talk.image("this is what it looks like"),
    };
    talk.calls(&[(&first, "read", &path), (&second, "bash", r#"{"command":"cargo test"}"#)]);
    talk.result(&first, "read", &lines);
    match round % 2 {
        0 => talk.result(&second, "bash", ""),
        _ => talk.failure(&second, "bash", "error[E0425]: 値が見つかりません"),
    };
    match round % 4 {
        0 => talk.assistant(""),
        1 => talk.thinking("The test names the old field.", "Fixed the test."),
        _ => talk.assistant("Done with this part. 完了しました。\u{1F600}"),
    };
}

fn one() -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.user("hello");
    talk
}

fn two() -> TranscriptBuilder {
    let mut talk = one();
    talk.assistant("Hello. What shall we do?");
    talk
}

fn tool_loop() -> TranscriptBuilder {
    let mut talk = working(20);
    talk.user("One more: find the cause.");
    for round in 0..12 {
        let call = format!("loop{round}");
        talk.calls(&[(&call, "grep", r#"{"pattern":"cause"}"#)]);
        talk.result(&call, "grep", &"a line that matches\n".repeat(30));
    }
    talk
}

fn unanswered() -> TranscriptBuilder {
    let mut talk = working(20);
    talk.user("Go on.").calls(&[("open1", "read", "{}"), ("open2", "read", "{}")]);
    talk.result("open1", "read", "only the first of two");
    talk
}

fn summarised() -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::with_epoch(1);
    talk.summary("## Decisions\nThe field is called `name` now.");
    talk.result("lost", "read", "a result whose call was folded away");
    (0..4).for_each(|round| work_round(&mut talk, round));
    talk
}

fn without_user() -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.assistant("I woke up.").calls(&[("c", "ls", "{}")]).result("c", "ls", "");
    talk.assistant("There is nothing to do.");
    talk
}

fn giant() -> TranscriptBuilder {
    let mut talk = working(12);
    let line = "2026-01-01T00:00:00Z info worker 7: 処理が完了しました\n";
    let text = line.repeat(GIANT_RESULT_CHARS / line.chars().count());
    talk.user("What does the log say?").calls(&[("giant", "bash", r#"{"command":"cat log"}"#)]);
    talk.result("giant", "bash", &text).assistant("It is long.").user("Look again.");
    talk
}

/// Budgets for a transcript: 0, 1, too small for any entry, a third, all, unlimited.
pub(super) fn budgets(transcript: &Transcript) -> [u64; 6] {
    let total = transcript.total_tokens();
    [0, 1, 40, total / 3, total, u64::MAX]
}
