//! Unreadable input: every command that takes a file ends soon with one sentence.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ctxhost_tests::ctxhost;

/// How long a command may take: that it ends is the claim, not how fast.
const LIMIT: Duration = Duration::from_secs(60);

/// Every command that takes a file that is there, with `FILE` for it.
const COMMANDS: &[&[&str]] = &[
    &["replay", "FILE"],
    &["replay", "FILE", "--json"],
    &["replay", "demo:coding", "--engine", "FILE"],
    &["context", "FILE"],
    &["statusline", "FILE"],
    &["diff", "FILE"],
    &["fsck", "FILE"],
    &["fsck", "--repair", "FILE"],
    &["export", "FILE"],
    &["fetch", "FILE", "0123456789abcdef"],
    &["undo", "FILE"],
    &["restore", "FILE", "--turn", "1"],
    &["branch", "FILE"],
    &["bisect", "FILE", "words"],
    &["compact", "FILE"],
    &["compact", "--dry-run", "FILE"],
    &["chat", "--session", "FILE", "--model", "a/b", "-p", "hi"],
    &["--config", "FILE", "config", "check"],
    &["--config", "FILE", "engines", "list"],
    &["config", "import", "FILE"],
    &["engines", "info", "FILE"],
    &["check", "FILE"],
    &["install", "FILE"],
];

/// Runs a command; nothing where it did not end in time.
fn run(command: &mut Command) -> Option<Output> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(child.wait_with_output().unwrap())
}

fn check(file: &Path, state: &Path) {
    for arguments in COMMANDS {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|argument| argument.replace("FILE", &file.display().to_string()))
            .collect();
        let mut command = ctxhost();
        command.args(&arguments).current_dir(state).env("XDG_STATE_HOME", state);
        let output = run(&mut command);
        let output = output.unwrap_or_else(|| panic!("{arguments:?} did not end in {LIMIT:?}"));
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(
            matches!(output.status.code(), Some(1..=4)),
            "{arguments:?}: {:?} {said}",
            output.status
        );
        assert!(!said.contains("panicked") && said.len() < 2_000, "{arguments:?}: {said}");
        assert!(!said.contains('\u{1b}'), "{arguments:?}: {said:?}");
    }
}

fn folder() -> (tempfile::TempDir, impl Fn(&str) -> PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    (folder, move |name| path.join(name))
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let (folder, at) = folder();
    nix::unistd::mkfifo(&at("pipe.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    check(&at("pipe.json"), folder.path());
    let _socket = UnixListener::bind(at("socket.json")).unwrap();
    check(&at("socket.json"), folder.path());
    symlink(at("loop.json"), at("loop.json")).unwrap();
    check(&at("loop.json"), folder.path());
    symlink("/dev/zero", at("zero.json")).unwrap();
    check(&at("zero.json"), folder.path());
}

#[test]
fn a_file_of_five_gigabytes_is_refused_at_once() {
    let (folder, at) = folder();
    File::create(at("sparse.json")).unwrap().set_len(5 << 30).unwrap();
    check(&at("sparse.json"), folder.path());
}

const HEADER: &str =
    r#"{"type":"session","version":3,"id":"s","timestamp":"2026-11-21T01:41:21.054Z","cwd":"/"}"#;
const RECORD: &str = r#"{"type":"message","id":"a","parentId":null,"timestamp":"2026-11-21T01:41:21.054Z","message":{"role":"user","content":"the red fox"}}"#;

#[test]
fn a_line_that_is_too_long_is_left_out_with_its_number() {
    let (folder, at) = folder();
    let path = at("long.jsonl");
    // The line is a hole in the file: a gigabyte of nothing.
    fs::write(&path, format!("{HEADER}\n{RECORD}\n")).unwrap();
    let file = File::options().append(true).open(&path).unwrap();
    file.set_len(1 << 30).unwrap();
    let mut command = ctxhost();
    let output = run(command.args(["fsck"]).arg(&path)).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("line 3: skipped: the line has 1073741"), "{said}");
    let output = run(ctxhost().args(["export"]).arg(&path)).unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("the red fox"), "{output:?}");
    drop(folder);
}

#[test]
fn a_damaged_header_is_reported_by_every_command_and_repaired_by_one() {
    let (folder, at) = folder();
    let path = at("s.jsonl");
    let records = format!("{RECORD}\n");
    let is_of_sessions = |it: &&&[&str]| {
        it[1] == "FILE" && !["--config", "check", "install", "fsck"].contains(&it[0])
    };
    for arguments in COMMANDS.iter().filter(is_of_sessions) {
        fs::write(&path, format!("{}\n{records}", HEADER.replace("\"id\"", "\"id#"))).unwrap();
        let arguments = arguments.iter().map(|it| it.replace("FILE", &path.display().to_string()));
        let output =
            run(ctxhost().args(arguments.clone()).env("XDG_STATE_HOME", folder.path())).unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let arguments: Vec<String> = arguments.collect();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("ctxhost fsck --repair"), "{arguments:?}: {said}");
    }
    let output = run(ctxhost().args(["fsck", "--repair"]).arg(&path)).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("header rewritten"), "{said}");
    let output = run(ctxhost().arg("context").arg(&path)).unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn foreign_words_do_not_steer_a_terminal() {
    let (folder, at) = folder();
    let path = at("s.jsonl");
    let evil = r"\u001b]0;owned\u0007\u001b[2J\u009b31m\u202e";
    let text = format!("{HEADER}\n{RECORD}\n")
        .replace("the red fox", evil)
        .replace("\"cwd\":\"/\"", &format!("\"cwd\":\"{evil}\""));
    let bad =
        r#"{"type":"message","id":"EVIL","parentId":"EVIL2","message":{}}"#.replace("EVIL", evil);
    fs::write(&path, text + &bad + "\n" + &bad + "\n").unwrap();
    let commands = ["replay", "context", "diff", "fsck", "undo", "statusline", "branch"];
    for command in commands {
        let mut run_it = ctxhost();
        run_it.args(["--color", "always", command]).arg(&path).env_remove("NO_COLOR");
        let output = run(run_it.env("XDG_STATE_HOME", folder.path())).unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        for harm in ["\u{1b}]", "\u{1b}[2J", "\u{9b}", "\u{7}", "\u{202e}"] {
            assert!(!said.contains(harm), "{command}: {said:?}");
        }
    }
}

#[test]
fn a_newer_version_is_read_and_is_no_damage() {
    let (folder, at) = folder();
    let path = at("s.jsonl");
    let text = format!("{}\n{RECORD}\n", HEADER.replace("\"version\":3", "\"version\":9"));
    fs::write(&path, &text).unwrap();
    for arguments in [&["fsck"][..], &["fsck", "--repair"]] {
        let output = run(ctxhost().args(arguments).arg(&path)).unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("note: version 9 is newer than 3: read only"), "{said}");
        assert!(said.contains("0 damaged"), "{said}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    drop(folder);
}

#[test]
fn a_path_that_is_not_utf8_is_a_session_for_every_command() {
    let (folder, _) = folder();
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"\xff.jsonl"));
    fs::write(&path, format!("{HEADER}\n{RECORD}\n")).unwrap();
    for command in ["context", "diff", "undo", "branch", "fsck", "statusline", "export"] {
        let mut run_it = ctxhost();
        let output = run(run_it.arg(command).arg(&path).env("XDG_STATE_HOME", folder.path()));
        let said = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
        assert!(!said.contains("UTF-8"), "{command}: {said}");
    }
}
