//! When what was appended reaches the disk.

use super::{FileCheck, Session, SessionError, SessionStorage, SyncPolicy};

impl Session {
    /// Chooses when appends are made durable; without it, always before they are acknowledged.
    #[must_use]
    pub fn with_sync(mut self, policy: SyncPolicy) -> Session {
        if let SessionStorage::File(journal) = &mut self.store {
            journal.set_policy(policy);
        }
        self
    }

    /// Holds records back from now on that are appended together, until [`flush`](Self::write_out) or
    /// another record writes them: for a session whose owner has all of it and sends it again.
    pub fn enable_write_behind(&mut self) {
        if let SessionStorage::File(journal) = &mut self.store {
            journal.enable_write_behind();
        }
    }

    /// Writes the records that were held back.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written. Nothing more is appended then: whoever opens the session again
    /// finds it without them.
    pub fn flush(&mut self) -> Result<(), SessionError> {
        match &mut self.store {
            SessionStorage::File(journal) => journal.flush(),
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => {
                Ok(())
            }
        }
    }

    /// Whether somebody who reads its file finds all records, under the same ids: none is held back, and the file is of
    /// this version.
    pub fn is_fully_written(&self) -> bool {
        match &self.store {
            SessionStorage::File(journal) => {
                !journal.has_buffered_lines() && self.contents.loaded().migrated_from.is_none()
            }
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => false,
        }
    }

    /// Looks whether its file still stands under its name, and makes it again where it does not: deleted,
    /// renamed or replaced with its folder. Every append looks too; this is for a session that waits.
    pub fn check_file(&mut self) -> FileCheck {
        match &mut self.store {
            SessionStorage::File(journal) => journal.check_file(),
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => {
                FileCheck::Intact
            }
        }
    }

    /// When its appends are made durable; `None` where it is in no file of ours.
    pub fn sync_policy(&self) -> Option<SyncPolicy> {
        match &self.store {
            SessionStorage::File(journal) => Some(journal.policy()),
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => None,
        }
    }

    /// Waits until all that was appended is on the disk, unless the policy leaves that to the system.
    ///
    /// # Errors
    ///
    /// Where the disk refuses. Nothing more is appended then: what it holds is not known.
    pub fn sync(&mut self) -> Result<(), SessionError> {
        match &mut self.store {
            SessionStorage::File(journal) => journal.sync(),
            // A keeper has kept each line when it answers.
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => {
                Ok(())
            }
        }
    }
}
