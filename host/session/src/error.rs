//! What can go wrong with a session as a whole, and what is wrong with one of its lines.

use std::io;
use std::path::PathBuf;

use super::journal::LockHolder;

/// Why a session could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The file system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The first readable record is no session header.
    #[error(
        "{name} is no Pi session: {reason}; give a .jsonl file whose first record is of type `session`"
    )]
    Header {
        /// The file or the name it was given.
        name: String,
        /// What is there instead.
        reason: String,
    },
    /// The header of a session is damaged or gone; what was said below it is not.
    #[error(
        "the header of {name}, line {line}, cannot be read: {reason}; {} below it can, `ctxhost fsck --repair {name}` writes the header anew and keeps the old line",
        format_record_count(*records)
    )]
    DamagedHeader {
        /// The file or the name it was given.
        name: String,
        /// Where the header should be, counted from 1.
        line: usize,
        /// What is there instead.
        reason: String,
        /// How many records can be read.
        records: usize,
    },
    /// The file was written by a newer program.
    #[error(
        "{name} has session version {version}, ctxhost writes up to 3; open it for reading only, or update ctxhost"
    )]
    Newer {
        /// The file or the name it was given.
        name: String,
        /// Its version.
        version: u32,
    },
    /// Another writer has the file open.
    #[error("{} is open in another writer{}; close that one first", path.display(), named(holder))]
    Locked {
        /// The file.
        path: PathBuf,
        /// Who that is, where it left its name.
        holder: Option<Box<LockHolder>>,
    },
    /// The file is a symbolic link.
    #[error(
        "{} is a symbolic link, and sessions are not written through links; give the path that it leads to",
        path.display()
    )]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// Somebody else wrote to the file since it was opened.
    #[error("{} changed underneath: {expected_bytes} bytes expected, {found_bytes} found; open it again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its length as this writer left it.
        expected_bytes: u64,
        /// Its length now.
        found_bytes: u64,
    },
    /// Another machine has the session, and had it all the time that was waited.
    #[error(
        "session {id} is held by {holder}; it was waited for {waited_ms} ms (store.wait_ms), try again later"
    )]
    LeaseTimeout {
        /// The id of the session.
        id: String,
        /// Who has it.
        holder: String,
        /// How long was waited.
        waited_ms: u64,
    },
    /// Another machine took the session over; nothing was written.
    #[error(
        "session {id} was taken over by {holder}, nothing more is written here; send the message again"
    )]
    Fenced {
        /// The id of the session.
        id: String,
        /// Who has it now.
        holder: String,
    },
    /// Somebody else added to the session outside of a lane.
    #[error("session {id} has more entries than this machine knows; open it again")]
    Stale {
        /// The id of the session.
        id: String,
    },
    /// A session of this id is in the store already.
    #[error("the store has a session {id} already; open that one, or take another id")]
    AlreadyExists {
        /// The id.
        id: String,
    },
    /// There is no session of this id in the store.
    #[error("the store has no session {id}; `ctxhost sessions list` shows those it has")]
    NotFound {
        /// The id.
        id: String,
    },
    /// The store did not answer, or said no.
    #[error("the store cannot {action}: {reason}")]
    Store {
        /// What was tried, as a verb and its object.
        action: String,
        /// What it said.
        reason: String,
    },
    /// The store went away between a line and the word that it is kept.
    #[error(
        "nobody knows whether the last line of session {id} is kept, the store went away: {reason}; the next turn finds out"
    )]
    OutcomeUnknown {
        /// The id of the session.
        id: String,
        /// What the store said.
        reason: String,
    },
    /// A failed write or sync could not be undone, so memory, file and disk may differ.
    #[error("an earlier failed write to {} could not be undone; open it again", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
    },
    /// The session was opened with `read`.
    #[error("session {id} was opened for reading; open it for writing to append")]
    ReadOnly {
        /// The id of the session.
        id: String,
    },
    /// No record has this id.
    #[error("no record `{id}` in this session; list the records to see their ids")]
    UnknownRecord {
        /// The id that was asked for.
        id: String,
    },
    /// What should be appended is no record.
    #[error("this cannot be a session record: {reason}")]
    Body {
        /// What is wrong with it.
        reason: String,
    },
    /// The plan of a compaction cannot be written down.
    #[error("cannot record the compaction: {reason}")]
    Plan {
        /// What is wrong with it.
        reason: String,
    },
}

/// A line that could not be taken as it stands. Its bytes stay in the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLineProblem {
    /// The line, counted from 1.
    pub line: usize,
    /// What sort of fault it is.
    pub fault: LineFault,
    /// What is wrong with it, and what was done about it.
    pub message: String,
}

/// What can be wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFault {
    /// It cannot be read as a record.
    Bad,
    /// The write of the last line was cut short.
    Torn,
    /// Its id is that of an earlier record.
    DuplicateId,
    /// No record above it is the parent that it names, or it names none.
    MissingParent,
    /// The header lacks something, or is newer than this version.
    Header,
}

/// A number of records in words.
pub(super) fn format_record_count(records: usize) -> String {
    format!("{records} record{}", if records == 1 { "" } else { "s" })
}

fn named(holder: &Option<Box<LockHolder>>) -> String {
    holder.as_ref().map(|holder| format!(" ({holder})")).unwrap_or_default()
}
