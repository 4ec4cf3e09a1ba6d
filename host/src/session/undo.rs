//! A compaction taken back: the branch goes on from before it, with all that was said since.

use std::collections::HashMap;

use serde_json::json;

use super::Session;
use super::body::RecordBody;
use super::error::SessionError;
use super::record::{Record, RecordKind};

/// The custom type of the record that says so.
const UNDO: &str = "ctxhost.undo";

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
        self.stand_at(before.last().copied());
        let done = self.tell_again(&taken_back, &said);
        if done.is_err() {
            self.stand_at(stood_at);
        }
        done
    }

    fn tell_again(&mut self, taken_back: &[Record], said: &[Record]) -> Result<(), SessionError> {
        let compactions: Vec<&str> = taken_back.iter().map(Record::id).collect();
        let told = json!({
            "compaction": compactions.first(),
            "compactions": compactions,
            "since": said.len(),
        });
        self.append(RecordBody::custom(UNDO, &told))?;
        // Edits and labels name records that have another id now.
        let mut renamed = HashMap::new();
        for record in said {
            let id = self.adopt_renamed(record, &renamed)?;
            renamed.insert(record.id().to_owned(), id);
        }
        Ok(())
    }
}
