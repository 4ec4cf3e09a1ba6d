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

mod letters;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::{Delivered, LETTER_KEY, RecordBody, Session, SessionError};
use letters::LetterFile;

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
    /// It is no message.
    #[error("the inbox takes messages only: {0}")]
    NoMessage(SessionError),
}

/// A message that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Letter {
    id: String,
    message: Value,
}

/// The messages of one session that wait.
#[derive(Debug)]
pub struct Inbox {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` for a session that is on no disk.
    file: Option<LetterFile>,
    waiting: VecDeque<Letter>,
    /// Ids of letters that wait or are in the session.
    known: Delivered,
}

impl Inbox {
    /// Opens the inbox beside a session and finds what a kill may have left in it.
    ///
    /// # Errors
    ///
    /// Where the file is there and cannot be read.
    pub fn open(session: &Session) -> Result<Inbox, InboxError> {
        let known = session.delivered();
        let file = session.path().map(LetterFile::beside);
        let found = file.as_ref().map(LetterFile::read).transpose()?.unwrap_or_default();
        let mut state = State { file, waiting: VecDeque::new(), known };
        for letter in found {
            if state.known.insert(letter.id.clone()) {
                state.waiting.push_back(letter);
            }
        }
        state.tidy();
        Ok(Inbox { state: Mutex::new(state) })
    }

    /// Keeps a message, a JSON object with a `role`, and answers the id of its letter. It is on the
    /// disk when this returns.
    ///
    /// # Errors
    ///
    /// Where it is no message or could not be written; it is not kept then.
    pub fn push(&self, message: &str) -> Result<String, InboxError> {
        let id = new_id();
        self.push_as(&id, message)?;
        Ok(id)
    }

    /// Keeps a message under an id of the sender's, who may repeat it. Answers whether it is new.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn push_as(&self, id: &str, message: &str) -> Result<bool, InboxError> {
        RecordBody::message(message).map_err(InboxError::NoMessage)?;
        let message = serde_json::from_str(message)
            .map_err(|error| SessionError::Body { reason: error.to_string() })
            .map_err(InboxError::NoMessage)?;
        let mut state = self.state();
        if state.known.contains(id) {
            return Ok(false);
        }
        let letter = Letter { id: id.to_owned(), message };
        if let Some(file) = &state.file {
            file.append(&letter)?;
        }
        state.known.insert(letter.id.clone());
        state.waiting.push_back(letter);
        Ok(true)
    }

    /// How many messages wait.
    pub fn waiting(&self) -> usize {
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
        let mut delivered = 0;
        while let Some(letter) = state.waiting.front() {
            let is_last = through == Some(letter.id.as_str());
            append(letter.record()?)?;
            state.waiting.pop_front();
            delivered += 1;
            if is_last {
                break;
            }
        }
        state.tidy();
        Ok(delivered)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Removes the file once nothing in it waits.
    ///
    /// If that fails, what stays in the file is known from the session, and is passed over.
    fn tidy(&self) {
        if !self.waiting.is_empty() {
            return;
        }
        if let Some(Err(error)) = self.file.as_ref().map(LetterFile::clear) {
            tracing::warn!(%error, "an empty inbox could not be removed");
        }
    }
}

impl Letter {
    /// The record it becomes.
    fn record(&self) -> Result<RecordBody, SessionError> {
        let mut message = self.message.clone();
        if let Some(fields) = message.as_object_mut() {
            fields.insert(LETTER_KEY.to_owned(), Value::String(self.id.clone()));
        }
        RecordBody::message(&message.to_string())
    }
}

/// An id that no other letter has: 128 bits from the seeds of the standard library's hash maps.
fn new_id() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}
