//! The `head-tail` engine: keeps the first and newest messages, prunes old output, then summarises
//! the middle.
//!
//! ```text
//!  above half of the window
//!     assemble   prune ── still above? ──▶ request a compaction
//!     compact    head │ ░░░░░░ middle ░░░░░░ │ tail
//!                head │ [summary]            │ tail     updated by the next compaction
//! ```
//!
//! Cooldowns stop repeated failures: of a model, and of compactions that saved too little.

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

mod compaction;
mod cut;
mod notes;
mod prompt;
mod summary;

mod cooldowns;
mod prune;
pub mod settings;

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, EngineStatus, Host, Info, Plan,
    PlanNote, Result, Transcript,
};
use ctxhost_engine_kit::budget::RequestBudget;
use ctxhost_engine_kit::budget_states::BudgetStates;
use ctxhost_engine_kit::exchange::NewestExchange;
use ctxhost_engine_kit::replacement::ReplacementMap;
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::settings::share_of;
use ctxhost_engine_kit::status::{CompactionCounter, request_compaction};

use compaction::HeadTailCompaction;
use cooldowns::Cooldowns;
use prune::SessionPruning;
use settings::Settings;

/// Layer name in plan notes.
const LAYER: &str = "head-tail";

/// The engine.
#[derive(Debug)]
pub struct HeadTailEngine {
    host: Host,
    settings: Settings,
    sessions: SessionMap<HeadTailSession>,
    compactions: CompactionCounter,
}

/// Engine state of one session; rebuilt after a restart.
#[derive(Debug, Default)]
struct HeadTailSession {
    pruned: BudgetStates<SessionPruning>,
    cooldowns: Cooldowns,
}

impl ContextEngine for HeadTailEngine {
    const INFO: Info = Info::new("head-tail", "Head and tail", env!("CARGO_PKG_VERSION"));

    fn create(host: Host, config: Value) -> Result<Self> {
        Ok(HeadTailEngine {
            host,
            settings: Settings::from_config(&config)?,
            sessions: SessionMap::default(),
            compactions: CompactionCounter::default(),
        })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let plan =
            |session: &mut HeadTailSession| session.plan(&transcript, &request, &self.settings);
        Ok(self.sessions.with_session(&request.session, plan))
    }

    async fn compact(&self, transcript: Transcript, request: CompactRequest) -> Result<Compaction> {
        let inputs = HeadTailCompaction {
            host: &self.host,
            settings: &self.settings,
            sessions: &self.sessions,
            transcript: &transcript,
            request: &request,
        };
        let answer = compaction::compact(&inputs).await;
        self.compactions.record(&answer);
        answer
    }

    fn status(&self) -> EngineStatus {
        self.compactions.status(&self.settings)
    }

    async fn dispose(&self) {
        self.sessions.clear();
    }
}

impl HeadTailSession {
    /// Assembles the pruned transcript and requests a compaction if necessary.
    fn plan(
        &mut self,
        transcript: &Transcript,
        request: &AssembleRequest,
        settings: &Settings,
    ) -> Plan {
        let budget = RequestBudget::from(request);
        self.pruned.select(budget.budget_tokens);
        self.pruned.state_mut().follow(transcript);
        self.prune(transcript, &budget, settings);
        let mut plan = self.pruned.state().rewrites().plan(transcript);
        if plan.estimated_tokens > settings.trigger_tokens(&budget) {
            self.request_if_useful(transcript, request, settings, &mut plan);
        }
        plan
    }

    /// Prunes entries before the tail, then also the tail's minimum of messages.
    fn prune(&mut self, transcript: &Transcript, budget: &RequestBudget, settings: &Settings) {
        let trigger_tokens = settings.trigger_tokens(budget);
        let batch_tokens = share_of(trigger_tokens, settings.prune_batch_share);
        if self.pruned.state().rewrites().shown_tokens(transcript) <= trigger_tokens {
            return;
        }
        let no_rewrites = ReplacementMap::default();
        let exchange = NewestExchange::fit(transcript, budget.budget_tokens, 1, &no_rewrites);
        let exchange = exchange.as_ref();
        // First outside the tail; inside its minimum of messages only if that is not enough.
        for messages in [settings.tail_messages, 0] {
            let tokens = self.pruned.state().rewrites().shown_tokens(transcript);
            if tokens <= trigger_tokens {
                return;
            }
            let tail = cut::tail_start(transcript, trigger_tokens, messages, settings);
            if tokens > budget.budget_tokens
                || self.pruned.state().needs_pruning(transcript, tail, exchange, batch_tokens)
            {
                self.pruned.decide().prune_until(transcript, tail, exchange, settings);
            }
        }
    }

    /// Requests a compaction if it would help.
    fn request_if_useful(
        &self,
        transcript: &Transcript,
        request: &AssembleRequest,
        settings: &Settings,
        plan: &mut Plan,
    ) {
        if let Some(reason) = self.cooldowns.backoff_reason(request.now_ms, settings) {
            plan.extras.notes.push(PlanNote::new(LAYER, reason));
            return;
        }
        let budget = RequestBudget::from(request);
        let cut = cut::choose_cut(transcript, &budget, 1, settings);
        // A compaction that saves little would be repeated after a few turns.
        let worth_tokens = share_of(plan.estimated_tokens, 1.0 - settings.min_saving_share);
        if cut.is_some_and(|cut| cut.after_tokens() < worth_tokens) {
            request_compaction(plan, "above the trigger", settings.trigger_tokens(&budget));
        }
    }
}
