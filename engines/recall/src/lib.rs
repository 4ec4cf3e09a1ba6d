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
mod entry_masks;
mod files;
mod folded;
mod layout;
mod ranking;
mod rules;
mod selection;
mod session;
mod settings;
mod stored_layout;
mod tools;
mod vectors;
mod window_move;

use std::cell::OnceCell;
use std::sync::{Mutex, PoisonError};

use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, EngineStatus, Host, Info,
    IngestReply, IngestRequest, Plan, Result, SessionRef, ToolAnswer, ToolCallRequest, ToolSpec,
    Transcript, capability,
};
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::settings::share_of;
use ctxhost_engine_kit::store::{has_capability, has_key_value_store, session_key};

use embedding::EmbedderState;
use folded::FoldedEntries;
use layout::RequestLayout;
use ranking::RankedSlice;
use session::RecallSession;
pub use settings::Settings;
use vectors::embedded_text;

/// Layer name in plan notes.
const LAYER: &str = "recall";

/// Key prefix of stored layouts.
const KEY: &str = "layout/1/";

/// Share of the budget that stays free beside a note.
// Otherwise the answer to a short question would move the window.
const NOTE_MARGIN_SHARE: f64 = 0.02;

/// Maximum share of the budget for the engine's own text.
// The host refuses a plan with more than half; estimates may differ slightly.
const OWN_SHARE: f64 = 0.48;

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
            (plan, is_new.then(|| stored_layout::to_json(session)))
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
            None => summary.push_str(&format!("; vectors of {vectors} of {slices} texts")),
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
        let history = folded::read_history(&self.host, session).await?;
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
            session.layout = stored.and_then(|json| stored_layout::from_json(&json, session));
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
            return whole(transcript);
        }
        let replaced = self.rules.replaced_count();
        let kept = self
            .layout
            .take()
            .filter(|layout| layout.is_valid_for(transcript, budget_tokens, replaced, settings));
        // At most one search per request, and none if nothing moves and no prompt is new.
        let cell = OnceCell::new();
        let query = || self.build_query(transcript, &request.prompt);
        let by_meaning =
            || self.cosines(embedded_text(self.query_words(transcript, &request.prompt)).0);
        let rank = || self.rank_fused(&query(), by_meaning(), settings.fusion_rank);
        let ranked = || cell.get_or_init(rank).as_slice();
        let move_window = || self.new_layout(transcript, budget_tokens, ranked(), settings);
        let mut is_new = kept.is_none();
        let mut layout = kept.unwrap_or_else(move_window);
        let notes = layout.notes.len();
        if let Some(newest) = self.position_of_new_prompt(transcript, request, &layout) {
            self.add_note(transcript, newest, budget_tokens, ranked(), settings, &mut layout);
            is_new = true;
        }
        // Notes go first: the prefix before them stays valid.
        while layout.tokens(transcript, settings) > budget_tokens && layout.drop_oldest_note() {}
        if layout.tokens(transcript, settings) > budget_tokens {
            layout = move_window();
            is_new = true;
        }
        self.is_layout_new = is_new || layout.notes.len() != notes;
        let tokens = layout.tokens(transcript, settings);
        if tokens > budget_tokens && tokens >= transcript.total_tokens() {
            // Nearly everything is protected, so own texts would only add to it.
            return whole(transcript);
        }
        let plan = layout.plan(transcript, &self.masks, settings);
        self.layout = Some(layout);
        plan
    }

    /// Position of a new prompt that can have a note before it.
    fn position_of_new_prompt(
        &self,
        transcript: &Transcript,
        request: &AssembleRequest,
        layout: &RequestLayout,
    ) -> Option<u64> {
        let newest = self.newest_user.filter(|_| !request.prompt.trim().is_empty())?;
        // A note inside a frame would separate a call from its result.
        let is_cut_point = transcript.get(newest).is_some_and(|entry| entry.is_cut_point());
        let is_new = newest >= layout.cut && !layout.notes.contains_key(&newest);
        (is_new && is_cut_point).then_some(newest)
    }

    /// Adds the note for a new prompt, as far as there is room.
    fn add_note(
        &self,
        transcript: &Transcript,
        newest: u64,
        budget_tokens: u64,
        ranked: &[RankedSlice],
        settings: &Settings,
        layout: &mut RequestLayout,
    ) {
        let is_agent = self.uses_tools(transcript);
        let share = if is_agent { settings.agent_note_share } else { settings.chat_note_share };
        // Chats come back to facts, not to names.
        let name_share = if is_agent { settings.name_note_share } else { 0.0 };
        let most_tokens = share_of(budget_tokens, 1.0 - NOTE_MARGIN_SHARE);
        let free = |layout: &RequestLayout| {
            most_tokens.saturating_sub(layout.tokens(transcript, settings))
        };
        let name_tokens = share_of(budget_tokens, name_share);
        let room_tokens = share_of(budget_tokens, share) + name_tokens;
        while free(layout) < room_tokens && layout.drop_oldest_note() {}
        let own_tokens = share_of(budget_tokens, OWN_SHARE).saturating_sub(layout.own_tokens());
        let room_tokens = room_tokens.min(free(layout)).min(own_tokens);
        let found =
            self.render_note(transcript, ranked, room_tokens.saturating_sub(name_tokens), layout);
        let left_tokens = room_tokens.saturating_sub(tokens::estimate(&found) + 1);
        let names = if is_agent {
            self.render_further_names(transcript, ranked, &found, left_tokens, layout)
        } else {
            String::new()
        };
        let parts = [found, names].into_iter().filter(|part| !part.is_empty());
        let note = parts.collect::<Vec<_>>().join("\n");
        if !note.is_empty() {
            layout.notes.insert(newest, note);
        }
    }
}

fn whole(transcript: &Transcript) -> Plan {
    let mut plan = Plan { estimated_tokens: transcript.total_tokens(), ..Plan::default() };
    plan.keep(0..transcript.len() as u64);
    plan
}
