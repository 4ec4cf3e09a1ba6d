//! Sessions of work, long enough that engines have something to leave out; always the same.

use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::testing::generate::Script;

/// Lines of a file that a tool brings in.
const FILE_LINES: usize = 24;

/// One round: a wish, two calls at once, their results, an answer. Six entries.
pub(super) fn round(talk: &mut TranscriptBuilder, number: u64) {
    let [wish, path, lines, answer] = words(number);
    let (read, run) = (format!("r{number}a"), format!("r{number}b"));
    talk.user(&wish).calls(&[
        (&read, "read", &format!(r#"{{"path":"{path}"}}"#)),
        (&run, "bash", r#"{"command":"cargo test --quiet"}"#),
    ]);
    talk.result(&read, "read", &lines);
    match number % 3 {
        0 => talk.failure(&run, "bash", "error[E0425]: cannot find value `total` in this scope"),
        _ => talk.result(&run, "bash", "test result: ok. 14 passed; 0 failed"),
    };
    talk.assistant(&answer);
}

/// A session of so many rounds, after the operator's rules.
pub(super) fn session(rounds: u64) -> TranscriptBuilder {
    let mut talk = TranscriptBuilder::new();
    talk.system("You are careful and brief.");
    (0..rounds).for_each(|number| round(&mut talk, number));
    talk
}

/// The same work as a script, from some number on, for histories that can be made smaller.
pub(super) fn script(first: u64, rounds: u64) -> Script {
    (first..first + rounds).fold(Script::new(), |script, number| {
        let [wish, _, lines, answer] = words(number);
        let (read, run) = (format!("r{number}a"), format!("r{number}b"));
        script
            .user(&wish)
            .calls("Looking.", &[&read, &run])
            .result(&read, &lines)
            .result(&run, "test result: ok. 14 passed; 0 failed")
            .assistant(&answer)
    })
}

fn words(number: u64) -> [String; 4] {
    let path = format!("src/part{number}/lib.rs");
    let wish = match number % 4 {
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
    [wish, path, lines, answer]
}
