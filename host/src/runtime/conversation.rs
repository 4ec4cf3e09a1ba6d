//! A session while it is being talked in: the session on disk beside its live transcript.

use ctxhost_engine_api::transcript::log::TranscriptLog;
use ctxhost_engine_api::{SessionRef, Transcript};

use crate::law::progress::Breaker;
use crate::law::{Anchors, LawSettings};
use crate::session::{NewCompaction, Record, Session, SessionError};

/// A session, its live transcript, and what compaction remembers of it.
#[derive(Debug)]
pub struct Conversation {
    session: Session,
    log: TranscriptLog,
    /// Entries of the live transcript that the engine has been told of.
    pub(super) ingested: u64,
    pub(super) breaker: Breaker,
    /// Where what must stay is in the live transcript.
    anchors: Anchors,
    reference: SessionRef,
}

impl Conversation {
    /// Begins or goes on with a session.
    pub fn new(session: Session, law: &LawSettings) -> Self {
        let reference = SessionRef { id: session.header().id().to_owned(), key: String::new() };
        let log = session.live(0);
        let breaker = Breaker::new(law);
        Conversation { session, log, ingested: 0, breaker, anchors: Anchors::default(), reference }
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

    /// Where what must stay is in the live transcript. Costs what is new.
    pub(super) fn anchors(&mut self) -> &Anchors {
        self.anchors.follow(&self.log.snapshot());
        &self.anchors
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
