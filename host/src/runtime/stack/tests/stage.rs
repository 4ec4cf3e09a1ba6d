//! Engines that do as they are told, and a stack of them in front of a session.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use ctxhost_engine_api::*;
use serde_json::{Value, json};

use super::super::{Bench, Stack, Staged};
use crate::engine::{Clock, EngineSpec, Environment, OnEngineError, SlotError, Timeouts};
use crate::law::{self, Anchors, LawSettings, Lawful};

/// Large enough for every session of these tests.
pub(super) const BUDGET: u64 = 40_000;

/// What engines heard, by the test they heard it in.
static HEARD: LazyLock<Mutex<HashMap<String, Vec<String>>>> = LazyLock::new(Mutex::default);

/// What the engines of a test heard, in order.
pub(super) fn heard(test: &str) -> Vec<String> {
    HEARD.lock().unwrap().remove(test).unwrap_or_default()
}

/// What an engine of these tests does; `test` in its config says where it is heard.
pub(super) struct Puppet<const NUMBER: usize> {
    test: String,
    does: String,
}

const IDS: [&str; 3] = ["first", "second", "third"];

/// An engine of a test, by its number from 0.
pub(super) fn puppet<const NUMBER: usize>(test: &str, does: &str) -> EngineSpec {
    EngineSpec::linked::<Puppet<NUMBER>>(json!({ "test": test, "does": does }))
}

impl<const NUMBER: usize> Puppet<NUMBER> {
    fn hear(&self, what: &str, view: &Transcript) {
        let texts: Vec<&str> = view.iter().map(|entry| entry.text()).collect();
        let line = format!("{} {what}: {}", IDS[NUMBER], texts.join(" | "));
        HEARD.lock().unwrap().entry(self.test.clone()).or_default().push(line);
    }

    fn fails(&self, call: &str) -> Result<()> {
        match self.does == format!("fails in {call}") {
            true => Err(EngineError::failed("as it was told to")),
            false => Ok(()),
        }
    }
}

impl<const NUMBER: usize> ContextEngine for Puppet<NUMBER> {
    const INFO: Info = Info::new(IDS[NUMBER], "Puppet", "1.0.0");

    fn create(_: Host, config: Value) -> Result<Self> {
        let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
        let puppet = Puppet { test: text("test"), does: text("does") };
        puppet.fails("create")?;
        Ok(puppet)
    }

    async fn bootstrap(&self, view: Transcript, _: BootstrapRequest) -> Result<Bootstrapped> {
        self.hear("begins", &view);
        Ok(Bootstrapped::default())
    }

    async fn ingest(&self, view: Transcript, request: IngestRequest) -> Result<Ingested> {
        self.fails("ingest")?;
        self.hear(&format!("hears {:?}", request.entries), &view);
        Ok(Ingested { entries: request.entries.end - request.entries.start })
    }

    async fn assemble(&self, view: Transcript, request: AssembleRequest) -> Result<Plan> {
        self.fails("assemble")?;
        self.hear(&format!("shapes within {}", request.budget), &view);
        let (mut plan, len) = (Plan::default(), view.len() as u64);
        match self.does.as_str() {
            "lies" => _ = plan.keep(0..len + 7),
            "cannot fit" => return Err(EngineError::new(ErrorKind::CannotFit, "too much")),
            "finds the window small" => {
                return Err(EngineError::new(ErrorKind::WindowTooSmall, "too small"));
            }
            // Everything long is told in one word; the second entry goes.
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
        self.hear("compacts", &view);
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
        self.hear(&format!("after {:?}", request.entries), &view);
        Ok(())
    }

    async fn commit_turn(&self, view: Transcript, request: CommitTurnRequest) -> Result<Committed> {
        self.hear(&format!("commits {:?}", request.entries), &view);
        Ok(Committed::Committed)
    }

    fn tools(&self, _: SessionRef) -> Vec<ToolSpec> {
        let spec = |name: &str| ToolSpec { name: name.into(), ..ToolSpec::default() };
        vec![spec("shared"), spec(IDS[NUMBER])]
    }

    async fn call_tool(&self, view: Transcript, request: ToolCallRequest) -> Result<ToolAnswer> {
        self.hear(&format!("is called as {}", request.name), &view);
        Ok(ToolAnswer::default())
    }
}

pub(super) fn open(engines: &[EngineSpec], on_error: OnEngineError) -> Result2<Stack> {
    let environment = Environment::new(Timeouts::default(), Clock::default());
    let legacy = EngineSpec::bundled("legacy", json!({}));
    Stack::open(engines, &legacy, on_error, &environment)
}

/// A stack that may do without a stage that fails.
pub(super) fn stack(engines: &[EngineSpec]) -> Stack {
    open(engines, OnEngineError::Fallback).unwrap()
}

pub(super) type Result2<T> = std::result::Result<T, SlotError>;

pub(super) fn session() -> SessionRef {
    SessionRef { id: "s".into(), key: String::new() }
}

pub(super) fn request(budget: u64) -> AssembleRequest {
    let model = ModelRef { window_tokens: 64_000, ..ModelRef::default() };
    AssembleRequest { session: session(), budget, model, ..AssembleRequest::default() }
}

/// One request through a stack, without the law behind the last stage.
pub(super) async fn staged(stack: &Stack, view: &Transcript, budget: u64) -> Result2<Staged> {
    let (anchors, law) = (Anchors::of(view), LawSettings::default());
    let bench = Bench { anchors: &anchors, budget_tokens: budget, law: &law };
    stack.assemble(view, request(budget), bench).await
}

/// One request as the runtime shapes it: who shaped it, and the lawful plan.
pub(super) async fn shaped(stack: &Stack, view: &Transcript, budget: u64) -> (Staged, Lawful) {
    loop {
        let staged = staged(stack, view, budget).await.unwrap();
        let plan = staged.served.value.clone();
        match law::enforce(view, plan, budget, &LawSettings::default()) {
            Ok(lawful) => return (staged, lawful),
            Err(violation) => {
                let why = violation.to_string();
                stack.refuse(&staged.served.engine, "assemble", &why).unwrap();
            }
        }
    }
}
