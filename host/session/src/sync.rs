//! Durability of a session file: sync policy, write-behind and file checks.

use super::{FileCheck, Session, SessionError, SessionStorage, SyncPolicy};

impl Session {
    /// Sets when appends are synced; the default is before they are acknowledged.
    #[must_use]
    pub fn with_sync(mut self, policy: SyncPolicy) -> Session {
        if let SessionStorage::File(journal) = &mut self.store {
            journal.set_policy(policy);
        }
        self
    }

    /// Buffers batches from now on until [`flush`](Self::flush) or another append writes them. For sessions
    /// whose client keeps the conversation and sends it again.
    pub fn enable_write_behind(&mut self) {
        if let SessionStorage::File(journal) = &mut self.store {
            journal.enable_write_behind();
        }
    }

    /// Writes buffered records.
    ///
    /// # Errors
    ///
    /// If the file cannot be written. Later appends fail; after reopening, the session lacks these records.
    pub fn flush(&mut self) -> Result<(), SessionError> {
        match &mut self.store {
            SessionStorage::File(journal) => journal.flush(),
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => {
                Ok(())
            }
        }
    }

    /// Whether the file contains all records with the same ids: nothing is buffered, and the file has the
    /// current version.
    pub fn is_fully_written(&self) -> bool {
        match &self.store {
            SessionStorage::File(journal) => {
                !journal.has_buffered_lines() && self.contents.loaded().migrated_from.is_none()
            }
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => false,
        }
    }

    /// Checks that the path still refers to the open file, and recreates the file if not. Appends check
    /// too; this is for idle sessions.
    pub fn check_file(&mut self) -> FileCheck {
        match &mut self.store {
            SessionStorage::File(journal) => journal.check_file(),
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => {
                FileCheck::Intact
            }
        }
    }

    /// When its appends are synced; `None` for a session without a file.
    pub fn sync_policy(&self) -> Option<SyncPolicy> {
        match &self.store {
            SessionStorage::File(journal) => Some(journal.policy()),
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => None,
        }
    }

    /// Syncs appended records to disk, unless the policy is `os`.
    ///
    /// # Errors
    ///
    /// If the sync fails. Later appends fail, because the state of the disk is unknown.
    pub fn sync(&mut self) -> Result<(), SessionError> {
        match &mut self.store {
            SessionStorage::File(journal) => journal.sync(),
            // A backend stores each line durably before it returns.
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => {
                Ok(())
            }
        }
    }
}
