//! A compaction taken back: the branch goes on from before it, with all that was said since.

use std::collections::HashMap;

use serde_json::json;

use super::body::RecordBody;
use super::error::SessionError;
use super::record::{Record, RecordKind};
use super::together::Together;
use super::{Session, clock};

/// The custom type of the record that says that a compaction was taken back.
pub const UNDO: &str = "ctxhost.undo";

/// Whether a record says that a compaction was taken back.
pub(super) fn tells(record: &Record) -> bool {
    record.custom_data(UNDO).is_some()
}

impl Session {
    /// Takes the newest compaction of the branch back and answers its id; `None` where there is none.
    ///
    /// # Errors
    ///
    /// As [`take_back`](Self::take_back).
    pub fn undo_compaction(&mut self) -> Result<Option<String>, SessionError> {
        let mut branch = self.branch().into_iter();
        let newest = branch.rfind(|record| *record.kind() == RecordKind::Compaction);
        let Some(id) = newest.map(|record| record.id().to_owned()) else { return Ok(None) };
        self.take_back(&id)?;
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
    pub fn take_back(&mut self, compaction: &str) -> Result<(), SessionError> {
        self.contents.complete()?;
        let path = self.contents.tree.path();
        let is_it =
            |record: &Record| *record.kind() == RecordKind::Compaction && record.id() == compaction;
        let at = path.iter().position(|at| self.contents.at(*at).is_some_and(is_it));
        let at = at.ok_or_else(|| SessionError::UnknownRecord { id: compaction.to_owned() })?;
        let (before, from) = path.split_at(at);
        let since: Vec<Record> = self.at(from.to_vec()).into_iter().cloned().collect();
        let (taken_back, said): (Vec<Record>, Vec<Record>) =
            since.into_iter().partition(|record| *record.kind() == RecordKind::Compaction);
        let stood_at = self.contents.tree.leaf();
        let leaf = self.leaf().map(|leaf| leaf.id().to_owned());
        self.stand_at(before.last().copied());
        let done = self.tell_again(&taken_back, &said, leaf.as_deref());
        if done.is_err() {
            self.stand_at(stood_at);
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
        let mut again = Together::default();
        again.add(self, RecordBody::custom(UNDO, &told), clock::now_ms());
        // Edits and labels name records that have another id now.
        let mut renamed = HashMap::new();
        for record in said {
            let body = RecordBody::of_record(record)?.naming(&renamed);
            let id = again.add(self, body, record.timestamp_ms());
            renamed.insert(record.id().to_owned(), id);
        }
        self.append_together(again)
    }
}
