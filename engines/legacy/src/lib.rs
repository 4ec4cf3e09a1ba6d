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
    decisions: DecisionStore,
    counters: LegacyCounters,
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
            decisions: DecisionStore::default(),
            counters: LegacyCounters::default(),
        })
    }

    /// Loads the decisions of an earlier process, so that the first request repeats its bytes.
    async fn bootstrap(&self, _: Transcript, request: BootstrapRequest) -> Result<BootstrapReply> {
        self.decisions.load(&self.host, &request.session).await;
        Ok(BootstrapReply::default())
    }

    /// Layers 1, 4 and 2.
    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let warning = self.check_window(&request.model)?;
        self.decisions.load(&self.host, &request.session).await;
        let guard = &self.settings.tool_results;
        // Before the plan, because its notices name the handles.
        if guard.spill_chars > 0 {
            let large =
                transcript.iter().filter(|e| tool_result_guard::needs_stored_original(e, guard));
            self.decisions.store_originals(&self.host, &request.session, large).await;
        }
        let mut plan = self.reduce_results(&transcript, &request);
        self.decisions.store(&self.host, &request.session).await;
        self.counters.record_plan(&plan);
        plan.extras.notes.extend(warning.map(|sentence| PlanNote::new("window guard", sentence)));
        Ok(plan)
    }

    /// Layer 3.
    async fn compact(&self, transcript: Transcript, request: CompactRequest) -> Result<Compaction> {
        let LegacyEngine { host, settings, decisions, .. } = self;
        decisions.load(host, &request.session).await;
        let answer = compaction::compact(host, settings, decisions, &transcript, &request).await;
        decisions.store(host, &request.session).await;
        self.counters.record_compaction(&answer);
        answer
    }

    fn status(&self) -> EngineStatus {
        self.counters.status(&self.settings)
    }

    async fn dispose(&self) {
        self.decisions.clear();
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
        // The size that a result has after the guard decides when pruning starts.
        let cap_chars = tool_result_guard::single_cap_chars(window_tokens, guard);
        let mut results = ToolResults::from_transcript(transcript, cap_chars);
        let store = &self.decisions;
        store.with_session(&request.session, transcript, request.budget, |decisions| {
            // Pruning first: a result that it has cleared needs no cut.
            self.pruning.prune(&mut results, transcript, scope, clock, decisions);
            tool_result_guard::reduce_results(&mut results, transcript, scope, guard, decisions);
        });
        results.into_plan()
    }

    fn warn_once(&self, sentence: &str) {
        if self.decisions.is_new_warning(sentence) {
            self.host.log(LogLevel::Warn, sentence);
        }
    }
}
