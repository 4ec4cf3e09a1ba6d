//! The `boundary` engine: a threshold, and a summary of everything before the last turn.
//!
//! ```text
//!  assemble   everything; clears old tool results if no cached prefix is lost; reports the threshold
//!  compact    task · [summary] [acknowledgement] [attachments] · last turn
//! ```
//!
//! The summary comes from running notes, else from a model, else from the conversation's own
//! sentences. The host applies it; its budget is above every threshold.

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
mod micro_compaction;

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::*;
use ctxhost_engine_kit::budget::RequestBudget;
use ctxhost_engine_kit::ledger::LedgerReader;
use ctxhost_engine_kit::live_round::LiveRoundCuts;
use ctxhost_engine_kit::notes::RunningNotes;
use ctxhost_engine_kit::previews::ResultPreviews;
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::status::{CompactionCounter, request_compaction};
use ctxhost_engine_kit::subagents::SubAgents;
use ctxhost_engine_kit::summary::SummaryOutline;

use attempts::CompactionAttempts;
use layout::{BoundaryTarget, LayoutPlanner};
use micro_compaction::MicroCompaction;
pub use settings::{
    AttachmentSettings, MicroSettings, PERCENT_VARIABLE, Settings, ThresholdSettings,
};
use threshold::threshold_tokens;

/// The engine.
#[derive(Debug)]
pub struct BoundaryEngine {
    host: Host,
    settings: Settings,
    sessions: SessionMap<BoundarySession>,
    notes: RunningNotes<SummaryOutline>,
    sub_agents: SubAgents,
    compactions: CompactionCounter,
}

/// Engine state of one session.
#[derive(Debug, Default)]
struct BoundarySession {
    previews: ResultPreviews,
    micro: MicroCompaction,
    attempts: CompactionAttempts,
}

impl ContextEngine for BoundaryEngine {
    const INFO: Info =
        Info::new("boundary", "Threshold and compact boundary", env!("CARGO_PKG_VERSION"));

    fn create(host: Host, config: Value) -> Result<Self> {
        // The only setting from the environment, as in the agent that this engine follows.
        let percent = std::env::var(PERCENT_VARIABLE).ok();
        let settings = Settings::parse(&config, percent.as_deref())?;
        Ok(BoundaryEngine {
            host,
            sessions: SessionMap::default(),
            notes: RunningNotes::new(settings.session_memory),
            sub_agents: SubAgents::default(),
            compactions: CompactionCounter::default(),
            settings,
        })
    }

    /// Loads the running notes of an earlier process.
    async fn bootstrap(
        &self,
        transcript: Transcript,
        request: BootstrapRequest,
    ) -> Result<BootstrapReply> {
        self.notes.load(&self.host, &request.session).await;
        let imported = self.update_notes(&transcript, &request.session);
        Ok(BootstrapReply { imported, reason: None })
    }

    async fn ingest(&self, transcript: Transcript, request: IngestRequest) -> Result<IngestReply> {
        let new = self.update_notes(&transcript, &request.session);
        Ok(IngestReply { entries: new.min(request.entries.end - request.entries.start) })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let expires_ms = self.host.prompt_cache(&request.session).expires_ms;
        // An unknown expiry counts as warm: clearing could then cost a cached prefix.
        let is_cold = expires_ms.is_some_and(|at_ms| request.now_ms >= at_ms);
        let target = self.target(&RequestBudget::from(&request), 1);
        Ok(self.sessions.with_session(&request.session, |session| {
            session.assemble(&transcript, &target, is_cold, &self.settings)
        }))
    }

    async fn compact(&self, transcript: Transcript, request: CompactRequest) -> Result<Compaction> {
        let answer = compaction::compact(self, &transcript, &request).await;
        self.compactions.record(&answer);
        answer
    }

    async fn after_turn(&self, transcript: Transcript, request: AfterTurnRequest) -> Result<()> {
        self.update_notes(&transcript, &request.session);
        self.notes.store(&self.host, &request.session).await;
        Ok(())
    }

    async fn prepare_subagent_spawn(
        &self,
        _: Transcript,
        request: SubagentSpawnRequest,
    ) -> Result<SubagentSpawnReply> {
        self.sub_agents.add(&request, self.host.now_ms());
        Ok(SubagentSpawnReply { token: request.child.id })
    }

    async fn rollback_subagent_spawn(&self, request: SubagentRollbackRequest) -> Result<()> {
        self.sub_agents.remove(&request.token);
        Ok(())
    }

    async fn on_subagent_ended(&self, request: SubagentEndedRequest) -> Result<()> {
        self.sub_agents.remove(&request.child.id);
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

impl BoundarySession {
    fn assemble(
        &mut self,
        transcript: &Transcript,
        target: &BoundaryTarget,
        is_cold: bool,
        settings: &Settings,
    ) -> Plan {
        let threshold_tokens = target.threshold_tokens;
        self.previews.follow(transcript, target.preview_tokens(settings));
        self.micro.follow(transcript, target.budget_tokens, &settings.micro);
        // Measured before clearing: the decision depends on what is shown now.
        let mut shown = self.micro.replacements(transcript, &self.previews);
        let shown_tokens = shown.shown_tokens(transcript);
        if self.micro.clear_old(shown_tokens, threshold_tokens, is_cold, &settings.micro) {
            shown = self.micro.replacements(transcript, &self.previews);
        }
        let cuts = LiveRoundCuts::fit_shown(transcript, &shown, target.budget_tokens);
        for (entry, cut) in cuts.replacements(transcript, 0..transcript.len() as u64, layout::LAYER)
        {
            shown.insert(&entry, cut);
        }
        let mut plan = shown.plan(transcript);
        let may_compact = settings.compaction
            && settings.auto_compaction
            && self.attempts.open_reason(settings.breaker_failures).is_none();
        let planner =
            LayoutPlanner { transcript, previews: &self.previews, settings, target: *target };
        let is_full = plan.estimated_tokens > threshold_tokens;
        // A request that cannot be met would be repeated in every turn.
        if may_compact && is_full && planner.has_layout(&mut LedgerReader::new(transcript)) {
            request_compaction(&mut plan, "over the threshold", threshold_tokens);
        }
        plan
    }
}

impl BoundaryEngine {
    fn target(&self, room: &RequestBudget, attempt: u32) -> BoundaryTarget {
        let threshold_tokens = threshold_tokens(room, &self.settings.threshold);
        BoundaryTarget { threshold_tokens, budget_tokens: room.budget_tokens, attempt }
    }

    /// Updates the running notes and returns the number of new entries.
    fn update_notes(&self, transcript: &Transcript, session: &SessionRef) -> u64 {
        let append =
            |notes: &mut SummaryOutline, range| notes::append_range(notes, transcript, range);
        self.notes.follow(transcript, session, append)
    }
}
