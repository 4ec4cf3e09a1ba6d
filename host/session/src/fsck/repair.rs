//! What can be put right without losing anything.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use super::fault::{FaultKind, FsckNote, FsckNoteKind};
use super::{FsckReport, journal};
use crate::error::SessionError;
use crate::journal::Journal;
use crate::journal::checksums::{self, checksum_path};
use crate::journal::disk::{FILE_MODE, FOLDER_MODE, JournalDisk as _, OsJournalDisk};
use crate::parse;

/// Repairs what was found; answers what was done and what could not be.
pub(super) fn repair(found: &FsckReport) -> Vec<String> {
    let mut said = Vec::new();
    let has = |kind| found.faults.iter().any(|fault| fault.kind == kind);
    if has(FaultKind::TornTail) {
        said.push(set_tail_aside(found));
    }
    for note in &found.notes {
        said.push(match note.kind {
            FsckNoteKind::Mode => note.repair_mode(),
            FsckNoteKind::LeftOver => remove(note),
            FsckNoteKind::Checksums => rebuild(found),
        });
    }
    let lost = [FaultKind::Changed, FaultKind::MissingLine, FaultKind::Reordered];
    if found.faults.iter().any(|fault| fault.kind != FaultKind::TornTail) {
        let mut told =
            "not repaired: the other lines keep their bytes, only a backup knows better".to_owned();
        if lost.into_iter().any(has) {
            let checksums = checksum_path(&found.path);
            told += &format!("; if they were changed on purpose, remove {}", checksums.display());
        }
        said.push(told);
    }
    said
}

fn set_tail_aside(found: &FsckReport) -> String {
    let done = || -> Result<Option<std::path::PathBuf>, SessionError> {
        let mut journal = Journal::open(&found.path)?;
        let lines = journal.read()?;
        let mut contents = parse::parse_lines(&found.path.display().to_string(), &lines)?;
        journal.move_torn_line(&mut contents)
    };
    match done() {
        Ok(Some(aside)) => format!("the torn line was moved to {}", aside.display()),
        Ok(None) => "the torn line is whole by now".to_owned(),
        Err(error) => format!("not repaired: {error}"),
    }
}

/// The checksums of what is there; not where they prove that something was changed.
fn rebuild(found: &FsckReport) -> String {
    let proves =
        [FaultKind::Changed, FaultKind::MissingLine, FaultKind::Reordered, FaultKind::Header];
    let path = checksum_path(&found.path);
    if found.faults.iter().any(|fault| proves.contains(&fault.kind)) {
        return format!("not repaired: {} stays, it says what was written", path.display());
    }
    let done = || -> Result<(), SessionError> {
        // Opened for its lock: nobody adds lines meanwhile.
        let mut journal = Journal::open(&found.path)?;
        let lines = journal.read()?;
        checksums::rebuild(Arc::new(OsJournalDisk), &found.path, &lines.bytes)
            .map_err(journal::io_error("write", &path))
    };
    told(done().map_err(|error| error.to_string()), format!("{} was written anew", path.display()))
}

impl FsckNote {
    /// Gives the right mode back to what is open to others; says what was done.
    pub fn repair_mode(&self) -> String {
        let mode = if self.path.is_dir() { FOLDER_MODE } else { FILE_MODE };
        let set = fs::set_permissions(&self.path, Permissions::from_mode(mode));
        told(words(set, self), format!("{} has mode {mode:04o} now", self.path.display()))
    }
}

fn remove(note: &FsckNote) -> String {
    // Its own lock note goes when a repair has had the session open.
    let removed = OsJournalDisk.remove(&note.path);
    told(words(removed, note), format!("{} was removed", note.path.display()))
}

fn words(result: io::Result<()>, note: &FsckNote) -> Result<(), String> {
    result.map_err(|error| format!("{}: {error}", note.path.display()))
}

fn told(result: Result<(), String>, done: String) -> String {
    match result {
        Ok(()) => done,
        Err(error) => format!("not repaired: {error}"),
    }
}
