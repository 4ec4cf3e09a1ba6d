//! Media: large results and images, each kept once under the hash of its bytes.
//!
//! ```text
//!  <state>/sessions/--folder--/s.jsonl          names abcdef…
//!  <state>/blobs/ab/abcdef…                     the bytes, for all sessions below the state folder
//!  elsewhere/s.jsonl.blobs/abcdef…              the bytes beside a session that stands alone
//! ```
//!
//! This room knows files and JSON of messages. Sessions, engines and settings are above it or beside it.

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

/// Why bytes could not be put away, found or removed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// A file holds other bytes than those it is named after.
    #[error("{} was changed: its bytes are not those of its name", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The disk failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Without a lock nobody knows what is put there meanwhile.
    #[error("cannot lock {}: {source}; nothing in it is removed without a lock", path.display())]
    LockFailed {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A session was moved while all were read, so what it names is not known.
    #[error("{} went away while sessions were read; nothing was removed, try again", path.display())]
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

pub fn disk_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BlobError {
    let path = path.to_owned();
    move |source| BlobError::Disk { action, path, source }
}

/// The handle of bytes: their SHA-256 in hex.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// How long a handle is, in hex digits.
const HANDLE_CHARS: usize = 64;

fn is_handle(name: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.len() == HANDLE_CHARS && name.bytes().all(is_digit)
}
