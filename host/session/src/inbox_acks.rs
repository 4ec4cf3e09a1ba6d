//! The letters that a session has heard, by their ids: an inbox delivers none of them again.

use std::collections::HashSet;
use std::sync::Arc;

use super::Session;
use super::checkpoint::IdFingerprints;
use super::record::Record;

/// Ids of letters.
#[derive(Clone, Debug, Default)]
pub struct DeliveredMessages {
    ids: HashSet<String>,
    /// Those of records that were not read.
    skipped: Option<Arc<IdFingerprints>>,
}

impl DeliveredMessages {
    /// Whether this letter is among them.
    pub fn contains(&self, id: &str) -> bool {
        self.ids.contains(id) || self.skipped.as_ref().is_some_and(|older| older.has_message(id))
    }

    /// Adds letters.
    pub fn extend(&mut self, ids: impl IntoIterator<Item = String>) {
        self.ids.extend(ids);
    }

    /// Adds a letter; whether it is new.
    pub fn insert(&mut self, id: String) -> bool {
        !self.contains(&id) && self.ids.insert(id)
    }
}

impl Session {
    /// The letters that were delivered to this session, on whatever branch.
    pub fn delivered_messages(&self) -> DeliveredMessages {
        let contents = self.contents.loaded();
        let ids = contents.records.iter().filter_map(Record::inbox_id).collect();
        DeliveredMessages {
            ids,
            skipped: contents.skipped.as_ref().map(|older| older.id_fingerprints.clone()),
        }
    }
}
