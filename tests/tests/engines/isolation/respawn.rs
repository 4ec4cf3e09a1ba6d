//! A sandbox that dies is replaced by one with the same state, a limited number of times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ctxhost_engine::store::{EngineStore, MemoryStore, StoreError, StoreSize};
use ctxhost_engine::{
    ActiveEngine, EngineEnvironment, EngineInstance, EngineSpec, EngineStores, Isolation,
    OnEngineError,
};
use ctxhost_engine_api::*;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

use super::{asked, assemble, chaos, open, patient, session, talk};

fn pid(engine: &EngineInstance) -> Pid {
    Pid::from_raw(engine.sandbox_info().unwrap().pid.expect("it lives").cast_signed()).unwrap()
}

/// Kills a worker and waits until the host knows.
async fn kill(engine: &EngineInstance) {
    kill_process(pid(engine), Signal::KILL).unwrap();
    while engine.sandbox_info().unwrap().pid.is_some() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn reported(engine: &EngineInstance) {
    let begin = BootstrapRequest { session: session("s"), ..BootstrapRequest::default() };
    engine.bootstrap(talk(), begin).await.unwrap();
    for entries in [0..3, 3..5] {
        let new = IngestRequest { session: session("s"), entries, ..IngestRequest::default() };
        engine.ingest(talk(), new).await.unwrap();
    }
}

#[tokio::test]
async fn a_new_sandbox_ingests_again_and_the_caller_sees_nothing() {
    let engine = open(&chaos("good", Isolation::Process), &patient());
    reported(&engine).await;
    let before = assemble(&engine).await.unwrap();
    kill(&engine).await;
    assert_eq!(assemble(&engine).await.unwrap(), before);
    assert_eq!(asked(&engine).await, ["bootstrap", "ingest 0..5", "assemble 5"]);
    assert_eq!(engine.sandbox_info().unwrap().respawns, 1);
    // A session that nobody asks about is not told again.
    kill(&engine).await;
    assert!(asked(&engine).await.is_empty());
}

/// A store whose `n`-th use kills the worker that uses it.
#[derive(Debug, Default)]
struct Deadly {
    values: MemoryStore,
    victim: AtomicU64,
    uses_left: AtomicU64,
}

impl Deadly {
    fn used(&self) {
        let left =
            self.uses_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if left == Ok(1) {
            let victim = i32::try_from(self.victim.load(Ordering::SeqCst)).unwrap();
            kill_process(Pid::from_raw(victim).unwrap(), Signal::KILL).unwrap();
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Stores(Arc<Deadly>);

impl EngineStores for Stores {
    fn open_store(&self, _engine: &str) -> Arc<dyn EngineStore> {
        Arc::new(self.clone())
    }
}

impl EngineStore for Stores {
    fn get(&self, key: &str) -> std::result::Result<Option<String>, StoreError> {
        self.0.used();
        self.0.values.get(key)
    }

    fn put(&self, key: &str, value: &str) -> std::result::Result<(), StoreError> {
        self.0.used();
        self.0.values.put(key, value)
    }

    fn delete(&self, key: &str) -> std::result::Result<(), StoreError> {
        self.0.used();
        self.0.values.delete(key)
    }

    fn list(&self, prefix: &str) -> std::result::Result<Vec<String>, StoreError> {
        self.0.used();
        self.0.values.list(prefix)
    }

    fn put_blob(&self, bytes: &[u8]) -> std::result::Result<String, StoreError> {
        self.0.used();
        self.0.values.put_blob(bytes)
    }

    fn get_blob(&self, handle: &str) -> std::result::Result<Option<Vec<u8>>, StoreError> {
        self.0.used();
        self.0.values.get_blob(handle)
    }

    fn size(&self) -> std::result::Result<StoreSize, StoreError> {
        self.0.values.size()
    }
}

/// An engine of six services a call, whose worker dies over the `n`-th.
fn dying(n: u64) -> (Arc<EngineInstance>, EngineEnvironment, Stores) {
    let stores = Stores::default();
    let mut environment = patient();
    environment.stores = Some(Arc::new(stores.clone()));
    let engine = open(&chaos("services", Isolation::Process), &environment);
    stores.0.victim.store(u64::from(engine.sandbox_info().unwrap().pid.unwrap()), Ordering::SeqCst);
    stores.0.uses_left.store(n, Ordering::SeqCst);
    (engine, environment, stores)
}

#[tokio::test]
async fn killed_at_any_point_of_a_harmless_call_it_is_asked_again() {
    for n in 1..=6 {
        let (engine, ..) = dying(n);
        assert_eq!(assemble(&engine).await.unwrap(), Plan::keep_all(5), "killed at {n}");
        assert_eq!(engine.sandbox_info().unwrap().respawns, 1, "killed at {n}");
    }
}

#[tokio::test]
async fn killed_at_any_point_of_a_compaction_the_caller_sees_one_error() {
    for n in 1..=6 {
        let (engine, environment, _stores) = dying(n);
        let legacy = EngineSpec::bundled("legacy", json!({}));
        let _slot =
            ActiveEngine::open(&legacy, &legacy, OnEngineError::Fallback, &environment).unwrap();
        let request = CompactRequest { session: session("s"), ..CompactRequest::default() };
        let error = engine.compact(talk(), request.clone()).await.expect_err("killed");
        assert_eq!(error.kind, ErrorKind::Dead, "{error}");
        assert!(error.message.contains("SIGKILL"), "{error}");
        engine.compact(talk(), request).await.unwrap_or_else(|error| panic!("{n}: {error}"));
    }
}

#[tokio::test]
async fn killed_at_any_moment_the_caller_sees_nothing() {
    let mut spec = chaos("many-services", Isolation::Process);
    spec.sandbox.respawns = 1_000;
    let engine = open(&spec, &patient());
    for round in 0..25 {
        let victim = pid(&engine);
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(round * 150));
            kill_process(victim, Signal::KILL).unwrap();
        });
        assert_eq!(assemble(&engine).await.unwrap(), Plan::keep_all(5), "round {round}");
        killer.join().unwrap();
        // It may have been killed just after it had answered.
        assert_eq!(engine.status().await.unwrap().summary, "stands");
    }
    assert!(engine.sandbox_info().unwrap().respawns >= 20);
}

#[tokio::test]
async fn whoever_waits_for_the_next_worker_waits_through_no_fault_of_the_engine() {
    let mut environment = patient();
    // Less than the start takes, and more than anything else here.
    environment.timeouts.assemble_ms = 2_000;
    let engine = open(&chaos("slow-create", Isolation::Process), &environment);
    kill(&engine).await;
    let both = tokio::join!(assemble(&engine), assemble(&engine));
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
    assert_eq!(engine.sandbox_info().unwrap().respawns, 1);
}

#[tokio::test]
async fn callers_who_go_away_use_up_no_worker() {
    let engine = open(&chaos("slow-create", Isolation::Process), &patient());
    kill(&engine).await;
    let soon = Duration::from_millis(20);
    for _ in 0..5 {
        assert!(tokio::time::timeout(soon, assemble(&engine)).await.is_err(), "it takes longer");
    }
    assert!(assemble(&engine).await.is_ok(), "the one that was begun is there for the next");
    assert_eq!(engine.sandbox_info().unwrap().respawns, 1);
}

#[tokio::test]
async fn an_engine_whose_worker_is_dead_is_let_go_without_another() {
    let engine = open(&chaos("good", Isolation::Process), &patient());
    kill(&engine).await;
    engine.dispose().await;
    assert_eq!(engine.sandbox_info().unwrap().respawns, 0);
}

#[tokio::test]
async fn one_death_over_what_is_not_asked_twice_costs_that_call_and_not_the_engine() {
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let chaos = |mode| {
        let mut spec = chaos(mode, Isolation::Process);
        spec.sandbox.respawns = 1;
        spec
    };
    let open =
        |mode, on_error| ActiveEngine::open(&chaos(mode), &legacy, on_error, &patient()).unwrap();

    let slot = open("abort-after", OnEngineError::Fallback);
    let ended = AfterTurnRequest { session: session("s"), ..AfterTurnRequest::default() };
    let served = slot.after_turn(&talk(), ended.clone()).await.unwrap();
    assert_eq!(served.engine, "legacy", "for this call");
    assert!(served.fallback.unwrap().contains("chaos lost after_turn: its sandbox"), "it is told");
    assert_eq!(slot.take_failures().failures, 1);
    assert!(slot.quarantine_record().is_none());
    assert_eq!(slot.tools(session("s")).await.unwrap().engine, "chaos");
    let quiet = MaintainRequest { session: session("s"), ..MaintainRequest::default() };
    slot.maintain(&talk(), quiet).await.unwrap();
    assert!(
        slot.quarantine_record().unwrap().reason.contains("SIGABRT"),
        "there is no other worker"
    );

    let slot = open("abort-compact", OnEngineError::Fallback);
    let request = CompactRequest { session: session("s"), ..CompactRequest::default() };
    let error = slot.compact(&talk(), request.clone()).await.expect_err("it dies").to_string();
    assert!(error.contains("SIGABRT") && slot.quarantine_record().is_none(), "{error}");
    slot.compact(&talk(), request).await.expect_err("it dies");
    assert!(slot.quarantine_record().is_some());

    let slot = open("abort-after", OnEngineError::Fail);
    slot.after_turn(&talk(), ended).await.expect_err("the operator wants to know");
    assert!(slot.quarantine_record().is_none());
}

#[tokio::test]
async fn after_so_many_deaths_there_is_no_other() {
    let mut spec = chaos("segfault", Isolation::Process);
    spec.sandbox.respawns = 2;
    let engine = open(&spec, &patient());
    let error = assemble(&engine).await.unwrap_err();
    assert!(error.message.contains("SIGSEGV"), "{error}");
    let error = assemble(&engine).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Dead);
    assert!(error.message.contains("died 3 times within 600 s"), "{error}");
    let facts = engine.sandbox_info().unwrap();
    assert_eq!((facts.pid, facts.respawns), (None, 2));
}

#[tokio::test]
async fn deaths_long_ago_do_not_count() {
    let mut spec = chaos("good", Isolation::Process);
    spec.sandbox.respawns = 1;
    spec.sandbox.respawn_window_ms = 1;
    let engine = open(&spec, &patient());
    for _ in 0..3 {
        kill(&engine).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assemble(&engine).await.unwrap();
    }
    assert_eq!(engine.sandbox_info().unwrap().respawns, 3);
}

#[tokio::test]
async fn a_slot_quarantines_an_engine_whose_workers_die_and_legacy_serves() {
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let spec = chaos("segfault", Isolation::Process);
    let slot = ActiveEngine::open(&spec, &legacy, OnEngineError::Fallback, &patient()).unwrap();
    let model = ModelRef { window_tokens: 64_000, ..ModelRef::default() };
    let request = AssembleRequest { budget: 40_000, model, ..AssembleRequest::default() };
    let served = slot.assemble(&talk(), request.clone()).await.unwrap();
    assert_eq!(served.engine, "legacy");
    assert!(slot.quarantine_record().unwrap().reason.contains("SIGSEGV"));
    // After a release it has all restarts again.
    for _ in 0..3 {
        slot.release_quarantine().unwrap();
        slot.assemble(&talk(), request.clone()).await.unwrap();
        let reason = slot.quarantine_record().unwrap().reason;
        assert!(!reason.contains("times within"), "{reason}");
    }
}

#[tokio::test]
async fn a_worker_ends_with_its_engine() {
    let engine = open(&chaos("good", Isolation::Process), &patient());
    let pid = pid(&engine);
    drop(engine);
    // Its keeper collects it; until then the number is its own.
    while test_kill_process(pid).is_ok() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let engine =
        EngineInstance::open(&chaos("spin-dispose", Isolation::Process), &patient()).unwrap();
    let pid = self::pid(&engine);
    engine.dispose().await;
    while test_kill_process(pid).is_ok() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
