//! Writes, and writes that fail.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::*;
use crate::session::file::{Journal, Sink};
use crate::session::{SessionError, Store};

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

#[cfg(unix)]
#[test]
fn a_new_session_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let mut session = Session::create(&path, "/", None).unwrap();
    talk(&mut session, 1);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[cfg(unix)]
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

/// A file in memory that fails on demand.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    bytes: Vec<u8>,
    /// Bytes of the next append that still fit.
    room_bytes: Option<usize>,
    sync_fails: bool,
    truncate_fails: bool,
}

fn no_room() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

impl Sink for Disk {
    fn length_bytes(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().bytes.len() as u64)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        let room_bytes = disk.room_bytes.unwrap_or(bytes.len()).min(bytes.len());
        disk.bytes.extend_from_slice(&bytes[..room_bytes]);
        if room_bytes == bytes.len() { Ok(()) } else { Err(no_room()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.0.lock().unwrap().sync_fails { Err(no_room()) } else { Ok(()) }
    }

    fn truncate(&mut self, length_bytes: u64) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        if disk.truncate_fails {
            return Err(no_room());
        }
        disk.bytes.truncate(length_bytes as usize);
        Ok(())
    }
}

/// A session on a disk of its own, with one message.
fn on_disk() -> (Session, Disk) {
    let mut session = memory();
    let disk = Disk::default();
    disk.0.lock().unwrap().bytes = session.to_bytes();
    let length = session.to_bytes().len() as u64;
    session.store = Store::File(Journal::on(Path::new("disk"), Box::new(disk.clone()), length));
    session.append(user("first")).unwrap();
    (session, disk)
}

/// The failed append leaves no trace, and the next one works.
fn check_failure(fail: impl Fn(&mut DiskState), heal: impl Fn(&mut DiskState)) {
    let (mut session, disk) = on_disk();
    let before = session.to_bytes();
    fail(&mut disk.0.lock().unwrap());
    assert!(matches!(session.append(user("lost")), Err(SessionError::Io { .. })));
    assert_eq!(session.to_bytes(), before);
    assert_eq!(disk.0.lock().unwrap().bytes, before);
    heal(&mut disk.0.lock().unwrap());
    session.append(user("second")).unwrap();
    assert_eq!(disk.0.lock().unwrap().bytes, session.to_bytes());
    assert_eq!(texts(&session), ["first", "second"]);
}

#[test]
fn a_short_write_leaves_no_trace() {
    for room_bytes in [0, 1, 40] {
        check_failure(|disk| disk.room_bytes = Some(room_bytes), |disk| disk.room_bytes = None);
    }
}

#[test]
fn a_failed_sync_leaves_no_trace() {
    check_failure(|disk| disk.sync_fails = true, |disk| disk.sync_fails = false);
}

#[test]
fn what_cannot_be_undone_stops_the_writer() {
    let (mut session, disk) = on_disk();
    {
        let mut disk = disk.0.lock().unwrap();
        disk.room_bytes = Some(10);
        disk.truncate_fails = true;
    }
    assert!(matches!(session.append(user("lost")), Err(SessionError::Io { .. })));
    *disk.0.lock().unwrap() = DiskState::default();
    assert!(matches!(session.append(user("second")), Err(SessionError::Broken { .. })));
    assert_eq!(texts(&session), ["first"]);
}

#[test]
fn a_session_may_move_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Session>();
}

#[test]
fn a_session_has_its_header_when_it_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.jsonl");
    let mut session = Session::create(&path, "/", None).unwrap();
    talk(&mut session, 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other name is left");
    assert_eq!(fs::read(&path).unwrap(), session.to_bytes());
    assert!(Session::create(&path, "/", None).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}
