//! A session grows: each record behind the one where the session stands, in memory only once its store has it.

use ctxhost_files::MOST_LINE_BYTES;

use super::checkpoint;
use super::compaction::Draft;
use super::{
    NewCompaction, Record, RecordBody, RecordKind, SESSION_VERSION, Session, SessionError, Store,
    clock, identity,
};

impl Session {
    /// Appends a record where the session stands and answers its id.
    ///
    /// # Errors
    ///
    /// Where the file cannot be written; session and file are then as they were before.
    pub fn append(&mut self, body: RecordBody) -> Result<String, SessionError> {
        self.append_at(body, clock::now_ms())
    }

    /// Appends a record with a recorded time, in milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn append_at(
        &mut self,
        body: RecordBody,
        timestamp_ms: i64,
    ) -> Result<String, SessionError> {
        let id = self.next_id(&body.seed(), timestamp_ms);
        self.append_as(id, body, timestamp_ms)
    }

    /// Appends a compaction and answers its id. Call [`live`](Self::live) afterwards.
    ///
    /// It stands beside the file before it stands in it, so that a kill in between loses no summary:
    /// see [`recover_compaction`](Self::recover_compaction).
    ///
    /// # Errors
    ///
    /// [`SessionError::Plan`] where the view is not the live transcript of this branch or the plan
    /// is out of order; otherwise as [`append`](Self::append).
    pub fn compact(&mut self, compaction: NewCompaction<'_>) -> Result<String, SessionError> {
        let contents = self.contents.at_hand();
        let draft = Draft::of(contents, contents.first_task, &compaction)?;
        let timestamp_ms = compaction.timestamp_ms.unwrap_or_else(clock::now_ms);
        let id = self.next_id(&draft.seed(), timestamp_ms);
        let record = self.record_of(&id, draft.into_body(&id), timestamp_ms)?;
        self.put_aside(&compaction, &record);
        self.append_record(record)?;
        self.forget_pending();
        self.keep_checkpoint();
        Ok(id)
    }

    /// Appends a record of another session with its own time, and under its own id where that is free
    /// here.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn adopt(&mut self, record: &Record) -> Result<String, SessionError> {
        let body = RecordBody::of_record(record)?;
        let id = match self.contents.at_hand().is_taken(record.id()) {
            true => self.next_id(&body.seed(), record.timestamp_ms()),
            false => record.id().to_owned(),
        };
        self.append_as(id, body, record.timestamp_ms())
    }

    pub(super) fn next_id(&self, seed: &str, timestamp_ms: i64) -> String {
        self.next_id_behind(&[], &|_| false, seed, timestamp_ms)
    }

    /// The id of a record that follows others which are not appended yet; `is_coming` knows theirs.
    pub(super) fn next_id_behind(
        &self,
        coming: &[Record],
        is_coming: &dyn Fn(&str) -> bool,
        seed: &str,
        timestamp_ms: i64,
    ) -> String {
        let contents = self.contents.at_hand();
        let number = (contents.record_count() + coming.len()).to_string();
        let time = timestamp_ms.to_string();
        let parent = coming.last().or_else(|| contents.leaf()).map_or("", Record::id);
        let seed = [self.header().id(), &number, parent, &time, seed];
        identity::record_id(&seed, |id| contents.is_taken(id) || is_coming(id))
    }

    pub(super) fn append_as(
        &mut self,
        id: String,
        body: RecordBody,
        timestamp_ms: i64,
    ) -> Result<String, SessionError> {
        let record = self.record_of(&id, body, timestamp_ms)?;
        self.append_record(record)?;
        Ok(id)
    }

    /// The record that a body becomes where the session stands.
    pub(super) fn record_of(
        &self,
        id: &str,
        body: RecordBody,
        timestamp_ms: i64,
    ) -> Result<Record, SessionError> {
        self.check_writable()?;
        let parent = self.contents.at_hand().leaf().map(Record::id);
        let record = body.into_record(id, parent, timestamp_ms);
        let bytes = record.line().len();
        if bytes > MOST_LINE_BYTES {
            // Nobody would read it again.
            let reason = format!("it has {bytes} bytes, and a line has at most {MOST_LINE_BYTES}");
            return Err(SessionError::Body { reason });
        }
        Ok(record)
    }

    pub(super) fn record_of_line(line: &str) -> Result<Record, SessionError> {
        Ok(Record::parse(line).map_err(|reason| SessionError::Body { reason })?.record)
    }

    pub(super) fn append_record(&mut self, record: Record) -> Result<(), SessionError> {
        self.contents.prepare_for(&record)?;
        let (contents, line) = (self.contents.at_hand_mut(), record.line());
        match &mut self.store {
            Store::Memory | Store::ReadOnly => {}
            Store::File(journal) if *record.kind() == RecordKind::Compaction => {
                journal.append_milestone(contents, &[line])?;
            }
            Store::File(journal) => journal.append(contents, line)?,
            Store::Kept(keeper) => keeper.append(&[line])?,
        }
        self.push(record);
        Ok(())
    }

    pub(super) fn push(&mut self, record: Record) {
        self.contents.at_hand_mut().push(record);
        if self.owes_checkpoint {
            self.keep_checkpoint();
        }
    }

    /// Notes beside the file what the next turn needs of it, where the file is long enough to be worth it.
    pub(super) fn keep_checkpoint(&mut self) {
        self.owes_checkpoint = false;
        let contents = self.contents.at_hand_mut();
        let (Some(compaction), Store::File(journal)) = (contents.stand(), &self.store) else {
            return;
        };
        if journal.length_bytes() < self.checkpoint_from_bytes {
            return;
        }
        match checkpoint::keep(journal.path(), contents, compaction, self.sealed) {
            Ok(sealed) => self.sealed = Some(sealed),
            // It is never needed: the next one who opens the session reads all of it.
            Err(error) => {
                tracing::warn!(file = %journal.path().display(), %error, "no checkpoint for this session");
            }
        }
    }

    pub(super) fn check_writable(&self) -> Result<(), SessionError> {
        let header = self.header();
        if header.version() > SESSION_VERSION {
            let name =
                self.path().map_or_else(|| header.id().to_owned(), |p| p.display().to_string());
            return Err(SessionError::Newer { name, version: header.version() });
        }
        match self.store {
            Store::ReadOnly => Err(SessionError::ReadOnly { id: header.id().to_owned() }),
            Store::Memory | Store::File(_) | Store::Kept(_) => Ok(()),
        }
    }
}
