//! A session on disk beside its live transcript.

use std::path::Path;
use std::sync::Arc;

use ctxhost_engine_api::transcript::log::TranscriptLog;
use ctxhost_engine_api::{SessionRef, Transcript};

use crate::session_directory::{SessionDirectory, SessionRegistration};
use ctxhost_blobs::ImageStore;
use ctxhost_dialects::ChatMessage;
use ctxhost_history::{self as history, HistoryError, UndoReport};
use ctxhost_invariants::PinnedEntries;
use ctxhost_session::{
    FileCheck, NewCompaction, Record, RecordBody, Session, SessionError, SyncPolicy,
};

/// A session on disk beside its live transcript.
#[derive(Debug)]
pub struct LiveSession {
    session: Session,
    log: TranscriptLog,
    /// How often the live transcript was replaced by another history under the same name.
    branch: u64,
    /// Where what must stay is in the live transcript.
    pinned: PinnedEntries,
    reference: SessionRef,
    images: ImageStore,
    /// What engines may ask about it, where any may.
    registration: Option<SessionRegistration>,
}

/// What is taken back or replaced of a conversation before more is said in it.
#[derive(Clone, Debug, Default)]
pub struct Amendment {
    /// Behind which record it goes on; where it stands, if nothing is said of it.
    pub branch_point: Option<BranchPoint>,
    /// The records that say what is left out or has other content.
    pub edits: Vec<RecordBody>,
}

impl Amendment {
    /// Whether nothing is taken back or replaced.
    pub fn is_empty(&self) -> bool {
        self.branch_point.is_none() && self.edits.is_empty()
    }
}

/// Where a conversation goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchPoint {
    /// From before its first record.
    Start,
    /// From behind this one.
    Record(String),
}

impl LiveSession {
    /// The live transcript of a session.
    pub fn new(session: Session) -> LiveSession {
        let reference = SessionRef { id: session.header().id().to_owned(), key: String::new() };
        let log = session.live(0);
        let (anchors, images) = (PinnedEntries::default(), ImageStore::default());
        LiveSession {
            session,
            log,
            branch: 0,
            pinned: anchors,
            reference,
            images,
            registration: None,
        }
    }

    /// Engines may ask about it from here on.
    pub(crate) fn register(&mut self, sessions: &Arc<SessionDirectory>) {
        self.registration = Some(sessions.register(&self.session));
    }

    /// A request began: the provider's cache is warm.
    pub(crate) fn record_cache_use(&self, now_ms: i64) {
        if let Some(handle) = &self.registration {
            handle.history.record_cache_use(now_ms);
        }
    }

    /// Moves a session in memory into a file, which must not be there yet, and its new images there. What is
    /// appended next is written by [`Session::flush`].
    ///
    /// # Errors
    ///
    /// Whatever the disk answers; the session is as it was then.
    pub fn move_to_file(&mut self, path: &Path, sync: SyncPolicy) -> Result<(), SessionError> {
        self.session.save_to(path, sync)?;
        self.session.enable_write_behind();
        self.replace_history();
        Ok(())
    }

    /// New images are stored there.
    pub fn set_images(&mut self, images: ImageStore) {
        self.images = images;
    }

    /// Its images.
    pub fn images(&self) -> &ImageStore {
        &self.images
    }

    /// How engines name it.
    pub fn reference(&self) -> &SessionRef {
        &self.reference
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// What the model could see now.
    pub fn view(&self) -> Transcript {
        self.log.snapshot()
    }

    /// Waits until all that was appended is on the disk.
    ///
    /// # Errors
    ///
    /// Whatever the disk answers.
    pub fn sync(&mut self) -> Result<(), SessionError> {
        self.session.sync()
    }

    /// Writes what was appended to a session that is written behind.
    ///
    /// # Errors
    ///
    /// Where the session cannot be written. It can be used again only when it is opened again.
    pub fn write_out(&mut self) -> Result<(), SessionError> {
        self.session.flush()
    }

    /// Looks whether the file is still there, and makes it again where it is not.
    pub fn check_file(&mut self) -> FileCheck {
        self.session.check_file()
    }

    /// How often the live transcript was replaced by another history under the same name.
    pub(crate) fn branch(&self) -> u64 {
        self.branch
    }

    /// Where what must stay is in the live transcript, as of the last [`update_pinned`](Self::find_anchors).
    pub(crate) fn pinned(&self) -> &PinnedEntries {
        &self.pinned
    }

    /// Finds what must stay in the entries that are new.
    pub(crate) fn update_pinned(&mut self) {
        self.pinned.update(&self.log.snapshot());
    }

    /// The user's message, where it is what is about to be answered; empty inside a tool loop.
    pub fn prompt(&self) -> String {
        let view = self.view();
        let last = view.last().filter(|entry| entry.is_user_message());
        last.map(|entry| entry.text().to_owned()).unwrap_or_default()
    }

    /// Appends a record that was written elsewhere, word for word.
    ///
    /// # Errors
    ///
    /// Whatever the session's file answers; nothing is appended then.
    pub fn append_record(&mut self, record: &Record) -> Result<(), SessionError> {
        let id = self.session.append_copy(record)?;
        self.extend([&id]);
        Ok(())
    }

    /// Appends a message and answers the id of its record.
    ///
    /// # Errors
    ///
    /// Whatever the session's file answers; nothing is appended then.
    pub fn append_message(
        &mut self,
        message: &ChatMessage,
        now_ms: i64,
    ) -> Result<String, SessionError> {
        let json = serde_json::to_string(message)
            .map_err(|error| SessionError::Body { reason: error.to_string() })?;
        self.append(RecordBody::message(&json)?, now_ms)
    }

    /// Appends a record and answers its id.
    ///
    /// # Errors
    ///
    /// Whatever the session's file answers; nothing is appended then.
    pub fn append(&mut self, body: RecordBody, now_ms: i64) -> Result<String, SessionError> {
        let body = body.with_message(|message| self.images.store_images(message))?;
        let id = self.session.append_at(body, now_ms)?;
        self.extend([&id]);
        Ok(id)
    }

    /// Appends records with one write and answers their ids; none of them where that fails.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn append_all(
        &mut self,
        bodies: impl IntoIterator<Item = RecordBody>,
        now_ms: i64,
    ) -> Result<Vec<String>, SessionError> {
        let put_away = |body: RecordBody| body.with_message(|it| self.images.store_images(it));
        let bodies = bodies.into_iter().map(put_away);
        let bodies = bodies.collect::<Result<Vec<RecordBody>, SessionError>>()?;
        let ids = self.session.append_all(bodies, now_ms)?;
        self.extend(&ids);
        Ok(ids)
    }

    /// Takes back or replaces what was said, and appends what is said instead, with one write; answers the
    /// ids of what was appended last, `bodies` of it. Nothing of the file is changed.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append); the session is as it was then.
    pub fn amend(
        &mut self,
        amendment: Amendment,
        bodies: Vec<RecordBody>,
        now_ms: i64,
    ) -> Result<Vec<String>, SessionError> {
        let stood_at = self.session.leaf().map(|leaf| leaf.id().to_owned());
        match &amendment.branch_point {
            Some(BranchPoint::Start) => self.session.clear_leaf()?,
            Some(BranchPoint::Record(id)) => self.session.set_leaf(id)?,
            None => {}
        }
        let edits = amendment.edits.len();
        let put_away = |body: RecordBody| body.with_message(|it| self.images.store_images(it));
        let bodies = bodies.into_iter().map(put_away);
        let appended = bodies
            .collect::<Result<Vec<RecordBody>, SessionError>>()
            .and_then(|it| self.session.append_all(amendment.edits.into_iter().chain(it), now_ms));
        if let (Err(_), Some(_), Some(id)) = (&appended, &amendment.branch_point, &stood_at) {
            self.session.set_leaf(id)?;
        }
        let mut ids = appended?;
        self.log = self.session.live(self.log.epoch() + 1);
        // An edit leaves the history that the engine knows; another branch does not.
        self.branch += u64::from(amendment.branch_point.is_some());
        self.replace_history();
        Ok(ids.split_off(edits))
    }

    /// Takes a compaction back, by its number or the newest.
    ///
    /// # Errors
    ///
    /// Whatever the session's file answers; the live transcript is as before then.
    pub fn undo_compaction(&mut self, number: Option<i64>) -> Result<UndoReport, HistoryError> {
        let undone = history::undo_compaction(&mut self.session, number)?;
        self.replace_transcript();
        Ok(undone)
    }

    /// Takes in what other machines have added to the session; whether there was anything.
    ///
    /// # Errors
    ///
    /// Whatever the store answers; the live transcript is as before then.
    pub fn refresh(&mut self) -> Result<bool, SessionError> {
        let grew = self.session.refresh()?;
        if grew {
            self.replace_transcript();
        }
        Ok(grew)
    }

    /// What the live transcript takes, in bytes of its messages.
    pub fn live_bytes(&self) -> u64 {
        self.view().iter().map(|entry| entry.raw().len() as u64).sum()
    }

    /// Records a compaction and begins the next epoch.
    ///
    /// # Errors
    ///
    /// Whatever the session's file answers; the live transcript is as before then.
    pub(crate) fn compact(&mut self, compaction: NewCompaction<'_>) -> Result<(), SessionError> {
        self.session.compact(compaction)?;
        self.log = self.session.live(self.log.epoch() + 1);
        Ok(())
    }

    /// The engine knows another history by this name: it is told anew.
    fn replace_transcript(&mut self) {
        self.log = self.session.live(self.log.epoch() + 1);
        self.branch += 1;
        self.replace_history();
    }

    /// Takes in records that were appended to the session.
    fn extend<'a>(&mut self, ids: impl IntoIterator<Item = &'a String>) {
        let before = self.log.len() as u64;
        for id in ids {
            if let Some(entry) = self.session.entry(id) {
                self.log.append(entry);
            }
        }
        if let Some(handle) = &self.registration {
            let view = self.log.snapshot();
            handle.history.append(view.range(before..view.len() as u64));
        }
    }

    /// What was said is another history by now, or stands in another file.
    fn replace_history(&self) {
        if let Some(handle) = &self.registration {
            handle.history.replace_with(&self.session);
        }
    }
}
