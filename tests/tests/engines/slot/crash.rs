//! Crashes of the process are attributed to the engine, and kills to none.

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctxhost_agent::shadow::log::ShadowLog;
use ctxhost_agent::shadow::{ShadowEngines, ShadowServices};
use ctxhost_engine::{
    ActiveEngine, EngineEnvironment, EngineSpec, EngineTimeouts, FailureLog, HostClock,
    OnEngineError, QuarantineRules,
};
use ctxhost_invariants::InvariantSettings;
use ctxhost_tests::chaos_library;
use ctxhost_tests::native::native_library;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::{ask, served_by, transcript};

/// The mode of the engine, where this process is one that is to die.
const MODE: &str = "CTXHOST_TEST_MODE";
/// Its state folder.
const STATE: &str = "CTXHOST_TEST_STATE";
/// Where the engine sits in that process: `slot` or `shadow`.
const SEAT: &str = "CTXHOST_TEST_SEAT";

/// More than a loaded machine needs for what takes a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// Modes of the engine in C begin so.
const IN_C: &str = "c: ";

fn in_c() -> PathBuf {
    native_library("tests/fixtures/c/wicked.c", &[])
}

fn book(state: &Path) -> FailureLog {
    FailureLog::new(state, QuarantineRules::default(), HostClock::default())
}

fn environment(state: &Path) -> EngineEnvironment {
    let timeouts = EngineTimeouts { create_ms: 3_600_000, ..EngineTimeouts::default() };
    let mut environment = EngineEnvironment::new(timeouts, HostClock::default());
    environment.failure_log = Some(Arc::new(book(state)));
    environment
}

fn legacy() -> EngineSpec {
    EngineSpec::bundled("legacy", json!({}))
}

fn chaos(mode: &str) -> EngineSpec {
    match mode.strip_prefix(IN_C) {
        Some(mode) => EngineSpec::file("wicked", &in_c(), json!({ "mode": mode })),
        None => EngineSpec::file("chaos", &chaos_library(), json!({ "mode": mode })),
    }
}

fn open(mode: &str, state: &Path) -> ActiveEngine {
    let on_error = OnEngineError::Fallback;
    ActiveEngine::open(&chaos(mode), &legacy(), on_error, &environment(state)).unwrap()
}

fn open_in_the_shadow(mode: &str, state: &Path) -> ShadowEngines {
    let surroundings = ShadowServices { active: environment(state), may_complete: false };
    let ledger = ShadowLog::new(state.join("shadow.jsonl"), 1 << 20);
    let rows = [vec![chaos(mode)]];
    ShadowEngines::open(&rows, &legacy(), &surroundings, &InvariantSettings::default(), ledger)
        .unwrap()
}

/// No test by itself: what the others start again, and what does not come back.
#[tokio::test]
async fn an_engine_dies_in_the_chosen_call() {
    let (Ok(mode), Some(state)) = (std::env::var(MODE), std::env::var_os(STATE)) else { return };
    if std::env::var(SEAT).as_deref() == Ok("shadow") {
        open_in_the_shadow(&mode, Path::new(&state)).flush().await;
        return;
    }
    let slot = open(&mode, Path::new(&state));
    let _ = slot.assemble(&transcript(), ask()).await;
}

fn start(mode: &str, state: &Path, at_load: &str) -> Child {
    start_in("slot", mode, state, at_load)
}

fn start_in(seat: &str, mode: &str, state: &Path, at_load: &str) -> Child {
    // Built here, so that a child does not wait for cargo.
    chaos_library();
    in_c();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "slot::crash::an_engine_dies_in_the_chosen_call", "--nocapture"])
        .env(MODE, mode)
        .env(STATE, state)
        .env(SEAT, seat)
        .env("CHAOS_AT_LOAD", at_load)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn die(mode: &str, state: &Path) -> ExitStatus {
    start(mode, state, "").wait().unwrap()
}

/// What is known after one such death: where it was, and how it ended.
fn after_one(mode: &str) -> (String, String) {
    let state = tempfile::tempdir().unwrap();
    die(mode, state.path());
    let record = book(state.path()).records().unwrap().remove(0);
    let id = if mode.starts_with(IN_C) { "wicked" } else { "chaos" };
    assert_eq!((record.id.as_str(), record.crashes, record.held), (id, 1, false));
    (record.operation, record.reason)
}

#[tokio::test]
async fn an_engine_that_crashes_twice_is_held_and_legacy_serves() {
    let state = tempfile::tempdir().unwrap();
    assert_eq!(
        die("abort-create", state.path()).signal(),
        Some(6),
        "it dies as it would without us"
    );
    assert_eq!(book(state.path()).records().unwrap()[0].crashes, 1);
    die("abort-create", state.path());
    // The third time it is not even loaded, or this process would be gone.
    let slot = open("abort-create", state.path());
    assert_eq!(served_by(&slot).await, ("legacy".into(), true));
    let reason = slot.quarantine_record().unwrap().reason;
    assert!(reason.contains("2 crashes of a host, last in create: signal 6 (SIGABRT)"), "{reason}");
    assert!(reason.contains("`ctxhost engines release chaos`"), "{reason}");
    book(state.path()).release("chaos").unwrap();
    let slot = open("good", state.path());
    assert_eq!(served_by(&slot).await, ("chaos".into(), false));
}

#[tokio::test]
async fn a_crash_in_the_shadow_quarantines_and_a_failure_there_does_not() {
    let state = tempfile::tempdir().unwrap();
    for crashes in 1..=2 {
        start_in("shadow", "abort-create", state.path(), "").wait().unwrap();
        assert_eq!(book(state.path()).records().unwrap()[0].crashes, crashes);
    }
    // Neither here nor there is it loaded again, or this process would be gone.
    open_in_the_shadow("abort-create", state.path()).flush().await;
    assert_eq!(served_by(&open("abort-create", state.path())).await, ("legacy".into(), true));
    book(state.path()).release("chaos").unwrap();
    let status = start_in("shadow", "panic-create", state.path(), "").wait().unwrap();
    assert!(status.success(), "a panic is caught");
    assert_eq!(book(state.path()).records().unwrap(), []);
}

#[test]
fn each_way_to_die_is_reported_with_its_place() {
    let abort = "signal 6 (SIGABRT)".to_owned();
    assert_eq!(after_one("abort"), ("calls".into(), abort.clone()));
    // On the thread of its own that each of its calls has.
    assert_eq!(after_one("c: abort"), ("calls".into(), abort.clone()));
    assert_eq!(after_one("stack-overflow").0, "calls");
    assert_eq!(after_one("exit-create"), ("create".into(), "a call of exit".into()));
    let state = tempfile::tempdir().unwrap();
    start("good", state.path(), "abort").wait().unwrap();
    let record = book(state.path()).records().unwrap().remove(0);
    assert_eq!((record.operation, record.reason), ("load".into(), abort));
}

#[test]
fn a_process_killed_inside_an_engine_blames_no_engine() {
    for signal in [Signal::SIGKILL, Signal::SIGABRT] {
        let state = tempfile::tempdir().unwrap();
        let mut child = start("hang-create", state.path(), "");
        await_stage(state.path(), "create");
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal as i32));
        assert_eq!(book(state.path()).records().unwrap(), [], "{signal:?}");
    }
}

#[tokio::test]
async fn a_failure_is_known_to_the_next_process_and_a_good_end_leaves_nothing() {
    let state = tempfile::tempdir().unwrap();
    assert!(die("good", state.path()).success());
    assert_eq!(book(state.path()).records().unwrap(), []);
    assert!(die("panic-assemble", state.path()).success(), "a panic is caught");
    let slot = open("good", state.path());
    let reason = slot.quarantine_record().unwrap().reason;
    assert!(reason.contains("1 failure, last in assemble: "), "{reason}");
    assert_eq!(served_by(&slot).await, ("legacy".into(), true));
}

/// Waits until a note says that its engine is there.
fn await_stage(state: &Path, stage: &str) {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let notes =
            std::fs::read_dir(state.join("engines/running")).into_iter().flatten().flatten();
        let mut texts = notes.filter_map(|note| std::fs::read_to_string(note.path()).ok());
        if texts.any(|text| text.lines().any(|line| line == stage)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no engine came to {stage}");
}
