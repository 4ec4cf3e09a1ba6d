//! A compaction taken back: the branch goes on from before it, with all that was said since.

use std::collections::HashMap;

use serde_json::json;

use super::batch::RecordBatch;
use super::body::RecordBody;
use super::error::SessionError;
use super::record::{Record, RecordKind};
use super::{Session, clock};

/// The custom type of the record that says that a compaction was taken back.
pub const UNDO_TYPE: &str = "ctxhost.undo";

/// Whether a record says that a compaction was taken back.
pub(super) fn is_undo(record: &Record) -> bool {
    record.custom_data(UNDO_TYPE).is_some()
}

impl Session {
    /// Takes the newest compaction of the branch back and answers its id; `None` where there is none.
    ///
    /// # Errors
    ///
    /// As [`undo_compaction_of`](Self::take_back).
    pub fn undo_newest_compaction(&mut self) -> Result<Option<String>, SessionError> {
        let mut branch = self.branch().into_iter();
        let newest = branch.rfind(|record| *record.kind() == RecordKind::Compaction);
        let Some(id) = newest.map(|record| record.id().to_owned()) else { return Ok(None) };
        self.undo_compaction_of(&id)?;
        Ok(Some(id))
    }

    /// Takes a compaction of the branch back, and every newer one with it: they were made of what it
    /// had left.
    ///
    /// Nothing is removed: the records since are written again behind what came before the compaction,
    /// as a branch of their own, and the old branch stays. Call [`live`](Self::live) afterwards.
    ///
    /// # Errors
    ///
    /// [`SessionError::UnknownRecord`] where the branch has no such compaction, otherwise as
    /// [`append`](Self::append); the session stands where it stood then.
    pub fn undo_compaction_of(&mut self, compaction: &str) -> Result<(), SessionError> {
        self.contents.load_all()?;
        let path = self.contents.tree.path();
        let is_it =
            |record: &Record| *record.kind() == RecordKind::Compaction && record.id() == compaction;
        let at = path.iter().position(|at| self.contents.record_at(*at).is_some_and(is_it));
        let at = at.ok_or_else(|| SessionError::UnknownRecord { id: compaction.to_owned() })?;
        let (before, from) = path.split_at(at);
        let since: Vec<Record> = self.records_at(from.to_vec()).into_iter().cloned().collect();
        let (taken_back, said): (Vec<Record>, Vec<Record>) =
            since.into_iter().partition(|record| *record.kind() == RecordKind::Compaction);
        let stood_at = self.contents.tree.leaf();
        let leaf = self.leaf().map(|leaf| leaf.id().to_owned());
        self.move_leaf(before.last().copied());
        let done = self.tell_again(&taken_back, &said, leaf.as_deref());
        if done.is_err() {
            self.move_leaf(stood_at);
        }
        done
    }

    fn tell_again(
        &mut self,
        taken_back: &[Record],
        said: &[Record],
        stood_at: Option<&str>,
    ) -> Result<(), SessionError> {
        let compactions: Vec<&str> = taken_back.iter().map(Record::id).collect();
        let told = json!({
            "compaction": compactions.first(),
            "compactions": compactions,
            "since": said.len(),
            "stoodAt": stood_at,
        });
        // One write, and a count: half of the records would hide the other half.
        let mut again = RecordBatch::default();
        again.add(self, RecordBody::custom(UNDO_TYPE, &told), clock::now_ms());
        // Edits and labels name records that have another id now.
        let mut renamed = HashMap::new();
        for record in said {
            let body = RecordBody::from_record(record)?.with_renamed_target(&renamed);
            let id = again.add(self, body, record.timestamp_ms());
            renamed.insert(record.id().to_owned(), id);
        }
        self.append_batch(again)
    }
}
