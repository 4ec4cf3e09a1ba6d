//! The letters that a session has heard, by their ids: an inbox delivers none of them again.

use std::collections::HashSet;
use std::sync::Arc;

use super::Session;
use super::checkpoint::Marks;
use super::record::Record;

/// Ids of letters.
#[derive(Clone, Debug, Default)]
pub struct Delivered {
    ids: HashSet<String>,
    /// Those of records that were not read.
    older: Option<Arc<Marks>>,
}

impl Delivered {
    /// Whether this letter is among them.
    pub fn contains(&self, id: &str) -> bool {
        self.ids.contains(id) || self.older.as_ref().is_some_and(|older| older.has_letter(id))
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
    pub fn delivered(&self) -> Delivered {
        let contents = self.contents.at_hand();
        let ids = contents.records.iter().filter_map(Record::letter_id).collect();
        Delivered { ids, older: contents.older.as_ref().map(|older| older.marks.clone()) }
    }
}
