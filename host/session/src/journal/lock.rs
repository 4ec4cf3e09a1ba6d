//! Who has a session open: a lock of the kernel, and a note that names its holder.
//!
//! The lock is on the session file and ends with the process, however it ends. The note is
//! `<name>.lock`, read to tell people whom to ask; nobody ever takes it for the lock.

use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctxhost_files::SMALL_FILE_BYTES;
use serde::{Deserialize, Serialize};

use super::disk::{DiskFile, JournalDisk, OpenMode};
use super::sidecar::sidecar_path;
use crate::clock;
use crate::error::SessionError;

/// Who has a session open, in its own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Its process.
    pub pid: u32,
    /// The name of its machine.
    pub host: String,
    /// Its program.
    pub program: String,
    /// When it opened the session, in ISO 8601.
    pub since: String,
}

impl LockHolder {
    fn this_process() -> LockHolder {
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(Path::file_name);
        LockHolder {
            pid: std::process::id(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            program: program.unwrap_or_default().to_string_lossy().into_owned(),
            since: clock::format_iso(clock::now_ms()),
        }
    }

    /// Whoever left the note beside a session; it may be the one before.
    pub(crate) fn read_note(session: &Path) -> Option<LockHolder> {
        let note = ctxhost_files::read(&note_beside(session), SMALL_FILE_BYTES).ok()?;
        serde_json::from_slice(&note).ok()
    }
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LockHolder { pid, host, program, since } = self;
        write!(f, "{program}, process {pid} on {host}, since {since}")
    }
}

/// The note of this process.
#[derive(Debug)]
pub(super) struct LockNote {
    disk: Arc<dyn JournalDisk>,
    path: PathBuf,
}

impl LockNote {
    /// Leaves a note beside a session that this process has locked. Without one, whoever comes is only
    /// told less.
    pub(super) fn create(disk: Arc<dyn JournalDisk>, session: &Path) -> LockNote {
        let note = LockNote { disk, path: note_beside(session) };
        if let Err(error) = note.write() {
            tracing::debug!(%error, "no note of who holds the session");
        }
        note
    }

    /// Removes it. One that stays is overwritten by the next holder.
    pub(super) fn remove(&self) {
        if let Err(error) = self.disk.remove(&self.path) {
            tracing::debug!(%error, "the note of who held the session stays");
        }
    }

    fn write(&self) -> std::io::Result<()> {
        let mut file = self.disk.open(&self.path, OpenMode::Any)?;
        file.truncate(0)?;
        file.append(serde_json::to_string(&LockHolder::this_process())?.as_bytes())
    }
}

/// The suffix of the note beside a session.
pub(crate) const NOTE_SUFFIX: &str = "lock";

fn note_beside(session: &Path) -> PathBuf {
    sidecar_path(session, NOTE_SUFFIX)
}

/// One writer at a time.
pub(super) fn lock(file: &dyn DiskFile, path: &Path) -> Result<(), SessionError> {
    match file.lock() {
        Err(TryLockError::WouldBlock) => {
            let holder = LockHolder::read_note(path).map(Box::new);
            Err(SessionError::Locked { path: path.to_owned(), holder })
        }
        // Some network file systems have no locks; the check of the length is what is left there.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}
