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
    // The giant result makes building the cases slow.
    static CASES: OnceLock<Vec<ContractCase>> = OnceLock::new();
    CASES.get_or_init(build_all)
}

fn build_all() -> Vec<ContractCase> {
    let case =
        |name, builder: TranscriptBuilder| ContractCase { name, transcript: builder.transcript() };
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
    let mut builder = TranscriptBuilder::new();
    builder.system("You are careful.").user("Rename the field everywhere, then run the tests.");
    let mut round = 0;
    while builder.len() + 8 < entries {
        work_round(&mut builder, round);
        round += 1;
    }
    while builder.len() < entries {
        builder.assistant("Next.");
    }
    builder
}

/// At most eight entries: text, parallel calls with results, a failure, CJK, empty texts, images.
pub(super) fn work_round(builder: &mut TranscriptBuilder, round: u64) {
    let (first, second) = (format!("r{round}a"), format!("r{round}b"));
    let path = format!(r#"{{"path":"src/part{round}.rs"}}"#);
    let lines = format!("fn part{round}() {{ work(); }}\n").repeat(20);
    // Request, failure and answer have different periods, so that they occur in many combinations.
    match round % 3 {
        0 => builder.user(&format!("And now part {round}, please.")),
        1 => builder.user("次の部分もお願いします。変更点を説明してください。"),
        _ => builder.image("this is what it looks like"),
    };
    builder.calls(&[(&first, "read", &path), (&second, "bash", r#"{"command":"cargo test"}"#)]);
    builder.result(&first, "read", &lines);
    match round % 2 {
        0 => builder.result(&second, "bash", ""),
        _ => builder.failure(&second, "bash", "error[E0425]: 値が見つかりません"),
    };
    match round % 4 {
        0 => builder.assistant(""),
        1 => builder.thinking("The test names the old field.", "Fixed the test."),
        _ => builder.assistant("Done with this part. 完了しました。\u{1F600}"),
    };
}

fn one() -> TranscriptBuilder {
    let mut builder = TranscriptBuilder::new();
    builder.user("hello");
    builder
}

fn two() -> TranscriptBuilder {
    let mut builder = one();
    builder.assistant("Hello. What shall we do?");
    builder
}

fn tool_loop() -> TranscriptBuilder {
    let mut builder = working(20);
    builder.user("One more: find the cause.");
    for round in 0..12 {
        let call = format!("loop{round}");
        builder.calls(&[(&call, "grep", r#"{"pattern":"cause"}"#)]);
        builder.result(&call, "grep", &"a line that matches\n".repeat(30));
    }
    builder
}

fn unanswered() -> TranscriptBuilder {
    let mut builder = working(20);
    builder.user("Go on.").calls(&[("open1", "read", "{}"), ("open2", "read", "{}")]);
    builder.result("open1", "read", "only the first of two");
    builder
}

fn summarised() -> TranscriptBuilder {
    let mut builder = TranscriptBuilder::with_epoch(1);
    builder.summary("## Decisions\nThe field is called `name` now.");
    builder.result("lost", "read", "a result whose call was folded away");
    // After a compaction the result of a removed call is an orphan.
    (0..4).for_each(|round| work_round(&mut builder, round));
    builder
}

fn without_user() -> TranscriptBuilder {
    let mut builder = TranscriptBuilder::new();
    builder.assistant("I woke up.").calls(&[("c", "ls", "{}")]).result("c", "ls", "");
    builder.assistant("There is nothing to do.");
    builder
}

fn giant() -> TranscriptBuilder {
    let mut builder = working(12);
    let line = "2026-01-01T00:00:00Z info worker 7: 処理が完了しました\n";
    let text = line.repeat(GIANT_RESULT_CHARS / line.chars().count());
    builder.user("What does the log say?").calls(&[("giant", "bash", r#"{"command":"cat log"}"#)]);
    builder.result("giant", "bash", &text).assistant("It is long.").user("Look again.");
    builder
}

/// Budgets for a transcript: 0, 1, too small for any entry, a third, all, unlimited.
pub(super) fn budgets(transcript: &Transcript) -> [u64; 6] {
    let total = transcript.total_tokens();
    [0, 1, 40, total / 3, total, u64::MAX]
}
