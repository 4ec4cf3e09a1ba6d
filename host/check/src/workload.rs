//! Deterministic work sessions, long enough that engines have to leave out entries.

use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::testing::generate::Script;

/// Lines of a file in a tool result.
const FILE_LINES: usize = 24;

/// Appends a round of six entries: a request, two parallel calls, their results, an answer.
pub(super) fn round(builder: &mut TranscriptBuilder, number: u64) {
    let [request, path, lines, answer] = texts(number);
    let (read, run) = (format!("r{number}a"), format!("r{number}b"));
    builder.user(&request).calls(&[
        (&read, "read", &format!(r#"{{"path":"{path}"}}"#)),
        (&run, "bash", r#"{"command":"cargo test --quiet"}"#),
    ]);
    builder.result(&read, "read", &lines);
    match number % 3 {
        // Failures and CJK text in every session, because engines treat both specially.
        0 => builder.failure(&run, "bash", "error[E0425]: cannot find value `total` in this scope"),
        _ => builder.result(&run, "bash", "test result: ok. 14 passed; 0 failed"),
    };
    builder.assistant(&answer);
}

/// A session of a system entry and `rounds` rounds.
pub(super) fn session(rounds: u64) -> TranscriptBuilder {
    let mut builder = TranscriptBuilder::new();
    builder.system("You are careful and brief.");
    (0..rounds).for_each(|number| round(&mut builder, number));
    builder
}

/// The same work as a script, starting with round `first`, for histories that can be shrunk.
pub(super) fn script(first: u64, rounds: u64) -> Script {
    (first..first + rounds).fold(Script::new(), |script, number| {
        let [request, _, lines, answer] = texts(number);
        let (read, run) = (format!("r{number}a"), format!("r{number}b"));
        script
            .user(&request)
            .calls("Looking.", &[&read, &run])
            .result(&read, &lines)
            .result(&run, "test result: ok. 14 passed; 0 failed")
            .assistant(&answer)
    })
}

fn texts(number: u64) -> [String; 4] {
    let path = format!("src/part{number}/lib.rs");
    let request = match number % 4 {
        0 => format!("Please rename the field in {path} and run the tests."),
        1 => format!("次は {path} をお願いします。変更点を説明してください。"),
        2 => format!("And {path}? Keep its public names, and never touch Cargo.lock."),
        _ => format!("部分 {number}：请检查 {path}，然后运行测试。"),
    };
    let line =
        |at: usize| format!("pub fn part{number}_{at}(total: u64) -> u64 {{ total + {at} }}\n");
    let lines = (0..FILE_LINES).map(line).collect();
    let answer =
        format!("Done with {path}: commit {:08x}, 14 tests pass. \u{1F600}", number * 7919);
    [request, path, lines, answer]
}
