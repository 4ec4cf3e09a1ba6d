//! Errors of sessions, and problems with single lines.

use std::io;
use std::path::{Path, PathBuf};

use super::lock_holder::LockHolder;
use ctxhost_engine_api::transcript::tokens::group_thousands;

/// Why a session could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The first readable record is not a session header.
    #[error(
        "{name} is not a Pi session: {reason}; expected a .jsonl file whose first record has the type `session`"
    )]
    Header {
        /// Path or name of the file.
        name: String,
        /// What was found instead.
        reason: String,
    },
    /// The header is damaged or missing, the records below it are readable.
    #[error(
        "cannot read the header of {name}, line {line}: {reason}; {} below it can be read; run `ctxhost fsck --repair {name}` to rewrite the header",
        format_record_count(*records)
    )]
    DamagedHeader {
        /// Path or name of the file.
        name: String,
        /// The line of the header, from 1.
        line: usize,
        /// What was found instead.
        reason: String,
        /// Number of readable records.
        records: usize,
    },
    /// The file was written by a newer program.
    #[error(
        "{name} has session version {version}, ctxhost writes up to version 3 and only reads newer ones; update ctxhost to continue it"
    )]
    Newer {
        /// Path or name of the file.
        name: String,
        /// Its version.
        version: u32,
    },
    /// Another writer has the file open.
    #[error("{} is open in another writer{}; close that one first", path.display(), format_holder(holder))]
    Locked {
        /// The file.
        path: PathBuf,
        /// The other writer, if it left a note.
        holder: Option<Box<LockHolder>>,
    },
    /// The file is a symbolic link.
    #[error(
        "{} is a symbolic link, and sessions are not written through links; use the path of its target",
        path.display()
    )]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// Another program wrote to the file since it was opened.
    #[error("another program changed {}: {} bytes found, {} expected; open it again", path.display(), group_thousands(*found_bytes), group_thousands(*expected_bytes))]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its length after the last append of this writer.
        expected_bytes: u64,
        /// Its length now.
        found_bytes: u64,
    },
    /// Another machine held the session during the whole wait.
    #[error(
        "session {id} is held by {holder}; gave up after {} ms (store.wait_ms), try again later", group_thousands(*waited_ms)
    )]
    LeaseTimeout {
        /// The id of the session.
        id: String,
        /// The holder of the lease.
        holder: String,
        /// How long was waited.
        waited_ms: u64,
    },
    /// Another machine took the session over; nothing was written.
    #[error(
        "session {id} was taken over by {holder}, nothing was written here; send the message again"
    )]
    Fenced {
        /// The id of the session.
        id: String,
        /// The holder of the newer lease.
        holder: String,
    },
    /// Another machine appended to the session.
    #[error("session {id} has newer entries in the store; open it again")]
    Stale {
        /// The id of the session.
        id: String,
    },
    /// The store has a session with this id.
    #[error("the store already has a session {id}; open it, or use another id")]
    AlreadyExists {
        /// The id.
        id: String,
    },
    /// The store has no session with this id.
    #[error("the store has no session {id}; list them with `ctxhost sessions list`")]
    NotFound {
        /// The id.
        id: String,
    },
    /// The store is unreachable or rejected the operation.
    #[error("the store cannot {action}: {reason}")]
    Store {
        /// The operation, as a verb and its object.
        action: String,
        /// The error of the store.
        reason: String,
    },
    /// The connection was lost before the store confirmed an append.
    #[error(
        "cannot tell whether the last line of session {id} was stored, the connection was lost: {reason}; the next turn checks it"
    )]
    OutcomeUnknown {
        /// The id of the session.
        id: String,
        /// The error of the store.
        reason: String,
    },
    /// A write with write-behind failed and was reverted. The records stay in memory, and the next write contains them.
    #[error(
        "cannot write to {}: {source}; what is new stays in memory until that is possible; free some space on the disk",
        path.display()
    )]
    Unwritten {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A failed write or sync could not be reverted, so memory, file and disk may differ.
    #[error("an earlier failed write to {} could not be reverted; open it again", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
    },
    /// The session was opened for reading.
    #[error("session {id} is open for reading only; open it for writing to append")]
    ReadOnly {
        /// The id of the session.
        id: String,
    },
    /// No record has this id.
    #[error("no record `{id}` in this session; list the records to see their ids")]
    UnknownRecord {
        /// The requested id.
        id: String,
    },
    /// The data cannot be a record.
    #[error("not a valid session record: {reason}")]
    Body {
        /// What is wrong with it.
        reason: String,
    },
    /// The plan cannot be recorded as a compaction.
    #[error("cannot record the compaction: {reason}")]
    Plan {
        /// What is wrong with it.
        reason: String,
    },
}

/// A problem with a line, whose bytes stay in the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLineProblem {
    /// The line, from 1.
    pub line: usize,
    /// The kind of fault.
    pub fault: LineFault,
    /// What is wrong, and how the line is treated.
    pub message: String,
}

/// Kinds of faults of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFault {
    /// Not a record.
    Bad,
    /// An incomplete last line.
    Torn,
    /// An earlier record has the same id.
    DuplicateId,
    /// It names no parent, or one that is not above it.
    MissingParent,
    /// The header is incomplete.
    Header,
    /// The header names a newer version of the format, so the file is only read.
    NewerVersion,
    /// A message that is not a part of the conversation: its role is unknown, or a field has another type.
    UnreadMessage,
}

pub(super) fn io_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> SessionError + use<> {
    let path = path.to_owned();
    move |source| SessionError::Io { action, path, source }
}

pub(super) fn format_record_count(records: usize) -> String {
    format!("{records} record{}", if records == 1 { "" } else { "s" })
}

fn format_holder(holder: &Option<Box<LockHolder>>) -> String {
    holder.as_ref().map(|holder| format!(" ({holder})")).unwrap_or_default()
}
