//! The `legacy` engine: a guard in four layers.
//!
//! ```text
//!  assemble   1 window guard ─▶ 4 pruning ─▶ 2 tool-result guard ─▶ plan
//!  compact    3 compaction: cut point ─▶ summary ─▶ quality guard ─▶ plan
//! ```
//!
//! Assembling only hides. If the plan is over its budget, the host requests a compaction.

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
mod pruning;
mod tool_result_guard;
mod window_guard;

mod counters;
mod decisions;
mod results;
pub mod settings;

use ctxhost_engine_api::{
    AssembleRequest, BootstrapReply, BootstrapRequest, CompactRequest, Compaction, ContextEngine,
    EngineError, EngineStatus, ErrorKind, Host, Info, LogLevel, ModelRef, Plan, PlanNote, Result,
    Transcript,
};
use serde_json::Value;

use counters::LegacyCounters;
use decisions::DecisionStore;
use pruning::{CacheClock, PruningLayer};
use results::ToolResults;
use settings::Settings;
use tool_result_guard::ReductionScope;
use window_guard::WindowVerdict;

/// The engine.
#[derive(Debug)]
pub struct LegacyEngine {
    host: Host,
    settings: Settings,
    pruning: PruningLayer,
    memory: DecisionStore,
    tally: LegacyCounters,
}

impl ContextEngine for LegacyEngine {
    const INFO: Info = Info::new("legacy", "Legacy four-layer guard", env!("CARGO_PKG_VERSION"));

    fn create(host: Host, config: Value) -> Result<Self> {
        let settings = Settings::from_config(&config)?;
        let pruning = PruningLayer::new(&settings.pruning)?;
        Ok(LegacyEngine {
            host,
            settings,
            pruning,
            memory: DecisionStore::default(),
            tally: LegacyCounters::default(),
        })
    }

    /// Loads the decisions of an earlier process, so that the first request repeats its bytes.
    async fn bootstrap(&self, _: Transcript, request: BootstrapRequest) -> Result<BootstrapReply> {
        self.memory.load(&self.host, &request.session).await;
        Ok(BootstrapReply::default())
    }

    /// Layers 1, 4 and 2.
    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let warning = self.check_window(&request.model)?;
        self.memory.load(&self.host, &request.session).await;
        let guard = &self.settings.tool_results;
        if guard.spill_chars > 0 {
            let large =
                transcript.iter().filter(|e| tool_result_guard::needs_stored_original(e, guard));
            self.memory.store_originals(&self.host, &request.session, large).await;
        }
        let mut plan = self.reduce_results(&transcript, &request);
        self.memory.store(&self.host, &request.session).await;
        self.tally.record_plan(&plan);
        plan.extras.notes.extend(warning.map(|sentence| PlanNote::new("window guard", sentence)));
        Ok(plan)
    }

    /// Layer 3.
    async fn compact(&self, transcript: Transcript, request: CompactRequest) -> Result<Compaction> {
        let LegacyEngine { host, settings, memory, .. } = self;
        memory.load(host, &request.session).await;
        let answer = compaction::compact(host, settings, memory, &transcript, &request).await;
        memory.store(host, &request.session).await;
        self.tally.record_compaction(&answer);
        answer
    }

    fn status(&self) -> EngineStatus {
        self.tally.status(&self.settings)
    }

    async fn dispose(&self) {
        self.memory.clear();
    }
}

impl LegacyEngine {
    /// Layer 1. Returns a warning for the report and logs it once.
    fn check_window(&self, model: &ModelRef) -> Result<Option<String>> {
        match window_guard::check_window(model, &self.settings.window) {
            WindowVerdict::Clear => Ok(None),
            WindowVerdict::Warn(sentence) => {
                self.warn_once(&sentence);
                Ok(Some(sentence))
            }
            WindowVerdict::Block(sentence) => {
                self.warn_once(&sentence);
                Err(EngineError::new(ErrorKind::WindowTooSmall, sentence))
            }
        }
    }

    /// Layers 4 and 2.
    fn reduce_results(&self, transcript: &Transcript, request: &AssembleRequest) -> Plan {
        let window_tokens =
            tool_result_guard::effective_window_tokens(request.model.window_tokens, request.budget);
        let guard = &self.settings.tool_results;
        let clock = CacheClock {
            now_ms: request.now_ms,
            last_touch_ms: self.host.prompt_cache(&request.session).last_touch_ms,
        };
        let scope = ReductionScope {
            window_tokens,
            budget_tokens: request.budget,
            sent_until_ms: self.pruning.sent_until_ms(clock),
        };
        let cap_chars = tool_result_guard::single_cap_chars(window_tokens, guard);
        let mut results = ToolResults::from_transcript(transcript, cap_chars);
        self.memory.with_session(&request.session, transcript, |memory| {
            self.pruning.prune(&mut results, transcript, window_tokens, clock, memory);
            tool_result_guard::reduce_results(&mut results, transcript, scope, guard, memory);
        });
        results.into_plan()
    }

    fn warn_once(&self, sentence: &str) {
        if self.memory.is_new_warning(sentence) {
            self.host.log(LogLevel::Warn, sentence);
        }
    }
}
