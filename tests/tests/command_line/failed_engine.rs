//! A comparison with an engine that fails: its row shows no figures of the fallback, and the exit code is 1.

use std::fs;

use ctxhost_tests::{chaos_library, ctxhost};
use serde_json::Value;

/// Output and exit code of a replay with the failing engine `chaos`.
fn replay(arguments: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[plugins.entries.chaos]\npath = {:?}\nisolation = \"thread\"\n\
         config = {{ mode = \"panic-assemble\" }}\n",
        chaos_library()
    );
    fs::write(folder.path().join("ctxhost.toml"), config).unwrap();
    let mut command = ctxhost();
    command.current_dir(folder.path()).env("CTXHOST_STATE_DIR", folder.path().join("state"));
    let output = command.args(["replay", "demo:mixed"]).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn its_row_is_marked_and_it_takes_no_part_in_the_verdict() {
    let (code, text) = replay(&["--engines", "chaos,legacy,window"]);
    assert_eq!(code, Some(1), "{text}");
    let figures = text.lines().filter(|line| line.contains("FAILED"));
    assert_eq!(figures.count(), 2, "in its row, or column, and in a line of its own: {text}");
    let verdict = text.lines().find(|line| line.starts_with("verdict: ")).unwrap();
    assert!(!verdict.contains("chaos"), "{verdict}");
    assert!(text.contains("chaos FAILED: another engine shaped "), "{text}");
}

#[test]
fn several_options_engine_compare_as_one_list_does() {
    let (code, text) = replay(&["--engine", "chaos", "--engine", "legacy"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(!text.contains("verdict: "), "one engine is no comparison: {text}");
}

#[test]
fn markdown_and_json_tell_it_too() {
    let (code, text) = replay(&["--engines", "chaos,legacy", "--markdown"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.lines().any(|line| line.contains("| chaos ") && line.contains("| FAILED | – |")));
    let (_, text) = replay(&["--engines", "chaos,legacy", "--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert!(report["runs"][0]["totals"]["failed"].as_u64().unwrap() > 0, "{text}");
    assert_eq!(report["runs"][1]["totals"]["failed"], Value::Null);
}

#[test]
fn one_engine_that_fails_is_an_error_as_well() {
    let (code, text) = replay(&["--engine", "chaos"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("chaos FAILED: ") && text.contains("the figures above are of that engine")
    );
}
