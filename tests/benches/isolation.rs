//! Bench: `assemble` of the window engine over 100,000 entries, on a thread and in a sandbox process.
//!
//! One entry is new before every request, as in a session; the first request, which sends the whole transcript, and a
//! start are measured too.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use criterion::Criterion;
use ctxhost_engine::{
    EngineEnvironment, EngineInstance, EngineSpec, EngineTimeouts, HostClock, Isolation,
};
use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::{AssembleRequest, SessionRef};
use ctxhost_tests::{bundled_library, bundled_library_release, ctxhost};
use serde_json::json;
use tokio::runtime::Runtime;

const ENTRIES: u64 = 100_000;
const BUDGET_TOKENS: u64 = 200_000;
/// About one kilobyte a message, as in the measurements of facts/abi.md 2.2.
const TEXT_CHARS: usize = 900;

fn conversation() -> TranscriptBuilder {
    let mut conversation = TranscriptBuilder::new();
    let text = "lorem ipsum ".repeat(TEXT_CHARS / 12);
    while conversation.len() < ENTRIES {
        let id = format!("call_{}", conversation.len());
        conversation.user(&text).calls(&[(&id, "read", "{\"path\":\"a.rs\"}")]);
        conversation.result(&id, "read", &text).assistant(&text);
    }
    conversation
}

/// The program and the library, both as this bench was built.
fn built() -> (PathBuf, PathBuf) {
    if cfg!(debug_assertions) {
        return (ctxhost().get_program().into(), bundled_library("window"));
    }
    let library = bundled_library_release("window");
    (ctxhost_tests::ctxhost_release(), library)
}

fn open(isolation: Isolation) -> EngineInstance {
    let (program, library) = built();
    let mut spec = EngineSpec::file("window", &library, json!({}));
    spec.isolation = isolation;
    spec.sandbox.program = Some(program);
    let timeouts = EngineTimeouts { assemble_ms: 600_000, ..EngineTimeouts::default() };
    EngineInstance::open(&spec, &EngineEnvironment::new(timeouts, HostClock::default())).unwrap()
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn main() {
    let runtime = Runtime::new().unwrap();
    let mut criterion = Criterion::default().configure_from_args();
    let mut group =
        criterion.benchmark_group("assemble 100k entries, 200k budget, one of them new");
    for isolation in [Isolation::Thread, Isolation::Process] {
        let mut talk = conversation();
        let mut engine = None;
        let started = timed(|| engine = Some(open(isolation)));
        let engine = engine.unwrap();
        let mut assemble = || {
            talk.user("and now?");
            let session = SessionRef { id: "bench".into(), key: String::new() };
            let request =
                AssembleRequest { session, budget: BUDGET_TOKENS, ..AssembleRequest::default() };
            let view = talk.transcript();
            drop(black_box(runtime.block_on(engine.assemble(view, request)).unwrap()));
        };
        let first = timed(&mut assemble);
        println!("{isolation}: started in {started:?}, first request in {first:?}");
        group.bench_function(isolation.to_string(), |b| b.iter(&mut assemble));
    }
    group.finish();
    criterion.final_summary();
}
