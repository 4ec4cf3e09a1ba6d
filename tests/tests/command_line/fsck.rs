//! Damaged sessions, checked and repaired through the binary.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ctxhost_session::Session;
use ctxhost_tests::{ctxhost, recorded_session};
use serde_json::Value;

/// A state folder with one session of `chat` in it, written by the library, and the folder it is in.
fn kept() -> (tempfile::TempDir, PathBuf) {
    let state = tempfile::tempdir().unwrap();
    let folder = state.path().join("ctxhost/sessions/--home-dev--");
    fs::create_dir_all(&folder).unwrap();
    for made in folder.ancestors().take(2) {
        fs::set_permissions(made, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let recorded = Session::parse("recorded", &recorded_session()).unwrap();
    drop(recorded.into_file(&folder.join("work.jsonl")).unwrap());
    (state, folder)
}

/// Runs fsck on all that `chat` keeps; its exit code and its words, with the state folder as `STATE`.
fn fsck(state: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = ctxhost();
    command.env("XDG_STATE_HOME", state).arg("fsck").args(arguments);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let said = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), said.replace(&state.display().to_string(), "STATE"))
}

fn messages() -> usize {
    let (state, _) = kept();
    let (_, said) = fsck(state.path(), &["--json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    report["messages"].as_u64().unwrap() as usize
}

#[test]
fn what_chat_keeps_is_found_and_sound() {
    let (state, _folder) = kept();
    let (code, said) = fsck(state.path(), &[]);
    assert_eq!((code, said), (Some(0), format!("1 session, {} messages, 0 damaged\n", messages())));
}

#[test]
fn nothing_kept_is_nothing_damaged() {
    let state = tempfile::tempdir().unwrap();
    assert_eq!(fsck(state.path(), &[]), (Some(0), "0 sessions, 0 messages, 0 damaged\n".into()));
}

#[test]
fn a_repair_puts_right_what_it_can_and_says_so() {
    let (state, folder) = kept();
    let path = folder.join("work.jsonl");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, [&whole[..], b"{\"type\":\"mess"].concat()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(folder.join("work.jsonl.crc")).unwrap();
    fs::write(folder.join("work.jsonl.lock"), "").unwrap();

    let (code, said) = fsck(state.path(), &[]);
    let line = whole.iter().filter(|byte| **byte == b'\n').count() + 1;
    let expected = format!(
        "STATE/ctxhost/sessions/--home-dev--\n  \
           note: its mode is 0755, expected 0700\n\
         STATE/ctxhost/sessions/--home-dev--/work.jsonl\n  \
           line {line}: incomplete last write, skipped: not JSON from column 13\n  \
           note: work.jsonl.crc: there are no checksums\n  \
           note: its mode is 0644, expected 0600\n  \
           note: work.jsonl.lock: left by a process that died\n\
         1 session, {} messages, 1 damaged\n",
        messages()
    );
    assert_eq!((code, said), (Some(1), expected));

    let (code, said) = fsck(state.path(), &["--repair"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("moved the incomplete last line to"), "{said}");
    assert!(!said.contains("not repaired"), "{said}");
    assert_eq!(fs::read(&path).unwrap(), whole);
    let (code, said) = fsck(state.path(), &[]);
    assert_eq!((code, said.lines().count()), (Some(0), 1), "{said}");
}

#[test]
fn rot_is_named_by_line_and_record_and_never_repaired_away() {
    let (state, folder) = kept();
    let path = folder.join("work.jsonl");
    let whole = fs::read(&path).unwrap();
    let rotten =
        String::from_utf8(whole).unwrap().replacen("\"role\": \"user\"", "\"role\": \"usar\"", 1);
    let line = rotten.lines().position(|line| line.contains("usar")).unwrap();
    fs::write(&path, &rotten).unwrap();
    for arguments in [&["--json"][..], &["--json", "--repair"]] {
        let (code, said) = fsck(state.path(), arguments);
        let report: Value = serde_json::from_str(&said).unwrap();
        let fault = &report["sessions"][0]["faults"][0];
        assert_eq!((code, report["damaged"].as_u64()), (Some(1), Some(1)), "{said}");
        assert_eq!(
            (fault["line"].as_u64(), fault["kind"].as_str()),
            (Some(line as u64 + 1), Some("changed"))
        );
        assert_eq!(fault["record"].as_str().map(str::len), Some(8), "{fault}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), rotten);
}

#[test]
fn a_session_that_is_open_names_its_holder() {
    let (state, folder) = kept();
    let path = folder.join("work.jsonl");
    let session = Session::open(&path).unwrap();
    let (code, said) = fsck(state.path(), &["--json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(report["sessions"][0]["open_in"]["pid"].as_u64(), Some(std::process::id().into()));
    let output = ctxhost().arg("compact").arg(&path).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("process {} on ", std::process::id())), "{said}");
    drop(session);
}
