//! What the border costs: `assemble` of the window engine over 100,000 entries with a budget of 200,000
//! tokens, called directly and through its `.so`, with the ratio of the two in the same run. Once for a
//! session that the engine knows, as in every request but the first, and once for a new one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::Criterion;
use ctxhost_engine::inspect;
use ctxhost_engine_api::border::EngineHandle;
use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder, block_on};
use ctxhost_engine_api::{AssembleRequest, ContextEngine, SessionRef, Transcript};
use ctxhost_engine_window::WindowEngine;
use ctxhost_tests::bundled_library_release;
use serde_json::json;

const ENTRIES: u64 = 100_000;
const BUDGET_TOKENS: u64 = 200_000;
/// About one kilobyte a message, as in the measurements of facts/abi.md 2.2.
const TEXT_CHARS: usize = 900;
const PAIRS: usize = 201;

fn transcript() -> Transcript {
    let mut conversation = TranscriptBuilder::new();
    let text = "lorem ipsum ".repeat(TEXT_CHARS / 12);
    while conversation.len() < ENTRIES {
        let id = format!("call_{}", conversation.len());
        conversation.user(&text).calls(&[(&id, "read", "{\"path\":\"a.rs\"}")]);
        conversation.result(&id, "read", &text).assistant(&text);
    }
    conversation.transcript()
}

fn request(session: &str) -> AssembleRequest {
    let session = SessionRef { id: session.into(), key: String::new() };
    AssembleRequest { session, budget: BUDGET_TOKENS, ..AssembleRequest::default() }
}

/// A request of a session that no engine has seen.
fn first_request() -> AssembleRequest {
    static SESSIONS: AtomicU64 = AtomicU64::new(0);
    request(&format!("bench {}", SESSIONS.fetch_add(1, Ordering::Relaxed)))
}

fn loaded() -> EngineHandle {
    let copies = tempfile::tempdir().unwrap();
    let door = inspect(&bundled_library_release("window")).unwrap().load(copies.path()).unwrap();
    door.create(std::sync::Arc::new(ScriptedHost::new()), &json!({})).unwrap()
}

fn timed(work: impl Fn()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let view = transcript();
    let direct = WindowEngine::create(ScriptedHost::new().handle(), json!({})).unwrap();
    let through = loaded();
    let call_direct = |request: AssembleRequest| {
        drop(black_box(block_on(direct.assemble(view.clone(), request)).unwrap()));
    };
    let call_through = |request: AssembleRequest| {
        drop(black_box(block_on(through.assemble(view.clone(), request)).unwrap()));
    };

    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("assemble 100k entries, 200k budget");
    group.bench_function("direct, known session", |b| b.iter(|| call_direct(request("known"))));
    group.bench_function("so, known session", |b| b.iter(|| call_through(request("known"))));
    group.bench_function("direct, new session", |b| b.iter(|| call_direct(first_request())));
    group.bench_function("so, new session", |b| b.iter(|| call_through(first_request())));
    group.finish();
    criterion.final_summary();

    compare("known session", || call_direct(request("known")), || call_through(request("known")));
    compare("new session", || call_direct(first_request()), || call_through(first_request()));
}

/// Prints the ratio of the two calls, pair by pair, so that it holds when the machine's speed drifts.
fn compare(what: &str, direct: impl Fn(), through: impl Fn()) {
    let pairs: Vec<_> = (0..PAIRS).map(|_| (timed(&direct), timed(&through))).collect();
    let direct = median(pairs.iter().map(|(direct, _)| *direct).collect());
    let through = median(pairs.iter().map(|(_, through)| *through).collect());
    let ratio = through.as_secs_f64() / direct.as_secs_f64();
    println!(
        "{what}: direct {direct:?}, through the .so {through:?}, ratio {ratio:.2}, median of {PAIRS} pairs"
    );
}
