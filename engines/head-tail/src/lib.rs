//! The `head-tail` engine: the first and the newest messages stay, old output is pruned, and only
//! then is the middle told in a structured summary that each compaction brings up to date.
//!
//! ```text
//!  half of the window is full
//!     assemble   prune ── still above? ──▶ a compaction is wanted
//!     compact    head │ ░░░░░░ middle ░░░░░░ │ tail
//!                head │ [summary]            │ tail     the next summary takes this one up
//! ```
//!
//! What cannot help is not repeated: a model that failed rests, and so does a compaction that twice
//! saved next to nothing.

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

mod brakes;
mod prune;
pub mod settings;

use std::sync::atomic::{AtomicU64, Ordering};

use ctxhost_engine_api::serde_json::{Value, to_value};
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, EngineStatus, Host, Info, Note,
    Plan, Result, Transcript,
};
use ctxhost_engine_kit::text::grouped;
use ctxhost_engine_kit::turns::Sessions;

use brakes::Brakes;
use compaction::Desk;
use prune::Pruned;
use settings::{Settings, share_of};

/// The layer that notes about compactions name.
const LAYER: &str = "head-tail";

/// The engine.
#[derive(Debug)]
pub struct HeadTail {
    host: Host,
    settings: Settings,
    sessions: Sessions<Memory>,
    compactions: AtomicU64,
}

/// What the engine knows of one session. A restart forgets it: what was pruned is then decided anew.
#[derive(Debug, Default)]
struct Memory {
    pruned: Pruned,
    brakes: Brakes,
}

impl ContextEngine for HeadTail {
    const INFO: Info = Info::new("head-tail", "Head and tail", env!("CARGO_PKG_VERSION"));

    fn create(host: Host, config: Value) -> Result<Self> {
        Ok(HeadTail {
            host,
            settings: Settings::from_config(&config)?,
            sessions: Sessions::default(),
            compactions: AtomicU64::new(0),
        })
    }

    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let plan = |memory: &mut Memory| memory.plan(&transcript, &request, &self.settings);
        Ok(self.sessions.with(&request.session, plan))
    }

    async fn compact(&self, transcript: Transcript, request: CompactRequest) -> Result<Compaction> {
        let (host, settings) = (&self.host, &self.settings);
        let desk = Desk { host, settings, transcript: &transcript, request: &request };
        let brakes = |work: &mut dyn FnMut(&mut Brakes)| {
            self.sessions.with(&request.session, |memory| work(&mut memory.brakes));
        };
        let answer = compaction::compact(&desk, brakes).await;
        if matches!(answer, Ok(Compaction::Plan(_))) {
            self.compactions.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    fn status(&self) -> EngineStatus {
        let details = to_value(&self.settings).unwrap_or_default();
        let compactions = self.compactions.load(Ordering::Relaxed);
        EngineStatus { summary: String::new(), compactions, details }
    }

    async fn dispose(&self) {
        self.sessions.clear();
    }
}

impl Memory {
    /// Everything, pruned as far as there is pressure, and whether a compaction is wanted.
    fn plan(
        &mut self,
        transcript: &Transcript,
        request: &AssembleRequest,
        settings: &Settings,
    ) -> Plan {
        self.pruned.follow(transcript);
        let trigger_tokens = settings.trigger(request.model.window_tokens, request.budget);
        self.relieve(transcript, request.budget, trigger_tokens, settings);
        let mut plan = self.pruned.plan(transcript);
        if plan.estimated_tokens > trigger_tokens {
            self.ask(transcript, request, settings, trigger_tokens, &mut plan);
        }
        plan
    }

    /// Prunes what is older than the tail, then what is older than its tokens alone.
    fn relieve(
        &mut self,
        transcript: &Transcript,
        budget_tokens: u64,
        trigger_tokens: u64,
        settings: &Settings,
    ) {
        let batch_tokens = share_of(trigger_tokens, settings.prune_batch_share);
        for messages in [settings.tail_messages, 0] {
            let tokens = transcript.total_tokens().saturating_sub(self.pruned.saved_tokens());
            if tokens <= trigger_tokens {
                return;
            }
            let tail = cut::tail_start(transcript, trigger_tokens, messages, settings);
            if tokens > budget_tokens || self.pruned.is_due(transcript, tail, batch_tokens) {
                self.pruned.prune_until(transcript, tail, settings);
            }
        }
    }

    /// Wants a compaction where one would help.
    fn ask(
        &self,
        transcript: &Transcript,
        request: &AssembleRequest,
        settings: &Settings,
        trigger_tokens: u64,
        plan: &mut Plan,
    ) {
        if let Some(reason) = self.brakes.resting(request.now_ms, settings) {
            plan.extras.notes.push(Note::new(LAYER, reason));
            return;
        }
        let after_tokens = cut::after_tokens(transcript, trigger_tokens, request.budget, settings);
        let worth_tokens = share_of(plan.estimated_tokens, 1.0 - settings.min_saving_share);
        if after_tokens < worth_tokens {
            plan.extras.compaction_wanted = Some(format!(
                "{} tokens are above the trigger of {}",
                grouped(plan.estimated_tokens),
                grouped(trigger_tokens)
            ));
        }
    }
}
