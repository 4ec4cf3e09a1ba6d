//! The file of a session: its path, sync policy, write-behind and checks.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::journal::Journal;
use super::{FileCheck, Session, SessionError, SessionStorage, SyncPolicy};

/// The migration of a session file of an older version, which the first append makes.
#[derive(Clone, Debug)]
pub struct FileMigration {
    from_version: u32,
    copy: Arc<OnceLock<PathBuf>>,
}

impl FileMigration {
    /// The version of the file before.
    pub fn from_version(&self) -> u32 {
        self.from_version
    }

    /// The copy of the original; `None` until the file is migrated.
    pub fn copy(&self) -> Option<&Path> {
        self.copy.get().map(PathBuf::as_path)
    }
}

impl Session {
    /// Sets when appends are synced; the default is before they are acknowledged.
    #[must_use]
    pub fn with_sync(mut self, policy: SyncPolicy) -> Session {
        if let Some(journal) = self.journal_mut() {
            journal.set_policy(policy);
        }
        self
    }

    /// Buffers batches from now on until [`flush`](Self::flush) or another append writes them. For sessions
    /// whose client keeps the conversation and sends it again.
    pub fn enable_write_behind(&mut self) {
        if let Some(journal) = self.journal_mut() {
            journal.enable_write_behind();
        }
    }

    /// Writes buffered records.
    ///
    /// # Errors
    ///
    /// [`SessionError::Unwritten`] if they stay buffered. After another error later appends fail; after reopening, the
    /// session lacks these records.
    pub fn flush(&mut self) -> Result<(), SessionError> {
        self.journal_mut().map_or(Ok(()), Journal::flush)
    }

    /// Whether records are buffered that the file lacks.
    pub(super) fn has_buffered_records(&self) -> bool {
        self.journal().is_some_and(Journal::has_buffered_lines)
    }

    /// Whether the file contains all records with the same ids: nothing is buffered, and the file has the
    /// current version.
    pub fn is_fully_written(&self) -> bool {
        self.journal().is_some_and(|journal| {
            !journal.has_buffered_lines() && self.contents.loaded().migrated_from.is_none()
        })
    }

    /// Checks that the path still refers to the open file, and recreates the file if not. Appends check
    /// too; this is for idle sessions.
    pub fn check_file(&mut self) -> FileCheck {
        self.journal_mut().map_or(FileCheck::Intact, Journal::check_file)
    }

    /// When its appends are synced; `None` for a session without a file.
    pub fn sync_policy(&self) -> Option<SyncPolicy> {
        self.journal().map(Journal::policy)
    }

    /// Syncs appended records to disk, unless the policy is `os`.
    ///
    /// # Errors
    ///
    /// If the sync fails. Later appends fail, because the state of the disk is unknown.
    pub fn sync(&mut self) -> Result<(), SessionError> {
        // A backend stores each line durably before it returns.
        self.journal_mut().map_or(Ok(()), Journal::sync)
    }

    /// The file of the session; `None` for a session in memory, in a backend or opened for reading.
    pub fn path(&self) -> Option<&Path> {
        self.journal().map(Journal::path)
    }

    /// The migration that the first append will make; `None` for a file of the current version, and without a file.
    pub fn pending_migration(&self) -> Option<FileMigration> {
        let from_version = self.migrated_from()?;
        Some(FileMigration { from_version, copy: self.journal()?.migration_copy() })
    }

    fn journal(&self) -> Option<&Journal> {
        match &self.store {
            SessionStorage::File(journal) => Some(journal),
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => None,
        }
    }

    fn journal_mut(&mut self) -> Option<&mut Journal> {
        match &mut self.store {
            SessionStorage::File(journal) => Some(journal),
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => None,
        }
    }
}
