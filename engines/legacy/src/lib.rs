//! The bundled engine: four layers, each the answer to one kind of pressure.
//!
//! ```text
//!  assemble   1 window guard ─▶ 4 pruning (replays and decides) ─▶ 2 tool-result guard ─▶ plan
//!  compact    3 compaction: cut point ─▶ summary ─▶ quality guard ─▶ plan
//! ```
//!
//! Assembling only ever hides: if the plan is still over its budget, the host asks for a compaction.

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

mod memory;
mod results;
pub mod settings;

#[cfg(test)]
mod recorded_session;
#[cfg(test)]
mod testbench;

use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, EngineError, EngineStatus,
    ErrorKind, Host, Info, LogLevel, ModelRef, Note, Plan, Result, Transcript,
};
use serde_json::Value;

use memory::Memory;
use pruning::{CacheClock, Pruning};
use results::ToolResults;
use settings::Settings;
use window_guard::Verdict;

/// The four-layer guard.
#[derive(Debug)]
pub struct Legacy {
    host: Host,
    settings: Settings,
    pruning: Pruning,
    memory: Memory,
}

impl ContextEngine for Legacy {
    const INFO: Info = Info::new("legacy", "Legacy four-layer guard", env!("CARGO_PKG_VERSION"));

    fn create(host: Host, config: Value) -> Result<Self> {
        let settings = Settings::from_config(&config)?;
        let pruning = Pruning::new(&settings.pruning)?;
        Ok(Legacy { host, settings, pruning, memory: Memory::default() })
    }

    /// Layers 1, 4 and 2.
    async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
        let warning = self.check_window(&request.model)?;
        let mut plan = self.reduce_results(&transcript, &request);
        plan.extras.notes.extend(warning.map(|sentence| Note::new("window guard", sentence)));
        Ok(plan)
    }

    /// Layer 3.
    async fn compact(&self, transcript: Transcript, request: CompactRequest) -> Result<Compaction> {
        compaction::compact(&self.host, &self.settings, &transcript, &request).await
    }

    fn status(&self) -> EngineStatus {
        let details = serde_json::to_value(&self.settings).unwrap_or_default();
        EngineStatus { summary: String::new(), compactions: 0, details }
    }

    async fn dispose(&self) {
        self.memory.clear();
    }
}

impl Legacy {
    /// Layer 1. Answers a warning for the report; it is logged the first time only.
    fn check_window(&self, model: &ModelRef) -> Result<Option<String>> {
        match window_guard::check(model, &self.settings.window) {
            Verdict::Clear => Ok(None),
            Verdict::Warn(sentence) => {
                self.warn_once(&sentence);
                Ok(Some(sentence))
            }
            Verdict::Block(sentence) => {
                self.warn_once(&sentence);
                Err(EngineError::new(ErrorKind::WindowTooSmall, sentence))
            }
        }
    }

    /// Layers 4 and 2. Pruning goes first: a result it has cleared needs no cut.
    fn reduce_results(&self, transcript: &Transcript, request: &AssembleRequest) -> Plan {
        let window_tokens = request.model.window_tokens;
        let guard = &self.settings.tool_results;
        let cap_chars = tool_result_guard::single_cap_chars(window_tokens, guard);
        let clock = CacheClock {
            now_ms: request.now_ms,
            last_touch_ms: self.host.prompt_cache(&request.session).last_touch_ms,
        };
        let mut results = ToolResults::of(transcript, cap_chars);
        self.memory.of_session(&request.session, transcript, |memory| {
            self.pruning.prune(&mut results, transcript, window_tokens, clock, memory);
            tool_result_guard::reduce(&mut results, transcript, window_tokens, guard, memory);
        });
        results.into_plan()
    }

    fn warn_once(&self, sentence: &str) {
        if self.memory.is_new_warning(sentence) {
            self.host.log(LogLevel::Warn, sentence);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ctxhost_engine_api::border::EngineHandle;
    use ctxhost_engine_api::{Action, ErrorKind, Role};
    use futures_util::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::testbench::{Bench, Scripted};

    fn assembled(
        engine: &EngineHandle,
        transcript: &Transcript,
        request: AssembleRequest,
    ) -> Result<Plan> {
        engine.assemble(transcript.clone(), request).now_or_never().unwrap()
    }

    fn request(window_tokens: u64) -> AssembleRequest {
        let model = ModelRef { window_tokens, ..ModelRef::default() };
        AssembleRequest { model, budget: window_tokens / 2, ..AssembleRequest::default() }
    }

    fn session() -> Bench {
        let mut bench = Bench::default();
        for _ in 0..12 {
            bench.user("go").call("1", "exec", "{}").result("1", "exec", &"x".repeat(20_000));
            bench.assistant("done");
        }
        bench
    }

    #[test]
    fn what_is_small_is_kept_in_one_piece() {
        let mut bench = Bench::default();
        bench.user("hello").assistant("hi");
        let engine = Arc::new(Scripted::default()).engine(json!({}));
        let plan = assembled(&engine, &bench.transcript(), request(200_000)).unwrap();
        assert_eq!(plan, Plan { estimated_tokens: 3, ..Plan::keep_all(2) });
    }

    #[test]
    fn a_small_window_warns_once_and_a_smaller_one_is_refused() {
        let host = Arc::new(Scripted::default());
        let engine = host.engine(json!({}));
        let transcript = session().transcript();
        for _ in 0..3 {
            let plan = assembled(&engine, &transcript, request(20_000)).unwrap();
            assert_eq!(plan.extras.notes[0].layer, "window guard");
        }
        assert_eq!(host.log.lock().unwrap().len(), 1);
        let error = assembled(&engine, &transcript, request(8_000)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::WindowTooSmall);
    }

    #[test]
    fn pruning_and_the_guard_share_the_results_between_them() {
        let host = Arc::new(Scripted::default());
        *host.last_touch_ms.lock().unwrap() = Some(0);
        let engine = host.engine(json!({"pruning": {"mode": "cache-ttl"}}));
        let transcript = session().transcript();
        let cold = AssembleRequest { now_ms: 300_000, ..request(64_000) };
        let plan = assembled(&engine, &transcript, cold).unwrap();
        let layers = |plan: &Plan| -> Vec<String> {
            plan.ops.iter().filter_map(|op| Some(op.note.as_ref()?.layer.clone())).collect()
        };
        assert_eq!(layers(&plan).iter().filter(|layer| *layer == "pruning").count(), 11);
        assert_eq!(layers(&plan).last().map(String::as_str), Some("tool-result guard"));
        let warm = AssembleRequest { now_ms: 300_001, ..request(64_000) };
        assert_eq!(assembled(&engine, &transcript, warm).unwrap(), plan, "replayed");
    }

    #[test]
    fn every_call_keeps_its_result_and_every_role_its_place() {
        let engine = Arc::new(Scripted::default()).engine(json!({}));
        let transcript = session().transcript();
        let plan = assembled(&engine, &transcript, request(32_000)).unwrap();
        let roles: Vec<Role> = plan.project(&transcript).iter().map(|item| item.role()).collect();
        let original: Vec<Role> = transcript.iter().map(|entry| entry.role()).collect();
        assert_eq!(roles, original);
        assert!(plan.ops.iter().any(|op| matches!(op.action, Action::ReplaceText { .. })));
        assert!(plan.estimated_tokens < transcript.total_tokens());
    }

    #[test]
    fn a_wrong_setting_stops_the_engine_at_its_door() {
        let door = ctxhost_engine_api::border::EngineDoor::linked::<Legacy>();
        let config = json!({"prunning": {}});
        let error = door.create(Arc::new(Scripted::default()), &config).unwrap_err();
        assert_eq!(error.detail["key"], "prunning");
        assert!(error.message.contains("did you mean \"pruning\"?"));
    }
}
