//! What is wrong with a session file and with what lies beside it, and what can be put right.
//!
//! A repair only does what loses nothing: it keeps every byte, and where lines are not what was written,
//! it keeps the checksums that prove it.

mod compare;
mod fault;
mod joined_lines;
mod repair;
mod repair_lines;
mod salvage;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

pub use fault::{FaultKind, FsckNote, FsckNoteKind, SessionFault};

use ctxhost_files::FileLines;

use super::contents::{LineContent, SessionContents};
use super::error::{LineFault, SessionError, SessionLineProblem};
use super::journal::checksums::{ChecksumRows, checksum_path};
use super::journal::disk::{FILE_MODE, FOLDER_MODE};
use super::journal::lock::NOTE_SUFFIX;
use super::journal::sidecar::{NEW_FILE_PREFIX, STAGED_SUFFIX};
use super::journal::{self, LockHolder};
use super::parse;
use super::record::{Record, RecordKind};
use compare::ChecksumComparison;

/// What was found out about one session file.
#[derive(Debug, Default)]
pub struct FsckReport {
    /// The file.
    pub path: PathBuf,
    /// Messages that can be read.
    pub messages: usize,
    /// What is wrong with its lines, by line.
    pub faults: Vec<SessionFault>,
    /// What is not as it should be, and costs nothing of what was said.
    pub notes: Vec<FsckNote>,
    /// Who has it open for writing.
    pub holder: Option<LockHolder>,
    /// What a repair did, and what it could not do.
    pub repairs: Vec<String>,
}

impl FsckReport {
    /// Looks at a session file. Nothing on the disk changes.
    ///
    /// # Errors
    ///
    /// [`SessionError::Io`] where it is not there. One that the disk does not give is damaged.
    pub fn check(path: &Path) -> Result<FsckReport, SessionError> {
        let mut checkup = FsckReport { path: path.to_owned(), ..FsckReport::default() };
        let lines = match journal::read(path) {
            Ok(lines) => lines,
            Err(error) if !path.exists() => return Err(error),
            Err(error) => {
                let (kind, message) = (FaultKind::Unreadable, error.to_string());
                checkup.faults.push(SessionFault { line: 1, kind, record: None, message });
                return Ok(checkup);
            }
        };
        let is_held = is_held(path);
        checkup.holder = is_held.then(|| LockHolder::read_note(path)).flatten();
        checkup.lines(&lines, is_held);
        checkup.checksums(&lines.bytes, is_held);
        checkup.faults.sort_by_key(|fault| (fault.line, fault.kind));
        checkup.surroundings(is_held);
        Ok(checkup)
    }

    /// Looks at the mode of a folder that ctxhost made.
    pub fn check_folder(path: &Path) -> Option<FsckNote> {
        mode_note(path, FOLDER_MODE)
    }

    /// Puts right what can be put right without losing anything, and looks again.
    ///
    /// # Errors
    ///
    /// [`SessionError::Io`] where it is not there any more.
    pub fn repair(self) -> Result<FsckReport, SessionError> {
        let path = self.path.clone();
        let mut repairs = repair_lines::repair_lines(&self);
        // What was mended is no fault any more.
        let found = if repairs.is_empty() { self } else { FsckReport::check(&path)? };
        repairs.extend(repair::repair(&found));
        Ok(FsckReport { repairs, ..FsckReport::check(&path)? })
    }

    /// Whether every line is what was written.
    pub fn is_intact(&self) -> bool {
        self.faults.is_empty()
    }

    fn lines(&mut self, lines: &FileLines, is_held: bool) {
        match parse::parse_lines(&self.path.display().to_string(), lines) {
            Ok(contents) => {
                let is_message = |record: &&Record| *record.kind() == RecordKind::Message;
                self.messages = contents.records.iter().filter(is_message).count();
                for problem in &contents.problems {
                    self.problem(&contents, problem, is_held);
                }
            }
            Err(error) => {
                let (line, message) = match error {
                    SessionError::Header { reason, .. } => {
                        (1, format!("no session header: {reason}"))
                    }
                    SessionError::DamagedHeader { line, reason, records, .. } => (
                        line,
                        format!(
                            "the header cannot be read: {reason}; {} below it can, --repair writes the header anew",
                            crate::error::format_record_count(records)
                        ),
                    ),
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

    fn problem(&mut self, contents: &SessionContents, problem: &SessionLineProblem, is_held: bool) {
        let record = record_on(contents, problem.line);
        let is_below = |record: &Record| {
            record.parent_id().is_some_and(|parent| contents.tree.contains(parent))
        };
        let kind = match problem.fault {
            // Whoever has it open may be writing it at this moment.
            LineFault::Torn if is_held => return,
            LineFault::Torn => FaultKind::TornTail,
            LineFault::DuplicateId => FaultKind::DuplicateId,
            LineFault::MissingParent if record.is_some_and(is_below) => FaultKind::Reordered,
            LineFault::MissingParent => FaultKind::MissingParent,
            LineFault::Header => FaultKind::Header,
            LineFault::Bad => FaultKind::BadLine,
        };
        let record = record.map(|record| record.id().to_owned());
        let message = problem.message.clone();
        self.faults.push(SessionFault { line: problem.line, kind, record, message });
    }

    fn checksums(&mut self, bytes: &[u8], is_held: bool) {
        let rows = ChecksumRows::read_beside(&self.path);
        let is_missing = rows.is_none();
        let rows = rows.unwrap_or_default();
        let compared = ChecksumComparison::compare(&rows.rows, bytes);
        self.faults.extend(compared.faults);
        let is_torn = self.faults.iter().any(|fault| fault.kind == FaultKind::TornTail);
        // The row of a line is written after the line, which may be under way.
        let unknown = compared.unknown_lines.saturating_sub(usize::from(is_torn || is_held));
        let message = match (rows.has_bad, is_missing, unknown) {
            (true, _, _) => "the checksums are damaged themselves".to_owned(),
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

    fn surroundings(&mut self, is_held: bool) {
        let beside = files_beside(&self.path);
        let kept =
            beside.iter().filter(|(suffix, _)| is_kept(suffix)).map(|(_, path)| path.clone());
        let own = std::iter::once(self.path.clone()).chain(kept);
        self.notes.extend(own.filter_map(|path| mode_note(&path, FILE_MODE)));
        let left = beside.into_iter().filter(|(suffix, _)| is_left_over(suffix));
        for (_, path) in left.filter(|_| !is_held) {
            let message = "left behind by a process that died".to_owned();
            self.notes.push(FsckNote { kind: FsckNoteKind::LeftOver, path, message });
        }
    }
}

fn mode_note(path: &Path, expected: u32) -> Option<FsckNote> {
    let mode = path.metadata().ok()?.permissions().mode() & 0o777;
    let message = format!("its mode is {mode:04o}, and should be {expected:04o}");
    let note = FsckNote { kind: FsckNoteKind::Mode, path: path.to_owned(), message };
    (mode != expected).then_some(note)
}

fn record_on(contents: &SessionContents, line: usize) -> Option<&Record> {
    match contents.lines.get(line.checked_sub(1)?)?.content {
        LineContent::Record(at) => contents.record_at(at),
        _ => None,
    }
}

/// What stands beside a session, by what its name adds to the session's.
fn files_beside(session: &Path) -> Vec<(String, PathBuf)> {
    let own = session.file_name().map(|name| name.to_string_lossy().into_owned());
    let prefix = format!("{}.", own.unwrap_or_default());
    let suffixed = |path: PathBuf| {
        let suffix = path.file_name()?.to_string_lossy().strip_prefix(&prefix)?.to_owned();
        Some((suffix, path))
    };
    let folder = session.parent().filter(|folder| !folder.as_os_str().is_empty());
    let files = std::fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    let mut beside: Vec<_> = files.filter_map(|file| suffixed(file.path())).collect();
    beside.sort();
    beside
}

fn is_kept(suffix: &str) -> bool {
    const WHOLE: [&str; 4] = ["crc", "pending", "live", "ids"];
    WHOLE.contains(&suffix)
        || ["torn", "damaged"].iter().any(|kept| suffix.starts_with(kept))
        || suffix.contains(".bak")
}

/// What only stands there while somebody is at work.
fn is_left_over(suffix: &str) -> bool {
    suffix == STAGED_SUFFIX
        || suffix == NOTE_SUFFIX
        || suffix.starts_with(NEW_FILE_PREFIX)
        || suffix.ends_with(".new")
}

/// Whether somebody has it open for writing.
fn is_held(path: &Path) -> bool {
    let Ok(file) = ctxhost_files::open(path) else { return false };
    match file.try_lock_shared() {
        Err(std::fs::TryLockError::WouldBlock) => true,
        Err(std::fs::TryLockError::Error(_)) => false,
        // Closing it would do, were it not for copies in commands that are being started.
        Ok(()) => file.unlock().is_err(),
    }
}
