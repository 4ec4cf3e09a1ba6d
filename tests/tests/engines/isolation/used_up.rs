//! Quotas of engines (threads, processor time, store, log), and the end of the host process.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ctxhost_engine::Isolation;
use ctxhost_engine_api::{CompactRequest, Compaction, ErrorKind};
use ctxhost_tests::{chaos_library, ctxhost};

use super::{assemble, chaos, open, patient, session, talk};

/// More than a loaded machine needs for what takes a second.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the next call of an engine says whose worker is killed behind an answer, and not started again.
async fn message_when_killed(mode: &str, threads: u64, background_cpu_ms: u64) -> String {
    let mut spec = chaos(mode, Isolation::Process);
    spec.sandbox.threads = threads;
    spec.sandbox.background_cpu_ms = background_cpu_ms;
    spec.sandbox.respawns = 0;
    let engine = open(&spec, &patient());
    assemble(&engine).await.expect("its deed is done behind the answer");
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if let Some(error) =
            engine.sandbox_info().filter(|it| it.pid.is_none()).map(|_| engine.status())
        {
            return error.await.expect_err("it is dead").message;
        }
    }
    panic!("{mode}: it lives");
}

#[tokio::test]
async fn a_worker_with_too_many_threads_is_killed() {
    let said = message_when_killed("many-threads", 64, 1_000_000).await;
    assert!(said.contains("the limit is 64 (plugins.sandbox.threads)"), "{said}");
}

#[tokio::test]
async fn a_sandbox_that_computes_between_calls_is_killed() {
    let said = message_when_killed("burns-behind", 64, 300).await;
    assert!(said.contains("the limit is 300 ms (plugins.sandbox.background_cpu_ms)"), "{said}");
}

#[tokio::test]
async fn a_store_takes_no_more_than_its_quota() {
    for isolation in [Isolation::Thread, Isolation::Process] {
        let mut spec = chaos("hoards", isolation);
        spec.quotas.store_mib = 4;
        let error = assemble(&open(&spec, &patient())).await.expect_err("it is full");
        assert_eq!(error.kind, ErrorKind::Store, "{error}");
        assert!(error.message.contains("4,194,304 bytes (plugins.quotas.store_mib)"), "{error}");
        assert_eq!(error.detail["full"]["limit"], 4 << 20, "{}", error.detail);
    }
}

#[tokio::test]
async fn a_reason_of_any_length_reaches_the_host_cut() {
    for isolation in [Isolation::Thread, Isolation::Process] {
        let engine = open(&chaos("huge-reason", isolation), &patient());
        let request = CompactRequest { session: session("s"), ..CompactRequest::default() };
        match engine.compact(talk(), request).await.unwrap() {
            Compaction::Nothing { reason } => {
                assert!(reason.len() < 20_000, "{isolation}: {}", reason.len());
                assert!(reason.contains("50,331,648 bytes"), "{isolation}");
            }
            other => panic!("{isolation}: {other:?}"),
        }
    }
}

/// A host with the engine in its slot, in a folder of its own.
fn host(folder: &Path, mode: &str, isolation: &str, arguments: &[&str]) -> Command {
    let config = folder.join("ctxhost.toml");
    let library = chaos_library();
    let text = format!(
        "[plugins]\ntrust = \"any\"\n[plugins.slots]\ncontext_engine = \"chaos\"\n\
         [plugins.entries.chaos]\npath = {library:?}\nisolation = \"{isolation}\"\n\
         [plugins.entries.chaos.config]\nmode = \"{mode}\"\n[timeouts]\ndispose_ms = 300\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = ctxhost();
    command.args(arguments).arg("--config").arg(&config).current_dir(folder);
    command.env("CTXHOST_STATE_DIR", folder.join("state")).env_remove("CTXHOST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for the end of a host that might never come.
fn ends(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it does not end: {:?}", child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn a_drop_that_never_ends_keeps_no_host() {
    for mode in ["spin-drop", "spin-dispose"] {
        let folder = tempfile::tempdir().unwrap();
        let arguments = ["replay", "demo:coding", "--engines", "chaos"];
        let mut command = host(folder.path(), mode, "thread", &arguments);
        let output = ends(command.env("CTXHOST_LOG", "warn").spawn().unwrap());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{mode}: {said}");
        if mode == "spin-drop" {
            assert!(said.contains("drop exceeded 300 ms"), "{said}");
        }
    }
}

#[test]
fn a_server_whose_engine_never_ends_stops_on_a_signal() {
    use std::io::{BufRead as _, BufReader, Read as _};
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["serve", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0"];
    let mut child = host(folder.path(), "spin-drop", "thread", &arguments).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    errors.read_line(&mut first).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let said = std::thread::spawn(move || {
        let mut said = String::new();
        let _ = errors.read_to_string(&mut said);
        said
    });
    std::thread::sleep(Duration::from_millis(500));
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = ends(child);
    let said = first + &said.join().unwrap();
    assert!(output.status.code().is_some(), "{:?}: {said}", output.status);
    assert!(said.contains("drop exceeded 300 ms"), "{said}");
}

#[test]
fn an_engine_that_ends_the_host_is_named_and_the_code_is_an_error() {
    for mode in ["exit-well", "quick-exit"] {
        let folder = tempfile::tempdir().unwrap();
        let arguments = ["replay", "demo:coding", "--engines", "chaos"];
        let output = ends(host(folder.path(), mode, "thread", &arguments).spawn().unwrap());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(70), "{mode}: {said}");
        let named = "engine chaos called exit and ended this process";
        assert!(said.contains(named), "{mode}: {said}");
    }
}

#[test]
fn a_log_that_is_too_long_is_cut_and_forges_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["replay", "demo:coding", "--engines", "chaos"];
    let mut command = host(folder.path(), "talks", "process", &arguments);
    let output = ends(command.env("CTXHOST_LOG", "warn").spawn().unwrap());
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = said.lines().filter(|line| line.contains("talking")).count();
    assert_eq!(lines, 600, "of each minute");
    assert!(said.contains("exceeds its log quota"), "{}", &said[said.len().saturating_sub(2000)..]);
    assert!(said.contains("log lines of the engine were dropped"), "the number is told");
    assert!(said.lines().all(|line| !line.starts_with("ERROR forged")), "a forged line");
}
