//! Repairs around the lines: torn tail, file modes, temporary files, checksums.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::fault::{FaultKind, FsckNote, FsckNoteKind};
use super::{FsckReport, NOT_REPAIRED};
use crate::error::{SessionError, io_error};
use crate::journal::Journal;
use crate::journal::checksums::{self, checksum_path};
use crate::journal::disk::{FILE_MODE, FOLDER_MODE, JournalDisk as _, OsJournalDisk};
use crate::parse;

/// Repairs the findings; returns what was done and what could not be repaired.
pub(super) fn repair(found: &FsckReport) -> Vec<String> {
    let mut actions = Vec::new();
    let has = |kind| found.faults.iter().any(|fault| fault.kind == kind);
    if has(FaultKind::TornTail) {
        actions.push(move_torn_tail(found));
    }
    for note in &found.notes {
        actions.push(match note.kind {
            FsckNoteKind::Mode => note.repair_mode(),
            FsckNoteKind::LeftOver => remove_leftover(note),
            FsckNoteKind::Checksums => rebuild_checksums(found),
            // Such a session is not repaired.
            FsckNoteKind::NewerVersion | FsckNoteKind::UnreadMessage => continue,
        });
    }
    let checksum_faults = [FaultKind::Changed, FaultKind::MissingLine, FaultKind::Reordered];
    if found.faults.iter().any(|fault| fault.kind != FaultKind::TornTail) {
        let mut message = format!(
            "{NOT_REPAIRED}the other damaged lines were not changed, restore them from a backup"
        );
        let checksums = checksum_path(&found.path);
        // Without checksums the lines themselves are at fault, and stay so.
        message += &if !checksums.exists() {
            "; `ctxhost export` writes the branch that can be read to a new file".to_owned()
        } else if checksum_faults.into_iter().any(has) {
            format!("; if the edit was intended, remove {}", checksums.display())
        } else {
            String::new()
        };
        actions.push(message);
    }
    actions
}

fn move_torn_tail(found: &FsckReport) -> String {
    let moved = || -> Result<Option<PathBuf>, SessionError> {
        let mut journal = Journal::open(&found.path)?;
        let lines = journal.read()?;
        let mut contents = parse::parse_lines(&found.path.display().to_string(), &lines)?;
        journal.move_torn_line(&mut contents)
    };
    match moved() {
        Ok(Some(copy)) => format!("moved the incomplete last line to {}", copy.display()),
        Ok(None) => "the last line is complete now".to_owned(),
        Err(error) => format!("{NOT_REPAIRED}{error}"),
    }
}

/// Rewrites the checksums, unless they are evidence of damage.
fn rebuild_checksums(found: &FsckReport) -> String {
    let checksum_faults =
        [FaultKind::Changed, FaultKind::MissingLine, FaultKind::Reordered, FaultKind::Header];
    let path = checksum_path(&found.path);
    if found.faults.iter().any(|fault| checksum_faults.contains(&fault.kind)) {
        return if path.exists() {
            format!("{NOT_REPAIRED}kept {} as evidence of the damage", path.display())
        } else {
            format!("{NOT_REPAIRED}wrote no checksums of damaged lines to {}", path.display())
        };
    }
    let rebuilt = || -> Result<(), SessionError> {
        // For its lock, so that no other process appends meanwhile.
        let mut journal = Journal::open(&found.path)?;
        let lines = journal.read()?;
        checksums::rebuild(Arc::new(OsJournalDisk), &found.path, &lines.bytes)
            .map_err(io_error("write", &path))
    };
    match rebuilt() {
        Ok(()) => format!("rewrote {}", path.display()),
        Err(error) => format!("{NOT_REPAIRED}{error}"),
    }
}

impl FsckNote {
    /// Removes a left-over file, or restores the mode of a file or folder; returns what was done.
    pub fn repair(&self) -> String {
        match self.kind {
            FsckNoteKind::LeftOver => remove_leftover(self),
            _ => self.repair_mode(),
        }
    }

    /// Restores the mode of a file or folder that others may read; returns what was done.
    pub(super) fn repair_mode(&self) -> String {
        let mode = if self.path.is_dir() { FOLDER_MODE } else { FILE_MODE };
        let set = ctxhost_platform::files::set_path_mode(&self.path, mode);
        self.describe_action(set, format!("set the mode of {} to {mode:04o}", self.path.display()))
    }

    fn describe_action(&self, result: io::Result<()>, done: String) -> String {
        match result {
            Ok(()) => done,
            Err(error) => format!("{NOT_REPAIRED}{}: {error}", self.path.display()),
        }
    }
}

fn remove_leftover(note: &FsckNote) -> String {
    // The lock note may be gone already: opening the session for another repair removes it.
    let removed = OsJournalDisk.remove(&note.path);
    note.describe_action(removed, format!("removed {}", note.path.display()))
}
