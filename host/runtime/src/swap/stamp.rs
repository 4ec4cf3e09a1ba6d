//! What changes when a file does, without reading it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The stamp of a file. A file that was replaced has another number; one that was written to has other
/// times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    number: u64,
    bytes: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of what is there now; `None` where nothing is. Of a link, that of what it leads to.
    pub(crate) fn of(path: &Path) -> Option<Stamp> {
        let file = fs::metadata(path).ok()?;
        Some(Stamp {
            number: file.ino(),
            bytes: file.size(),
            written: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}
