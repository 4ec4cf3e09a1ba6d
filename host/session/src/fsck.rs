//! Checks and repairs of session files.
//!
//! A repair never loses bytes, and keeps checksums that prove damage.

mod compare;
mod fault;
mod folder_files;
mod joined_lines;
mod repair;
mod repair_lines;
mod salvage;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use fault::{FaultKind, FsckNote, FsckNoteKind, SessionFault};

use ctxhost_files::FileLines;

use super::contents::{LineContent, SessionContents};
use super::error::{LineFault, SessionError, SessionLineProblem};
use super::journal;
use super::journal::checksums::{ChecksumRows, checksum_path};
use super::journal::disk::{FILE_MODE, FOLDER_MODE};
use super::journal::lock::{NOTE_SUFFIX, read_note};
use super::journal::sidecar::{NEW_FILE_PREFIX, STAGED_SUFFIX};
use super::lock_holder::LockHolder;
use super::parse;
use super::record::{Record, RecordKind};
use compare::ChecksumComparison;
use folder_files::FolderFiles;

/// Checks and repairs many sessions; the list of each folder is read once.
#[derive(Debug, Default)]
pub struct SessionChecker {
    folders: FolderFiles,
}

impl SessionChecker {
    /// As [`FsckReport::check`]. Files that appear beside sessions after the first check in their folder are not seen.
    ///
    /// # Errors
    ///
    /// As [`FsckReport::check`].
    pub fn check(&mut self, path: &Path) -> Result<FsckReport, SessionError> {
        FsckReport::check_in(path, &mut self.folders)
    }

    /// As [`FsckReport::repair`].
    ///
    /// # Errors
    ///
    /// As [`FsckReport::repair`].
    pub fn repair(&mut self, report: FsckReport) -> Result<FsckReport, SessionError> {
        // What a repair writes beside a session has the right mode, so the first list is enough.
        report.repair_in(&mut self.folders)
    }
}

/// The findings for one session file.
#[derive(Debug, Default)]
pub struct FsckReport {
    /// The file.
    pub path: PathBuf,
    /// Number of readable messages.
    pub messages: usize,
    /// Damaged lines, by line.
    pub faults: Vec<SessionFault>,
    /// Findings that are not damage.
    pub notes: Vec<FsckNote>,
    /// The process that has it open for writing.
    pub holder: Option<LockHolder>,
    /// What a repair did and could not do.
    pub repairs: Vec<String>,
    /// Whether it has a header, a record or checksums of a session, or cannot be read. Other files are not repaired.
    pub is_session: bool,
}

/// Characters of the random part of a staging file's name.
const NONCE_CHARS: usize = 16;
/// Age of a staging file without a session that no process is writing any more: it takes milliseconds.
const LEFTOVER_AGE: Duration = Duration::from_secs(60);

/// How a repair that failed begins.
const NOT_REPAIRED: &str = "not repaired: ";

impl FsckReport {
    /// Checks a session file without changing anything.
    ///
    /// # Errors
    ///
    /// [`SessionError::Io`] if it does not exist. A file that cannot be read is reported as damaged.
    pub fn check(path: &Path) -> Result<FsckReport, SessionError> {
        FsckReport::check_in(path, &mut FolderFiles::default())
    }

    fn check_in(path: &Path, folders: &mut FolderFiles) -> Result<FsckReport, SessionError> {
        let mut report = FsckReport { path: path.to_owned(), ..FsckReport::default() };
        let lines = match journal::read(path) {
            Ok(lines) => lines,
            // A missing file is a mistake in the call, not damage.
            Err(error) if !path.exists() => return Err(error),
            Err(error) => {
                let (kind, message) = (FaultKind::Unreadable, error.to_string());
                report.faults.push(SessionFault { line: 1, kind, record: None, message });
                report.is_session = true;
                return Ok(report);
            }
        };
        // Of a session whose bytes were overwritten, the checksums are left.
        report.is_session = checksum_path(path).exists();
        let is_held = is_held(path);
        // Only the kernel's lock counts: the note may be of a process that died.
        report.holder = is_held.then(|| read_note(path)).flatten();
        report.check_lines(&lines, is_held);
        report.check_checksums(&lines.bytes, is_held);
        report.faults.sort_by_key(|fault| (fault.line, fault.kind));
        report.check_sidecars(folders.sidecars(path), is_held);
        Ok(report)
    }

    /// Checks the mode of a folder that ctxhost created.
    pub fn check_folder(path: &Path) -> Option<FsckNote> {
        mode_note(path, FOLDER_MODE)
    }

    /// Checks a file whose session does not exist: a crash may have ended a process before the new session got its name.
    pub fn check_leftover(path: &Path) -> Option<FsckNote> {
        let name = path.file_name()?.to_str()?;
        let (_, nonce) = name.rsplit_once(&format!(".{NEW_FILE_PREFIX}"))?;
        let is_nonce = nonce.len() == NONCE_CHARS && nonce.chars().all(|c| c.is_ascii_hexdigit());
        let age = path.symlink_metadata().ok()?.modified().ok()?.elapsed().unwrap_or_default();
        // A process may be writing it now.
        if !is_nonce || age < LEFTOVER_AGE || is_held(path) {
            return None;
        }
        let message = "left by a process that died before the session had a name".to_owned();
        Some(FsckNote { kind: FsckNoteKind::LeftOver, path: path.to_owned(), message })
    }

    /// Repairs what can be repaired without loss, and checks again.
    ///
    /// # Errors
    ///
    /// [`SessionError::Io`] if the file does not exist any more.
    pub fn repair(self) -> Result<FsckReport, SessionError> {
        self.repair_in(&mut FolderFiles::default())
    }

    fn repair_in(self, folders: &mut FolderFiles) -> Result<FsckReport, SessionError> {
        if !self.is_session {
            // Another program wrote it, and decides who may read it.
            let repairs =
                vec![format!("{NOT_REPAIRED}it has no header and no record of a session")];
            return Ok(FsckReport { repairs, ..self });
        }
        if self.notes.iter().any(|note| note.kind == FsckNoteKind::NewerVersion) {
            // What looks damaged here may be what that version writes, so this is not a failure.
            let repairs =
                vec!["left as it is: only the program that wrote it can repair it".to_owned()];
            return Ok(FsckReport { repairs, ..self });
        }
        let path = self.path.clone();
        let mut repairs = repair_lines::repair_lines(&self);
        // Repaired lines must not be reported as unrepairable.
        let found = if repairs.is_empty() { self } else { FsckReport::check_in(&path, folders)? };
        repairs.extend(repair::repair(&found));
        if repairs.is_empty() {
            return Ok(found);
        }
        Ok(FsckReport { repairs, ..FsckReport::check_in(&path, folders)? })
    }

    /// Whether a repair failed.
    pub fn has_failed_repair(&self) -> bool {
        self.repairs.iter().any(|repair| is_failed_repair(repair))
    }

    /// Whether no line is damaged.
    pub fn is_intact(&self) -> bool {
        self.faults.is_empty()
    }

    fn check_lines(&mut self, lines: &FileLines, is_held: bool) {
        match parse::parse_lines(&self.path.display().to_string(), lines) {
            Ok(contents) => {
                self.is_session = true;
                let is_message = |record: &&Record| *record.kind() == RecordKind::Message;
                self.messages = contents.records.iter().filter(is_message).count();
                let branch: HashSet<usize> = contents.tree.path().into_iter().collect();
                let is_unread =
                    |problem: &&SessionLineProblem| problem.fault == LineFault::UnreadMessage;
                self.messages -=
                    contents.problems.iter().filter(is_unread).count().min(self.messages);
                for problem in &contents.problems {
                    self.add_problem(&contents, &branch, problem, is_held);
                }
            }
            Err(error) => {
                self.is_session |= matches!(error, SessionError::DamagedHeader { .. });
                let (line, message) = match error {
                    SessionError::Header { reason, .. } => {
                        (1, format!("no session header: {reason}"))
                    }
                    SessionError::DamagedHeader { line, reason, records, .. } => (
                        line,
                        format!(
                            "the header cannot be read: {reason}; {} below it can be read, --repair rewrites the header",
                            crate::error::format_record_count(records)
                        ),
                    ),
                    // Parsing fails at the header only.
                    _ => return,
                };
                self.faults.push(SessionFault {
                    line,
                    kind: FaultKind::Header,
                    record: None,
                    message,
                });
            }
        }
    }

    fn add_problem(
        &mut self,
        contents: &SessionContents,
        branch: &HashSet<usize>,
        problem: &SessionLineProblem,
        is_held: bool,
    ) {
        let record = record_on(contents, problem.line);
        let is_below = |record: &Record| {
            record.parent_id().is_some_and(|parent| contents.tree.contains(parent))
        };
        let kind = match problem.fault {
            // The process that has it open may be writing this line.
            LineFault::Torn if is_held => return,
            LineFault::Torn => FaultKind::TornTail,
            LineFault::DuplicateId => FaultKind::DuplicateId,
            LineFault::MissingParent if record.is_some_and(is_below) => FaultKind::Reordered,
            LineFault::MissingParent => FaultKind::MissingParent,
            LineFault::Header => FaultKind::Header,
            // Nothing is damaged that only a newer program understands whole.
            LineFault::NewerVersion => {
                let (path, message) = (self.path.clone(), problem.message.clone());
                self.notes.push(FsckNote { kind: FsckNoteKind::NewerVersion, path, message });
                return;
            }
            // Another program may understand it.
            LineFault::UnreadMessage => {
                let path = self.path.clone();
                let message = format!("line {}: {}", problem.line, problem.message);
                self.notes.push(FsckNote { kind: FsckNoteKind::UnreadMessage, path, message });
                return;
            }
            LineFault::Bad => FaultKind::BadLine,
        };
        let mut message = problem.message.clone();
        let is_left_out = record.and_then(Record::parent_id).is_some_and(|parent| {
            let position = contents.tree.position(parent);
            kind == FaultKind::Reordered && position.is_some_and(|at| !branch.contains(&at))
        });
        if is_left_out {
            message += "; that record is left out of the conversation";
        }
        let record = record.map(|record| record.id().to_owned());
        self.faults.push(SessionFault { line: problem.line, kind, record, message });
    }

    fn check_checksums(&mut self, bytes: &[u8], is_held: bool) {
        let rows = ChecksumRows::read_beside(&self.path);
        let is_missing = rows.is_none();
        let rows = rows.unwrap_or_default();
        let compared = ChecksumComparison::compare(&rows.rows, bytes);
        self.faults.extend(compared.faults);
        let is_torn = self.faults.iter().any(|fault| fault.kind == FaultKind::TornTail);
        // The last row may be missing: it is written after its line.
        let unknown = compared.unknown_lines.saturating_sub(usize::from(is_torn || is_held));
        let message = match (rows.has_bad, is_missing, unknown) {
            (true, _, _) => "the checksum file is damaged".to_owned(),
            (false, _, 0) => return,
            (false, true, _) => "there are no checksums".to_owned(),
            (false, false, 1) => "one line has no checksum".to_owned(),
            (false, false, _) => format!("{unknown} lines have no checksum"),
        };
        self.notes.push(FsckNote {
            kind: FsckNoteKind::Checksums,
            path: checksum_path(&self.path),
            message,
        });
    }

    fn check_sidecars(&mut self, sidecars: Vec<(String, PathBuf)>, is_held: bool) {
        let permanent = sidecars
            .iter()
            .filter(|(suffix, _)| is_permanent(suffix))
            .map(|(_, path)| path.clone());
        let own = std::iter::once(self.path.clone()).chain(permanent);
        self.notes.extend(own.filter_map(|path| mode_note(&path, FILE_MODE)));
        let left = sidecars.into_iter().filter(|(suffix, _)| is_temporary(suffix));
        // A process that works on the session may be using its temporary files now.
        for (_, path) in left.filter(|_| !is_held) {
            let message = "left by a process that died".to_owned();
            self.notes.push(FsckNote { kind: FsckNoteKind::LeftOver, path, message });
        }
    }
}

/// Whether the description of a repair is of one that failed.
pub fn is_failed_repair(description: &str) -> bool {
    description.starts_with(NOT_REPAIRED)
}

fn mode_note(path: &Path, expected: u32) -> Option<FsckNote> {
    let mode = ctxhost_platform::files::mode(&path.metadata().ok()?)? & 0o777;
    let message = format!("its mode is {mode:04o}, expected {expected:04o}");
    let note = FsckNote { kind: FsckNoteKind::Mode, path: path.to_owned(), message };
    (mode != expected).then_some(note)
}

fn record_on(contents: &SessionContents, line: usize) -> Option<&Record> {
    match contents.lines.get(line.checked_sub(1)?)?.content {
        LineContent::Record(at) => contents.record_at(at),
        _ => None,
    }
}

fn is_permanent(suffix: &str) -> bool {
    ["crc", "pending", "live", "ids"].contains(&suffix)
        || ["torn", "damaged"].iter().any(|prefix| suffix.starts_with(prefix))
        || suffix.contains(".bak")
}

/// Whether such a file exists only while a process works on the session.
fn is_temporary(suffix: &str) -> bool {
    suffix == STAGED_SUFFIX
        || suffix == NOTE_SUFFIX
        || suffix.starts_with(NEW_FILE_PREFIX)
        || suffix.ends_with(".new")
}

/// Whether a process has the file open for writing.
fn is_held(path: &Path) -> bool {
    let Ok(file) = ctxhost_files::open(path) else { return false };
    // Shared, so that two checks do not take each other for a writer.
    match file.try_lock_shared() {
        Err(std::fs::TryLockError::WouldBlock) => true,
        // A file system without locks, which cannot show a holder.
        Err(std::fs::TryLockError::Error(_)) => false,
        // Explicitly: a child process that is being spawned may have inherited the file, so that
        // closing it would not release the lock.
        Ok(()) => file.unlock().is_err(),
    }
}
