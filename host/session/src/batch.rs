//! Records that are appended with one write and one sync, because half of them would be wrong.

use std::collections::HashSet;

use super::body::RecordBody;
use super::error::SessionError;
use super::record::Record;
use super::{Session, SessionStorage};

/// Records that are about to be appended, each behind the one before it.
#[derive(Debug, Default)]
pub(super) struct RecordBatch {
    coming: Vec<Record>,
    /// Their ids: there may be tens of thousands.
    ids: HashSet<String>,
}

impl RecordBatch {
    /// Adds one and answers the id that it will have. The session may not change before they are appended.
    pub(super) fn add(&mut self, session: &Session, body: RecordBody, timestamp_ms: i64) -> String {
        let is_coming = |id: &str| self.ids.contains(id);
        let id = session.next_id_after(&self.coming, &is_coming, &body.id_seed(), timestamp_ms);
        let parent = self.coming.last().or_else(|| session.leaf()).map(Record::id);
        let record = body.into_record(&id, parent, timestamp_ms);
        self.coming.push(record);
        self.ids.insert(id.clone());
        id
    }
}

impl Session {
    /// Appends records with one write and answers their ids.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append); none of them is appended then.
    pub fn append_all(
        &mut self,
        bodies: impl IntoIterator<Item = RecordBody>,
        timestamp_ms: i64,
    ) -> Result<Vec<String>, SessionError> {
        let mut together = RecordBatch::default();
        let coming = bodies.into_iter().map(|body| together.add(self, body, timestamp_ms));
        let ids = coming.collect();
        self.append_batch(together)?;
        Ok(ids)
    }

    /// Appends records with one write.
    ///
    /// A kill in the middle of the write may leave the first of them: who needs all or nothing says in
    /// the first record how many there are, and looks when the session is opened.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append); none of them is appended then.
    pub(super) fn append_batch(&mut self, together: RecordBatch) -> Result<(), SessionError> {
        self.check_writable()?;
        let lines: Vec<&str> = together.coming.iter().map(Record::line).collect();
        let contents = self.contents.load_all()?;
        match &mut self.store {
            SessionStorage::Memory | SessionStorage::ReadOnly => {}
            SessionStorage::File(journal) => journal.append_batch(contents, &lines)?,
            SessionStorage::Backend(keeper) => keeper.append(&lines)?,
        }
        together.coming.into_iter().for_each(|record| self.push(record));
        Ok(())
    }
}
