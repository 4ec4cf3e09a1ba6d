//! A session while it is being talked in: the session on disk beside its live transcript.

use std::path::Path;

use ctxhost_engine_api::transcript::log::TranscriptLog;
use ctxhost_engine_api::{SessionRef, Transcript};

use super::precompute::Ahead;
use ctxhost_dialects::ChatMessage;
use ctxhost_engine::Serving;
use ctxhost_history::{self as history, HistoryError, Undone};
use ctxhost_law::progress::CompactionLimits;
use ctxhost_law::{Anchors, LawSettings};
use ctxhost_media::Images;
use ctxhost_session::{NewCompaction, Record, RecordBody, Session, SessionError, SyncPolicy};

/// A session, its live transcript, and what compaction remembers of it.
#[derive(Debug)]
pub struct Conversation {
    pub(super) session: Session,
    log: TranscriptLog,
    /// Entries of the live transcript that the engine has been told of.
    pub(super) ingested: u64,
    /// Which engine that was.
    told: Option<Serving>,
    pub(super) limits: CompactionLimits,
    /// Whether an emergency trim was reported.
    is_trim_reported: bool,
    /// A compaction that was worked out before it was needed.
    pub(super) ahead: Ahead,
    /// Where what must stay is in the live transcript.
    anchors: Anchors,
    reference: SessionRef,
    images: Images,
}

/// What is taken back or replaced of a conversation before more is said in it.
#[derive(Clone, Debug, Default)]
pub struct Amendment {
    /// Behind which record it goes on; where it stands, if nothing is said of it.
    pub back_to: Option<BackTo>,
    /// The records that say what is left out or has other content.
    pub edits: Vec<RecordBody>,
}

impl Amendment {
    /// Whether nothing is taken back or replaced.
    pub fn is_empty(&self) -> bool {
        self.back_to.is_none() && self.edits.is_empty()
    }
}

/// Where a conversation goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackTo {
    /// From before its first record.
    Start,
    /// From behind this one.
    Record(String),
}

impl Conversation {
    /// Begins or goes on with a session.
    pub fn new(session: Session, law: &LawSettings) -> Self {
        let reference = SessionRef { id: session.header().id().to_owned(), key: String::new() };
        let log = session.live(0);
        let limits = CompactionLimits::new(law);
        Conversation {
            session,
            log,
            ingested: 0,
            told: None,
            limits,
            is_trim_reported: false,
            ahead: Ahead::default(),
            anchors: Anchors::default(),
            reference,
            images: Images::default(),
        }
    }

    /// The same conversation, whose images are kept there.
    #[must_use]
    pub fn with_images(self, images: Images) -> Self {
        Conversation { images, ..self }
    }

    /// Whether an emergency trim is to be reported, which is so once.
    pub(super) fn report_trim(&mut self) -> bool {
        !std::mem::replace(&mut self.is_trim_reported, true)
    }

    /// Keeps it in a file of its own from here on, which must not be there yet, and its new images there.
    /// What is said next is written when somebody has time for it, see [`write_out`](Self::write_out).
    ///
    /// # Errors
    ///
    /// Whatever the disk answers; the conversation is as it was then.
    pub(super) fn keep_in(&mut self, path: &Path, sync: SyncPolicy) -> Result<(), SessionError> {
        self.session.keep_in(path, sync)?;
        self.session.write_behind();
        Ok(())
    }

    /// New images are kept there.
    pub(super) fn use_images(&mut self, images: Images) {
        self.images = images;
    }

    /// Its images.
    pub fn images(&self) -> &Images {
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

    /// Whether this engine knows of the session.
    pub(super) fn is_told(&self, serving: &Serving) -> bool {
        self.told.as_ref() == Some(serving)
    }

    /// This engine has been told of the session, of no entry yet.
    pub(super) fn told(&mut self, serving: Serving) {
        self.told = Some(serving);
        self.ingested = 0;
    }

    /// Where what must stay is in the live transcript. Costs what is new.
    pub(super) fn anchors(&mut self) -> &Anchors {
        self.anchors.follow(&self.log.snapshot());
        &self.anchors
    }

    /// The person's words, when they are what is about to be answered; empty inside a tool loop.
    pub(super) fn prompt(&self) -> String {
        let view = self.view();
        let last = view.last().filter(|entry| entry.is_user_message());
        last.map(|entry| entry.text().to_owned()).unwrap_or_default()
    }

    /// Appends a record that was written elsewhere, word for word.
    ///
    /// # Errors
    ///
    /// Whatever the session's file answers; nothing is appended then.
    pub fn adopt(&mut self, record: &Record) -> Result<(), SessionError> {
        let id = self.session.adopt(record)?;
        if let Some(entry) = self.session.entry(&id) {
            self.log.append(entry);
        }
        Ok(())
    }

    /// Appends a message that is said now, and answers the id of its record.
    ///
    /// # Errors
    ///
    /// Whatever the session's file answers; nothing is appended then.
    pub fn say(&mut self, message: &ChatMessage, now_ms: i64) -> Result<String, SessionError> {
        let json = serde_json::to_string(message)
            .map_err(|error| SessionError::Body { reason: error.to_string() })?;
        self.hear(RecordBody::message(&json)?, now_ms)
    }

    /// Appends a message that was kept for this session, and answers the id of its record.
    ///
    /// # Errors
    ///
    /// Whatever the session's file answers; nothing is appended then.
    pub(super) fn hear(&mut self, body: RecordBody, now_ms: i64) -> Result<String, SessionError> {
        let body = body.with_message(|message| self.images.put_away(message))?;
        let id = self.session.append_at(body, now_ms)?;
        if let Some(entry) = self.session.entry(&id) {
            self.log.append(entry);
        }
        Ok(id)
    }

    /// Appends records with one write and answers their ids; none of them where that fails.
    ///
    /// # Errors
    ///
    /// As [`hear`](Self::hear).
    pub(super) fn hear_all(
        &mut self,
        bodies: impl IntoIterator<Item = RecordBody>,
        now_ms: i64,
    ) -> Result<Vec<String>, SessionError> {
        let put_away = |body: RecordBody| body.with_message(|it| self.images.put_away(it));
        let bodies = bodies.into_iter().map(put_away);
        let bodies = bodies.collect::<Result<Vec<RecordBody>, SessionError>>()?;
        let ids = self.session.append_all(bodies, now_ms)?;
        for id in &ids {
            if let Some(entry) = self.session.entry(id) {
                self.log.append(entry);
            }
        }
        Ok(ids)
    }

    /// Takes back or replaces what was said, and appends what is said instead, with one write; answers the
    /// ids of what was appended last, `bodies` of it. Nothing of the file is changed.
    ///
    /// # Errors
    ///
    /// As [`hear`](Self::hear); the session is as it was then.
    pub(super) fn amend(
        &mut self,
        amendment: Amendment,
        bodies: Vec<RecordBody>,
        now_ms: i64,
    ) -> Result<Vec<String>, SessionError> {
        let stood_at = self.session.leaf().map(|leaf| leaf.id().to_owned());
        match &amendment.back_to {
            Some(BackTo::Start) => self.session.leave_branch()?,
            Some(BackTo::Record(id)) => self.session.set_leaf(id)?,
            None => {}
        }
        let edits = amendment.edits.len();
        let put_away = |body: RecordBody| body.with_message(|it| self.images.put_away(it));
        let bodies = bodies.into_iter().map(put_away);
        let appended = bodies
            .collect::<Result<Vec<RecordBody>, SessionError>>()
            .and_then(|it| self.session.append_all(amendment.edits.into_iter().chain(it), now_ms));
        if let (Err(_), Some(_), Some(id)) = (&appended, &amendment.back_to, &stood_at) {
            self.session.set_leaf(id)?;
        }
        let mut ids = appended?;
        self.log = self.session.live(self.log.epoch() + 1);
        self.ingested = 0;
        if amendment.back_to.is_some() {
            // The engine knows another history by this name.
            self.told = None;
        }
        self.ahead = Ahead::default();
        Ok(ids.split_off(edits))
    }

    /// Takes a compaction back, by its number or the newest.
    ///
    /// # Errors
    ///
    /// Whatever the session's file answers; the live transcript is as before then.
    pub(super) fn undo_compaction(&mut self, number: Option<i64>) -> Result<Undone, HistoryError> {
        let undone = history::undo(&mut self.session, number)?;
        self.log = self.session.live(self.log.epoch() + 1);
        (self.ingested, self.told) = (0, None);
        Ok(undone)
    }

    /// Takes in what other machines have added to the session; whether there was anything.
    ///
    /// # Errors
    ///
    /// Whatever the store answers; the live transcript is as before then.
    pub(super) fn refresh(&mut self) -> Result<bool, SessionError> {
        let grew = self.session.refresh()?;
        if grew {
            self.log = self.session.live(self.log.epoch() + 1);
            (self.ingested, self.told) = (0, None);
            self.ahead = Ahead::default();
        }
        Ok(grew)
    }

    /// What the live transcript takes, in bytes of its messages.
    pub(super) fn live_bytes(&self) -> u64 {
        self.view().iter().map(|entry| entry.raw().len() as u64).sum()
    }

    /// Records a compaction and begins the next epoch.
    ///
    /// # Errors
    ///
    /// Whatever the session's file answers; the live transcript is as before then.
    pub(super) fn compact(&mut self, compaction: NewCompaction<'_>) -> Result<(), SessionError> {
        self.session.compact(compaction)?;
        self.log = self.session.live(self.log.epoch() + 1);
        self.ingested = 0;
        Ok(())
    }
}
