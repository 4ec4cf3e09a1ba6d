//! A session with its live transcript.

use std::path::Path;
use std::sync::Arc;

use ctxhost_engine_api::transcript::log::TranscriptLog;
use ctxhost_engine_api::{SessionRef, Transcript};
use ctxhost_text::injected_text::request_text;

use crate::ignored_compactions::IgnoredCompactions;
use crate::session_directory::{CACHE_TTL_MS, SessionDirectory, SessionRegistration};
use ctxhost_blobs::ImageStore;
use ctxhost_dialects::ChatMessage;
use ctxhost_history::{self as history, HistoryError, UndoReport};
use ctxhost_invariants::PinnedEntries;
use ctxhost_session::{
    FileCheck, NewCompaction, Record, RecordBody, Session, SessionError, SyncPolicy,
};

/// A session with its live transcript.
#[derive(Debug)]
pub struct LiveSession {
    session: Session,
    log: TranscriptLog,
    /// The compactions that the live transcript is without.
    ignored: IgnoredCompactions,
    /// The window that they were determined for; `None` if the branch has changed since.
    ignored_for: Option<Option<u64>>,
    /// Counts replacements of the live transcript by another history.
    branch: u64,
    /// The pinned entries of the live transcript.
    pinned: PinnedEntries,
    reference: SessionRef,
    images: ImageStore,
    /// Lets engines query the session.
    registration: Option<SessionRegistration>,
}

/// Changes to a conversation before further messages are appended.
#[derive(Clone, Debug, Default)]
pub struct Amendment {
    /// Where the conversation continues; `None` for its end.
    pub branch_point: Option<BranchPoint>,
    /// Records that drop or replace content.
    pub edits: Vec<RecordBody>,
}

impl Amendment {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.branch_point.is_none() && self.edits.is_empty()
    }
}

/// A point from which a conversation continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BranchPoint {
    /// Before the first record.
    Start,
    /// After this record.
    Record(String),
}

impl LiveSession {
    /// Loads the live transcript of a session.
    pub fn new(session: Session) -> LiveSession {
        let reference = SessionRef { id: session.header().id().to_owned(), key: String::new() };
        let log = session.live(0);
        LiveSession {
            session,
            log,
            ignored: IgnoredCompactions::default(),
            ignored_for: None,
            branch: 0,
            pinned: PinnedEntries::default(),
            reference,
            images: ImageStore::default(),
            registration: None,
        }
    }

    /// Lets engines query the session.
    pub(crate) fn register(&mut self, sessions: &Arc<SessionDirectory>) {
        self.registration = Some(sessions.register(&self.session));
    }

    /// Records a request, which renews the provider's cache.
    pub(crate) fn record_cache_use(&self, now_ms: i64) {
        if let Some(handle) = &self.registration {
            handle.history.record_cache_use(now_ms);
        }
    }

    /// Takes the newest record for the last request, unless its cache has expired: after a restart the provider may still have
    /// the prefix, and an engine must not cut what is in it.
    pub(crate) fn restore_cache_use(&self, now_ms: i64) {
        let newest_ms = self.session.leaf().map(Record::timestamp_ms);
        let is_cached =
            |newest_ms: &i64| (now_ms.saturating_sub(CACHE_TTL_MS)..=now_ms).contains(newest_ms);
        if let Some(newest_ms) = newest_ms.filter(is_cached) {
            self.record_cache_use(newest_ms);
        }
    }

    /// Moves a session from memory to a new file, including its new images. Later appends are written by
    /// [`write_out`](Self::write_out).
    ///
    /// # Errors
    ///
    /// [`SessionError`]; the session is unchanged.
    pub fn move_to_file(&mut self, path: &Path, sync: SyncPolicy) -> Result<(), SessionError> {
        self.session.save_to(path, sync)?;
        self.session.enable_write_behind();
        self.replace_history();
        Ok(())
    }

    /// Sets the store of new images.
    pub fn set_images(&mut self, images: ImageStore) {
        self.images = images;
    }

    /// The store of images.
    pub fn images(&self) -> &ImageStore {
        &self.images
    }

    /// The session's reference in engine requests.
    pub fn reference(&self) -> &SessionRef {
        &self.reference
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The session, without its live transcript.
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Shows the history that counts for a window: without the newest compactions if they were made for a much smaller one.
    /// `None` for a prompt that has a fixed budget. Returns whether the live transcript is another one now.
    pub fn show_history_for(&mut self, window_tokens: Option<u64>) -> bool {
        if self.ignored_for == Some(window_tokens) {
            return false;
        }
        let ignored = IgnoredCompactions::find(&self.session, window_tokens);
        let is_another = ignored.ids != self.ignored.ids;
        if is_another {
            self.ignored = ignored;
            self.replace_transcript();
        }
        self.ignored_for = Some(window_tokens);
        is_another
    }

    /// The compactions that the live transcript is without.
    pub fn ignored_compactions(&self) -> &[String] {
        &self.ignored.ids
    }

    /// Whether the live transcript is the whole history although the session has compactions.
    pub fn is_whole(&self) -> bool {
        self.ignored.is_all
    }

    /// The live transcript.
    pub fn view(&self) -> Transcript {
        self.log.snapshot()
    }

    /// Syncs all appended records to disk.
    pub fn sync(&mut self) -> Result<(), SessionError> {
        self.session.sync()
    }

    /// Writes the appended records of a session with write-behind.
    ///
    /// # Errors
    ///
    /// If the session cannot be written. It must be reopened before further use.
    pub fn write_out(&mut self) -> Result<(), SessionError> {
        self.session.flush()
    }

    /// Checks that the file still exists and recreates it otherwise.
    pub fn check_file(&mut self) -> FileCheck {
        self.session.check_file()
    }

    /// Counts replacements of the live transcript by another history.
    pub(crate) fn branch(&self) -> u64 {
        self.branch
    }

    /// The pinned entries, as of the last [`update_pinned`](Self::update_pinned).
    pub(crate) fn pinned(&self) -> &PinnedEntries {
        &self.pinned
    }

    /// Updates the pinned entries with those that are new.
    pub(crate) fn update_pinned(&mut self) {
        self.pinned.update(&self.log.snapshot());
    }

    /// What the user wrote if its message is the last entry; empty within a tool loop.
    pub fn prompt(&self) -> String {
        let view = self.view();
        let last = view.last().filter(|entry| entry.is_user_message());
        last.map(|entry| request_text(&entry).into_owned()).unwrap_or_default()
    }

    /// Appends a copy of a record of another session.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; nothing is appended.
    pub fn append_record(&mut self, record: &Record) -> Result<(), SessionError> {
        let id = self.session.append_copy(record)?;
        self.extend([&id]);
        Ok(())
    }

    /// Appends a message; returns the id of its record.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; nothing is appended.
    pub fn append_message(
        &mut self,
        message: &ChatMessage,
        now_ms: i64,
    ) -> Result<String, SessionError> {
        self.append(RecordBody::from_message(message)?, now_ms)
    }

    /// Appends a record; returns its id.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; nothing is appended.
    pub fn append(&mut self, body: RecordBody, now_ms: i64) -> Result<String, SessionError> {
        // Images are stored before the record that references them.
        let body = body.with_message(|message| self.images.store_images(message))?;
        let id = self.session.append_at(body, now_ms)?;
        self.extend([&id]);
        Ok(id)
    }

    /// Appends records with one write, all or none; returns their ids.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn append_all(
        &mut self,
        bodies: impl IntoIterator<Item = RecordBody>,
        now_ms: i64,
    ) -> Result<Vec<String>, SessionError> {
        let bodies = self.store_images(bodies)?;
        let ids = self.session.append_all(bodies, now_ms)?;
        self.extend(&ids);
        Ok(ids)
    }

    /// Applies an amendment and appends `bodies` with one write; returns the ids of `bodies`. Existing records of the
    /// file stay.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append); the session is unchanged.
    pub fn amend(
        &mut self,
        amendment: Amendment,
        bodies: Vec<RecordBody>,
        now_ms: i64,
    ) -> Result<Vec<String>, SessionError> {
        let leaf_before = self.session.leaf().map(|leaf| leaf.id().to_owned());
        match &amendment.branch_point {
            Some(BranchPoint::Start) => self.session.clear_leaf()?,
            Some(BranchPoint::Record(id)) => self.session.set_leaf(id)?,
            None => {}
        }
        let edits = amendment.edits.len();
        let appended = self.store_images(bodies).and_then(|bodies| {
            self.session.append_all(amendment.edits.into_iter().chain(bodies), now_ms)
        });
        if let (Err(_), Some(_), Some(id)) = (&appended, &amendment.branch_point, &leaf_before) {
            self.session.set_leaf(id)?;
        }
        let mut ids = appended?;
        self.reload_log();
        // After an edit the engine still knows the history (a new epoch); after a change of the branch it
        // must be bootstrapped again.
        self.branch += u64::from(amendment.branch_point.is_some());
        self.replace_history();
        Ok(ids.split_off(edits))
    }

    /// Reverts a compaction by its number, by default the newest.
    ///
    /// # Errors
    ///
    /// [`HistoryError`]; the live transcript is unchanged.
    pub fn undo_compaction(&mut self, number: Option<i64>) -> Result<UndoReport, HistoryError> {
        let undone = history::undo_compaction(&mut self.session, number)?;
        self.replace_transcript();
        Ok(undone)
    }

    /// Loads what other machines have appended; returns whether there was anything.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; the live transcript is unchanged.
    pub fn refresh(&mut self) -> Result<bool, SessionError> {
        let grew = self.session.refresh()?;
        if grew {
            self.replace_transcript();
        }
        Ok(grew)
    }

    /// The size of the live transcript's messages in bytes.
    pub fn live_bytes(&self) -> u64 {
        self.view().iter().map(|entry| entry.raw().len() as u64).sum()
    }

    /// Records a compaction and starts the next epoch.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; the live transcript is unchanged.
    pub(crate) fn compact(&mut self, compaction: NewCompaction<'_>) -> Result<(), SessionError> {
        self.session.compact(compaction)?;
        // The new compaction counts, and it was made without them.
        self.ignored = IgnoredCompactions::default();
        self.reload_log();
        Ok(())
    }

    /// Stores the images of messages, which happens before the records that reference them are written.
    fn store_images(
        &self,
        bodies: impl IntoIterator<Item = RecordBody>,
    ) -> Result<Vec<RecordBody>, SessionError> {
        let bodies = bodies.into_iter();
        bodies.map(|body| body.with_message(|message| self.images.store_images(message))).collect()
    }

    /// Reloads the live transcript; the engine must be bootstrapped again.
    fn replace_transcript(&mut self) {
        self.reload_log();
        self.branch += 1;
        self.replace_history();
    }

    /// Starts the next epoch of the live transcript.
    fn reload_log(&mut self) {
        let epoch = self.log.epoch() + 1;
        self.log = match self.ignored.ids.as_slice() {
            [] => self.session.live(epoch),
            ignored => self.session.live_without(ignored, epoch),
        };
        self.ignored_for = None;
    }

    /// Adds appended records to the live transcript.
    fn extend<'a>(&mut self, ids: impl IntoIterator<Item = &'a String>) {
        // Custom records are not part of the transcript, so the log may grow by less.
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

    /// Updates the history that engines query.
    fn replace_history(&self) {
        if let Some(handle) = &self.registration {
            handle.history.replace_with(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_blobs::BlobDirs;
    use ctxhost_engine::SessionQueries as _;
    use ctxhost_session::SessionHeader;

    use super::*;

    #[test]
    fn a_restart_knows_a_cache_that_has_not_expired() {
        const SAID_MS: i64 = 1_000_000;
        let last_touch_ms = |now_ms: i64| {
            let mut session = Session::in_memory(SessionHeader::new(Some("s"), "/", 0));
            let said = RecordBody::message(r#"{"role":"user","content":"hi"}"#).unwrap();
            session.append_at(said, SAID_MS).unwrap();
            let mut live = LiveSession::new(session);
            live.register(&Arc::new(SessionDirectory::new(BlobDirs::default())));
            live.restore_cache_use(now_ms);
            let handle = live.registration.as_ref().unwrap();
            handle.history.prompt_cache(live.reference()).last_touch_ms
        };
        assert_eq!(last_touch_ms(SAID_MS + CACHE_TTL_MS), Some(SAID_MS));
        assert_eq!(last_touch_ms(SAID_MS + CACHE_TTL_MS + 1), None);
        assert_eq!(
            last_touch_ms(SAID_MS - 1),
            None,
            "a time that has not come is no use of the cache"
        );
    }
}
