//! Asks the host's embedder for the vectors of a session, in bounded time, and pauses after a failure.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ctxhost_engine_api::{
    AssembleRequest, CallId, EmbedPurpose, EmbedRequest, Embeddings, EngineError, Host, LogLevel,
    Result, SessionRef, Transcript,
};
use ctxhost_engine_kit::store::{has_key_value_store, session_key};

use crate::RecallEngine;
use crate::session::RecallSession;
use crate::vectors::{HashedText, embedded_text};

/// Texts of one call: a pause between calls is a moment to stop.
const CALL_TEXTS: usize = 128;

/// Key prefix of stored vectors.
const KEY: &str = "vectors/1/";

/// What the engine knows about the host's embedder.
#[derive(Debug, Default)]
pub(crate) struct EmbedderState {
    failure: Mutex<Option<EmbedderFailure>>,
}

#[derive(Debug)]
struct EmbedderFailure {
    reason: String,
    retry_at_ms: i64,
}

impl EmbedderState {
    /// Why slices are ranked by words alone; `None` if they are not.
    pub(crate) fn reason(&self) -> Option<String> {
        self.failure().as_ref().map(|failure| failure.reason.clone())
    }

    fn is_paused(&self, now_ms: i64) -> bool {
        self.failure().as_ref().is_some_and(|failure| now_ms < failure.retry_at_ms)
    }

    /// Records the outcome of a call. Logs only the first of several failures in a row.
    fn record(&self, host: &Host, outcome: &Result<()>, pause_ms: u64) {
        let Err(EngineError { message, .. }) = outcome else {
            *self.failure() = None;
            return;
        };
        let pause_ms = i64::try_from(pause_ms).unwrap_or(i64::MAX);
        let retry_at_ms = host.now_ms().saturating_add(pause_ms);
        let failure = EmbedderFailure { reason: message.clone(), retry_at_ms };
        if self.failure().replace(failure).is_none() {
            host.log(LogLevel::Warn, &format!("entries are ranked by words alone: {message}"));
        }
    }

    fn failure(&self) -> MutexGuard<'_, Option<EmbedderFailure>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecallEngine {
    /// Computes the vectors that the plan of a request needs. Without them it is ranked by words.
    pub(crate) async fn embed(&self, transcript: &Transcript, request: &AssembleRequest) {
        let is_whole = transcript.total_tokens() <= request.budget;
        if !self.has_embedder || is_whole || self.embedder.is_paused(self.host.now_ms()) {
            return;
        }
        // A tool loop ranks only when the window moves, and then by the vectors that are there: each of its steps would
        // wait for a few texts.
        let has_layout =
            self.sessions.with_session(&request.session, |session| session.layout.is_some());
        if has_layout && request.prompt.trim().is_empty() {
            return;
        }
        self.load_vectors(&request.session).await;
        let outcome = self.embed_missing(transcript, request).await;
        self.embedder.record(&self.host, &outcome, self.settings.embed_pause_ms);
        self.store_vectors(&request.session).await;
    }

    /// Embeds the prompt, then slices, until all have vectors or a limit is reached.
    async fn embed_missing(
        &self,
        transcript: &Transcript,
        request: &AssembleRequest,
    ) -> Result<()> {
        // The host's clock: in a replay it does not move, so that two runs embed the same.
        let start_ms = self.host.now_ms();
        let wait_ms = i64::try_from(self.settings.embed_wait_ms).unwrap_or(i64::MAX);
        let (session, call) = (&request.session, request.call);
        let query = self.sessions.with_session(session, |session| {
            session.follow(transcript);
            embedded_text(&session.index.query_words(transcript, &request.prompt))
        });
        self.embed_query(session, call, query).await?;
        let mut left = usize::try_from(self.settings.embed_texts).unwrap_or(usize::MAX);
        while left > 0 && self.host.now_ms().saturating_sub(start_ms) < wait_ms {
            let texts = self.sessions.with_session(session, |session| {
                session.texts_without_vector(transcript, left.min(CALL_TEXTS))
            });
            if texts.is_empty() {
                break;
            }
            left = left.saturating_sub(texts.len());
            let found = self.vectors_of(call, &texts, EmbedPurpose::Document).await?;
            self.sessions.with_session(session, |session| session.vectors.add(&texts, &found))?;
        }
        Ok(())
    }

    async fn embed_query(
        &self,
        session: &SessionRef,
        call: CallId,
        query: HashedText,
    ) -> Result<()> {
        let hash = query.0;
        let is_missing =
            self.sessions.with_session(session, |session| session.vectors.misses_query(hash));
        if !is_missing || query.1.trim().is_empty() {
            return Ok(());
        }
        let found = self.vectors_of(call, &[query], EmbedPurpose::Query).await?;
        self.sessions.with_session(session, |session| session.vectors.set_query(hash, &found))
    }

    async fn vectors_of(
        &self,
        call: CallId,
        texts: &[HashedText],
        purpose: EmbedPurpose,
    ) -> Result<Embeddings> {
        let texts = texts.iter().map(|(_, text)| text.clone()).collect();
        self.host.embed(call, EmbedRequest { texts, purpose }).await
    }

    /// Reads the vectors of an earlier run, once per session.
    async fn load_vectors(&self, session: &SessionRef) {
        let is_loaded = self.sessions.with_session(session, |session| {
            std::mem::replace(&mut session.vectors.is_loaded, true)
        });
        if is_loaded || !has_key_value_store(&self.host) {
            return;
        }
        for number in 0..MAX_PAGES {
            let Ok(Some(page)) = self.host.kv_get(&page_key(session, number)).await else { break };
            let load = |session: &mut RecallSession| session.vectors.load_page(&page);
            if !self.sessions.with_session(session, load) {
                break;
            }
        }
    }

    async fn store_vectors(&self, session: &SessionRef) {
        if !has_key_value_store(&self.host) {
            return;
        }
        let pages = self.sessions.with_session(session, |session| session.vectors.take_unsaved());
        for (number, page) in pages {
            // Vectors that are not stored are computed again after a restart.
            if self.host.kv_put(&page_key(session, number), &page).await.is_err() {
                break;
            }
        }
    }
}

/// The most pages of a session: a million slices.
const MAX_PAGES: usize = 8_192;

fn page_key(session: &SessionRef, number: usize) -> String {
    format!("{}/{number}", session_key(KEY, session))
}
