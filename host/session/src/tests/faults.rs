//! Disks that fail: every write, sync, cut, rename and removal in turn, until none is left.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::faulty_disk::{FaultyDisk, How};
use super::*;
use crate::journal::Journal;
use crate::journal::disk::create_folders;
use crate::{LineFault, SessionError, SessionStorage, SyncPolicy, parse};

/// What is on the disk before.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Start {
    Nothing,
    Version1,
    TornVersion1,
    Torn,
    NoLineBreak,
}

const HEADER: &str =
    r#"{"type":"session","version":3,"id":"s","timestamp":"2026-11-21T01:41:21.054Z","cwd":"/"}"#;
const FIRST: &str =
    r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"first"}}"#;
const OLD: &str = r#"{"type":"message","message":{"role":"user","content":"first"}}"#;
const TORN: &str = r#"{"type":"message","mess"#;

impl Start {
    const ALL: [Start; 5] =
        [Start::Nothing, Start::Version1, Start::TornVersion1, Start::Torn, Start::NoLineBreak];

    fn bytes(self) -> String {
        match self {
            Start::Nothing => String::new(),
            Start::Version1 => format!("{{\"type\":\"session\",\"id\":\"s\"}}\n{OLD}\n"),
            Start::TornVersion1 => format!("{}{TORN}", Start::Version1.bytes()),
            Start::Torn => format!("{HEADER}\n{FIRST}\n{TORN}"),
            Start::NoLineBreak => format!("{HEADER}\n{FIRST}"),
        }
    }

    /// What was appended already.
    fn texts(self) -> Vec<String> {
        if self == Start::Nothing { Vec::new() } else { vec!["first".to_owned()] }
    }
}

fn opened(disk: &FaultyDisk, path: &Path) -> Result<Session, SessionError> {
    let mut journal = Journal::open_on(Arc::new(disk.clone()), path)?;
    let bytes = journal.read()?;
    Ok(Session::from_contents(
        parse::parse_lines("s", &bytes)?,
        SessionStorage::File(Box::new(journal)),
    ))
}

fn created(disk: &FaultyDisk, path: &Path) -> Result<Session, SessionError> {
    let header = SessionHeader::new(Some("s"), "/", 1_000);
    let session = Session::in_memory(header);
    let journal = Journal::create_on(Arc::new(disk.clone()), path, &session.to_bytes())?;
    Ok(Session { store: SessionStorage::File(Box::new(journal)), ..session })
}

/// One life of a session: what was acknowledged, and all that was tried.
struct Life {
    session: Session,
    acknowledged: Vec<String>,
    tried: Vec<String>,
}

impl Life {
    fn append(&mut self, text: &str) -> Result<(), SessionError> {
        self.tried.push(text.to_owned());
        self.session.append(user(text))?;
        self.acknowledged.push(text.to_owned());
        Ok(())
    }
}

/// Lets the n-th operation fail; whether there was one.
fn check(start: Start, policy: SyncPolicy, (how, from, stays): (How, usize, bool)) -> bool {
    let folder = quick_folder();
    let path = folder.path().join("s.jsonl");
    let disk = FaultyDisk::new(how, from, stays);
    let begun = match start {
        Start::Nothing => created(&disk, &path),
        _ => {
            fs::write(&path, start.bytes()).unwrap();
            opened(&disk, &path)
        }
    };
    let what = || {
        format!("{start:?}, {policy:?}, {how:?} at {from} ({:?}), stays: {stays}", disk.failed())
    };
    let session = match begun {
        Ok(session) => session.with_sync(policy),
        Err(error) => {
            assert_eq!(start, Start::Nothing, "{}: {error}", what());
            assert!(error.to_string().contains("s.jsonl"), "{error}");
            // The caller can try again, unless the disk cannot even remove files.
            disk.heal();
            assert!(stays || created(&disk, &path).is_ok(), "{}: {error}", what());
            return true;
        }
    };
    let mut life = Life { session, acknowledged: start.texts(), tried: start.texts() };
    for text in ["one", "two 你好", "three"] {
        if let Err(error) = life.append(text) {
            assert!(error.to_string().contains("s.jsonl"), "{}: {error}", what());
            assert_eq!(texts(&life.session), life.acknowledged, "{}", what());
        }
    }
    let synced = life.session.sync();
    disk.heal();
    let continued = life.append("after");
    assert!(
        continued.is_ok()
            || matches!(continued, Err(SessionError::Broken { .. } | SessionError::Changed { .. })),
        "{}: {continued:?}",
        what()
    );
    assert!(
        stays || continued.is_ok() || synced.is_err() || policy == SyncPolicy::Turn,
        "{}: {continued:?}",
        what()
    );
    let Life { session, acknowledged, tried } = life;
    drop(session);
    check_afterwards(&path, start, &acknowledged, &tried, &what());
    disk.failed().is_some()
}

/// Nothing acknowledged is lost, nothing is partially written, and it continues.
fn check_afterwards(
    path: &Path,
    start: Start,
    acknowledged: &[String],
    tried: &[String],
    what: &str,
) {
    let mut session = Session::open(path).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = texts(&session);
    let mut rest = found.iter();
    for text in acknowledged {
        assert!(rest.any(|found| found == text), "{what}: {text} is lost from {found:?}");
    }
    assert!(found.iter().all(|text| tried.contains(text)), "{what}: {found:?}");
    let is_torn = |fault| fault == LineFault::Torn;
    assert!(session.problems().iter().all(|problem| is_torn(problem.fault)), "{what}");
    session.append(user("on")).unwrap_or_else(|error| panic!("{what}: {error}"));
    drop(session);
    let again = Session::read(path).unwrap();
    assert_eq!(again.problems(), [], "{what}");
    assert_eq!(texts(&again), [&found[..], &["on".to_owned()]].concat(), "{what}");
    check_kept(path, start, what);
}

/// Every byte that was there before is there still, in the file or beside it.
fn check_kept(path: &Path, start: Start, what: &str) {
    let files = fs::read_dir(path.parent().unwrap()).unwrap();
    let files: Vec<Vec<u8>> = files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    let holds = |text: &str| files.iter().any(|file| file.starts_with(text.as_bytes()));
    match start {
        Start::Nothing => {}
        Start::Version1 => assert!(holds(&start.bytes()), "{what}"),
        Start::TornVersion1 => assert!(holds(&Start::Version1.bytes()) && holds(TORN), "{what}"),
        Start::Torn => assert!(holds(&format!("{HEADER}\n{FIRST}\n")) && holds(TORN), "{what}"),
        Start::NoLineBreak => assert!(holds(&start.bytes()), "{what}"),
    }
}

/// Every operation in turn, until there are no more; answers how many there were.
fn check_all(start: Start, policy: SyncPolicy) -> usize {
    let mut most = 0;
    for (how, stays) in
        [How::Short, How::Full, How::Io].into_iter().flat_map(|how| [(how, false), (how, true)])
    {
        let operations = (0..).take_while(|from| check(start, policy, (how, *from, stays))).count();
        most = most.max(operations);
    }
    most
}

#[test]
fn every_step_may_fail_and_nothing_acknowledged_is_lost() {
    for start in Start::ALL {
        let operations = check_all(start, SyncPolicy::Always);
        assert!(operations >= 10, "{start:?}: only {operations} operations were seen");
    }
}

#[test]
fn every_step_may_fail_under_the_other_policies_too() {
    for start in [Start::Nothing, Start::TornVersion1] {
        check_all(start, SyncPolicy::Turn);
        check_all(start, SyncPolicy::Os);
    }
}

#[test]
fn a_folder_that_cannot_be_made_or_synced_is_an_error() {
    let made = (0..).take_while(|from| {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(How::Io, *from, false);
        let made = create_folders(&disk, &folder.path().join("a/b"));
        assert_eq!(made.is_err(), disk.failed().is_some());
        made.is_err()
    });
    assert_eq!(made.count(), 4, "two folders, each made and synced");
}

#[test]
fn a_failed_sync_of_many_lines_stops_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(How::Io, usize::MAX, false);
    let mut session =
        created(&disk, &folder.path().join("s.jsonl")).unwrap().with_sync(SyncPolicy::Turn);
    session.append(user("one")).unwrap();
    let next = disk.0.lock().unwrap().seen;
    disk.0.lock().unwrap().from = next;
    let error = session.sync().unwrap_err();
    assert!(error.to_string().starts_with("cannot sync"), "{error}");
    // The system may have forgotten that these pages were never written, so a second sync proves nothing.
    assert!(matches!(session.sync(), Err(SessionError::Broken { .. })));
    assert!(matches!(session.append(user("two")), Err(SessionError::Broken { .. })));
}

#[test]
fn what_waits_for_the_end_of_the_turn_is_synced_then() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FaultyDisk::new(How::Io, usize::MAX, false);
    let mut session =
        created(&disk, &folder.path().join("s.jsonl")).unwrap().with_sync(SyncPolicy::Turn);
    session.append(user("one")).unwrap();
    let before = disk.0.lock().unwrap().seen;
    session.append(user("two")).unwrap();
    assert_eq!(disk.0.lock().unwrap().seen, before + 2, "the line and its checksum, no sync");
    session.sync().unwrap();
    session.sync().unwrap();
    assert_eq!(disk.0.lock().unwrap().seen, before + 3, "one sync, and none where nothing is new");
}

#[test]
fn buffered_lines_are_written_at_a_flush_or_with_another_append() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let disk = FaultyDisk::new(How::Io, usize::MAX, false);
    let mut session = created(&disk, &path).unwrap();
    session.enable_write_behind();
    let written = || Session::read(&path).unwrap().record_count();
    let before = written();
    session.append_all([user("one"), user("two")], 1).unwrap();
    assert_eq!((session.record_count(), written()), (before + 2, before));
    session.flush().unwrap();
    assert_eq!(written(), before + 2);
    // A single append is not buffered, and writes the buffered lines first.
    session.append_all([user("three")], 1).unwrap();
    session.append(user("four")).unwrap();
    assert_eq!(written(), before + 4);
    session.append_all([user("five")], 1).unwrap();
    let expected = session.to_bytes();
    drop(session);
    assert_eq!(fs::read(&path).unwrap(), expected, "closing writes the rest");
    assert!(Session::read(&path).unwrap().problems().is_empty());
}

#[test]
fn what_was_held_back_and_cannot_be_written_is_written_later() {
    for how in [How::Short, How::Full, How::Io] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        let disk = FaultyDisk::new(how, usize::MAX, false);
        let mut session = created(&disk, &path).unwrap();
        session.enable_write_behind();
        let before = fs::read(&path).unwrap();
        session.append_all([user("one"), user("two")], 1).unwrap();
        let fail_next = || {
            let next = disk.0.lock().unwrap().seen;
            disk.0.lock().unwrap().from = next;
        };
        fail_next();
        let refused = session.flush();
        assert!(matches!(refused, Err(SessionError::Unwritten { .. })), "{how:?}: {refused:?}");
        assert_eq!(fs::read(&path).unwrap(), before, "{how:?}");
        // In memory the session continues, also with lines that would be written at once.
        fail_next();
        session.append(user("three")).unwrap();
        session.append_all([user("four")], 1).unwrap();
        assert_eq!(fs::read(&path).unwrap(), before, "{how:?}");
        disk.heal();
        session.flush().unwrap();
        let expected = session.to_bytes();
        drop(session);
        assert_eq!(fs::read(&path).unwrap(), expected, "{how:?}");
        assert!(Session::read(&path).unwrap().problems().is_empty());
    }
}

#[test]
fn a_write_that_was_held_back_and_cannot_be_synced_ends_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let disk = FaultyDisk::new(How::Io, usize::MAX, false);
    let mut session = created(&disk, &path).unwrap();
    session.enable_write_behind();
    let before = fs::read(&path).unwrap();
    session.append_all([user("one")], 1).unwrap();
    // After the write.
    let sync = disk.0.lock().unwrap().seen + 1;
    disk.0.lock().unwrap().from = sync;
    session.flush().unwrap_err();
    disk.heal();
    let refused = session.append_all([user("two")], 1);
    assert!(matches!(refused, Err(SessionError::Broken { .. })), "{refused:?}");
    drop(session);
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_that_is_gone_is_made_again_whatever_fails_on_the_way() {
    for (how, number) in
        [How::Short, How::Full, How::Io].into_iter().flat_map(|how| (0..40).map(move |n| (how, n)))
    {
        let folder = quick_folder();
        let path = folder.path().join("state/s.jsonl");
        fs::create_dir(folder.path().join("state")).unwrap();
        let disk = FaultyDisk::new(how, usize::MAX, false);
        let mut session = created(&disk, &path).unwrap();
        session.append(user("one")).unwrap();
        fs::remove_dir_all(folder.path().join("state")).unwrap();
        let next = disk.0.lock().unwrap().seen;
        disk.0.lock().unwrap().from = next + number;
        let appended = session.append(user("two"));
        let failed = disk.failed();
        disk.heal();
        let what = || format!("{how:?} at {number} ({failed:?}): {appended:?}");
        assert_eq!(appended.is_ok(), texts(&session).len() == 2, "{}", what());
        match session.append(user("three")) {
            Ok(_) => assert_eq!(fs::read(&path).unwrap(), session.to_bytes(), "{}", what()),
            Err(SessionError::Broken { .. }) => assert!(appended.is_err(), "{}", what()),
            Err(error) => panic!("{}: {error}", what()),
        }
        let known = texts(&session);
        drop(session);
        assert_eq!(texts(&Session::read(&path).unwrap()), known, "{}", what());
        assert!(failed.is_some() || number > 8, "{number}");
    }
}

/// A file system of its own, unmounted when it is dropped.
struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    fn mount(size: &str) -> Option<TinyDisk> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={size},mode=0700");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "ctxhost-test"])
            .arg(folder.path())
            .stderr(std::process::Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| TinyDisk(folder))
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
#[allow(clippy::print_stderr)] // A skipped test has no other way to report it.
fn a_full_disk_keeps_what_was_acknowledged() {
    let Some(disk) = TinyDisk::mount("64k") else {
        eprintln!(
            "SKIPPED: no file system could be mounted, so no real disk was filled; run as root"
        );
        return;
    };
    let path = disk.0.path().join("s.jsonl");
    let mut session = Session::create(&path, "/", None).unwrap();
    let text = "x".repeat(1_500);
    let mut count = 0;
    let error = loop {
        match session.append(user(&format!("{count} {text}"))) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert!(count > 10, "{count}");
    assert!(session.append(user(&text)).is_err(), "it is still full");
    assert_eq!(fs::read(&path).unwrap(), session.to_bytes());
    drop(session);

    let mut session = Session::open(&path).unwrap();
    assert_eq!((session.records().len(), session.problems()), (count, &[][..]));
    fs::remove_file(disk.0.path().join("s.jsonl.crc")).unwrap();
    session.append(user("short")).unwrap();
    drop(session);
    assert_eq!(Session::read(&path).unwrap().records().len(), count + 1);
}
