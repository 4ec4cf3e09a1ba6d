//! Engines that replace each other in a runtime, and their disposal.

mod canary;
mod chains;
mod config_changes;

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use ctxhost_engine_api::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::sync::broadcast::Receiver;

use crate::engine_manager::library_bytes;
use crate::event::{EventKind, RuntimeEvent};
use crate::testing::scripted_engine::scripted_engine;
use crate::testing::{Answer, ScriptedProvider, builder, config, session};
use crate::{EngineChange, ReloadError, Runtime, RuntimeBuilder, SessionId};
use ctxhost_config::Config;
use ctxhost_engine::{
    EngineSpec, FailureLog, HostClock, Isolation, QuarantineRecord, QuarantineRules,
};

/// The calls of engines, each line with the name in the engine's config.
static CALLS: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);

/// An engine that counts requests in its key-value store and fails as configured.
struct CountingEngine {
    name: String,
    fails: String,
    host: Host,
}

impl CountingEngine {
    fn spec(name: &str, fails: &str) -> EngineSpec {
        EngineSpec::linked::<CountingEngine>(json!({ "name": name, "fails": fails }))
    }

    fn record(&self, call: &str) {
        CALLS.lock().unwrap().push(format!("{} {call}", self.name));
    }
}

/// The calls of an engine.
fn calls(name: &str) -> Vec<String> {
    let calls = CALLS.lock().unwrap();
    calls
        .iter()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .map(str::to_owned)
        .collect()
}

impl ContextEngine for CountingEngine {
    const INFO: Info = Info::new("ledger", "CountingEngine", "1.0.0");

    fn create(host: Host, config: Value) -> Result<Self> {
        let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
        match text("fails").as_str() {
            "create" => Err(EngineError::config("fails", "as configured")),
            fails => Ok(CountingEngine { name: text("name"), fails: fails.to_owned(), host }),
        }
    }

    async fn bootstrap(&self, view: Transcript, _: BootstrapRequest) -> Result<BootstrapReply> {
        self.record(&format!("bootstrap {}", view.len()));
        Ok(BootstrapReply::default())
    }

    async fn assemble(&self, view: Transcript, request: AssembleRequest) -> Result<Plan> {
        match self.fails.as_str() {
            "panic" => panic!("the ledger is torn"),
            "illegal" => {
                let mut plan = Plan::default();
                plan.keep(0..view.len() as u64 + 9);
                return Ok(plan);
            }
            _ => {}
        }
        let key = format!("1/{}", request.session.id);
        let count: u64 =
            self.host.kv_get(&key).await?.and_then(|text| text.parse().ok()).unwrap_or(0);
        self.host.kv_put(&key, &(count + 1).to_string()).await?;
        self.record(&format!("assemble {}", count + 1));
        Ok(Plan::keep_all(view.len()))
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }

    async fn dispose(&self) {
        self.record("dispose");
    }
}

/// A runtime with a scripted model, and a session in it.
struct TestAgent {
    runtime: Runtime,
    session: SessionId,
    events: Receiver<RuntimeEvent>,
    _folder: TempDir,
}

impl TestAgent {
    async fn begin(settings: &str, engine: EngineSpec) -> TestAgent {
        TestAgent::with(builder(&quiet(settings), &answering("yes"), engine)).await
    }

    /// An agent whose turns wait for a tool, and the permits of that.
    async fn waiting(settings: &str, engine: EngineSpec) -> (TestAgent, Arc<Semaphore>) {
        let gate = Arc::new(Semaphore::new(0));
        let builder = builder(&quiet(settings), &ScriptedProvider::new(calls_wait_once), engine);
        (TestAgent::with(builder.tool(Arc::new(Wait(gate.clone())))).await, gate)
    }

    async fn with(builder: RuntimeBuilder) -> TestAgent {
        let folder = tempfile::tempdir().unwrap();
        let runtime = builder.build().await.unwrap();
        let session = session(&runtime, &folder);
        let events = runtime.subscribe();
        TestAgent { runtime, session, events, _folder: folder }
    }

    /// Runs a turn; returns the engine that shaped it.
    async fn send(&self) -> String {
        self.runtime.send(&self.session, "continue").await.unwrap().engine
    }

    async fn replace(&self, engines: &(impl AsRef<[EngineSpec]> + Sync + ?Sized)) -> EngineChange {
        self.runtime.replace_engine(engines).await.unwrap()
    }

    /// The engine events since the last call.
    fn engine_events(&mut self) -> Vec<EventKind> {
        let events = std::iter::from_fn(|| self.events.try_recv().ok());
        let is_engine_event = |kind: &EventKind| {
            matches!(
                kind,
                EventKind::EngineChanged { .. }
                    | EventKind::EngineRolledBack { .. }
                    | EventKind::ReloadRejected { .. }
                    | EventKind::RestartAdvised { .. }
                    | EventKind::CanaryStarted { .. }
                    | EventKind::CanaryEnded { .. }
            )
        };
        events.map(|event| event.kind).filter(is_engine_event).collect()
    }
}

/// A config with these settings, without housekeeping between turns.
fn quiet(settings: &str) -> Config {
    config(&format!("{settings}compaction.timing = \"manual\"\n"))
}

fn answering(word: &'static str) -> Arc<ScriptedProvider> {
    ScriptedProvider::new(move |_| Answer::Text(word.into()))
}

/// Calls the tool `wait`, then answers.
fn calls_wait_once(request: &ctxhost_dialects::ModelRequest) -> Answer {
    if crate::testing::is_result(request) {
        return Answer::Text("done".into());
    }
    Answer::Calls("wait", json!({}))
}

/// Waits for a condition.
async fn soon(mut done: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the condition was not met within 30 s");
}

#[tokio::test]
async fn the_next_engine_finds_the_store_and_the_old_one_is_disposed_of() {
    let agent = TestAgent::begin("swap.warm_ms = 0\n", CountingEngine::spec("kept-1", "")).await;
    agent.send().await;
    agent.send().await;
    let change = agent.replace(&CountingEngine::spec("kept-2", "")).await;
    assert_eq!((change.generation, agent.runtime.generation()), (2, 2));
    agent.send().await;
    assert_eq!(calls("kept-1")[..3], ["bootstrap 1", "assemble 1", "assemble 2"]);
    soon(|| calls("kept-1").last().is_some_and(|last| last == "dispose")).await;
    assert_eq!(
        calls("kept-2"),
        ["bootstrap 5", "assemble 3"],
        "bootstrapped with the whole session; the count was kept"
    );
    agent.runtime.shutdown().await;
    assert_eq!(["kept-1", "kept-2"].map(disposals), [1, 1]);
}

/// How often an engine was disposed of.
fn disposals(name: &str) -> usize {
    calls(name).iter().filter(|line| *line == "dispose").count()
}

#[tokio::test]
async fn shutdown_disposes_of_every_engine_once() {
    let agent = TestAgent::begin("", CountingEngine::spec("end-1", "")).await;
    agent.send().await;
    agent.replace(&CountingEngine::spec("end-2", "")).await;
    agent.send().await;
    let chain = [CountingEngine::spec("end-3", ""), scripted_engine::<0>("end", "")];
    agent.replace(&chain).await;
    agent.send().await;
    agent.runtime.shutdown().await;
    drop(agent);
    assert_eq!(["end-1", "end-2", "end-3"].map(disposals), [1, 1, 1]);
    assert_eq!(calls("end-3").last().unwrap(), "dispose");
}

#[tokio::test]
async fn an_engine_is_disposed_of_once_when_its_runtime_is_dropped() {
    let agent = TestAgent::begin("", CountingEngine::spec("dropped", "")).await;
    agent.send().await;
    assert_eq!(disposals("dropped"), 0);
    drop(agent);
    soon(|| disposals("dropped") == 1).await;
}

#[tokio::test]
async fn a_retired_engine_is_disposed_of_once() {
    let settings = "swap.warm_ms = 0\nswap.drain_ms = 0\n";
    let (agent, gate) = TestAgent::waiting(settings, CountingEngine::spec("late-0", "")).await;
    agent.replace(&CountingEngine::spec("late-a", "")).await;
    let turn = agent.runtime.send(&agent.session, "continue");
    let replace = async {
        soon(|| calls("late-a").contains(&"assemble 1".into())).await;
        agent.replace(&CountingEngine::spec("late-b", "")).await;
        soon(|| disposals("late-a") == 1).await;
        gate.add_permits(1);
    };
    let (reply, ()) = tokio::join!(turn, replace);
    reply.unwrap();
    agent.runtime.shutdown().await;
    drop(agent);
    assert_eq!(["late-0", "late-a", "late-b"].map(disposals), [1, 1, 1]);
}

#[tokio::test]
async fn a_replaced_engine_is_closed_at_once_if_only_idle_sessions_hold_it() {
    let settings = "swap.drain_ms = 600000\n";
    let agent = TestAgent::begin(settings, CountingEngine::spec("idle-1", "")).await;
    agent.send().await;
    // It fails on trial, so the session holds it, and through it the engine that serves again.
    agent.replace(&CountingEngine::spec("idle-2", "panic")).await;
    agent.send().await;
    agent.replace(&CountingEngine::spec("idle-3", "")).await;
    soon(|| disposals("idle-2") == 1).await;
    // The predecessor of the current engine stays warm, an earlier one does not.
    assert_eq!(disposals("idle-1"), 0);
    agent.replace(&CountingEngine::spec("idle-4", "")).await;
    soon(|| disposals("idle-1") == 1).await;
    agent.send().await;
    assert!(calls("idle-4").iter().any(|call| call.starts_with("assemble")));
    agent.runtime.shutdown().await;
    let engines = ["idle-1", "idle-2", "idle-3", "idle-4"];
    assert_eq!(engines.map(disposals), [1, 1, 1, 1]);
}

#[tokio::test]
async fn an_engine_that_panics_on_trial_is_rolled_back() {
    let mut agent = TestAgent::begin("", CountingEngine::spec("steady", "")).await;
    assert_eq!(agent.send().await, "ledger");
    agent.engine_events();
    agent.replace(&CountingEngine::spec("torn", "panic")).await;
    agent.send().await;
    assert_eq!(calls("torn"), ["bootstrap 3"]);
    assert_eq!(
        calls("steady")[2..],
        ["bootstrap 3", "assemble 2", "bootstrap 4"],
        "bootstrapped before it answers, and again when it is current"
    );
    agent.send().await;
    let events = agent.engine_events();
    assert!(
        matches!(&events[..], [EventKind::EngineChanged { .. }, EventKind::EngineRolledBack { why, .. }]
            if why.contains("assemble") && why.contains("the ledger is torn")),
        "{events:?}"
    );
    assert_eq!(calls("steady")[5..], ["assemble 3"]);
    soon(|| calls("torn").contains(&"dispose".into())).await;
    assert!(!calls("steady").contains(&"dispose".into()));
    agent.runtime.shutdown().await;
}

/// Runs on a thread of its own, so that a listener that waits for a lock of its emitter fails the test instead of
/// hanging it.
#[test]
fn a_listener_may_ask_for_the_engine() {
    let (sender, names) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let asked = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        sender.send(asked.block_on(names_of_engine_events())).unwrap();
    });
    let names = names.recv_timeout(Duration::from_secs(30)).expect("a listener hangs");
    assert_eq!(names, ["changed", "rolled back"]);
}

/// What a listener hears that asks for the engine and adds a listener in each event.
async fn names_of_engine_events() -> Vec<&'static str> {
    let agent = TestAgent::begin("", CountingEngine::spec("asked-1", "")).await;
    let (runtime, names) = (agent.runtime.clone(), Arc::new(Mutex::new(Vec::new())));
    let record = names.clone();
    agent.runtime.add_listener(Arc::new(move |event: &RuntimeEvent| {
        let name = match &event.kind {
            EventKind::EngineChanged { .. } => "changed",
            EventKind::EngineRolledBack { .. } => "rolled back",
            _ => return,
        };
        runtime.engine();
        runtime.add_listener(Arc::new(|_| ()));
        record.lock().unwrap().push(name);
    }));
    agent.replace(&CountingEngine::spec("asked-2", "panic")).await;
    agent.send().await;
    agent.runtime.engine();
    names.lock().unwrap().clone()
}

#[tokio::test]
async fn an_engine_whose_first_plan_is_rejected_is_rolled_back() {
    let mut agent = TestAgent::begin("", CountingEngine::spec("valid", "")).await;
    agent.replace(&CountingEngine::spec("invalid", "illegal")).await;
    let reply = agent.runtime.send(&agent.session, "continue").await.unwrap();
    assert_eq!(reply.engine, "ledger");
    assert_eq!(calls("valid"), ["bootstrap 1", "assemble 1"]);
    agent.send().await;
    let events = agent.engine_events();
    assert!(matches!(events[..], [_, EventKind::EngineRolledBack { .. }]), "{events:?}");
}

#[tokio::test]
async fn an_engine_past_its_trial_is_not_rolled_back() {
    let settings = "swap.trial_requests = 0\n";
    let mut agent = TestAgent::begin(settings, CountingEngine::spec("before", "")).await;
    agent.replace(&CountingEngine::spec("after", "panic")).await;
    assert_eq!(agent.send().await, "legacy", "the bundled engine is the fallback");
    assert!(matches!(agent.engine_events()[..], [EventKind::EngineChanged { .. }]));
}

#[tokio::test]
async fn replacing_an_engine_lifts_its_quarantine() {
    let state = tempfile::tempdir().unwrap();
    let log = || FailureLog::new(state.path(), QuarantineRules::default(), HostClock::default());
    let failure = QuarantineRecord {
        id: "mask".into(),
        bytes: Some(format!("bundled {}", env!("CARGO_PKG_VERSION"))),
        operation: "assemble".into(),
        reason: "no idea".into(),
        failed_at_ms: HostClock::default().now_ms(),
    };
    log().record_failure(&failure).unwrap();
    let builder = builder(&quiet(""), &answering("yes"), CountingEngine::spec("excuses", ""));
    let agent = TestAgent::with(builder.failure_log(log())).await;
    agent.replace(&EngineSpec::bundled("mask", json!({}))).await;
    assert_eq!(agent.send().await, "mask");
    assert_eq!(log().records().unwrap(), []);
}

#[tokio::test]
async fn an_engine_that_does_not_open_changes_nothing() {
    let mut agent = TestAgent::begin("", CountingEngine::spec("stays", "")).await;
    let unknown = EngineSpec::bundled("unknown", json!({}));
    for engine in [unknown, CountingEngine::spec("never", "create")] {
        let refused = agent.runtime.replace_engine(&engine).await;
        assert!(matches!(refused, Err(ReloadError::Slot(_))), "{refused:?}");
    }
    assert_eq!(agent.runtime.generation(), 1);
    agent.send().await;
    assert_eq!(calls("stays"), ["bootstrap 1", "assemble 1"]);
    assert!(agent.engine_events().is_empty());
}

#[tokio::test]
async fn a_turn_continues_with_the_next_engine_after_the_drain_time() {
    let settings = "swap.warm_ms = 0\nswap.drain_ms = 0\n";
    let (agent, gate) = TestAgent::waiting(settings, CountingEngine::spec("late-1", "")).await;
    let turn = agent.runtime.send(&agent.session, "continue");
    let replace = async {
        soon(|| calls("late-1").contains(&"assemble 1".into())).await;
        agent.replace(&CountingEngine::spec("late-2", "")).await;
        soon(|| calls("late-1").contains(&"dispose".into())).await;
        gate.add_permits(1);
    };
    let (reply, ()) = tokio::join!(turn, replace);
    assert_eq!(reply.unwrap().message.text(), "done");
    assert_eq!(calls("late-2"), ["bootstrap 3", "assemble 2"]);
}

/// A tool that waits for a permit.
#[derive(Debug)]
struct Wait(Arc<Semaphore>);

impl ctxhost_tools::Tool for Wait {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "wait".into(), description: "Waits.".into(), input_schema: json!({}) }
    }

    fn call<'a>(
        &'a self,
        _: &'a Value,
        _: &'a ctxhost_tools::CallContext,
    ) -> futures_util::future::BoxFuture<'a, ctxhost_tools::ToolOutput> {
        Box::pin(async {
            self.0.acquire().await.unwrap().forget();
            ctxhost_tools::ToolOutput::text("waited")
        })
    }
}

#[tokio::test]
async fn a_turn_keeps_its_engine_during_a_replacement() {
    let settings = "swap.warm_ms = 0\n";
    let (agent, gate) = TestAgent::waiting(settings, CountingEngine::spec("pinned-1", "")).await;
    let turn = agent.runtime.send(&agent.session, "continue");
    let replace = async {
        soon(|| calls("pinned-1").contains(&"assemble 1".into())).await;
        agent.replace(&CountingEngine::spec("pinned-2", "")).await;
        gate.add_permits(1);
    };
    let (reply, ()) = tokio::join!(turn, replace);
    reply.unwrap();
    assert_eq!(calls("pinned-1")[..3], ["bootstrap 1", "assemble 1", "assemble 2"]);
    soon(|| calls("pinned-1").last().is_some_and(|last| last == "dispose")).await;
    gate.add_permits(1);
    agent.send().await;
    assert_eq!(calls("pinned-2").last().unwrap(), "assemble 4");
}

#[test]
fn sandboxed_libraries_are_not_counted() {
    let mut spec = EngineSpec::file("x", std::path::Path::new("/nowhere.so"), json!({}));
    assert_eq!(library_bytes(&spec), Some(0));
    spec.isolation = Isolation::Process;
    assert_eq!(library_bytes(&spec), None);
}
