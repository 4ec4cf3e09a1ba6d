//! Detects changes of a file by its metadata.

use std::fs;
use std::path::Path;

use ctxhost_platform::files::change_marks;

/// The metadata of a file that changes with its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    bytes: u64,
    marks: [i64; 5],
}

impl FileStamp {
    /// The stamp of a file, following links; `None` if it does not exist.
    pub(crate) fn read(path: &Path) -> Option<FileStamp> {
        let file = fs::metadata(path).ok()?;
        Some(FileStamp { bytes: file.len(), marks: change_marks(&file) })
    }
}
