//! The crash test: nothing is lost, and a loss would be noticed.

use std::process::{Command, Output};

use serde_json::Value;

const TIMES: u64 = 60;

fn kill(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_crashtest")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn whatever_was_promised_is_there_after_every_kill() {
    let output = kill(&["--times", &TIMES.to_string(), "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tally: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(tally["kills"], TIMES);
    assert_eq!(tally["intact"], TIMES);
    assert_eq!((&tally["lost"], &tally["half_written"]), (&0.into(), &0.into()));
    assert!(tally["promises"].as_u64().unwrap() > TIMES, "there was something to lose: {tally}");
}

#[test]
fn a_child_that_promises_before_it_writes_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let arguments = ["--times", "1000", "--seed", "7", "--lies", "--keep", kept.to_str().unwrap()];
    let output = kill(&arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stdout));
    assert!(said.starts_with("error: lost: "), "{said}");
    assert!(said.contains("seed 7, sessions kept in "), "{said}");
    let session = said.lines().find_map(|line| line.strip_prefix("session ")).unwrap();
    assert!(session.starts_with(kept.to_str().unwrap()), "{said}");
}

#[test]
fn a_folder_with_something_in_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), "mine").unwrap();
    let output = kill(&["--keep", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("is not empty"), "{}", text(&output.stderr));
}
