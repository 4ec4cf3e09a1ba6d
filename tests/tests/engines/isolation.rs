//! Isolation of engines: containment of failures, the sandbox, equal results, restarts.

mod confined;
mod containment;
mod kernels;
mod respawn;
mod same;
mod system_calls;
mod used_up;

use std::path::PathBuf;
use std::sync::Arc;

use ctxhost_engine::{
    EngineEnvironment, EngineInstance, EngineSpec, EngineTimeouts, HostClock, Isolation,
};
use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::{AssembleRequest, Plan, Result, SessionRef, Transcript};
use ctxhost_tests::{chaos_library, ctxhost};
use serde_json::json;

/// The program that workers are.
fn program() -> PathBuf {
    ctxhost().get_program().into()
}

/// The engine that misbehaves.
fn chaos(mode: &str, isolation: Isolation) -> EngineSpec {
    let mut spec = EngineSpec::file("chaos", &chaos_library(), json!({ "mode": mode }));
    spec.isolation = isolation;
    spec.sandbox.program = Some(program());
    spec
}

/// Long enough for a busy machine, where nothing is meant to time out.
fn patient() -> EngineEnvironment {
    EngineEnvironment::new(
        EngineTimeouts {
            create_ms: 60_000,
            bootstrap_ms: 60_000,
            ingest_ms: 60_000,
            assemble_ms: 60_000,
            subagent_ms: 60_000,
            ..EngineTimeouts::default()
        },
        HostClock::default(),
    )
}

/// An engine that has half a second for a request.
fn hasty() -> EngineEnvironment {
    let mut environment = patient();
    environment.timeouts.assemble_ms = 500;
    environment
}

fn open(spec: &EngineSpec, environment: &EngineEnvironment) -> Arc<EngineInstance> {
    Arc::new(EngineInstance::open(spec, environment).unwrap_or_else(|error| panic!("{error}")))
}

fn session(id: &str) -> SessionRef {
    SessionRef { id: id.into(), key: String::new() }
}

fn talk() -> Transcript {
    let mut talk = TranscriptBuilder::new();
    talk.user("list the files").calls(&[("c", "ls", "{}")]).result("c", "ls", "a.rs");
    talk.assistant("one").user("and now?");
    talk.transcript()
}

async fn assemble(engine: &EngineInstance) -> Result<Plan> {
    let session = session("s");
    let request = AssembleRequest { session, budget: 10_000, ..AssembleRequest::default() };
    engine.assemble(talk(), request).await
}

/// What an engine says it was asked.
async fn asked(engine: &EngineInstance) -> Vec<String> {
    let details = engine.status().await.unwrap().details;
    serde_json::from_value(details["asked"].clone()).unwrap()
}
