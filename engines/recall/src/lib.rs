//! The `recall` engine: indexes a session and retrieves earlier entries that the prompt needs.
//!
//! Ingest adds every entry to an index, a ledger of names and a list of the user's rules. While the
//! history fits, it is sent unchanged. Otherwise the model sees the rules, the names, the newest
//! entries with old results as lines, and the search results for the prompt. No model is called.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod compaction;
mod embedding;
mod folded;
mod fusion;
#[cfg(test)]
mod prompt_note_tests;
mod session;
mod settings;
mod short_move;
mod tools;
mod vectors;
mod window_move;

use std::cell::OnceCell;
use std::sync::{Mutex, PoisonError};

use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, EngineStatus, Host, Info,
    IngestReply, IngestRequest, Plan, Result, SessionRef, ToolAnswer, ToolCallRequest, ToolSpec,
    Transcript, capability,
};
use ctxhost_engine_kit::retrieval::SliceFinder;
use ctxhost_engine_kit::retrieval::{
    LayoutUpdate, NoteShares, RankedSlices, RequestLayout, layout_from_json, layout_to_json,
    read_history, whole_plan,
};
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::store::{has_capability, has_key_value_store, session_key};

use embedding::EmbedderState;
use folded::FoldedEntries;
use session::RecallSession;
pub use settings::Settings;
use vectors::{are_enough, embedded_text};

/// Layer name in plan notes.
const LAYER: &str = "recall";

/// Key prefix of stored layouts.
const KEY: &str = "layout/1/";

/// The engine.
#[derive(Debug)]
pub struct RecallEngine {
    host: Host,
    settings: Settings,
    sessions: SessionMap<RecallSession>,
    has_embedder: bool,
    embedder: EmbedderState,
    /// The session of the newest ingest, for the status.
    newest: Mutex<SessionRef>,
}

impl ContextEngine for RecallEngine {
    const INFO: Info = Info::new("recall", "Recall", env!("CARGO_PKG_VERSION")).owning_compaction();

    fn create(host: Host, config: Value) -> Result<Self> {
        let settings = Settings::parse(&config)?;
        Ok(RecallEngine {
            has_embedder: has_capability(&host, capability::EMBED),
            embedder: EmbedderState::default(),
            host,
            settings,
            sessions: SessionMap::default(),
            newest: Mutex::default(),
        })
    }

    async fn ingest(&self, transcript: Transcript, request: IngestRequest) -> Result<IngestReply> {
        let entries = self.sessions.with_session(&request.session, |session| {
            let new = session.follow(&transcript);
            let asked = request.entries;
            new.end.min(asked.end).saturating_sub(new.start.max(asked.start))
        });
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = request.session;
        Ok(IngestReply { entries })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        self.restore(&transcript, &request.session).await;
        self.embed(&transcript, &request).await;
        let plan = |session: &mut RecallSession| {
            let plan = session.plan(&transcript, &request, &self.settings);
            // Serialised under the lock of the session, stored after it.
            let is_new = std::mem::take(&mut session.is_layout_new);
            (plan, is_new.then(|| layout_to_json(session.layout.as_ref(), &session.index)))
        };
        let (plan, layout) = self.sessions.with_session(&request.session, plan);
        if let Some(layout) = layout.filter(|_| has_key_value_store(&self.host)) {
            // A layout that is not stored is computed again after a restart.
            let _ = self.host.kv_put(&session_key(KEY, &request.session), &layout).await;
        }
        Ok(plan)
    }

    async fn compact(&self, transcript: Transcript, request: CompactRequest) -> Result<Compaction> {
        Ok(self.sessions.with_session(&request.session, |session| {
            session.compact(&transcript, &request, &self.settings)
        }))
    }

    fn tools(&self, _session: SessionRef) -> Vec<ToolSpec> {
        if self.settings.tools { tools::tool_specs() } else { Vec::new() }
    }

    async fn call_tool(
        &self,
        transcript: Transcript,
        request: ToolCallRequest,
    ) -> Result<ToolAnswer> {
        let failure = self.read_folded(&transcript, &request.session).await.err();
        let mut answer = self.sessions.with_session(&request.session, |session| {
            session.follow(&transcript);
            session.call_tool(&transcript, &request)
        })?;
        if let Some(error) = failure {
            answer.text =
                format!("{}\n[what compactions removed was not read: {error}]", answer.text);
        }
        Ok(answer)
    }

    fn status(&self) -> EngineStatus {
        // Counted here: the sum takes a pass over the index, an ingest must not.
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let bytes = self.sessions.with_session(&newest, |session| session.index_bytes());
        let mut summary = format!("index of the newest session: {} kB", bytes / 1_000);
        let mut details = json!({ "index_bytes": bytes });
        if self.has_embedder {
            self.add_vector_status(&newest, &mut summary, &mut details);
        }
        EngineStatus { summary, details, ..EngineStatus::default() }
    }

    async fn dispose(&self) {
        self.sessions.clear();
    }
}

impl RecallEngine {
    /// Adds how many slices have vectors, and why others are ranked by words.
    fn add_vector_status(&self, newest: &SessionRef, summary: &mut String, details: &mut Value) {
        let (vectors, slices, model) = self.sessions.with_session(newest, |session| {
            let (vectors, slices) = session.vectors.count();
            (vectors, slices, session.vectors.model.clone())
        });
        let failure = self.embedder.reason();
        match &failure {
            Some(reason) => summary.push_str(&format!("; ranked by words alone: {reason}")),
            None if are_enough(vectors, slices) => {
                summary.push_str(&format!("; vectors of {vectors} of {slices} texts"));
            }
            None => summary.push_str(&format!(
                "; ranked by words alone, with vectors of {vectors} of {slices} texts"
            )),
        }
        details["vectors"] =
            json!({ "model": model, "vectors": vectors, "texts": slices, "failure": failure });
    }

    /// Reads the entries that compactions removed, once per compaction.
    async fn read_folded(&self, transcript: &Transcript, session: &SessionRef) -> Result<()> {
        let is_missing = self.sessions.with_session(session, |session| {
            session.follow(transcript);
            session.misses_folded(transcript)
        });
        if !is_missing || !has_capability(&self.host, capability::HISTORY) {
            return Ok(());
        }
        let (history, outcome) = read_history(&self.host, session, |_| true).await;
        outcome?;
        let folded = FoldedEntries::new(transcript, history);
        self.sessions.with_session(session, |session| session.folded = Some(Box::new(folded)));
        Ok(())
    }

    /// Loads the stored layout once per session.
    async fn restore(&self, transcript: &Transcript, session: &SessionRef) {
        // Marked as restored before the store answers, so that a failing store is asked only once.
        let is_unknown = self.sessions.with_session(session, |session| {
            session.follow(transcript);
            !std::mem::replace(&mut session.is_restored, true) && session.layout.is_none()
        });
        if !is_unknown || !has_key_value_store(&self.host) {
            return;
        }
        let stored = self.host.kv_get(&session_key(KEY, session)).await.ok().flatten();
        self.sessions.with_session(session, |session| {
            session.layout = stored.and_then(|json| layout_from_json(&json, &session.index));
        });
    }
}

impl RecallSession {
    /// The whole history if it fits; else the current layout or a new one.
    fn plan(
        &mut self,
        transcript: &Transcript,
        request: &AssembleRequest,
        settings: &Settings,
    ) -> Plan {
        self.follow(transcript);
        let budget_tokens = request.budget;
        if transcript.total_tokens() <= budget_tokens {
            self.is_layout_new |= self.layout.take().is_some();
            return whole_plan(transcript);
        }
        let (replaced, slack_share) = (self.rules.replaced_count(), settings.slack_share);
        let is_valid = |layout: &RequestLayout| {
            layout.is_valid_for(transcript, budget_tokens, replaced, slack_share)
        };
        let kept = self.layout.take().filter(is_valid);
        // At most one search per request, and none if nothing moves and no prompt is new.
        let cell = OnceCell::new();
        let rank = || self.rank_prompt(transcript, &request.prompt, settings.fusion_rank);
        let ranked = || cell.get_or_init(rank);
        let move_window = |last: Option<&RequestLayout>| {
            let moved = |last| self.moved_layout(transcript, budget_tokens, last, settings);
            let moved = last.and_then(moved);
            moved.unwrap_or_else(|| self.new_layout(transcript, budget_tokens, ranked(), settings))
        };
        let add_note = |newest: u64, layout: &mut RequestLayout| {
            self.add_note(transcript, newest, budget_tokens, ranked(), settings, layout);
        };
        let style = settings.style();
        let update = LayoutUpdate::new(
            &self.index,
            transcript,
            request,
            kept,
            &style,
            &move_window,
            add_note,
        );
        self.is_layout_new = update.is_new;
        self.layout = update.layout;
        update.plan
    }

    /// Ranks slices for a prompt, by words and by meaning.
    fn rank_prompt(&self, transcript: &Transcript, prompt: &str, fusion_rank: u64) -> RankedSlices {
        let query = self.index.build_query(transcript, prompt);
        let words = self.index.query_words(transcript, prompt);
        self.rank_fused(&query, self.cosines(embedded_text(&words).0), fusion_rank)
    }

    /// Adds the note for a new prompt, as far as there is room.
    fn add_note(
        &self,
        transcript: &Transcript,
        newest: u64,
        budget_tokens: u64,
        ranked: &RankedSlices,
        settings: &Settings,
        layout: &mut RequestLayout,
    ) {
        let shares = if self.index.uses_tools(transcript) {
            NoteShares { found: settings.agent_note_share, names: settings.name_note_share }
        } else {
            // Chats come back to facts, not to names.
            NoteShares { found: settings.chat_note_share, names: 0.0 }
        };
        let finder = SliceFinder { index: &self.index, rules: &self.rules, transcript, ranked };
        let withdrawn = self.rules.withdrawn_names();
        let nothing = |_, _: &RequestLayout| String::new();
        finder.add_note(
            newest,
            budget_tokens,
            shares,
            withdrawn,
            &settings.style(),
            nothing,
            layout,
        );
    }
}
