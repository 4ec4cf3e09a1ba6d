//! Content-addressed storage of large results and images, with garbage collection.
//!
//! ```text
//!  <state>/sessions/--folder--/s.jsonl          references abcdef…
//!  <state>/blobs/ab/abcdef…                     the blob, shared by all sessions of the state folder
//!  elsewhere/s.jsonl.blobs/abcdef…              the blob of any other session
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod dirs;
mod folder;
mod gc;
mod images;
mod references;
mod trash;
mod usage;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ctxhost_files::ReplaceError;
use sha2::{Digest as _, Sha256};

pub use dirs::{BlobDirs, SessionBlobs};
pub use folder::{BlobFolder, StoredBlob};
pub use gc::{GRACE, GarbageCollector, GarbageReport};
pub use images::{BLOB_FIELD, ImageStore};
pub use references::referenced_handles;
pub use trash::{OldSession, TRASH_DAYS, TrashDay};
pub use usage::{DiskUsage, SessionUsage};

/// Why blobs could not be stored, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The content of a file does not match its name.
    #[error("{} is damaged: its content does not match its hash", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// The operation, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The folder cannot be locked, so a blob may be stored while it is removed.
    #[error("cannot lock {}: {source}; nothing is removed without a lock", path.display())]
    LockFailed {
        /// The lock file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A session was moved during the scan, so its references are unknown.
    #[error("{} was removed while sessions were scanned; nothing was deleted, try again", path.display())]
    Vanished {
        /// The file.
        path: PathBuf,
    },
}

impl From<ReplaceError> for BlobError {
    fn from(ReplaceError { step, path, source }: ReplaceError) -> Self {
        BlobError::Disk { action: step, path, source }
    }
}

/// Converts an error of the system to one of this action on this path.
pub fn disk_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BlobError {
    let path = path.to_owned();
    move |source| BlobError::Disk { action, path, source }
}

/// The handle of a blob: the SHA-256 of its content in hex.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Length of a handle in hex digits.
const HANDLE_CHARS: usize = 64;

fn is_handle(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.len() == HANDLE_CHARS && name.bytes().all(is_digit)
}
