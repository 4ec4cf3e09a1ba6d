//! Findings of fsck.

use std::path::PathBuf;

use serde::Serialize;

/// Damage of a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionFault {
    /// The line, from 1.
    pub line: usize,
    /// The kind of damage.
    pub kind: FaultKind,
    /// The id of the record, if it is readable.
    pub record: Option<String>,
    /// What is wrong, and how the line is treated.
    pub message: String,
}

/// Kinds of damage. Serialized names are part of `--json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The file cannot be read.
    Unreadable,
    /// The header is missing or incomplete.
    Header,
    /// Not a record.
    BadLine,
    /// The line differs from its checksum.
    Changed,
    /// A written line is missing.
    MissingLine,
    /// The line is not where it was written, or is above its parent.
    Reordered,
    /// An earlier record has the same id.
    DuplicateId,
    /// The parent is not in the file, or not named.
    MissingParent,
    /// The last line is incomplete.
    TornTail,
}

/// A finding that is not damage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FsckNote {
    /// The kind of finding.
    pub kind: FsckNoteKind,
    /// The file.
    pub path: PathBuf,
    /// What was found.
    pub message: String,
}

/// Kinds of findings that are not damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FsckNoteKind {
    /// Some lines have no checksum.
    Checksums,
    /// Other users may read a file or folder.
    Mode,
    /// A temporary file of a dead process.
    LeftOver,
    /// A newer program wrote the file.
    NewerVersion,
    /// A message is not a part of the conversation.
    UnreadMessage,
}
