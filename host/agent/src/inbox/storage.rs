//! Where letters are kept: in a file beside a session, where the store keeps the session, or nowhere.

use std::sync::Arc;

use super::file::InboxFile;
use super::{InboxError, QueuedMessage};
use ctxhost_session::Session;
use ctxhost_session::backend::{InboxBackend, StoredInboxMessage};

/// Where letters of one session are kept.
#[derive(Debug)]
pub(super) enum InboxStorage {
    /// The session is in memory alone.
    Memory,
    /// In a file beside it.
    File(InboxFile),
    /// Where the session is kept.
    Backend(Arc<dyn InboxBackend>),
}

impl InboxStorage {
    /// The place that belongs to a session.
    pub(super) fn for_session(session: &Session) -> InboxStorage {
        let beside = || session.path().map(InboxFile::for_session).map(InboxStorage::File);
        let with_it = session.inbox().map(InboxStorage::Backend);
        with_it.or_else(beside).unwrap_or(InboxStorage::Memory)
    }

    /// The letters that are there when a session is opened, oldest first.
    pub(super) fn load(&self) -> Result<Vec<QueuedMessage>, InboxError> {
        match self {
            InboxStorage::Memory => Ok(Vec::new()),
            InboxStorage::File(file) => file.read(),
            InboxStorage::Backend(letters) => {
                let kept = letters.claim().map_err(InboxError::Store)?;
                Ok(kept.iter().filter_map(queued_message).collect())
            }
        }
    }

    /// The letters that may have come in from elsewhere since. Nobody else writes to a file.
    pub(super) fn load_new(&self) -> Result<Vec<QueuedMessage>, InboxError> {
        match self {
            InboxStorage::Memory | InboxStorage::File(_) => Ok(Vec::new()),
            InboxStorage::Backend(_) => self.load(),
        }
    }

    /// Keeps a letter for good.
    pub(super) fn append(&self, letter: &QueuedMessage) -> Result<(), InboxError> {
        match self {
            InboxStorage::Memory => Ok(()),
            InboxStorage::File(file) => file.append(letter),
            InboxStorage::Backend(letters) => {
                let kept = StoredInboxMessage {
                    id: letter.id.clone(),
                    message: letter.message.to_string(),
                };
                letters.store(&kept).map_err(InboxError::Store)
            }
        }
    }

    /// Forgets letters that are delivered; a file goes once none waits.
    pub(super) fn remove(&self, delivered: &[String], is_empty: bool) -> Result<(), InboxError> {
        match self {
            InboxStorage::File(file) if is_empty => file.clear(),
            InboxStorage::Backend(letters) if !delivered.is_empty() => {
                letters.remove(delivered).map_err(InboxError::Store)
            }
            InboxStorage::Memory | InboxStorage::File(_) | InboxStorage::Backend(_) => Ok(()),
        }
    }
}

fn queued_message(kept: &StoredInboxMessage) -> Option<QueuedMessage> {
    let message = serde_json::from_str(&kept.message).ok()?;
    Some(QueuedMessage { id: kept.id.clone(), message })
}
