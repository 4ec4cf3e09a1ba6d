//! Engines that follow each other in a runtime, and what is left of the old ones.

mod canarying;
mod following;
mod rows;

use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use ctxhost_engine_api::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::broadcast::Receiver;

use crate::event::{EventKind, RuntimeEvent};
use crate::testing::puppet::puppet;
use crate::testing::{Answer, Scripted, builder, config, session};
use crate::{ReloadError, Runtime, RuntimeBuilder, SessionId};
use ctxhost_config::Config;
use ctxhost_engine::{
    EngineSpec, FailureLog, HostClock, Isolation, QuarantineRecord, QuarantineRules,
};

/// What engines of this process were asked, each line begun with the name in its config.
static HEARD: LazyLock<Mutex<Vec<String>>> = LazyLock::new(Mutex::default);

/// An engine that counts its turns in what it keeps, and fails as its config says.
struct Ledger {
    name: String,
    fails: String,
    host: Host,
}

impl Ledger {
    fn spec(name: &str, fails: &str) -> EngineSpec {
        EngineSpec::linked::<Ledger>(json!({ "name": name, "fails": fails }))
    }

    fn hear(&self, what: &str) {
        HEARD.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

/// What the engine of this name was asked.
fn heard(name: &str) -> Vec<String> {
    let heard = HEARD.lock().unwrap();
    heard
        .iter()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .map(str::to_owned)
        .collect()
}

impl ContextEngine for Ledger {
    const INFO: Info = Info::new("ledger", "Ledger", "1.0.0");

    fn create(host: Host, config: Value) -> Result<Self> {
        let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
        match text("fails").as_str() {
            "create" => Err(EngineError::config("fails", "as it was told to")),
            fails => Ok(Ledger { name: text("name"), fails: fails.to_owned(), host }),
        }
    }

    async fn bootstrap(&self, view: Transcript, _: BootstrapRequest) -> Result<BootstrapReply> {
        self.hear(&format!("bootstrap {}", view.len()));
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
        self.hear(&format!("assemble {}", count + 1));
        Ok(Plan::keep_all(view.len()))
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }

    async fn dispose(&self) {
        self.hear("dispose");
    }
}

/// A runtime whose model says one word, and a session in it.
struct Talk {
    runtime: Runtime,
    session: SessionId,
    events: Receiver<RuntimeEvent>,
    _folder: TempDir,
}

impl Talk {
    async fn begin(settings: &str, engine: EngineSpec) -> Talk {
        Talk::with(builder(&quiet(settings), &says("yes"), engine)).await
    }

    async fn with(builder: RuntimeBuilder) -> Talk {
        let folder = tempfile::tempdir().unwrap();
        let runtime = builder.build().await.unwrap();
        let session = session(&runtime, &folder);
        let events = runtime.subscribe();
        Talk { runtime, session, events, _folder: folder }
    }

    /// One turn; the engine that shaped it.
    async fn say(&self) -> String {
        self.runtime.send(&self.session, "go on").await.unwrap().engine
    }

    /// What happened to engines since this was asked last.
    fn news(&mut self) -> Vec<EventKind> {
        let events = std::iter::from_fn(|| self.events.try_recv().ok());
        let is_news = |what: &EventKind| {
            matches!(
                what,
                EventKind::EngineChanged { .. }
                    | EventKind::EngineRolledBack { .. }
                    | EventKind::ReloadRejected { .. }
                    | EventKind::RestartAdvised { .. }
                    | EventKind::CanaryStarted { .. }
                    | EventKind::CanaryEnded { .. }
            )
        };
        events.map(|event| event.kind).filter(is_news).collect()
    }
}

/// A config with these settings, in which nothing is asked of engines between two turns.
fn quiet(settings: &str) -> Config {
    config(&format!("{settings}compaction.timing = \"manual\"\n"))
}

fn says(word: &'static str) -> Arc<Scripted> {
    Scripted::new(move |_| Answer::Says(word.into()))
}

/// Waits for something that happens soon.
async fn soon(mut done: impl FnMut() -> bool) {
    for _ in 0..3_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not happen within half a minute");
}

#[tokio::test]
async fn what_an_engine_keeps_is_found_by_the_next_one_and_the_old_one_is_disposed_of() {
    let talk = Talk::begin("swap.warm_ms = 0\n", Ledger::spec("kept-1", "")).await;
    talk.say().await;
    talk.say().await;
    let swapped = talk.runtime.replace_engine(&Ledger::spec("kept-2", "")).await.unwrap();
    assert_eq!((swapped.generation, talk.runtime.generation()), (2, 2));
    talk.say().await;
    assert_eq!(heard("kept-1")[..3], ["bootstrap 1", "assemble 1", "assemble 2"]);
    soon(|| heard("kept-1").last().is_some_and(|last| last == "dispose")).await;
    assert_eq!(
        heard("kept-2"),
        ["bootstrap 5", "assemble 3"],
        "told of all, and it found the count"
    );
    talk.runtime.shutdown().await;
    assert_eq!(["kept-1", "kept-2"].map(disposals), [1, 1]);
}

/// How often the engine of this name was disposed of.
fn disposals(name: &str) -> usize {
    heard(name).iter().filter(|line| *line == "dispose").count()
}

#[tokio::test]
async fn every_engine_is_disposed_of_once_when_the_runtime_finishes() {
    let talk = Talk::begin("", Ledger::spec("end-1", "")).await;
    talk.say().await;
    talk.runtime.replace_engine(&Ledger::spec("end-2", "")).await.unwrap();
    talk.say().await;
    let row = [Ledger::spec("end-3", ""), puppet::<0>("end", "")];
    talk.runtime.replace_engine(&row).await.unwrap();
    talk.say().await;
    talk.runtime.shutdown().await;
    drop(talk);
    assert_eq!(["end-1", "end-2", "end-3"].map(disposals), [1, 1, 1]);
    assert_eq!(heard("end-3").last().unwrap(), "dispose");
}

#[tokio::test]
async fn an_engine_is_disposed_of_once_when_its_runtime_is_dropped() {
    let talk = Talk::begin("", Ledger::spec("dropped", "")).await;
    talk.say().await;
    assert_eq!(disposals("dropped"), 0);
    drop(talk);
    soon(|| disposals("dropped") == 1).await;
}

#[tokio::test]
async fn an_engine_that_is_cut_off_at_a_swap_is_disposed_of_once() {
    let settings = "swap.warm_ms = 0\nswap.drain_ms = 0\n";
    let (builder, gate) = rows::waiting(settings, Ledger::spec("late-0", ""));
    let talk = Talk::with(builder).await;
    talk.runtime.replace_engine(&Ledger::spec("late-a", "")).await.unwrap();
    let turn = talk.runtime.send(&talk.session, "go on");
    let swap = async {
        soon(|| heard("late-a").contains(&"assemble 1".into())).await;
        talk.runtime.replace_engine(&Ledger::spec("late-b", "")).await.unwrap();
        soon(|| disposals("late-a") == 1).await;
        gate.add_permits(1);
    };
    let (reply, ()) = tokio::join!(turn, swap);
    reply.unwrap();
    talk.runtime.shutdown().await;
    drop(talk);
    assert_eq!(["late-0", "late-a", "late-b"].map(disposals), [1, 1, 1]);
}

#[tokio::test]
async fn an_engine_that_panics_at_its_first_request_is_rolled_back_and_no_call_fails() {
    let mut talk = Talk::begin("", Ledger::spec("steady", "")).await;
    assert_eq!(talk.say().await, "ledger");
    talk.news();
    talk.runtime.replace_engine(&Ledger::spec("torn", "panic")).await.unwrap();
    talk.say().await;
    assert_eq!(heard("torn"), ["bootstrap 3"]);
    assert_eq!(
        heard("steady")[2..],
        ["bootstrap 3", "assemble 2", "bootstrap 4"],
        "it is told again before it answers, and once more for good"
    );
    talk.say().await;
    let news = talk.news();
    assert!(
        matches!(&news[..], [EventKind::EngineChanged { .. }, EventKind::EngineRolledBack { why, .. }]
            if why.contains("assemble") && why.contains("the ledger is torn")),
        "{news:?}"
    );
    assert_eq!(heard("steady")[5..], ["assemble 3"]);
    soon(|| heard("torn").contains(&"dispose".into())).await;
    assert!(!heard("steady").contains(&"dispose".into()));
    talk.runtime.shutdown().await;
}

#[tokio::test]
async fn an_engine_whose_first_plan_the_law_refuses_is_rolled_back_too() {
    let mut talk = Talk::begin("", Ledger::spec("lawful", "")).await;
    talk.runtime.replace_engine(&Ledger::spec("lawless", "illegal")).await.unwrap();
    let reply = talk.runtime.send(&talk.session, "go on").await.unwrap();
    assert_eq!(reply.engine, "ledger");
    assert_eq!(heard("lawful"), ["bootstrap 1", "assemble 1"]);
    talk.say().await;
    let news = talk.news();
    assert!(matches!(news[..], [_, EventKind::EngineRolledBack { .. }]), "{news:?}");
}

#[tokio::test]
async fn an_engine_that_has_proved_itself_fails_for_itself() {
    let settings = "swap.trial_requests = 0\n";
    let mut talk = Talk::begin(settings, Ledger::spec("before", "")).await;
    talk.runtime.replace_engine(&Ledger::spec("after", "panic")).await.unwrap();
    assert_eq!(talk.say().await, "legacy", "the bundled engine stands in, as always");
    assert!(matches!(talk.news()[..], [EventKind::EngineChanged { .. }]));
}

#[tokio::test]
async fn whoever_asks_for_an_engine_excuses_the_failures_of_earlier_runs() {
    let state = tempfile::tempdir().unwrap();
    let book = || FailureLog::new(state.path(), QuarantineRules::default(), HostClock::default());
    let failure = QuarantineRecord {
        id: "mask".into(),
        bytes: Some(format!("bundled {}", env!("CARGO_PKG_VERSION"))),
        operation: "assemble".into(),
        reason: "no idea".into(),
        failed_at_ms: HostClock::default().now_ms(),
    };
    book().record_failure(&failure).unwrap();
    let builder = builder(&quiet(""), &says("yes"), Ledger::spec("excuses", ""));
    let talk = Talk::with(builder.failure_log(book())).await;
    talk.runtime.replace_engine(&EngineSpec::bundled("mask", json!({}))).await.unwrap();
    assert_eq!(talk.say().await, "mask");
    assert_eq!(book().records().unwrap(), []);
}

#[tokio::test]
async fn an_engine_that_does_not_open_changes_nothing() {
    let mut talk = Talk::begin("", Ledger::spec("stays", "")).await;
    let nobody = EngineSpec::bundled("nobody", json!({}));
    for engine in [nobody, Ledger::spec("never", "create")] {
        let refused = talk.runtime.replace_engine(&engine).await;
        assert!(matches!(refused, Err(ReloadError::Slot(_))), "{refused:?}");
    }
    assert_eq!(talk.runtime.generation(), 1);
    talk.say().await;
    assert_eq!(heard("stays"), ["bootstrap 1", "assemble 1"]);
    assert!(talk.news().is_empty());
}

#[tokio::test]
async fn a_turn_that_outlives_the_time_of_its_engine_goes_on_with_the_next_one() {
    let client = Scripted::new(|request| match crate::testing::is_result(request) {
        true => Answer::Says("done".into()),
        false => Answer::Calls("wait", json!({})),
    });
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let settings = quiet("swap.warm_ms = 0\nswap.drain_ms = 0\n");
    let builder = builder(&settings, &client, Ledger::spec("late-1", ""));
    let talk = Talk::with(builder.tool(Arc::new(Wait(gate.clone())))).await;
    let turn = talk.runtime.send(&talk.session, "go on");
    let swap = async {
        soon(|| heard("late-1").contains(&"assemble 1".into())).await;
        talk.runtime.replace_engine(&Ledger::spec("late-2", "")).await.unwrap();
        soon(|| heard("late-1").contains(&"dispose".into())).await;
        gate.add_permits(1);
    };
    let (reply, ()) = tokio::join!(turn, swap);
    assert_eq!(reply.unwrap().message.text(), "done");
    assert_eq!(heard("late-2"), ["bootstrap 3", "assemble 2"]);
}

/// A tool that answers when it is let.
#[derive(Debug)]
struct Wait(Arc<tokio::sync::Semaphore>);

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
async fn a_session_in_a_turn_keeps_its_engine_while_another_one_is_swapped() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let client = Scripted::new(|request| match crate::testing::is_result(request) {
        true => Answer::Says("done".into()),
        false => Answer::Calls("wait", json!({})),
    });
    let builder = builder(&quiet("swap.warm_ms = 0\n"), &client, Ledger::spec("pinned-1", ""));
    let talk = Talk::with(builder.tool(Arc::new(Wait(gate.clone())))).await;
    let turn = talk.runtime.send(&talk.session, "go on");
    let swap = async {
        soon(|| heard("pinned-1").contains(&"assemble 1".into())).await;
        talk.runtime.replace_engine(&Ledger::spec("pinned-2", "")).await.unwrap();
        gate.add_permits(1);
    };
    let (reply, ()) = tokio::join!(turn, swap);
    reply.unwrap();
    assert_eq!(heard("pinned-1")[..3], ["bootstrap 1", "assemble 1", "assemble 2"]);
    soon(|| heard("pinned-1").last().is_some_and(|last| last == "dispose")).await;
    gate.add_permits(1);
    talk.say().await;
    assert_eq!(heard("pinned-2").last().unwrap(), "assemble 4");
}

#[test]
fn a_library_in_a_process_of_its_own_does_not_stay_in_ours() {
    let mut spec = EngineSpec::file("x", std::path::Path::new("/nowhere.so"), json!({}));
    assert_eq!(super::file_bytes(&spec), Some(0));
    spec.isolation = Isolation::Process;
    assert_eq!(super::file_bytes(&spec), None);
}
