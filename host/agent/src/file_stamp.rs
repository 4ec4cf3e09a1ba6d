//! What changes when a file does, without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The stamp of a file. A file that was replaced has another number; one that was written to has other
/// times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    number: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of what is there now; `None` where nothing is. Of a link, that of what it leads to.
    pub(crate) fn read(path: &Path) -> Option<FileStamp> {
        let file = fs::metadata(path).ok()?;
        Some(FileStamp {
            number: file.ino(),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}
