//! Ids of the queued messages that were delivered to a session, so that none is delivered twice.

use std::collections::HashSet;
use std::sync::Arc;

use super::Session;
use super::checkpoint::id_fingerprints::IdFingerprints;
use super::record::Record;

/// A set of message ids.
#[derive(Clone, Debug, Default)]
pub struct DeliveredMessages {
    ids: HashSet<String>,
    /// Fingerprints of the ids in records that are not loaded.
    skipped: Option<Arc<IdFingerprints>>,
}

impl DeliveredMessages {
    /// Whether the message was delivered.
    pub fn contains(&self, id: &str) -> bool {
        self.ids.contains(id)
            || self.skipped.as_ref().is_some_and(|skipped| skipped.has_message(id))
    }

    /// Adds messages.
    pub fn extend(&mut self, ids: impl IntoIterator<Item = String>) {
        self.ids.extend(ids);
    }

    /// Adds a message; returns whether it is new.
    pub fn insert(&mut self, id: String) -> bool {
        !self.contains(&id) && self.ids.insert(id)
    }
}

impl Session {
    /// The messages that were delivered to this session, on any branch.
    pub fn delivered_messages(&self) -> DeliveredMessages {
        let contents = self.contents.loaded();
        let ids = contents.records.iter().filter_map(Record::inbox_id).collect();
        DeliveredMessages {
            ids,
            skipped: contents.skipped.as_ref().map(|skipped| skipped.id_fingerprints.clone()),
        }
    }
}
