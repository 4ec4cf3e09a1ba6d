//! Undo of a compaction: a new branch from before it, with copies of the later records.

use std::collections::HashMap;

use serde_json::json;

use super::batch::RecordBatch;
use super::body::{RecordBody, RecordTime};
use super::error::SessionError;
use super::record::{Record, RecordKind};
use super::{Session, clock};

/// The custom type of the record that starts an undo.
pub const UNDO_TYPE: &str = "ctxhost.undo";

/// Whether a record starts an undo.
pub(super) fn is_undo(record: &Record) -> bool {
    record.custom_data(UNDO_TYPE).is_some()
}

impl Session {
    /// Undoes the newest compaction of the branch and returns its id; `None` if there is none.
    ///
    /// # Errors
    ///
    /// As [`undo_compaction_of`](Self::undo_compaction_of).
    pub fn undo_newest_compaction(&mut self) -> Result<Option<String>, SessionError> {
        let mut branch = self.branch().into_iter();
        let newest = branch.rfind(|record| *record.kind() == RecordKind::Compaction);
        let Some(id) = newest.map(|record| record.id().to_owned()) else { return Ok(None) };
        self.undo_compaction_of(&id)?;
        Ok(Some(id))
    }

    /// Undoes a compaction of the branch and every newer one, which are based on its result.
    ///
    /// Nothing is removed: the later records are appended again as a new branch from before the
    /// compaction. Call [`live`](Self::live) afterwards.
    ///
    /// # Errors
    ///
    /// [`SessionError::UnknownRecord`] if the branch has no such compaction, otherwise as
    /// [`append`](Self::append); the leaf is unchanged then.
    pub fn undo_compaction_of(&mut self, compaction: &str) -> Result<(), SessionError> {
        self.contents.load_all()?;
        let path = self.contents.tree.path();
        let is_target =
            |record: &Record| *record.kind() == RecordKind::Compaction && record.id() == compaction;
        let at = path.iter().position(|at| self.contents.record_at(*at).is_some_and(is_target));
        let at = at.ok_or_else(|| SessionError::UnknownRecord { id: compaction.to_owned() })?;
        let (before, from) = path.split_at(at);
        let later: Vec<Record> = self.records_at(from.to_vec()).into_iter().cloned().collect();
        let (compactions, later): (Vec<Record>, Vec<Record>) =
            later.into_iter().partition(|record| *record.kind() == RecordKind::Compaction);
        let leaf = self.contents.tree.leaf();
        let leaf_id = self.leaf().map(|leaf| leaf.id().to_owned());
        // Before the batch is built: its ids and parents depend on the leaf.
        self.move_leaf(before.last().copied());
        let appended = self.append_undo(&compactions, &later, leaf_id.as_deref());
        if appended.is_err() {
            self.move_leaf(leaf);
        }
        appended
    }

    fn append_undo(
        &mut self,
        compactions: &[Record],
        later: &[Record],
        leaf_id: Option<&str>,
    ) -> Result<(), SessionError> {
        let compactions: Vec<&str> = compactions.iter().map(Record::id).collect();
        let marker = json!({
            "compaction": compactions.first(),
            "compactions": compactions,
            "since": later.len(),
            "stoodAt": leaf_id,
        });
        // One write, and the number of records in its first: a partial branch would hide the rest.
        let mut batch = RecordBatch::default();
        let now = RecordTime::new(clock::now_ms());
        batch.add(self, RecordBody::custom(UNDO_TYPE, &marker), &now);
        // The copies get new ids, which edits and labels among them have to name.
        let mut new_ids = HashMap::new();
        for record in later {
            let body = RecordBody::from_record(record)?.with_renamed_target(&new_ids);
            let id = batch.add(self, body, &RecordTime::new(record.timestamp_ms()));
            new_ids.insert(record.id().to_owned(), id);
        }
        self.append_batch(batch)
    }
}
