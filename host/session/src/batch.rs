//! Batches: records that are appended with one write and one sync.

use std::collections::HashSet;

use super::body::{RecordBody, RecordTime};
use super::error::SessionError;
use super::record::Record;
use super::{Session, SessionStorage};

/// Records to be appended, each the parent of the next.
#[derive(Debug, Default)]
pub(super) struct RecordBatch {
    records: Vec<Record>,
    /// Their ids as a set, because a batch may have tens of thousands of records.
    ids: HashSet<String>,
}

impl RecordBatch {
    /// Adds a record and returns its id. The session must not change before the batch is appended.
    pub(super) fn add(&mut self, session: &Session, body: RecordBody, time: &RecordTime) -> String {
        let is_pending = |id: &str| self.ids.contains(id);
        let id = session.next_id_after(&self.records, &is_pending, &body.id_seed(), time.ms);
        let parent = self.records.last().or_else(|| session.leaf()).map(Record::id);
        let record = body.into_record(&id, parent, time);
        self.records.push(record);
        self.ids.insert(id.clone());
        id
    }
}

impl Session {
    /// Appends records with one write and returns their ids.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append); none of them is appended then.
    pub fn append_all(
        &mut self,
        bodies: impl IntoIterator<Item = RecordBody>,
        timestamp_ms: i64,
    ) -> Result<Vec<String>, SessionError> {
        let mut batch = RecordBatch::default();
        let time = RecordTime::new(timestamp_ms);
        let ids = bodies.into_iter().map(|body| batch.add(self, body, &time)).collect();
        self.append_batch(batch)?;
        Ok(ids)
    }

    /// Appends a batch with one write.
    ///
    /// A crash during the write may leave the first records. A batch that must be complete stores its size
    /// in the first record, which is checked when the session is read.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append); no record is appended then.
    pub(super) fn append_batch(&mut self, batch: RecordBatch) -> Result<(), SessionError> {
        self.check_writable()?;
        let lines: Vec<&str> = batch.records.iter().map(Record::line).collect();
        let contents = self.contents.load_all()?;
        match &mut self.store {
            SessionStorage::Memory | SessionStorage::ReadOnly => {}
            SessionStorage::File(journal) => journal.append_batch(contents, &lines)?,
            SessionStorage::Backend(backend) => backend.append(&lines)?,
        }
        batch.records.into_iter().for_each(|record| self.push(record));
        Ok(())
    }
}
