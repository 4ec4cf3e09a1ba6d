//! The exclusive lock on a session file, and the note beside it that names the holder.

use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctxhost_files::SMALL_FILE_BYTES;

use super::disk::{DiskFile, JournalDisk, OpenMode};
use super::sidecar::sidecar_path;
use crate::error::SessionError;
use crate::lock_holder::LockHolder;

/// The suffix of the note beside a session.
pub(crate) const NOTE_SUFFIX: &str = "lock";

/// The note of this process. It only serves error messages: the kernel's lock ends with the process,
/// a note may outlive it, so its presence never means that the session is locked.
#[derive(Debug)]
pub(super) struct LockNote {
    disk: Arc<dyn JournalDisk>,
    path: PathBuf,
}

impl LockNote {
    /// Writes the note for a session that this process has locked. Failure is logged only.
    pub(super) fn create(disk: Arc<dyn JournalDisk>, session: &Path) -> LockNote {
        let note = LockNote { disk, path: sidecar_path(session, NOTE_SUFFIX) };
        if let Err(error) = note.write() {
            tracing::debug!(%error, "cannot write the lock note of a session");
        }
        note
    }

    /// Removes it. The next holder overwrites a note that stays.
    pub(super) fn remove(&self) {
        if let Err(error) = self.disk.remove(&self.path) {
            tracing::debug!(%error, "cannot remove the lock note of a session");
        }
    }

    fn write(&self) -> std::io::Result<()> {
        let mut file = self.disk.open(&self.path, OpenMode::Any)?;
        file.truncate(0)?;
        // Not synced: a crash of the machine also ends the lock.
        file.append(serde_json::to_string(&LockHolder::this_process())?.as_bytes())
    }
}

/// Reads the note beside a session. It may describe an earlier holder.
pub(crate) fn read_note(session: &Path) -> Option<LockHolder> {
    let note = ctxhost_files::read(&sidecar_path(session, NOTE_SUFFIX), SMALL_FILE_BYTES).ok()?;
    serde_json::from_slice(&note).ok()
}

/// Locks a session file for this process.
pub(super) fn lock(file: &dyn DiskFile, path: &Path) -> Result<(), SessionError> {
    match file.lock() {
        Err(TryLockError::WouldBlock) => {
            let holder = read_note(path).map(Box::new);
            Err(SessionError::Locked { path: path.to_owned(), holder })
        }
        // Some network file systems have no locks. There the check of the file length before each
        // append is the only protection against a second writer.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}
