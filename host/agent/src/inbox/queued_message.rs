//! A queued message and the session record that it becomes.

use std::hash::{BuildHasher, Hasher, RandomState};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use ctxhost_session::{INBOX_ID_KEY, RecordBody, SessionError};

/// A message in the inbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct QueuedMessage {
    pub(super) id: String,
    pub(super) message: Value,
}

impl QueuedMessage {
    /// The record for the session. It carries the inbox id, by which a repeated delivery is recognized.
    pub(super) fn record(&self) -> Result<RecordBody, SessionError> {
        let mut message = self.message.clone();
        if let Some(fields) = message.as_object_mut() {
            fields.insert(INBOX_ID_KEY.to_owned(), Value::String(self.id.clone()));
        }
        RecordBody::from_message(&message)
    }
}

/// A unique inbox id: 128 random bits, from the seeds of the standard library's hash maps.
pub(super) fn new_id() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}
