//! Writes: what is there afterwards, whose it is, and who may write.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::{SessionError, SessionFolder, SyncPolicy};

#[test]
fn what_is_appended_is_there_after_a_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let mut session = Session::create(&path, "/home/dev", Some("mine")).unwrap();
    talk(&mut session, 2);
    assert_eq!(fs::read(&path).unwrap(), session.to_bytes());
    drop(session);
    let mut session = Session::open(&path).unwrap();
    assert_eq!((session.header().id(), session.header().cwd()), ("mine", "/home/dev"));
    let last = session.leaf().unwrap().id().to_owned();
    let id = session.append(assistant("three")).unwrap();
    assert_eq!(session.record(&id).unwrap().parent_id(), Some(last.as_str()));
    assert_eq!(seen(&Session::read(&path).unwrap().live(0)), seen(&session.live(0)));
}

#[test]
fn creating_never_replaces() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(Session::create(&path, "/", None), Err(SessionError::Io { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn one_writer_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let session = Session::create(&path, "/", None).unwrap();
    assert!(matches!(Session::open(&path), Err(SessionError::Locked { .. })));
    assert!(Session::read(&path).is_ok());
    drop(session);
    assert!(Session::open(&path).is_ok());
}

#[test]
fn a_writer_without_a_lock_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let mut session = Session::create(&path, "/", None).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{}\n");
    fs::write(&path, &bytes).unwrap();
    assert!(matches!(session.append(user("1")), Err(SessionError::Changed { .. })));
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert!(session.records().is_empty());
}

#[test]
fn a_session_opened_for_reading_refuses_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    drop(Session::create(&path, "/", None).unwrap());
    let mut session = Session::read(&path).unwrap();
    assert!(matches!(session.append(user("1")), Err(SessionError::ReadOnly { .. })));
}

#[test]
fn a_session_may_move_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Session>();
}

/// Runs one test of this binary in a process of its own, where it finds `CTXHOST_TEST_FOLDER`.
fn in_a_child(test: &str, folder: &Path, umask: &str) -> Child {
    let script =
        format!("umask {umask} && exec \"$0\" --exact --nocapture tests::durability::{test}");
    Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env("CTXHOST_TEST_FOLDER", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The folder that the parent gave; `None` where the test is run for itself.
fn given_folder() -> Option<PathBuf> {
    std::env::var_os("CTXHOST_TEST_FOLDER").map(PathBuf::from)
}

const TORN_V1: &str = "{\"type\":\"session\",\"id\":\"old\"}\n{\"type\":\"mess";

/// The child: makes every sort of file there is beside a session.
#[test]
fn child_makes_files() {
    let Some(folder) = given_folder() else { return };
    let sessions = SessionFolder::for_cwd(&folder.join("state/sessions"), Path::new("/home/dev"));
    let mut session = sessions.start_session(Path::new("/home/dev")).unwrap();
    talk(&mut session, 2);
    let old = sessions.path().join("old.jsonl");
    fs::write(&old, TORN_V1).unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o600)).unwrap();
    let mut old = Session::open(&old).unwrap();
    talk(&mut old, 1);
    check_modes(&folder.join("state"));
}

/// Every file is its owner's alone, and every folder; answers how many files there are.
fn check_modes(folder: &Path) -> usize {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder), 0o700, "{}", folder.display());
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.fold(0, |files, path| {
        if path.is_dir() {
            return files + check_modes(&path);
        }
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        files + 1
    })
}

#[test]
fn all_files_are_their_owners_alone_whatever_the_umask() {
    for umask in ["000", "077", "022", "0277"] {
        let folder = tempfile::tempdir().unwrap();
        let status = in_a_child("child_makes_files", folder.path(), umask).wait().unwrap();
        assert!(status.success(), "umask {umask}");
        // Two sessions with checksums, a torn line and an original; the notes of the holder are gone.
        assert_eq!(check_modes(&folder.path().join("state")), 6, "umask {umask}");
    }
}

/// The child: holds a session until it is killed.
#[test]
#[allow(clippy::print_stdout)] // The parent waits for the line.
fn child_holds_a_session() {
    let Some(folder) = given_folder() else { return };
    let mut session = Session::open(&folder.join("s.jsonl")).unwrap();
    session.append(user("from the child")).unwrap();
    println!("\nholding {}", std::process::id());
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn two_processes_are_refused_by_name_and_a_killed_one_lets_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    drop(Session::create(&path, "/", None).unwrap());
    let mut child = in_a_child("child_holds_a_session", folder.path(), "077");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let pid = lines.find_map(|line| line.strip_prefix("holding ").map(str::to_owned)).unwrap();

    let error = Session::open(&path).unwrap_err();
    let SessionError::Locked { holder: Some(holder), .. } = &error else { panic!("{error}") };
    assert_eq!(holder.pid.to_string(), pid);
    assert!(!holder.host.is_empty() && holder.since.starts_with("20"), "{holder:?}");
    assert!(error.to_string().contains(&format!("process {pid} on {}", holder.host)), "{error}");
    assert_eq!(texts(&Session::read(&path).unwrap()), ["from the child"]);

    child.kill().unwrap();
    child.wait().unwrap();
    assert!(folder.path().join("s.jsonl.lock").exists(), "the note outlives a kill");
    let session = Session::open(&path).unwrap();
    let error = Session::open(&path).unwrap_err().to_string();
    assert!(error.contains(&format!("process {} on", std::process::id())), "{error}");
    drop(session);
    assert!(!folder.path().join("s.jsonl.lock").exists());
}

#[test]
fn nothing_is_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (path, victim) = (folder.path().join("s.jsonl"), folder.path().join("victim"));
    drop(Session::create(&victim, "/", None).unwrap());
    let before = fs::read(&victim).unwrap();
    symlink(&victim, &path).unwrap();
    assert!(matches!(Session::open(&path), Err(SessionError::Link { .. })));
    assert!(Session::create(&path, "/", None).is_err());
    assert!(Session::read(&path).is_ok(), "reading follows links");

    fs::remove_file(&path).unwrap();
    for planted in ["s.jsonl.crc", "s.jsonl.lock", "s.jsonl.torn"] {
        symlink(&victim, folder.path().join(planted)).unwrap();
    }
    fs::write(&path, format!("{}{{\"torn", String::from_utf8(before.clone()).unwrap())).unwrap();
    let mut session = Session::open(&path).unwrap();
    talk(&mut session, 1);
    drop(session);
    assert_eq!(fs::read(&victim).unwrap(), before);
    assert_eq!(fs::read_to_string(folder.path().join("s.jsonl.torn.2")).unwrap(), "{\"torn");
}

#[test]
fn a_folder_may_be_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real");
    fs::create_dir(&real).unwrap();
    symlink(&real, folder.path().join("link")).unwrap();
    let session = Session::create(&folder.path().join("link/s.jsonl"), "/", None).unwrap();
    assert_eq!(session.path().unwrap(), real.canonicalize().unwrap().join("s.jsonl"));
}

#[test]
fn every_policy_writes_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    for policy in [SyncPolicy::Always, SyncPolicy::Turn, SyncPolicy::Os] {
        let path = folder.path().join(policy.name());
        let mut session = Session::create(&path, "/", None).unwrap().with_sync(policy);
        talk(&mut session, 3);
        assert_eq!(fs::read(&path).unwrap(), session.to_bytes());
        session.sync().unwrap();
        assert_eq!(session.records().len(), 3);
    }
}

#[test]
fn a_session_has_its_header_when_it_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let mut session = Session::create(&path, "/", None).unwrap();
    talk(&mut session, 1);
    let names = || {
        let names = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<String> = names.map(|it| it.into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["s.jsonl", "s.jsonl.crc", "s.jsonl.lock"], "no other name is left");
    assert_eq!(fs::read(&path).unwrap(), session.to_bytes());
    assert!(Session::create(&path, "/", None).is_err());
    assert_eq!(names(), ["s.jsonl", "s.jsonl.crc", "s.jsonl.lock"]);
}
