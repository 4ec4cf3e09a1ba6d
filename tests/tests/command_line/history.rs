//! `ctxhost undo`, `restore`, `branch`, `bisect` and `export` on a real session: what they write, and what
//! they leave alone.

#![allow(clippy::print_stderr)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ctxhost_session::Session;
use ctxhost_tests::workplace::lawful_session;
use ctxhost_tests::{ctxhost, recorded_session};
use serde_json::Value;
use tempfile::TempDir;

/// A command of the recorded session's first turn.
const EARLY: &str = "which files there are and how long they are";

/// A copy of the recorded session in a folder of its own, compacted.
fn compacted() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    fs::write(&path, recorded_session()).unwrap();
    run(&folder, &["compact", "session.jsonl", "--window", "64k"], 0);
    (folder, path)
}

/// Runs a command in the folder and answers what it printed, once its exit code is the expected one.
fn run(folder: &TempDir, arguments: &[&str], code: i32) -> String {
    let output = ctxhost()
        .current_dir(folder.path())
        .env("SOURCE_DATE_EPOCH", "1795249139")
        .args(arguments)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said:?}");
    said.concat()
}

fn digest(path: &Path) -> String {
    Session::read(path).unwrap().digest()
}

#[test]
fn undo_gives_the_digest_before_the_compaction_again_and_again() {
    let (folder, path) = compacted();
    let original = Session::parse("original", &recorded_session()).unwrap().digest();
    for _ in 0..3 {
        let compacted = fs::read(&path).unwrap();
        assert_ne!(digest(&path), original);
        let said = run(&folder, &["undo", "session.jsonl"], 0);
        assert_eq!(said.matches(&original).count(), 2, "{said}");
        assert_eq!(digest(&path), original);
        assert!(fs::read(&path).unwrap().starts_with(&compacted), "nothing is removed");
        lawful_session(&path);
        run(&folder, &["compact", "session.jsonl", "--window", "64k"], 0);
    }
}

#[test]
fn what_a_compaction_lost_is_found_and_every_command_that_is_named_brings_it_back() {
    let (folder, path) = compacted();
    let folded = fs::read(&path).unwrap();
    let found = run(&folder, &["bisect", "session.jsonl", EARLY, "--json"], 0);
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["found"]["fate"], "lost", "{found}");
    assert_eq!(found["found"]["by"]["number"], 1);
    assert_eq!(found["found"]["first"]["turn"], 1);
    let commands: Vec<&str> =
        found["commands"].as_array().unwrap().iter().map(|c| c.as_str().unwrap()).collect();
    assert_eq!(commands.len(), 3);
    for command in commands {
        fs::write(&path, &folded).unwrap();
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        if words[0] == "fetch" {
            let line = run(&folder, &[&words[..], &["--json"]].concat(), 0);
            assert!(line.contains(EARLY), "{command}");
            continue;
        }
        run(&folder, &words, 0);
        lawful_session(&path);
        let said = run(&folder, &["bisect", "session.jsonl", EARLY], 0);
        assert!(said.contains("still in context"), "{command}: {said}");
    }
}

#[test]
fn a_restored_turn_is_one_record_and_a_dry_run_is_none() {
    let (folder, path) = compacted();
    let before = fs::read(&path).unwrap();
    let dry = run(&folder, &["restore", "session.jsonl", "--turn", "1..2", "--dry-run"], 0);
    assert!(dry.starts_with("dry run - nothing written\n") && dry.contains(EARLY), "{dry}");
    assert_eq!(fs::read(&path).unwrap(), before);
    run(&folder, &["restore", "session.jsonl", "--turn", "1..2"], 0);
    let after = fs::read(&path).unwrap();
    assert!(after.starts_with(&before));
    assert_eq!(after[before.len()..].iter().filter(|byte| **byte == b'\n').count(), 1);
    // What it says of cut results can be typed as it stands.
    let text = String::from_utf8(after[before.len()..].to_vec()).unwrap();
    let command = text.split("more characters: ctxhost ").nth(1).unwrap();
    let command: Vec<&str> = command.split(']').next().unwrap().split(' ').collect();
    assert!(run(&folder, &command, 0).chars().count() > 500);
}

#[test]
fn a_fork_is_a_session_of_its_own_and_the_original_keeps_its_bytes() {
    let (folder, path) = compacted();
    fs::create_dir(folder.path().join("session.jsonl.blobs")).unwrap();
    let before = fs::read(&path).unwrap();
    let printed = run(&folder, &["branch", "session.jsonl@1"], 0);
    let fork = folder.path().join(printed.trim());
    assert_ne!(fork, path);
    let original = Session::parse("original", &recorded_session()).unwrap();
    assert_eq!(digest(&fork), original.digest(), "the fork ends before the compaction");
    let session = lawful_session(&fork);
    assert_eq!(
        session.header().parent_session().map(Path::new),
        Some(path.canonicalize().unwrap().as_path())
    );
    assert_ne!(session.header().id(), original.header().id());
    assert_eq!(fork.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read(&path).unwrap(), before);

    run(&folder, &["branch", "session.jsonl", "--turn", "2", "--out", "two.jsonl"], 0);
    let shown = run(&folder, &["sessions", "show", "two.jsonl"], 0);
    assert!(shown.contains("turn 2\n") && !shown.contains("turn 3\n"), "{shown}");
    let taken = run(&folder, &["branch", "session.jsonl", "--out", "two.jsonl"], 2);
    assert!(taken.contains("two.jsonl exists; use another file name"), "{taken}");
    run(&folder, &["branch", "session.jsonl@1", "--turn", "2"], 2);
}

#[test]
fn a_fork_has_the_originals_behind_its_notices() {
    let (folder, path) = compacted();
    let handle = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let blobs = folder.path().join("session.jsonl.blobs");
    fs::create_dir(&blobs).unwrap();
    fs::write(blobs.join(handle), "test").unwrap();
    run(&folder, &["branch", "session.jsonl", "--out", "fork.jsonl"], 0);
    fs::remove_dir_all(&blobs).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(run(&folder, &["fetch", "fork.jsonl", "9f86d081"], 0), "test");
}

#[test]
fn an_export_can_be_replayed_and_a_redacted_one_has_no_names() {
    let (folder, path) = compacted();
    run(&folder, &["export", "session.jsonl", "--out", "whole.jsonl"], 0);
    let whole = folder.path().join("whole.jsonl");
    assert_eq!(digest(&whole), digest(&path));
    assert_eq!(whole.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let said = run(&folder, &["export", "session.jsonl", "--redact", "--out", "shared.jsonl"], 0);
    assert!(said.starts_with("242 messages, 1 compaction, "), "{said}");
    let shared = fs::read_to_string(folder.path().join("shared.jsonl")).unwrap();
    assert!(!shared.contains(" /home/dev/") && shared.contains("/home/[name 1]/ctxhost"));
    let replayed = run(&folder, &["replay", "shared.jsonl", "--window", "64k"], 0);
    assert!(replayed.contains("0 invariant violations"), "{replayed}");
    let page = run(&folder, &["export", "session.jsonl", "--format", "markdown"], 0);
    assert!(page.contains("## Turn 9") && page.contains("### Compaction @1"), "a page");
}

#[test]
fn what_cannot_be_done_says_why_and_changes_nothing() {
    let (folder, path) = compacted();
    let before = fs::read(&path).unwrap();
    let held = Session::open(&path).unwrap();
    for arguments in [&["undo", "session.jsonl"][..], &["restore", "session.jsonl", "--turn", "1"]]
    {
        let said = run(&folder, arguments, 2);
        assert!(said.contains("is open in another writer"), "{said}");
    }
    run(&folder, &["branch", "session.jsonl", "--out", "fork.jsonl"], 0);
    drop(held);
    for arguments in [
        &["undo", "absent.jsonl"][..],
        &["undo", "session.jsonl@2"],
        &["undo", "session.jsonl@1", "@1"],
        &["undo", "session.jsonl", "1"],
        &["restore", "session.jsonl"],
        &["restore", "session.jsonl", "--turn", "1", "--entry", "a"],
        &["restore", "session.jsonl", "--turn", "1..99"],
        &["bisect", "session.jsonl", " "],
        &["export", "session.jsonl", "--out", "session.jsonl"],
    ] {
        run(&folder, arguments, 2);
    }
    run(&folder, &["bisect", "session.jsonl", "never said by anybody"], 1);
    assert_eq!(fs::read(&path).unwrap(), before);

    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    if fs::OpenOptions::new().append(true).open(&path).is_ok() {
        eprintln!("SKIPPED: this user may write every file, so none can be read only");
        return;
    }
    let said = run(&folder, &["undo", "session.jsonl"], 2);
    assert!(said.contains("cannot open") && said.contains("session.jsonl"), "{said}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn no_command_quotes_a_secret_of_the_user_unasked() {
    const SECRET: &str = "hunter2secretX9";
    let folder = tempfile::tempdir().unwrap();
    let ask = format!("Deploy key is password={SECRET} for staging");
    let messages = [("user", ask.as_str()), ("assistant", "ok"), ("user", &ask), ("user", "go on")];
    let lines: String = messages
        .iter()
        .map(|(role, text)| serde_json::json!({ "role": role, "content": text }).to_string() + "\n")
        .collect();
    fs::write(folder.path().join("recorded.jsonl"), lines).unwrap();
    run(&folder, &["export", "recorded.jsonl", "--out", "session.jsonl"], 0);
    let page = ["replay", "session.jsonl", "--window", "32k", "--report", "page.html"];
    for arguments in [
        &page[..],
        &["replay", "session.jsonl", "--window", "32k", "--json"],
        &["sessions", "show", "session.jsonl"],
    ] {
        let printed = run(&folder, arguments, 0);
        assert!(!printed.contains(SECRET) && printed.contains("[redacted:"), "{printed}");
    }
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(!page.contains(SECRET) && page.contains("[redacted:"), "{page}");
    let exported = run(&folder, &["export", "session.jsonl"], 0);
    assert!(exported.contains(SECRET), "asked for: {exported}");
}
