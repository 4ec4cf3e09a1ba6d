//! Messages that come in while a session is busy: kept on disk, delivered once, in order.
//!
//! ```text
//!  push ─► line in <session>.inbox, synced ─► … ─► deliver ─► record in the session, synced
//!                                                                 │ carries the letter's id
//!                                              file removed ◄─────┘ once all are delivered
//! ```
//!
//! A kill between any two steps loses nothing and repeats nothing: a letter leaves the file only
//! after its record is in the session, and a letter whose id the session holds is not delivered
//! again. The session's own lock keeps a second inbox of the same session away.

mod file;
mod storage;

#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use ctxhost_session::{DeliveredMessages, INBOX_ID_KEY, Record, RecordBody, Session, SessionError};
use storage::InboxStorage;

/// Why a message could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The file system refused.
    #[error("cannot {action} {}: {source}; the message was not taken", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The store of the session did not take it.
    #[error("{0}; the message was not taken")]
    Store(SessionError),
    /// It is no message.
    #[error("the inbox takes messages only: {0}")]
    InvalidMessage(SessionError),
}

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct QueuedMessage {
    id: String,
    message: Value,
}

/// The messages of one session that wait.
#[derive(Debug)]
pub struct Inbox {
    state: Mutex<InboxState>,
}

#[derive(Debug)]
struct InboxState {
    storage: InboxStorage,
    waiting: VecDeque<QueuedMessage>,
    /// Ids of letters that wait or are in the session.
    delivered: DeliveredMessages,
    /// Records of the session that were looked at for letters.
    seen_records: usize,
}

impl Inbox {
    /// Opens the inbox beside a session and finds what a kill may have left in it.
    ///
    /// # Errors
    ///
    /// Where the file is there and cannot be read.
    pub fn open(session: &Session) -> Result<Inbox, InboxError> {
        let letters = InboxStorage::for_session(session);
        let found = letters.load()?;
        let (known, seen) = (session.delivered_messages(), session.record_count());
        let mut state = InboxState {
            storage: letters,
            waiting: VecDeque::new(),
            delivered: known,
            seen_records: seen,
        };
        let stale = state.merge(found);
        state.prune(&stale);
        Ok(Inbox { state: Mutex::new(state) })
    }

    /// Takes in what other machines did while this one did not have the session: letters that they have
    /// delivered, and letters of machines that are gone.
    ///
    /// # Errors
    ///
    /// Where letters cannot be read.
    pub(super) fn refresh(&self, session: &Session) -> Result<(), InboxError> {
        let mut state = self.state();
        let count = session.record_count();
        if count > state.seen_records {
            let new = session.records().get(state.seen_records..).unwrap_or_default();
            let delivered: HashSet<String> = new.iter().filter_map(Record::inbox_id).collect();
            state.waiting.retain(|letter| !delivered.contains(&letter.id));
            state.delivered.extend(delivered);
            state.seen_records = count;
        }
        let found = state.storage.load_new()?;
        let stale = state.merge(found);
        if !stale.is_empty() {
            state.prune(&stale);
        }
        Ok(())
    }

    /// Whether this letter still waits.
    pub(super) fn is_waiting(&self, id: &str) -> bool {
        self.state().waiting.iter().any(|letter| letter.id == id)
    }

    /// Keeps a message, a JSON object with a `role`, and answers the id of its letter. It is on the
    /// disk when this returns.
    ///
    /// # Errors
    ///
    /// Where it is no message or could not be written; it is not kept then.
    pub fn push(&self, message: &str) -> Result<String, InboxError> {
        let id = new_id();
        self.push_with_id(&id, message)?;
        Ok(id)
    }

    /// Keeps a message under an id of the sender's, who may repeat it. Answers whether it is new.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn push_with_id(&self, id: &str, message: &str) -> Result<bool, InboxError> {
        RecordBody::message(message).map_err(InboxError::InvalidMessage)?;
        let message = serde_json::from_str(message)
            .map_err(|error| SessionError::Body { reason: error.to_string() })
            .map_err(InboxError::InvalidMessage)?;
        let mut state = self.state();
        if state.delivered.contains(id) {
            return Ok(false);
        }
        let letter = QueuedMessage { id: id.to_owned(), message };
        state.storage.append(&letter)?;
        state.delivered.insert(letter.id.clone());
        state.waiting.push_back(letter);
        Ok(true)
    }

    /// How many messages wait.
    pub fn waiting_count(&self) -> usize {
        self.state().waiting.len()
    }

    /// Hands waiting messages to `append`, oldest first, and answers how many there were: all of them, or
    /// those up to the letter `through`, so that each turn begins with the words it is for.
    ///
    /// `append` puts the record into this inbox's session as it is, and must have it on the disk
    /// when it returns; a session's `append` does. It may not push into this inbox.
    ///
    /// # Errors
    ///
    /// The first one of `append`. That message and those after it still wait.
    pub fn deliver<E: From<SessionError>>(
        &self,
        through: Option<&str>,
        mut append: impl FnMut(RecordBody) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut state = self.state();
        let mut delivered = Vec::new();
        while let Some(letter) = state.waiting.front() {
            let is_last = through == Some(letter.id.as_str());
            append(letter.record()?)?;
            delivered.extend(state.waiting.pop_front().map(|letter| letter.id));
            if is_last {
                break;
            }
        }
        state.prune(&delivered);
        Ok(delivered.len())
    }

    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InboxState {
    /// Answers the ids of those that are in the session already.
    fn merge(&mut self, found: Vec<QueuedMessage>) -> Vec<String> {
        let mut stale = Vec::new();
        for letter in found {
            if self.delivered.insert(letter.id.clone()) {
                self.waiting.push_back(letter);
            } else if !self.waiting.iter().any(|waiting| waiting.id == letter.id) {
                stale.push(letter.id);
            }
        }
        stale
    }

    /// Forgets what is delivered.
    ///
    /// If that fails, what stays is known from the session, and is passed over.
    fn prune(&self, delivered: &[String]) {
        if let Err(error) = self.storage.remove(delivered, self.waiting.is_empty()) {
            tracing::warn!(%error, "delivered words could not be removed from the inbox");
        }
    }
}

impl QueuedMessage {
    /// The record it becomes.
    fn record(&self) -> Result<RecordBody, SessionError> {
        let mut message = self.message.clone();
        if let Some(fields) = message.as_object_mut() {
            fields.insert(INBOX_ID_KEY.to_owned(), Value::String(self.id.clone()));
        }
        RecordBody::message(&message.to_string())
    }
}

/// An id that no other letter has: 128 bits from the seeds of the standard library's hash maps.
fn new_id() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}
