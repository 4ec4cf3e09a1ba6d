//! Appending records: first to the storage of the session, then to its contents in memory.

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_files::MAX_LINE_BYTES;

use super::body::RecordTime;
use super::compaction::CompactionDraft;
use super::{
    NewCompaction, Record, RecordBody, RecordKind, SESSION_VERSION, Session, SessionError,
    SessionStorage, checkpoint, clock, identity, live_transcript,
};

impl Session {
    /// Appends a record after the leaf and returns its id.
    ///
    /// # Errors
    ///
    /// If the storage cannot be written; session and storage are unchanged then.
    pub fn append(&mut self, body: RecordBody) -> Result<String, SessionError> {
        self.append_at(body, clock::now_ms())
    }

    /// Appends a record with this time, in milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn append_at(
        &mut self,
        body: RecordBody,
        timestamp_ms: i64,
    ) -> Result<String, SessionError> {
        let id = self.next_id(&body.id_seed(), timestamp_ms);
        self.append_as(id, body, timestamp_ms)
    }

    /// Appends a compaction and returns its id. Call [`live`](Self::live) afterwards.
    ///
    /// # Errors
    ///
    /// [`SessionError::Plan`] if the view is not the live transcript of this branch or the plan is out of
    /// order; otherwise as [`append`](Self::append).
    pub fn compact(&mut self, compaction: NewCompaction<'_>) -> Result<String, SessionError> {
        if !compaction.ignored.is_empty() {
            self.contents.load_all()?;
        }
        let contents = self.contents.loaded();
        // Verified before anything is written, because written lines never change.
        let draft = CompactionDraft::prepare(contents, contents.first_task, &compaction)?;
        let timestamp_ms = compaction.timestamp_ms.unwrap_or_else(clock::now_ms);
        let id = self.next_id(&draft.id_seed(), timestamp_ms);
        let record = self.build_record(&id, draft.into_body(&id), timestamp_ms)?;
        // Before the append, so that a crash in between loses no summary: see `recover_compaction`.
        self.store_pending(&compaction, &record);
        self.append_record(record)?;
        // Without it in the file, the pending one is the only copy, and a checkpoint would name what is not there.
        if !self.has_buffered_records() {
            self.remove_pending();
            self.update_checkpoint();
        }
        Ok(id)
    }

    /// Appends a copy of a record of another session with its time, and with its id if that is free.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn append_copy(&mut self, record: &Record) -> Result<String, SessionError> {
        let body = RecordBody::from_record(record)?;
        // A copy keeps its id if possible, because edits and labels name it.
        let id = if self.contents.loaded().has_id(record.id()) {
            self.next_id(&body.id_seed(), record.timestamp_ms())
        } else {
            record.id().to_owned()
        };
        self.append_as(id, body, record.timestamp_ms())
    }

    pub(super) fn next_id(&self, seed: &str, timestamp_ms: i64) -> String {
        self.next_id_after(&[], &|_| false, seed, timestamp_ms)
    }

    /// The id of a record after others that are not appended yet; `is_pending` checks their ids.
    pub(super) fn next_id_after(
        &self,
        pending: &[Record],
        is_pending: &dyn Fn(&str) -> bool,
        seed: &str,
        timestamp_ms: i64,
    ) -> String {
        let contents = self.contents.loaded();
        let number = (contents.record_count() + pending.len()).to_string();
        let time = timestamp_ms.to_string();
        let parent = pending.last().or_else(|| contents.leaf()).map_or("", Record::id);
        // Position and parent are part of the seed: the same message sent twice needs two ids.
        let seed = [self.header().id(), &number, parent, &time, seed];
        identity::record_id(&seed, |id| contents.has_id(id) || is_pending(id))
    }

    pub(super) fn append_as(
        &mut self,
        id: String,
        body: RecordBody,
        timestamp_ms: i64,
    ) -> Result<String, SessionError> {
        let record = self.build_record(&id, body, timestamp_ms)?;
        self.append_record(record)?;
        Ok(id)
    }

    /// Builds the record of a body with the leaf as its parent.
    pub(super) fn build_record(
        &self,
        id: &str,
        body: RecordBody,
        timestamp_ms: i64,
    ) -> Result<Record, SessionError> {
        self.check_writable()?;
        let parent = self.contents.loaded().leaf().map(Record::id);
        let record = body.into_record(id, parent, &RecordTime::new(timestamp_ms));
        let bytes = record.line().len();
        if bytes > MAX_LINE_BYTES {
            // Reading skips longer lines, so the record would be lost.
            let [bytes, limit] = [bytes, MAX_LINE_BYTES].map(|bytes| group_thousands(bytes as u64));
            let reason = format!("{bytes} bytes exceed the line limit of {limit} bytes");
            return Err(SessionError::Body { reason });
        }
        Ok(record)
    }

    pub(super) fn parse_record_line(line: &str) -> Result<Record, SessionError> {
        Ok(Record::parse(line).map_err(|reason| SessionError::Body { reason })?.record)
    }

    pub(super) fn append_record(&mut self, record: Record) -> Result<(), SessionError> {
        self.contents.load_for_append(&record)?;
        let (contents, line) = (self.contents.loaded_mut(), record.line());
        // The storage first: if it fails, no record in memory may become the parent of later ones.
        match &mut self.store {
            SessionStorage::Memory | SessionStorage::ReadOnly => {}
            SessionStorage::File(journal) if *record.kind() == RecordKind::Compaction => {
                // Synced with every policy but `os`: `compact` removes the pending file next, and then
                // this line is the only copy of a summary that was paid for.
                journal.append_milestone(contents, &[line])?;
            }
            SessionStorage::File(journal) => journal.append(contents, line)?,
            SessionStorage::Backend(backend) => backend.append(&[line])?,
        }
        self.push(record);
        Ok(())
    }

    pub(super) fn push(&mut self, record: Record) {
        self.contents.loaded_mut().push(record);
        // Not when the file is opened: a session that is only looked at gets no files beside it.
        if self.owes_checkpoint {
            self.update_checkpoint();
        }
    }

    /// Computes the live base and writes a checkpoint if the file is long enough.
    pub(super) fn update_checkpoint(&mut self) {
        self.owes_checkpoint = false;
        let contents = self.contents.loaded_mut();
        let (Some(compaction), SessionStorage::File(journal)) =
            (live_transcript::update_live_base(contents), &self.store)
        else {
            return;
        };
        if journal.length_bytes() < self.checkpoint_from_bytes {
            return;
        }
        match checkpoint::write_checkpoint(journal.path(), contents, compaction, self.coverage) {
            Ok(coverage) => self.coverage = Some(coverage),
            // Not fatal: without a checkpoint the next open reads the whole file.
            Err(error) => {
                tracing::warn!(file = %journal.path().display(), %error, "cannot write the checkpoint of a session");
            }
        }
    }

    pub(super) fn check_writable(&self) -> Result<(), SessionError> {
        match self.store {
            // A replay of a newer session appends to its copy.
            SessionStorage::Memory => Ok(()),
            SessionStorage::ReadOnly => {
                self.check_version()?;
                Err(SessionError::ReadOnly { id: self.header().id().to_owned() })
            }
            SessionStorage::File(_) | SessionStorage::Backend(_) => self.check_version(),
        }
    }

    /// Refuses a session of a newer version: records of this one may not be valid in it.
    pub(super) fn check_version(&self) -> Result<(), SessionError> {
        let header = self.header();
        if header.version() <= SESSION_VERSION {
            return Ok(());
        }
        let name =
            self.path().map_or_else(|| header.id().to_owned(), |path| path.display().to_string());
        Err(SessionError::Newer { name, version: header.version() })
    }
}
