//! Session files and folders that are deleted, renamed or replaced while the session is open.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::*;
use crate::fsck::FsckReport;
use crate::{FileCheck, SessionError};

struct Open {
    folder: tempfile::TempDir,
    path: PathBuf,
    session: Session,
}

fn open() -> Open {
    let folder = quick_folder();
    let path = folder.path().join("state/sessions/s.jsonl");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut session = Session::create(&path, "/home/dev", Some("mine")).unwrap();
    talk(&mut session, 3);
    let path = session.path().unwrap().to_owned();
    Open { folder, path, session }
}

impl Open {
    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// All messages are in the file at the path, and it is intact.
    fn check_goes_on(mut self) {
        let before = self.session.to_bytes();
        self.session.append(user("on")).unwrap();
        let bytes = fs::read(&self.path).unwrap();
        assert_eq!(bytes, self.session.to_bytes());
        assert!(bytes.starts_with(&before));
        assert_eq!(
            self.session.check_file(),
            FileCheck::Recreated { path: self.path.clone() },
            "it is reported once"
        );
        assert_eq!(self.session.check_file(), FileCheck::Intact);
        assert!(matches!(Session::open(&self.path), Err(SessionError::Locked { .. })));
        drop(self.session);
        let checkup = FsckReport::check(&self.path).unwrap();
        assert!(checkup.is_intact() && checkup.notes.is_empty(), "{checkup:?}");
        assert_eq!(checkup.messages, 4);
    }
}

#[test]
fn a_deleted_folder_is_made_again() {
    let open = open();
    fs::remove_dir_all(open.state()).unwrap();
    open.check_goes_on();
}

#[test]
fn a_renamed_folder_is_made_again_and_the_old_one_keeps_what_it_has() {
    let open = open();
    let (elsewhere, before) = (open.folder.path().join("elsewhere"), open.session.to_bytes());
    fs::rename(open.state(), &elsewhere).unwrap();
    let mut open = open;
    open.session.append(user("first")).unwrap();
    assert_eq!(fs::read(elsewhere.join("sessions/s.jsonl")).unwrap(), before);
    assert_eq!(fs::read(&open.path).unwrap(), open.session.to_bytes());
}

#[test]
fn a_replaced_folder_keeps_its_content() {
    let open = open();
    fs::rename(open.state(), open.folder.path().join("old")).unwrap();
    fs::create_dir_all(open.path.parent().unwrap()).unwrap();
    fs::write(&open.path, "foreign").unwrap();
    let renamed = open.path.with_file_name("s.jsonl.replaced");
    let keeps = |renamed: &Path| fs::read_to_string(renamed).unwrap();
    let mut open = open;
    open.session.append(user("first")).unwrap();
    assert_eq!(keeps(&renamed), "foreign");
    assert_eq!(fs::read(&open.path).unwrap(), open.session.to_bytes());
    fs::rename(&open.path, open.path.with_file_name("moved")).unwrap();
    symlink("/etc/hostname", &open.path).unwrap();
    open.session.append(user("second")).unwrap();
    assert!(open.path.with_file_name("s.jsonl.replaced.2").is_symlink());
    assert_eq!(fs::read(&open.path).unwrap(), open.session.to_bytes());
}

#[test]
fn a_copy_in_its_place_is_taken_over() {
    let open = open();
    fs::copy(&open.path, open.path.with_extension("copy")).unwrap();
    fs::rename(open.path.with_extension("copy"), &open.path).unwrap();
    let beside = open.path.with_file_name("s.jsonl.replaced");
    open.check_goes_on();
    assert!(!beside.exists());
}

#[test]
fn a_session_that_waits_is_looked_after() {
    let mut open = open();
    assert_eq!(open.session.check_file(), FileCheck::Intact);
    fs::remove_file(&open.path).unwrap();
    assert!(matches!(open.session.check_file(), FileCheck::Recreated { .. }));
    assert_eq!(fs::read(&open.path).unwrap(), open.session.to_bytes());
}

#[test]
fn words_that_are_held_back_are_written_to_the_new_file() {
    let mut open = open();
    open.session.enable_write_behind();
    open.session.append_all([user("one"), user("two")], 1).unwrap();
    fs::remove_dir_all(open.state()).unwrap();
    open.session.append_all([user("three")], 1).unwrap();
    open.session.flush().unwrap();
    assert_eq!(fs::read(&open.path).unwrap(), open.session.to_bytes());
    assert_eq!(Session::read(&open.path).unwrap().records().len(), 6);
}

#[test]
fn what_another_writer_has_open_is_not_taken_from_it() {
    let mut open = open();
    fs::remove_file(&open.path).unwrap();
    let other = Session::create(&open.path, "/", Some("other")).unwrap();
    assert!(matches!(open.session.append(user("on")), Err(SessionError::Locked { .. })));
    drop(other);
    open.session.append(user("on")).unwrap();
    assert_eq!(fs::read(&open.path).unwrap(), open.session.to_bytes());
}

#[test]
fn a_folder_that_cannot_be_created_is_reported_once_and_retried() {
    let mut open = open();
    fs::remove_dir_all(open.state()).unwrap();
    fs::write(open.state(), "a file in the way").unwrap();
    let before = open.session.records().len();
    let error = open.session.append(user("on")).unwrap_err().to_string();
    assert!(error.contains("state"), "{error}");
    assert_eq!(open.session.records().len(), before, "memory and file agree");
    assert!(matches!(open.session.check_file(), FileCheck::Lost { .. }));
    assert_eq!(open.session.check_file(), FileCheck::Intact, "it is reported once");
    fs::remove_file(open.state()).unwrap();
    open.check_goes_on();
}

#[test]
fn a_file_that_was_cut_and_deleted_is_not_recreated_from_the_rest() {
    let mut open = open();
    fs::OpenOptions::new().write(true).open(&open.path).unwrap().set_len(200).unwrap();
    fs::remove_file(&open.path).unwrap();
    let FileCheck::Lost { reason, .. } = open.session.check_file() else { panic!("recreated") };
    assert!(reason.contains("200 bytes found"), "{reason}");
    assert!(!open.path.exists());
    assert!(matches!(open.session.append(user("on")), Err(SessionError::Changed { .. })));
}
