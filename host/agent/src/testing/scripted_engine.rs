//! Engines that behave as their config says and record their calls.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use ctxhost_engine_api::*;
use serde_json::{Value, json};

use ctxhost_engine::EngineSpec;

/// The recorded calls, by test.
static CALLS: LazyLock<Mutex<HashMap<String, Vec<String>>>> = LazyLock::new(Mutex::default);

/// Takes the calls of a test's engines, in order.
pub(crate) fn calls(test: &str) -> Vec<String> {
    CALLS.lock().unwrap().remove(test).unwrap_or_default()
}

/// An engine whose behaviour is `does` and whose calls are recorded under `test`.
pub(crate) struct ScriptedEngine<const NUMBER: usize> {
    test: String,
    does: String,
}

const IDS: [&str; 3] = ["first", "second", "third"];

/// The spec of an engine, by its number from 0.
pub(crate) fn scripted_engine<const NUMBER: usize>(test: &str, does: &str) -> EngineSpec {
    EngineSpec::linked::<ScriptedEngine<NUMBER>>(json!({ "test": test, "does": does }))
}

impl<const NUMBER: usize> ScriptedEngine<NUMBER> {
    fn record(&self, call: &str, view: &Transcript) {
        let texts: Vec<&str> = view.iter().map(|entry| entry.text()).collect();
        let line = format!("{} {call}: {}", IDS[NUMBER], texts.join(" | "));
        CALLS.lock().unwrap().entry(self.test.clone()).or_default().push(line);
    }

    fn fails(&self, call: &str) -> Result<()> {
        if self.does == format!("fails in {call}") {
            return Err(EngineError::failed("as configured"));
        }
        Ok(())
    }
}

impl<const NUMBER: usize> ContextEngine for ScriptedEngine<NUMBER> {
    const INFO: Info = Info::new(IDS[NUMBER], "ScriptedEngine", "1.0.0");

    fn create(_: Host, config: Value) -> Result<Self> {
        let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
        let engine = ScriptedEngine { test: text("test"), does: text("does") };
        engine.fails("create")?;
        Ok(engine)
    }

    async fn bootstrap(&self, view: Transcript, _: BootstrapRequest) -> Result<BootstrapReply> {
        self.record("bootstraps", &view);
        Ok(BootstrapReply::default())
    }

    async fn ingest(&self, view: Transcript, request: IngestRequest) -> Result<IngestReply> {
        self.fails("ingest")?;
        self.record(&format!("ingests {:?}", request.entries), &view);
        Ok(IngestReply { entries: request.entries.end - request.entries.start })
    }

    async fn assemble(&self, view: Transcript, request: AssembleRequest) -> Result<Plan> {
        self.fails("assemble")?;
        self.record(&format!("assembles within {}", request.budget), &view);
        let (mut plan, len) = (Plan::default(), view.len() as u64);
        match self.does.as_str() {
            "invalid plan" => _ = plan.keep(0..len + 7),
            "hangs in assemble" => std::future::pending().await,
            "cannot fit" => return Err(EngineError::new(ErrorKind::CannotFit, "too much")),
            "cancels" => return Err(EngineError::new(ErrorKind::Cancelled, "cancelled")),
            "finds the window small" => {
                return Err(EngineError::new(ErrorKind::WindowTooSmall, "too small"));
            }
            // Replaces long texts by one word.
            "shortens" => {
                for entry in view.iter() {
                    match entry.text().len() {
                        20.. => plan.replace_text(entry.seq(), "short").note("shortener", "cut"),
                        _ => plan.keep(entry.seq()..entry.seq() + 1),
                    };
                }
            }
            "drops the second" => _ = plan.keep(0..1).keep(2..len),
            "sums up" => _ = plan.keep(0..1).insert(Role::User, "sum", 1..3).keep(3..len),
            _ => _ = plan.keep(0..len),
        }
        Ok(plan)
    }

    async fn compact(&self, view: Transcript, _: CompactRequest) -> Result<Compaction> {
        self.fails("compact")?;
        self.record("compacts", &view);
        match self.does.as_str() {
            "compacts" => {
                let (mut plan, len) = (Plan::default(), view.len() as u64);
                plan.keep(0..1).insert(Role::User, "sum", 1..len - 1).keep(len - 1..len);
                Ok(Compaction::Plan(plan))
            }
            "breaks in compact" => Err(EngineError::new(ErrorKind::Protocol, "broken")),
            _ => Ok(Compaction::Delegate),
        }
    }

    async fn after_turn(&self, view: Transcript, request: AfterTurnRequest) -> Result<()> {
        let counted = match request.provider_tokens {
            0 => String::new(),
            tokens => format!(" of {tokens}"),
        };
        self.record(&format!("after {:?}{counted}", request.entries), &view);
        Ok(())
    }

    async fn commit_turn(
        &self,
        view: Transcript,
        request: CommitTurnRequest,
    ) -> Result<CommitTurnReply> {
        self.record(&format!("commits {:?}", request.entries), &view);
        Ok(CommitTurnReply::Committed)
    }

    fn tools(&self, _: SessionRef) -> Vec<ToolSpec> {
        let spec = |name: &str| ToolSpec { name: name.into(), ..ToolSpec::default() };
        vec![spec("shared"), spec(IDS[NUMBER])]
    }

    async fn call_tool(&self, view: Transcript, request: ToolCallRequest) -> Result<ToolAnswer> {
        self.record(&format!("is called as {}", request.name), &view);
        Ok(ToolAnswer::default())
    }
}
