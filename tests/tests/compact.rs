//! `ctxhost compact` on real sessions: worked out, applied, repeated, and killed at any moment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use ctxhost::session::Session;
use ctxhost_tests::{ctxhost, recorded_session, shared_fixtures};
use tempfile::TempDir;

/// A time that every run of these tests takes for now, in seconds since 1970.
const NOW_SECONDS: &str = "1795249139";
const KILLS: u64 = 24;

/// A copy of the recorded session in a folder of its own.
fn copy() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    fs::write(&path, recorded_session()).unwrap();
    (folder, path)
}

fn compact(path: &Path, arguments: &[&str]) -> Output {
    let mut command = ctxhost();
    command.arg("compact").arg(path).args(["--window", "64k"]).args(arguments);
    command.env("SOURCE_DATE_EPOCH", NOW_SECONDS).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_dry_run_writes_nothing() {
    let (folder, path) = copy();
    let output = compact(&path, &["--dry-run"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("dry run - nothing written\nlegacy: "));
    assert_eq!(fs::read(&path).unwrap(), recorded_session());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_compaction_is_one_more_line_and_the_session_goes_on_from_it() {
    let (_folder, path) = copy();
    let before = Session::read(&path).unwrap().live(0).total_tokens();
    assert!(compact(&path, &[]).status.success());
    let written = fs::read(&path).unwrap();
    assert!(written.starts_with(&recorded_session()), "what was there is there");
    let added = text(&written[recorded_session().len()..]);
    assert_eq!(added.trim_end().lines().count(), 1);
    let session = Session::read(&path).unwrap();
    assert!(session.problems().is_empty(), "{:?}", session.problems());
    assert!(session.live(0).total_tokens() < before / 2);
    let replayed = ctxhost().arg("replay").arg(&path).args(["--window", "64k"]).output().unwrap();
    assert!(replayed.status.success());
    assert!(text(&replayed.stdout).contains("0 violations"));
}

#[test]
fn two_runs_write_the_same_bytes() {
    let ((_one, first), (_two, second)) = (copy(), copy());
    compact(&first, &[]);
    compact(&second, &[]);
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
}

#[test]
fn killed_at_any_moment_the_session_is_as_before_or_as_after() {
    let (_done, path) = copy();
    compact(&path, &[]);
    let (before, after) = (recorded_session(), fs::read(&path).unwrap());
    for kill in 0..KILLS {
        let (_folder, path) = copy();
        let mut command = ctxhost();
        command.arg("compact").arg(&path).args(["--window", "64k"]);
        command.env("SOURCE_DATE_EPOCH", NOW_SECONDS).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // From before the file is open to after the last byte is written.
        std::thread::sleep(Duration::from_millis(kill * 16));
        let _ = child.kill();
        child.wait().unwrap();
        let found = fs::read(&path).unwrap();
        assert!(found == before || found == after, "killed after {} ms", kill * 16);
        // A lock that a dead process held does not keep the next one out.
        assert!(compact(&path, &[]).status.success());
    }
}

#[test]
fn the_real_session_of_version_1_is_compacted_and_its_original_kept() {
    let Some(fixtures) = shared_fixtures() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.jsonl");
    let original = fs::read(fixtures.join("pi/before-compaction.jsonl")).unwrap();
    fs::write(&path, &original).unwrap();
    let output = compact(&path, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read(folder.path().join("old.jsonl.v1.bak")).unwrap(), original);
    let session = Session::read(&path).unwrap();
    assert_eq!(session.header().version(), 3);
    assert!(session.live(0).total_tokens() < 50_000);
}

#[test]
fn what_is_no_pi_session_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("messages.json");
    let messages = r#"[{"role":"user","content":"hello"},{"role":"assistant","content":"hi"}]"#;
    fs::write(&path, messages).unwrap();
    let output = compact(&path, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("error: "));
    assert_eq!(fs::read_to_string(&path).unwrap(), messages);
}
