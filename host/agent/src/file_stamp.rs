//! Detects changes of a file by its metadata.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The metadata of a file that changes with its content: replacing a file changes its inode, writing changes its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of a file, following links; `None` if it does not exist.
    pub(crate) fn read(path: &Path) -> Option<FileStamp> {
        let file = fs::metadata(path).ok()?;
        Some(FileStamp {
            inode: file.ino(),
            bytes: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            // Tools may set the modification time back, but not this one.
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}
