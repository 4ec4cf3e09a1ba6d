//! The queue of messages for a busy session: durable, delivered once and in order.
//!
//! ```text
//!  push ─► line in <session>.inbox, synced ─► … ─► deliver ─► record in the session, synced
//!                                                                 │ carries the inbox id
//!                                              file removed ◄─────┘ once all are delivered
//! ```
//!
//! A kill between any two steps neither loses nor repeats a message: it leaves the file only after its record is in the
//! session, and a message whose id is in the session is not delivered again. The session's own lock excludes a second
//! inbox of the same session.

mod error;
mod file;
mod queued_message;
mod storage;

#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};

pub use self::error::InboxError;
use self::queued_message::{QueuedMessage, new_id};
use self::storage::InboxStorage;
use ctxhost_session::{DeliveredMessages, Record, RecordBody, Session, SessionError};
use parking_lot::Mutex;

/// The queued messages of one session.
#[derive(Debug)]
pub struct Inbox {
    state: Mutex<InboxState>,
}

#[derive(Debug)]
struct InboxState {
    storage: InboxStorage,
    waiting: VecDeque<QueuedMessage>,
    /// The ids of messages that are queued or in the session.
    known: DeliveredMessages,
    /// How many of the session's records were searched for delivered messages.
    seen_records: usize,
}

impl Inbox {
    /// Opens the inbox of a session and loads messages that a dead process left.
    ///
    /// # Errors
    ///
    /// If the inbox file exists and cannot be read.
    pub fn open(session: &Session) -> Result<Inbox, InboxError> {
        let storage = InboxStorage::for_session(session);
        let stored = storage.load()?;
        let (known, seen_records) = (session.delivered_messages(), session.record_count());
        let mut state = InboxState { storage, waiting: VecDeque::new(), known, seen_records };
        let stale = state.merge(stored);
        state.prune(&stale);
        Ok(Inbox { state: Mutex::new(state) })
    }

    /// Applies what other machines did while they held the session: removes messages that they delivered, and loads
    /// those of machines that are gone.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(super) fn refresh(&self, session: &Session) -> Result<(), InboxError> {
        let mut state = self.state.lock();
        let count = session.record_count();
        // Records are only appended, so the seen ones need no second search.
        if count > state.seen_records {
            let new = session.records().get(state.seen_records..).unwrap_or_default();
            let delivered: HashSet<String> = new.iter().filter_map(Record::inbox_id).collect();
            state.waiting.retain(|message| !delivered.contains(&message.id));
            state.known.extend(delivered);
            state.seen_records = count;
        }
        let stored = state.storage.load_new()?;
        let stale = state.merge(stored);
        if !stale.is_empty() {
            state.prune(&stale);
        }
        Ok(())
    }

    /// Whether a message is still queued.
    pub(super) fn is_waiting(&self, id: &str) -> bool {
        self.state.lock().waiting.iter().any(|message| message.id == id)
    }

    /// Queues a message, a JSON object with a `role`, and returns its inbox id. The message is durable when this
    /// returns.
    ///
    /// # Errors
    ///
    /// If it is not a message or cannot be written; it is not queued.
    pub fn push(&self, message: &str) -> Result<String, InboxError> {
        let id = new_id();
        self.push_with_id(&id, message)?;
        Ok(id)
    }

    /// Queues a message under an idempotency key of the sender. Returns whether it is new.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn push_with_id(&self, id: &str, message: &str) -> Result<bool, InboxError> {
        // Checked before it is stored: an invalid message would block the queue for good.
        RecordBody::message(message).map_err(InboxError::InvalidMessage)?;
        let message = serde_json::from_str(message)
            .map_err(|error| SessionError::Body { reason: error.to_string() })
            .map_err(InboxError::InvalidMessage)?;
        let mut state = self.state.lock();
        if state.known.contains(id) {
            return Ok(false);
        }
        let message = QueuedMessage { id: id.to_owned(), message };
        // Durable before it is queued: after an error the sender repeats it.
        state.storage.append(&message)?;
        state.known.insert(message.id.clone());
        state.waiting.push_back(message);
        Ok(true)
    }

    /// Passes queued messages to `append`, oldest first, and returns their number. With `through` it stops after
    /// the message of that id, so that each turn starts with its own message.
    ///
    /// `append` must append the record unchanged to this inbox's session and make it durable, as a session's `append`
    /// does. It must not push into this inbox.
    ///
    /// # Errors
    ///
    /// The first error of `append`. That message and later ones stay queued.
    pub fn deliver<E: From<SessionError>>(
        &self,
        through: Option<&str>,
        mut append: impl FnMut(RecordBody) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut state = self.state.lock();
        let mut delivered = Vec::new();
        while let Some(message) = state.waiting.front() {
            let is_last = through == Some(message.id.as_str());
            append(message.record()?)?;
            // Only now: after an error of `append` the message stays in front.
            delivered.extend(state.waiting.pop_front().map(|message| message.id));
            if is_last {
                break;
            }
        }
        state.prune(&delivered);
        Ok(delivered.len())
    }
}

impl InboxState {
    /// Queues stored messages; returns the ids of those that are in the session already.
    fn merge(&mut self, stored: Vec<QueuedMessage>) -> Vec<String> {
        let mut stale = Vec::new();
        for message in stored {
            if self.known.insert(message.id.clone()) {
                self.waiting.push_back(message);
            } else if !self.waiting.iter().any(|waiting| waiting.id == message.id) {
                stale.push(message.id);
            }
        }
        stale
    }

    /// Removes delivered messages from the storage.
    fn prune(&self, delivered: &[String]) {
        // A failure does no harm: the session knows their ids, so they are not delivered again.
        if let Err(error) = self.storage.remove(delivered, self.waiting.is_empty()) {
            tracing::warn!(%error, "cannot remove delivered messages from the inbox");
        }
    }
}
