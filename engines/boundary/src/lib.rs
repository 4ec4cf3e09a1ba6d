//! The `boundary` engine: a threshold, and behind it a compact boundary.
//!
//! ```text
//!  assemble   everything, old tool results cleared where that is free; says when the threshold is passed
//!  compact    task · [summary] [acknowledgement] [attachments] · last turn
//! ```
//!
//! The summary comes from running notes, else from a model, else from the conversation's own
//! sentences. The host applies it; its budget stands above every threshold.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::single_range_in_vec_init
    )
)]

mod settings;
mod threshold;

mod compaction;
mod layout;
mod summary;

mod notes;
mod prompt;
mod sections;

mod attempts;
mod micro;

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::*;
use ctxhost_engine_kit::notes::RunningNotes;
use ctxhost_engine_kit::previews::Previews;
use ctxhost_engine_kit::room::Room;
use ctxhost_engine_kit::status::{Compactions, want_compaction};
use ctxhost_engine_kit::subagents::SubAgents;
use ctxhost_engine_kit::summary::Outline;
use ctxhost_engine_kit::turns::Sessions;

use attempts::Attempts;
use layout::{Aim, Drawing};
use micro::Micro;
pub use settings::{
    AttachmentSettings, MicroSettings, PERCENT_VARIABLE, Settings, ThresholdSettings,
};
use threshold::threshold_tokens;

/// The engine.
#[derive(Debug)]
pub struct Boundary {
    host: Host,
    settings: Settings,
    sessions: Sessions<Memory>,
    notes: RunningNotes<Outline>,
    sub_agents: SubAgents,
    compactions: Compactions,
}

/// What the engine knows of one session.
#[derive(Debug, Default)]
struct Memory {
    previews: Previews,
    micro: Micro,
    attempts: Attempts,
}

impl ContextEngine for Boundary {
    const INFO: Info =
        Info::new("boundary", "Threshold and compact boundary", env!("CARGO_PKG_VERSION"));

    fn create(host: Host, config: Value) -> Result<Self> {
        let percent = std::env::var(PERCENT_VARIABLE).ok();
        let settings = Settings::parse(&config, percent.as_deref())?;
        Ok(Boundary {
            host,
            sessions: Sessions::default(),
            notes: RunningNotes::new(settings.session_memory),
            sub_agents: SubAgents::default(),
            compactions: Compactions::default(),
            settings,
        })
    }

    /// Takes up the running notes where an earlier process left them.
    async fn bootstrap(
        &self,
        transcript: Transcript,
        request: BootstrapRequest,
    ) -> Result<Bootstrapped> {
        self.notes.recall(&self.host, &request.session).await;
        let imported = self.take_note(&transcript, &request.session);
        Ok(Bootstrapped { imported, reason: None })
    }

    async fn ingest(&self, transcript: Transcript, request: IngestRequest) -> Result<Ingested> {
        let new = self.take_note(&transcript, &request.session);
        Ok(Ingested { entries: new.min(request.entries.end - request.entries.start) })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let expires_ms = self.host.prompt_cache(&request.session).expires_ms;
        let is_cold = expires_ms.is_some_and(|at_ms| request.now_ms >= at_ms);
        let aim = self.aim(&Room::from(&request), 1);
        Ok(self.sessions.with(&request.session, |memory| {
            memory.assemble(&transcript, &aim, is_cold, &self.settings)
        }))
    }

    async fn compact(&self, transcript: Transcript, request: CompactRequest) -> Result<Compaction> {
        let answer = compaction::compact(self, &transcript, &request).await;
        self.compactions.record(&answer);
        answer
    }

    async fn after_turn(&self, transcript: Transcript, request: AfterTurnRequest) -> Result<()> {
        self.take_note(&transcript, &request.session);
        self.notes.store(&self.host, &request.session).await;
        Ok(())
    }

    async fn prepare_subagent_spawn(
        &self,
        _: Transcript,
        request: SubagentSpawnRequest,
    ) -> Result<SpawnPrepared> {
        self.sub_agents.begin(&request, self.host.now_ms());
        Ok(SpawnPrepared { token: request.child.id })
    }

    async fn rollback_subagent_spawn(&self, request: SubagentRollbackRequest) -> Result<()> {
        self.sub_agents.end(&request.token);
        Ok(())
    }

    async fn on_subagent_ended(&self, request: SubagentEndedRequest) -> Result<()> {
        self.sub_agents.end(&request.child.id);
        Ok(())
    }

    fn status(&self) -> EngineStatus {
        self.compactions.status(&self.settings)
    }

    async fn dispose(&self) {
        self.sessions.clear();
        self.notes.clear();
        self.sub_agents.clear();
    }
}

impl Memory {
    fn assemble(
        &mut self,
        transcript: &Transcript,
        aim: &Aim,
        is_cold: bool,
        settings: &Settings,
    ) -> Plan {
        let threshold_tokens = aim.threshold_tokens;
        self.previews.follow(transcript, aim.preview_tokens(settings));
        self.micro.follow(transcript, &settings.micro);
        let mut shown = self.micro.shown(transcript, &self.previews);
        let shown_tokens = shown.shown_tokens(transcript);
        if self.micro.decide(shown_tokens, threshold_tokens, is_cold, &settings.micro) {
            shown = self.micro.shown(transcript, &self.previews);
        }
        let mut plan = shown.plan(transcript);
        let may_compact = settings.compaction
            && settings.auto_compaction
            && self.attempts.is_open(settings.breaker_failures).is_none();
        let drawing = Drawing { transcript, previews: &self.previews, settings, aim: *aim };
        let is_full = plan.estimated_tokens > threshold_tokens;
        if may_compact && is_full && drawing.choose().is_some() {
            want_compaction(&mut plan, "over the threshold", threshold_tokens);
        }
        plan
    }
}

impl Boundary {
    fn aim(&self, room: &Room, attempt: u32) -> Aim {
        let threshold_tokens = threshold_tokens(room, &self.settings.threshold);
        Aim { threshold_tokens, budget_tokens: room.budget_tokens, attempt }
    }

    /// Brings the running notes up to date and answers how many entries are new in them.
    fn take_note(&self, transcript: &Transcript, session: &SessionRef) -> u64 {
        let tell = |told: &mut Outline, range| notes::tell(told, transcript, range);
        self.notes.follow(transcript, session, tell)
    }
}
