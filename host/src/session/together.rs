//! Records that are appended with one write and one sync, because half of them would be wrong.

use super::body::RecordBody;
use super::error::SessionError;
use super::record::Record;
use super::{Session, Store, clock};

impl Session {
    /// Appends records, each behind the one before it, with one write.
    ///
    /// A kill in the middle of the write may leave the first of them: who needs all or nothing says in
    /// the first record how many there are, and looks when the session is opened.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append); none of them is appended then.
    pub(super) fn append_together(
        &mut self,
        bodies: Vec<(RecordBody, i64)>,
    ) -> Result<(), SessionError> {
        self.check_writable()?;
        let mut coming: Vec<Record> = Vec::with_capacity(bodies.len());
        for (body, timestamp_ms) in bodies {
            let id = self.next_id_behind(&coming, &body.seed(), timestamp_ms);
            let parent = coming.last().or_else(|| self.contents.leaf()).map(Record::id);
            let line = body.into_line(&id, parent, &clock::iso(timestamp_ms));
            coming.push(Session::record_of_line(&line)?);
        }
        if let Store::File(journal) = &mut self.store {
            let lines: Vec<&str> = coming.iter().map(Record::line).collect();
            journal.append_all(&mut self.contents, &lines)?;
        }
        coming.into_iter().for_each(|record| self.push(record));
        Ok(())
    }
}
