//! When what was appended reaches the disk.

use super::{FileCheck, Session, SessionError, Store, SyncPolicy};

impl Session {
    /// Chooses when appends are made durable; without it, always before they are acknowledged.
    #[must_use]
    pub fn with_sync(mut self, policy: SyncPolicy) -> Session {
        if let Store::File(journal) = &mut self.store {
            journal.set_policy(policy);
        }
        self
    }

    /// Holds records back from now on that are appended together, until [`write_out`](Self::write_out) or
    /// another record writes them: for a session whose owner has all of it and sends it again.
    pub fn write_behind(&mut self) {
        if let Store::File(journal) = &mut self.store {
            journal.write_behind();
        }
    }

    /// Writes the records that were held back.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written. Nothing more is appended then: whoever opens the session again
    /// finds it without them.
    pub fn write_out(&mut self) -> Result<(), SessionError> {
        match &mut self.store {
            Store::File(journal) => journal.write_out(),
            Store::Memory | Store::ReadOnly | Store::Kept(_) => Ok(()),
        }
    }

    /// Whether somebody who reads its file finds all records, under the same ids: none is held back, and the file is of
    /// this version.
    pub fn is_in_file(&self) -> bool {
        match &self.store {
            Store::File(journal) => {
                !journal.holds_back() && self.contents.at_hand().migrated_from.is_none()
            }
            Store::Memory | Store::ReadOnly | Store::Kept(_) => false,
        }
    }

    /// Looks whether its file still stands under its name, and makes it again where it does not: deleted,
    /// renamed or replaced with its folder. Every append looks too; this is for a session that waits.
    pub fn check_file(&mut self) -> FileCheck {
        match &mut self.store {
            Store::File(journal) => journal.check_file(),
            Store::Memory | Store::ReadOnly | Store::Kept(_) => FileCheck::Sound,
        }
    }

    /// When its appends are made durable; `None` where it is in no file of ours.
    pub fn sync_policy(&self) -> Option<SyncPolicy> {
        match &self.store {
            Store::File(journal) => Some(journal.policy()),
            Store::Memory | Store::ReadOnly | Store::Kept(_) => None,
        }
    }

    /// Waits until all that was appended is on the disk, unless the policy leaves that to the system.
    ///
    /// # Errors
    ///
    /// Where the disk refuses. Nothing more is appended then: what it holds is not known.
    pub fn sync(&mut self) -> Result<(), SessionError> {
        match &mut self.store {
            Store::File(journal) => journal.sync(),
            // A keeper has kept each line when it answers.
            Store::Memory | Store::ReadOnly | Store::Kept(_) => Ok(()),
        }
    }
}
