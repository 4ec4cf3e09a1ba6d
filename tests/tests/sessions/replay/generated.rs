//! A long recorded session that is made up: the same at every run, with the shapes that are hard.

use std::path::{Path, PathBuf};

use ctxhost_engine_api::testing::generate::{GeneratedTranscript, Script};
use serde_json::{Value, json};

/// Turns of the session. The words of the model alone are some 1,000 tokens each, so a window of 64k has
/// to fold more than once.
pub(crate) const TURNS: usize = 60;

/// The module a turn is about: an identifier that summaries must keep to the letter.
pub(crate) fn module(turn: usize) -> String {
    format!("src/importer/module_{turn:02}.rs")
}

/// Writes the session as a Pi v3 file into a folder.
pub(crate) fn write(folder: &Path) -> PathBuf {
    let path = folder.join("long.jsonl");
    let session = session();
    let header = json!({"type": "session", "version": 3, "id": "0b5e55ed-long",
        "timestamp": "2026-03-02T09:00:00.000Z", "cwd": "/home/dev/importer"});
    let mut lines = vec![header.to_string()];
    let mut parent = Value::Null;
    for entry in &session.entries {
        let message: Value = serde_json::from_str(&entry.raw).unwrap();
        let time = minute(lines.len());
        lines.push(
            json!({"type": "message", "id": entry.id, "parentId": parent,
            "timestamp": time, "message": message})
            .to_string(),
        );
        parent = Value::from(entry.id.clone());
    }
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    path
}

/// One minute for each line: the breaker and the hourly limit see hours, not a burst.
fn minute(line: usize) -> String {
    format!("2026-03-{:02}T{:02}:{:02}:00.000Z", 2 + line / 1440, line / 60 % 24, line % 60)
}

fn session() -> GeneratedTranscript {
    (0..TURNS).fold(Script::new(), turn).finish()
}

fn turn(script: Script, number: usize) -> Script {
    let ask = format!("Please check the importer module {} for lost records.", module(number));
    let [first, second] = ["a", "b"].map(|letter| format!("call_{number}_{letter}"));
    let script = match number % 10 {
        3 => script.user_with_images(&ask, 1),
        7 => script.user(&format!("{ask} 注意日志里的时区，别丢记录。")),
        _ => script.user(&ask),
    };
    let script = script
        .calls("I read the module and its log.", &[&first, &second])
        .result(&first, &listing(number, 40))
        .result(&second, &listing(number + 1, if number % 15 == 4 { 900 } else { 30 }));
    let script = match number % 12 {
        5 => script.aborted_calls("", &[&format!("call_{number}_lost")]),
        8 => script.orphan("a result whose call is gone"),
        _ => script,
    };
    // What the model said itself no layer shortens: only a compaction makes room for more.
    let reported = listing(number + 2, 90);
    script.assistant(&format!("The importer module {number} loses no records.\n\n{reported}"))
}

/// Plain words, so that no line of it is an identifier.
fn listing(seed: usize, lines: usize) -> String {
    const WORDS: [&str; 8] =
        ["record", "kept", "merged", "skipped", "row", "batch", "checked", "quiet"];
    let word = |line: usize, place: usize| WORDS[(seed * 7 + line * 3 + place * 5) % WORDS.len()];
    let text = (0..lines).map(|line| {
        format!(
            "{} {} {} in {} order, then {} again",
            word(line, 0),
            word(line, 1),
            word(line, 2),
            word(line, 3),
            word(line, 4)
        )
    });
    text.collect::<Vec<_>>().join("\n")
}
