//! Every row of the containment table: what an engine does, and what happens to the host.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctxhost_engine::{
    EngineInstance, EngineOpenError, EngineSpec, FailureLog, HostClock, Isolation, QuarantineRules,
};
use ctxhost_engine_api::ErrorKind;

use super::{assemble, chaos, hasty, open, patient};

/// Names the deed for a test that is started to die of it.
const DEED: &str = "CTXHOST_TEST_DEED";
const ABORTED: i32 = 6;
const FAULTED: i32 = 11;

/// An error in this isolation, and an engine that still answers.
async fn is_told(mode: &str, isolation: Isolation, says: &str) {
    let engine = open(&chaos(mode, isolation), &patient());
    let error = assemble(&engine).await.expect_err(mode);
    assert!(error.message.contains(says), "{mode} {isolation}: {error}");
    assert_eq!(engine.status().await.unwrap().summary, "stands", "{mode} {isolation}");
    assert!(
        engine.sandbox_info().is_none_or(|worker| worker.respawns == 0),
        "{mode}: nothing died"
    );
}

#[tokio::test]
async fn panics_are_errors_everywhere_and_cost_no_worker() {
    for isolation in [Isolation::Inline, Isolation::Thread, Isolation::Process] {
        is_told("panic-assemble", isolation, "panic in assemble").await;
        is_told("late-panic", isolation, "late panic").await;
        is_told("drop-future", isolation, "panic in drop").await;
        is_told("bad-payload", isolation, "panicked").await;
    }
}

#[tokio::test]
async fn a_panic_in_create_is_an_error_everywhere() {
    for isolation in [Isolation::Inline, Isolation::Thread, Isolation::Process] {
        for (mode, says) in [("panic-create", "panic in create"), ("error-create", "its config")] {
            let error = EngineInstance::open(&chaos(mode, isolation), &patient()).expect_err(mode);
            assert!(matches!(error, EngineOpenError::Create { .. }), "{isolation}: {error:?}");
            assert!(error.to_string().contains(says), "{isolation}: {error}");
        }
    }
}

#[tokio::test]
async fn what_it_does_in_a_process_is_its_failure_and_no_crash_of_a_host() {
    let state = tempfile::tempdir().unwrap();
    let book = || FailureLog::new(state.path(), QuarantineRules::default(), HostClock::default());
    let mut environment = patient();
    environment.failure_log = Some(Arc::new(book()));
    let opened = |mode| EngineInstance::open(&chaos(mode, Isolation::Process), &environment);
    for mode in ["abort-create", "panic-create"] {
        let died = opened(mode).expect_err(mode);
        assert!(matches!(died, EngineOpenError::Create { .. }), "{died:?}");
        let record = book().records().unwrap().remove(0);
        assert_eq!((record.operation.as_str(), record.failures), ("create", 1), "{record:?}");
        assert_eq!((record.crashes, record.held), (0, false), "{record:?}");
        let held = opened("good").expect_err("it is held");
        assert!(matches!(held, EngineOpenError::Quarantined { .. }), "{held:?}");
        book().release("chaos").unwrap();
    }
    let engine = opened("good").unwrap();
    assert_eq!(engine.build().map(str::len), Some(64));
    assert!(!state.path().join("engines/running").exists(), "nothing of it runs in this process");
}

#[tokio::test]
async fn a_panic_on_another_thread_disturbs_no_call() {
    for isolation in [Isolation::Inline, Isolation::Thread, Isolation::Process] {
        for mode in ["background-panic", "own-thread", "panic-drop"] {
            let engine = open(&chaos(mode, isolation), &patient());
            for _ in 0..2 {
                assert!(assemble(&engine).await.is_ok(), "{mode} {isolation}");
            }
            assert!(engine.sandbox_info().is_none_or(|worker| worker.respawns == 0), "{mode}");
        }
    }
}

#[tokio::test]
async fn what_waits_for_ever_is_called_off_and_its_worker_lives() {
    for isolation in [Isolation::Inline, Isolation::Thread, Isolation::Process] {
        for mode in ["hang-assemble", "wakes-itself"] {
            let mut spec = chaos(mode, isolation);
            // A busy machine may take its time over a cancellation.
            spec.sandbox.cancel_grace_ms = 20_000;
            let engine = open(&spec, &hasty());
            let error = assemble(&engine).await.expect_err(mode);
            assert_eq!(error.kind, ErrorKind::Deadline, "{mode} {isolation}: {error}");
            assert_eq!(engine.status().await.unwrap().summary, "stands");
            assert!(engine.sandbox_info().is_none_or(|worker| worker.respawns == 0), "{mode}");
        }
    }
}

#[tokio::test]
async fn a_worker_that_does_not_let_go_is_killed_and_replaced() {
    for mode in ["block-assemble", "spin-assemble"] {
        let engine = open(&chaos(mode, Isolation::Process), &hasty());
        let first = engine.sandbox_info().unwrap().pid;
        let error = assemble(&engine).await.expect_err(mode);
        assert_eq!(error.kind, ErrorKind::Deadline, "{mode}: {error}");
        assert!(error.message.contains("its sandbox was killed"), "{mode}: {error}");
        assert_eq!(engine.status().await.unwrap().summary, "stands");
        let worker = engine.sandbox_info().unwrap();
        assert_eq!(worker.respawns, 1, "{mode}");
        assert_ne!(worker.pid, first);
    }
}

#[tokio::test]
async fn an_endless_loop_costs_one_engine_thread_and_the_host_lives() {
    let engine = open(&chaos("spin-assemble", Isolation::Thread), &hasty());
    assert_eq!(assemble(&engine).await.unwrap_err().kind, ErrorKind::Deadline);
    assert!(engine.has_lost_thread());
    assert_eq!(engine.status().await.unwrap().summary, "stands");
}

#[tokio::test]
async fn the_host_s_threads_go_on_while_a_worker_spins() {
    let engine = open(&chaos("spin-assemble", Isolation::Process), &hasty());
    let beats = tokio::spawn(async {
        let mut beats = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            beats += 1;
            if beats == 10 {
                return Instant::now();
            }
        }
    });
    let error = assemble(&engine).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Deadline);
    assert!(beats.is_finished(), "ten beats take less than the half second of the call");
}

#[tokio::test]
async fn what_ends_a_process_ends_a_worker_and_the_next_one_answers() {
    let deeds = [
        ("double-panic", "SIGABRT"),
        ("segfault", "SIGSEGV"),
        ("abort", "SIGABRT"),
        ("exit", "exit code 7"),
        ("stack-overflow", "SIGABRT"),
        ("huge-allocation", "memory allocation of"),
        ("eat-memory", "memory allocation of"),
    ];
    for (mode, says) in deeds {
        let engine = open(&chaos(mode, Isolation::Process), &patient());
        let error = assemble(&engine).await.expect_err(mode);
        assert_eq!(error.kind, ErrorKind::Dead, "{mode}: {error}");
        assert!(error.message.contains(says), "{mode}: {error}");
        assert_eq!(engine.status().await.unwrap().summary, "stands", "{mode}");
        // One for the second try of a harmless call, one for the status.
        assert_eq!(engine.sandbox_info().unwrap().respawns, 2, "{mode}");
    }
}

#[tokio::test]
async fn a_worker_that_ends_in_create_is_an_error_of_the_opening() {
    let spec = chaos("exit-create", Isolation::Process);
    let error = EngineInstance::open(&spec, &patient()).expect_err("it exits").to_string();
    assert!(error.contains("exit code 7"), "{error}");
    let mut environment = patient();
    environment.timeouts.create_ms = 500;
    let spec = chaos("hang-create", Isolation::Process);
    let error = EngineInstance::open(&spec, &environment).expect_err("it hangs").to_string();
    assert!(error.contains("exceeded 500 ms"), "{error}");
}

#[tokio::test]
async fn a_call_that_changes_something_is_not_repeated() {
    let engine = open(&chaos("segfault-once", Isolation::Process), &patient());
    assert!(assemble(&engine).await.is_ok(), "asked again, it answers");
    assert_eq!(engine.sandbox_info().unwrap().respawns, 1);
}

/// Not a test by itself: one of the next test's children, which dies.
#[test]
fn victim() {
    let Ok(deed) = std::env::var(DEED) else { return };
    let (isolation, mode) = deed.split_once(' ').unwrap();
    let isolation = match isolation {
        "inline" => Isolation::Inline,
        _ => Isolation::Thread,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = open(&chaos(mode, isolation), &patient());
    let _ = runtime.block_on(assemble(&engine));
    // Whoever comes here lives.
    std::process::exit(0);
}

#[test]
fn what_ends_a_process_ends_the_host_on_a_thread_and_inline() {
    let deeds = [
        ("double-panic", Some(ABORTED), None),
        ("segfault", Some(FAULTED), None),
        ("abort", Some(ABORTED), None),
        // On a lane: inline is for engines of the host's own.
        ("exit", None, Some(70)),
        ("stack-overflow", Some(ABORTED), None),
        ("huge-allocation", Some(ABORTED), None),
    ];
    // Built here, so that the children need no compiler.
    let _: EngineSpec = chaos("good", Isolation::Thread);
    for isolation in ["inline", "thread"] {
        for (mode, signal, code) in deeds {
            let status = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "isolation::containment::victim", "--nocapture"])
                .env(DEED, format!("{isolation} {mode}"))
                .output()
                .unwrap()
                .status;
            let code = if (isolation, mode) == ("inline", "exit") { Some(7) } else { code };
            assert_eq!((status.signal(), status.code()), (signal, code), "{mode} {isolation}");
        }
    }
}
