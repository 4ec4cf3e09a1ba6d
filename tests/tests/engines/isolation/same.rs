//! A sandboxed engine returns the same results as one in this process.

use ctxhost_engine::{
    ActiveEngine, EngineEnvironment, EngineInstance, EngineSpec, EngineTimeouts, HostClock,
    Isolation,
};
use ctxhost_engine_api::testing::generate::{GeneratedTranscript, transcripts};
use ctxhost_engine_api::transcript::log::TranscriptLog;
use ctxhost_engine_api::*;
use ctxhost_tests::bundled_library;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::{chaos, open, patient, program, session, talk};

/// Transcripts that each engine is asked about.
const CASES: u32 = 120;

/// The bundled engine at the end of delegations lives as long as the answer.
struct Place {
    engine: EngineInstance,
    _slot: ActiveEngine,
}

fn place(id: &str, isolation: Isolation) -> Place {
    let clock = HostClock::recorded();
    clock.set(1_767_225_600_000);
    let environment = EngineEnvironment::new(patient().timeouts, clock);
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let slot = ActiveEngine::open(&legacy, &legacy, Default::default(), &environment).unwrap();
    let mut spec = EngineSpec::file(id, &bundled_library(id), json!({}));
    spec.isolation = isolation;
    spec.sandbox.program = Some(program());
    // Fewer than there are cases, so that some are forgotten and come again.
    spec.sandbox.sessions = 3;
    let engine = EngineInstance::open(&spec, &environment).unwrap();
    Place { engine, _slot: slot }
}

/// A session told step by step, with all that was answered on the way.
async fn tell(engine: &EngineInstance, name: &str, case: &GeneratedTranscript) -> Vec<String> {
    let model = ModelRef { window_tokens: 64_000, ..ModelRef::default() };
    let session = session(name);
    let mut log = TranscriptLog::new(0);
    let mut said = Vec::new();
    let begin = BootstrapRequest { session: session.clone(), ..BootstrapRequest::default() };
    said.push(format!("{:?}", engine.bootstrap(log.snapshot(), begin).await.unwrap()));
    for (step, entries) in case.entries.chunks(3).enumerate() {
        let from = log.len() as u64;
        for entry in entries {
            log.append(entry.clone());
        }
        let (session, entries) = (session.clone(), from..log.len() as u64);
        let new = IngestRequest { session: session.clone(), entries, ..IngestRequest::default() };
        let ingested = engine.ingest(log.snapshot(), new).await;
        let request = AssembleRequest {
            session: session.clone(),
            budget: [200, 2_000, 40_000][step % 3],
            model: model.clone(),
            now_ms: 1_767_225_600_000,
            ..AssembleRequest::default()
        };
        let plan = engine.assemble(log.snapshot(), request).await;
        said.push(format!("{:?} {}", ingested.map(|i| i.entries).ok(), outcome(plan)));
    }
    let request = CompactRequest {
        session,
        budget: 1_000,
        model,
        current_tokens: log.total_tokens(),
        force: true,
        now_ms: 1_767_225_600_000,
        ..CompactRequest::default()
    };
    said.push(outcome(engine.compact(log.snapshot(), request).await));
    said
}

fn outcome<T: std::fmt::Debug>(answer: Result<T>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{:?} {} {}", error.kind, error.message, error.detail),
    }
}

fn answers_the_same(id: &str) {
    let (near, far) = (place(id, Isolation::Thread), place(id, Isolation::Process));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let number = std::cell::Cell::new(0);
    runner
        .run(&transcripts(), |case| {
            number.set(number.get() + 1);
            let name = format!("session {}", number.get());
            let near = runtime.block_on(tell(&near.engine, &name, &case));
            let far = runtime.block_on(tell(&far.engine, &name, &case));
            prop_assert_eq!(near, far);
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{id}: {error}"));
    assert_eq!(far.engine.sandbox_info().unwrap().respawns, 0);
}

#[test]
fn window_answers_the_same() {
    answers_the_same("window");
}

#[test]
fn mask_answers_the_same() {
    answers_the_same("mask");
}

#[test]
fn boundary_answers_the_same() {
    answers_the_same("boundary");
}

#[tokio::test]
async fn services_of_the_host_reach_a_worker() {
    let clock = HostClock::recorded();
    clock.set(1_234);
    let environment = EngineEnvironment::new(EngineTimeouts::default(), clock.clone());
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let _slot = ActiveEngine::open(&legacy, &legacy, Default::default(), &environment).unwrap();
    let engine = open(&chaos("services", Isolation::Process), &environment);
    assert_eq!(engine.status().await.unwrap().details["now_ms"], 1_234, "the host's clock");
    clock.set(5_678);
    assert_eq!(engine.status().await.unwrap().details["now_ms"], 5_678);
    let request = AssembleRequest { budget: 1_000, ..AssembleRequest::default() };
    engine.assemble(talk(), request).await.unwrap();
    let request = CompactRequest { budget: 1_000, ..CompactRequest::default() };
    let compaction = engine.compact(talk(), request).await.unwrap();
    assert!(matches!(compaction, Compaction::Nothing { .. }), "legacy's answer: {compaction:?}");
}

#[tokio::test]
async fn calls_of_many_sessions_overlap_in_one_worker() {
    let engine = open(&chaos("many-services", Isolation::Process), &patient());
    let calls = (0..16).map(|number| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let session = session(&format!("session {number}"));
            let request = AssembleRequest { session, budget: 1_000, ..AssembleRequest::default() };
            engine.assemble(talk(), request).await.unwrap()
        })
    });
    let calls: Vec<_> = calls.collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), Plan::keep_all(5));
    }
}

#[tokio::test]
async fn a_call_whose_caller_went_away_is_called_off_in_the_worker() {
    let engine = open(&chaos("hang-assemble", Isolation::Process), &patient());
    let pid = engine.sandbox_info().unwrap().pid;
    for _ in 0..3 {
        let request = AssembleRequest { session: session("s"), ..AssembleRequest::default() };
        let call = engine.assemble(talk(), request);
        let soon = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, call).await.is_err(), "it hangs");
    }
    assert_eq!(engine.status().await.unwrap().summary, "stands", "its lane is free");
    assert_eq!(engine.sandbox_info().unwrap().pid, pid);
}
