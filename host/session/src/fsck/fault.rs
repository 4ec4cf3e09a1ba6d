//! What can be wrong with a session on disk, in words and in names.

use std::path::PathBuf;

use serde::Serialize;

/// Something wrong with a line of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionFault {
    /// The line, counted from 1.
    pub line: usize,
    /// What sort of fault it is.
    pub kind: FaultKind,
    /// The id of the record, where it can be read.
    pub record: Option<String>,
    /// What is wrong, and what is made of it.
    pub message: String,
}

/// What can be wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The disk does not give the file.
    Unreadable,
    /// There is no header, or it lacks something, or it is newer than this version.
    Header,
    /// It cannot be read as a record.
    BadLine,
    /// It is not what was written.
    Changed,
    /// A line that was written is not there any more.
    MissingLine,
    /// It stands elsewhere than it was written, or above its parent.
    Reordered,
    /// It has the id of an earlier record.
    DuplicateId,
    /// Its parent is not in the file, or it names none.
    MissingParent,
    /// The last line was cut short.
    TornTail,
}

/// Something beside the lines that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FsckNote {
    /// What sort.
    pub kind: FsckNoteKind,
    /// Of which file.
    pub path: PathBuf,
    /// What it is.
    pub message: String,
}

/// What can be amiss beside the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FsckNoteKind {
    /// Some lines have no checksum.
    Checksums,
    /// Others may read a file or folder.
    Mode,
    /// A file was left behind.
    LeftOver,
}
