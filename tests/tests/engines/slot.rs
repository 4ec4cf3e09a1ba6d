//! The slot with an engine that is missing, fails once, or refuses everything.

mod crash;
mod swapping;

use ctxhost_engine::{
    ActiveEngine, EngineEnvironment, EngineSpec, EngineTimeouts, HostClock, OnEngineError,
    SlotError,
};
use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::{
    AssembleRequest, CompactRequest, Compaction, ContextEngine, EngineError, ErrorKind, Host, Info,
    ModelRef, Plan, Result as EngineResult, SubagentSpawnReply, SubagentSpawnRequest, Transcript,
};
use ctxhost_tests::chaos_library;
use serde_json::json;

fn open(spec: &EngineSpec, on_error: OnEngineError) -> Result<ActiveEngine, SlotError> {
    let legacy = EngineSpec::bundled("legacy", json!({}));
    let environment = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
    ActiveEngine::open(spec, &legacy, on_error, &environment)
}

fn chaos(mode: &str) -> EngineSpec {
    EngineSpec::file("chaos", &chaos_library(), json!({ "mode": mode }))
}

fn transcript() -> Transcript {
    let mut talk = TranscriptBuilder::new();
    talk.user("go").assistant("gone");
    talk.transcript()
}

fn model() -> ModelRef {
    ModelRef { window_tokens: 64_000, ..ModelRef::default() }
}

fn ask() -> AssembleRequest {
    AssembleRequest { budget: 40_000, model: model(), ..AssembleRequest::default() }
}

/// Who answered, and whether somebody stood in.
async fn served_by(slot: &ActiveEngine) -> (String, bool) {
    let served = slot.assemble(&transcript(), ask()).await.unwrap();
    (served.engine, served.fallback.is_some())
}

#[tokio::test]
async fn case_94_an_engine_that_is_not_there_is_quarantined_and_legacy_serves() {
    let nobody = EngineSpec::bundled("nobody", json!({}));
    let slot = open(&nobody, OnEngineError::Fallback).unwrap();
    let record = slot.quarantine_record().unwrap();
    assert_eq!((record.id.as_str(), record.operation.as_str()), ("nobody", "open"));
    assert_eq!(served_by(&slot).await, ("legacy".into(), true));
    let error = open(&nobody, OnEngineError::Fail).expect_err("no stand-in").to_string();
    assert!(error.contains("nobody"), "{error}");
}

#[tokio::test]
async fn case_95_an_engine_that_could_not_be_created_stays_in_quarantine() {
    let slot = open(&chaos("error-create"), OnEngineError::Fallback).unwrap();
    for _ in 0..2 {
        assert_eq!(served_by(&slot).await, ("legacy".into(), true));
    }
    assert!(slot.quarantine_record().unwrap().reason.contains("does not like its config"));
    assert_eq!(slot.release_quarantine().unwrap().operation, "open");
    assert_eq!(served_by(&slot).await.0, "legacy", "there is nothing to go back to");
}

#[tokio::test]
async fn case_99_a_compaction_that_breaks_is_told_and_the_next_call_is_legacy_s() {
    let slot = open(&chaos("panic-compact"), OnEngineError::Fallback).unwrap();
    assert_eq!(served_by(&slot).await, ("chaos".into(), false));
    let request = CompactRequest { budget: 40_000, model: model(), ..CompactRequest::default() };
    let error = slot.compact(&transcript(), request.clone()).await.expect_err("it panics");
    assert!(error.to_string().contains("panic in compact"), "{error}");
    assert_eq!(slot.compact(&transcript(), request).await.unwrap().engine, "legacy");
    assert_eq!(served_by(&slot).await, ("legacy".into(), true));
}

/// An engine that keeps everything, and fails where its config says so: by its own doing or by its model's.
struct Unable(ErrorKind);

impl ContextEngine for Unable {
    const INFO: Info = Info::new("unable", "Unable", "1.0.0");

    fn create(_: Host, config: serde_json::Value) -> EngineResult<Self> {
        let kinds = [ErrorKind::Failed, ErrorKind::ModelEmpty, ErrorKind::Unsupported];
        Ok(Unable(kinds[config["kind"].as_u64().unwrap() as usize]))
    }

    async fn assemble(&self, view: Transcript, _: AssembleRequest) -> EngineResult<Plan> {
        Ok(Plan::keep_all(view.len()))
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> EngineResult<Compaction> {
        Err(EngineError::new(self.0, "cannot compact"))
    }

    async fn prepare_subagent_spawn(
        &self,
        _: Transcript,
        _: SubagentSpawnRequest,
    ) -> EngineResult<SubagentSpawnReply> {
        Err(EngineError::new(self.0, "cannot spawn"))
    }
}

#[tokio::test]
async fn an_engine_that_cannot_compact_or_spawn_by_its_own_doing_serves_no_more() {
    for (kind, is_its_own) in [(0, true), (1, false), (2, false)] {
        let spec = EngineSpec::linked::<Unable>(json!({ "kind": kind }));
        let opened = || open(&spec, OnEngineError::Fallback).unwrap();
        let slot = opened();
        let request =
            CompactRequest { budget: 40_000, model: model(), ..CompactRequest::default() };
        let error = slot.compact(&transcript(), request).await.expect_err("it cannot");
        assert!(error.to_string().contains("cannot compact"), "{kind}: {error}");
        assert_eq!(slot.quarantine_record().is_some(), is_its_own, "{kind}");
        assert_eq!(served_by(&slot).await.1, is_its_own, "{kind}");
        let slot = opened();
        let request = SubagentSpawnRequest::default();
        let error =
            slot.prepare_subagent_spawn(&transcript(), request).await.expect_err("it cannot");
        assert_eq!(error.into_engine_error().message, "cannot spawn", "{kind}");
        let operation = slot.quarantine_record().map(|record| record.operation);
        assert_eq!(operation, is_its_own.then(|| "prepare_subagent_spawn".to_owned()), "{kind}");
    }
}

/// An engine whose compaction never ends.
struct Endless;

impl ContextEngine for Endless {
    const INFO: Info = Info::new("endless", "Endless", "1.0.0");

    fn create(_: Host, _: serde_json::Value) -> EngineResult<Self> {
        Ok(Endless)
    }

    async fn assemble(&self, view: Transcript, _: AssembleRequest) -> EngineResult<Plan> {
        Ok(Plan::keep_all(view.len()))
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> EngineResult<Compaction> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_compaction_of_an_engine_that_is_let_go_is_the_bundled_one_s() {
    let spec = EngineSpec::linked::<Endless>(json!({}));
    let slot = std::sync::Arc::new(open(&spec, OnEngineError::Fallback).unwrap());
    let asked = slot.clone();
    let request = CompactRequest { budget: 40_000, model: model(), ..CompactRequest::default() };
    let compaction = tokio::spawn(async move { asked.compact(&transcript(), request).await });
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    slot.retire().await;
    let served = compaction.await.unwrap().unwrap();
    assert_eq!(served.engine, "legacy");
    assert!(served.fallback.unwrap().contains("endless was closed"));
}

#[tokio::test]
async fn case_101_a_cancelled_call_is_no_failure() {
    let slot = open(&chaos("cancel-assemble"), OnEngineError::Fail).unwrap();
    match slot.assemble(&transcript(), ask()).await {
        Err(SlotError::Answer { error }) => assert_eq!(error.kind, ErrorKind::Cancelled),
        other => panic!("{other:?}"),
    }
    assert!(slot.quarantine_record().is_none());
    // Without a cancellation by the host the request still needs an answer.
    let slot = open(&chaos("cancel-assemble"), OnEngineError::Fallback).unwrap();
    assert_eq!(slot.assemble(&transcript(), ask()).await.unwrap().engine, "legacy");
    assert!(slot.quarantine_record().is_none());
}

/// An engine of another maker that calls itself as the bundled one does.
struct Namesake;

impl ContextEngine for Namesake {
    const INFO: Info = Info::new("legacy", "Namesake", "9.9.9");

    fn create(_: Host, config: serde_json::Value) -> EngineResult<Self> {
        if config["mode"] == "error" {
            Err(EngineError::config("mode", "as it was told to"))
        } else {
            Ok(Namesake)
        }
    }

    async fn assemble(
        &self,
        transcript: Transcript,
        request: AssembleRequest,
    ) -> EngineResult<Plan> {
        match request.prompt.as_str() {
            "fail" => Err(EngineError::failed("as it was told to")),
            _ => Ok(Plan::keep_all(transcript.len())),
        }
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> EngineResult<Compaction> {
        Ok(Compaction::Delegate)
    }
}

#[tokio::test]
async fn an_engine_that_bears_the_name_of_the_bundled_one_is_still_another() {
    let namesake = || open(&EngineSpec::linked::<Namesake>(json!({})), OnEngineError::Fallback);
    let slot = namesake().unwrap();
    let served = slot.assemble(&transcript(), ask()).await.unwrap();
    assert_eq!((served.engine.as_str(), served.version.as_str()), ("legacy", "9.9.9"));
    let before = slot.serving();
    let failing = AssembleRequest { prompt: "fail".into(), ..ask() };
    let served = slot.assemble(&transcript(), failing).await.unwrap();
    assert_ne!(served.version, "9.9.9");
    assert!(served.fallback.unwrap().contains("as it was told to"), "a stand-in says so");
    assert_ne!(slot.serving(), before, "sessions are told to the stand-in anew");

    let slot = namesake().unwrap();
    let served = slot.assemble(&transcript(), ask()).await.unwrap();
    slot.reject(&served, "assemble", "not lawful").expect("it is not the bundled one");
    assert!(slot.assemble(&transcript(), ask()).await.unwrap().fallback.is_some());

    let request = CompactRequest { budget: 40_000, model: model(), ..CompactRequest::default() };
    let slot = namesake().unwrap();
    let served = slot.compact(&transcript(), request).await.unwrap();
    assert_ne!(served.value, Compaction::Delegate, "what is delegated is answered for");
    assert_ne!(served.version, "9.9.9");
}
