//! The `recall` engine: what was said and done earlier is found again when it matters.
//!
//! At ingest every entry goes into an index, a ledger of names and a list of the person's rules. While
//! the history fits it is sent as it is. When it does not, the model sees the rules, the names, the newest
//! entries with old results as lines, and what the prompt finds in all the rest. No model is asked.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod compaction;
mod excerpt;
mod files;
mod index;
mod layout;
mod ledger;
mod mask;
mod memory;
mod moving;
mod names;
mod ranking;
mod rules;
mod settings;
mod slices;
mod terms;
mod tools;

use ctxhost_engine_api::serde_json::{Value, json};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, EngineStatus, Host, Info,
    IngestRequest, Ingested, Plan, Result, SessionRef, ToolAnswer, ToolCallRequest, ToolSpec,
    Transcript,
};
use ctxhost_engine_kit::settings::share_of;
use ctxhost_engine_kit::turns::Sessions;

use memory::Memory;
pub use settings::Settings;

/// The layer that notes of plans name.
const LAYER: &str = "recall";

/// What a request leaves free where a note is added, so that the answer to a small question still fits.
const NOTE_MARGIN_SHARE: f64 = 0.02;

/// Share of the budget that text of the engine's own may take. The host refuses a plan above a half.
const OWN_SHARE: f64 = 0.48;

/// The engine.
#[derive(Debug)]
pub struct Recall {
    settings: Settings,
    sessions: Sessions<Memory>,
    index_bytes: std::sync::atomic::AtomicUsize,
}

impl ContextEngine for Recall {
    const INFO: Info = Info::new("recall", "Recall", env!("CARGO_PKG_VERSION")).owning_compaction();

    fn create(_host: Host, config: Value) -> Result<Self> {
        let settings = Settings::parse(&config)?;
        Ok(Recall { settings, sessions: Sessions::default(), index_bytes: Default::default() })
    }

    async fn ingest(&self, transcript: Transcript, request: IngestRequest) -> Result<Ingested> {
        let entries = self.sessions.with(&request.session, |memory| {
            let new = memory.follow(&transcript);
            let asked = request.entries;
            self.index_bytes.store(memory.index_bytes(), std::sync::atomic::Ordering::Relaxed);
            new.end.min(asked.end).saturating_sub(new.start.max(asked.start))
        });
        Ok(Ingested { entries })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let plan = |memory: &mut Memory| memory.plan(&transcript, &request, &self.settings);
        Ok(self.sessions.with(&request.session, plan))
    }

    async fn compact(&self, transcript: Transcript, request: CompactRequest) -> Result<Compaction> {
        Ok(self
            .sessions
            .with(&request.session, |memory| memory.compact(&transcript, &request, &self.settings)))
    }

    fn tools(&self, _session: SessionRef) -> Vec<ToolSpec> {
        if self.settings.tools { tools::specs() } else { Vec::new() }
    }

    async fn call_tool(
        &self,
        transcript: Transcript,
        request: ToolCallRequest,
    ) -> Result<ToolAnswer> {
        self.sessions.with(&request.session, |memory| {
            memory.follow(&transcript);
            memory.call_tool(&transcript, &request)
        })
    }

    fn status(&self) -> EngineStatus {
        let bytes = self.index_bytes.load(std::sync::atomic::Ordering::Relaxed);
        let summary = format!("index of the newest session: {} kB", bytes / 1_000);
        EngineStatus {
            summary,
            details: json!({ "index_bytes": bytes }),
            ..EngineStatus::default()
        }
    }

    async fn dispose(&self) {
        self.sessions.clear();
    }
}

impl Memory {
    /// The whole history where it fits; else the layout as it is, or a new one.
    fn plan(
        &mut self,
        transcript: &Transcript,
        request: &AssembleRequest,
        settings: &Settings,
    ) -> Plan {
        self.follow(transcript);
        let budget_tokens = request.budget;
        if transcript.total_tokens() <= budget_tokens {
            self.layout = None;
            return whole(transcript);
        }
        let replaced = self.rules.replaced();
        let kept =
            self.layout.take().filter(|it| it.holds(transcript, budget_tokens, replaced, settings));
        let mut layout = match kept {
            Some(layout) => layout,
            None => self.moved(
                transcript,
                budget_tokens,
                &self.query(transcript, &request.prompt),
                settings,
            ),
        };
        self.look_up(transcript, request, settings, &mut layout);
        while layout.tokens(transcript, settings) > budget_tokens && layout.drop_note() {}
        if layout.tokens(transcript, settings) > budget_tokens {
            layout = self.moved(
                transcript,
                budget_tokens,
                &self.query(transcript, &request.prompt),
                settings,
            );
        }
        let plan = layout.plan(transcript, settings);
        self.layout = Some(layout);
        plan
    }

    /// Puts what a new prompt finds in front of it, as far as there is room.
    fn look_up(
        &self,
        transcript: &Transcript,
        request: &AssembleRequest,
        settings: &Settings,
        layout: &mut layout::Layout,
    ) {
        let Some(newest) = self.newest_user.filter(|_| !request.prompt.trim().is_empty()) else {
            return;
        };
        let is_cut_point = transcript.get(newest).is_some_and(|entry| entry.is_cut_point());
        if newest < layout.cut || layout.notes.contains_key(&newest) || !is_cut_point {
            return;
        }
        layout.prompted = Some(newest);
        let budget_tokens = request.budget;
        let is_agent = self.is_agent(transcript);
        let share = if is_agent { settings.agent_note_share } else { settings.chat_note_share };
        let name_share = if is_agent { settings.name_note_share } else { 0.0 };
        let most_tokens = share_of(budget_tokens, 1.0 - NOTE_MARGIN_SHARE);
        let free = |layout: &layout::Layout| {
            most_tokens.saturating_sub(layout.tokens(transcript, settings))
        };
        let name_tokens = share_of(budget_tokens, name_share);
        let room_tokens = share_of(budget_tokens, share) + name_tokens;
        while free(layout) < room_tokens && layout.drop_note() {}
        let own_tokens = share_of(budget_tokens, OWN_SHARE).saturating_sub(layout.own_tokens());
        let room_tokens = room_tokens.min(free(layout)).min(own_tokens);
        let query = self.query(transcript, &request.prompt);
        let found = self.note(transcript, &query, room_tokens.saturating_sub(name_tokens), layout);
        let left_tokens = room_tokens.saturating_sub(tokens::estimate(&found) + 1);
        let names = match is_agent {
            true => self.further_names(transcript, &query, &found, left_tokens, layout),
            false => String::new(),
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
