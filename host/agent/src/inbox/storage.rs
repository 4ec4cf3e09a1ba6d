//! Where an inbox is stored: in a file, in the session's store, or in memory only.

use std::sync::Arc;

use super::error::InboxError;
use super::file::InboxFile;
use super::queued_message::QueuedMessage;
use ctxhost_session::Session;
use ctxhost_session::backend::{InboxBackend, StoredInboxMessage};

/// The storage of one session's inbox.
#[derive(Debug)]
pub(super) enum InboxStorage {
    /// For a session in memory: none.
    Memory,
    /// A file beside the session file.
    File(InboxFile),
    /// The store of the session.
    Backend(Arc<dyn InboxBackend>),
}

impl InboxStorage {
    pub(super) fn for_session(session: &Session) -> InboxStorage {
        let file = || session.path().map(InboxFile::for_session).map(InboxStorage::File);
        let backend = session.inbox().map(InboxStorage::Backend);
        // The store comes first: other machines can deliver only what is there.
        backend.or_else(file).unwrap_or(InboxStorage::Memory)
    }

    /// The messages stored when the session is opened, oldest first.
    pub(super) fn load(&self) -> Result<Vec<QueuedMessage>, InboxError> {
        match self {
            InboxStorage::Memory => Ok(Vec::new()),
            InboxStorage::File(file) => file.read(),
            InboxStorage::Backend(backend) => {
                let stored = backend.claim().map_err(InboxError::Store)?;
                Ok(stored.iter().filter_map(queued_message).collect())
            }
        }
    }

    /// The messages that other machines may have stored since. Only this process writes to a file.
    pub(super) fn load_new(&self) -> Result<Vec<QueuedMessage>, InboxError> {
        match self {
            InboxStorage::Memory | InboxStorage::File(_) => Ok(Vec::new()),
            InboxStorage::Backend(_) => self.load(),
        }
    }

    /// Stores a message durably.
    pub(super) fn append(&self, message: &QueuedMessage) -> Result<(), InboxError> {
        match self {
            InboxStorage::Memory => Ok(()),
            InboxStorage::File(file) => file.append(message),
            InboxStorage::Backend(backend) => {
                let (id, message) = (message.id.clone(), message.message.to_string());
                backend.store(&StoredInboxMessage { id, message }).map_err(InboxError::Store)
            }
        }
    }

    /// Removes delivered messages. A file is removed as a whole, once the queue is empty.
    pub(super) fn remove(&self, delivered: &[String], is_empty: bool) -> Result<(), InboxError> {
        match self {
            InboxStorage::File(file) if is_empty => file.clear(),
            InboxStorage::Backend(backend) if !delivered.is_empty() => {
                backend.remove(delivered).map_err(InboxError::Store)
            }
            InboxStorage::Memory | InboxStorage::File(_) | InboxStorage::Backend(_) => Ok(()),
        }
    }
}

fn queued_message(stored: &StoredInboxMessage) -> Option<QueuedMessage> {
    // An unreadable message must not keep the others from being delivered.
    let message = serde_json::from_str(&stored.message).ok()?;
    Some(QueuedMessage { id: stored.id.clone(), message })
}
