//! What a sandboxed engine can observe of the machine.

use ctxhost_engine::{EngineInstance, EngineOpenError, EngineSpec, Isolation, inspect};
use ctxhost_engine_api::serde_json::Value;
use ctxhost_tests::chaos_library;
use rustix::io::{FdFlags, fcntl_setfd};

use super::{chaos, open, patient};

async fn seen(engine: &EngineInstance) -> Value {
    engine.status().await.unwrap().details["seen"].clone()
}

fn words(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap()
}

#[tokio::test]
async fn a_worker_sees_no_environment_no_descriptor_and_an_empty_folder() {
    let folder = tempfile::tempdir().unwrap();
    let secret = std::fs::File::create(folder.path().join("secret")).unwrap();
    // As a library in C leaves it: every child gets it.
    fcntl_setfd(&secret, FdFlags::empty()).unwrap();
    let engine = open(&chaos("probe", Isolation::Process), &patient());
    let seen = seen(&engine).await;

    let known = ["LANG", "LC_ALL", "TZ", "MALLOC_ARENA_MAX"];
    let environment = words(&seen["environment"]);
    assert!(std::env::vars_os().count() > known.len(), "there was something to hide");
    assert!(environment.iter().all(|name| known.contains(&name.as_str())), "{environment:?}");

    let descriptors = words(&seen["descriptors"]);
    let is_own = |target: &String| {
        let beginnings = ["socket:", "pipe:", "/dev/null", "/proc/"];
        beginnings.iter().any(|beginning| target.starts_with(beginning))
    };
    assert!(descriptors.iter().all(is_own), "{descriptors:?}");
    let sockets = descriptors.iter().filter(|target| target.starts_with("socket:"));
    let mut sockets: Vec<_> = sockets.collect();
    sockets.dedup();
    assert_eq!(sockets.len(), 1, "its wire: {descriptors:?}");

    assert!(words(&seen["folder"]).is_empty(), "{}", seen["folder"]);
}

#[tokio::test]
async fn a_worker_reaches_no_network_no_file_and_no_program() {
    let engine = open(&chaos("probe", Isolation::Process), &patient());
    let confinement = engine.sandbox_info().unwrap().confinement;
    let (seen, all) = (seen(&engine).await, confinement.applied.join("; "));
    let is_held_by = |name: &str| all.contains(name);
    if is_held_by("seccomp") {
        for tried in ["connect", "run", "datagrams"] {
            assert!(seen[tried].as_str().unwrap().contains("not permitted"), "{tried}: {seen}");
        }
        for (tried, said) in seen["reach"].as_object().unwrap() {
            assert!(said.as_str().unwrap().contains("not permitted"), "{tried}: {said}");
        }
    }
    if is_held_by("seccomp") || is_held_by("landlock") {
        for tried in ["write", "write-tmp", "remove"] {
            assert_ne!(seen[tried], "done", "{tried}: {seen}");
        }
    }
    if is_held_by("landlock") {
        for tried in ["read", "parent"] {
            assert!(seen[tried].as_str().unwrap().contains("denied"), "{tried}: {seen}");
        }
    }
    assert_eq!(seen["thread"], 7, "threads are its own business");
    assert!(is_held_by("1024 MiB of memory") && is_held_by("no core files"), "{all}");
    for missing in &confinement.missing {
        println!("SKIPPED: this kernel has no {missing}");
    }
}

#[tokio::test]
async fn an_engine_thread_sees_what_the_host_sees() {
    let engine = open(&chaos("probe", Isolation::Thread), &patient());
    let seen = seen(&engine).await;
    assert!(
        words(&seen["environment"]).contains(&"PATH".to_owned()),
        "so the tests above can fail"
    );
    assert_eq!(seen["read"], "done");
    for (tried, said) in seen["reach"].as_object().unwrap() {
        assert!(!said.as_str().unwrap().contains("not permitted"), "{tried}: {said}");
    }
}

#[test]
fn a_bundled_engine_has_no_file_for_a_worker() {
    let mut spec = EngineSpec::bundled("mask", serde_json::json!({}));
    spec.isolation = Isolation::Process;
    let error = EngineInstance::open(&spec, &patient()).expect_err("no file");
    assert!(matches!(error, EngineOpenError::NotALibrary { .. }), "{error}");
}

#[test]
fn a_program_that_is_no_worker_is_named() {
    let mut spec = chaos("good", Isolation::Process);
    spec.sandbox.program = Some("/bin/true".into());
    let error = EngineInstance::open(&spec, &patient()).expect_err("no worker").to_string();
    assert!(error.contains("/bin/true") && error.contains("exit code 0"), "{error}");
    spec.sandbox.program = Some("/nowhere/ctxhost".into());
    let error = EngineInstance::open(&spec, &patient()).expect_err("no program").to_string();
    assert!(error.contains("/nowhere/ctxhost"), "{error}");
}

#[test]
fn a_program_that_says_a_byte_now_and_then_is_late_all_the_same() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("drips");
    // The beginning of a frame of 16 MiB.
    let script = "#!/bin/sh\nwhile :; do printf '\\001' >&0; /bin/sleep 0.05; done\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut spec = chaos("good", Isolation::Process);
    spec.sandbox.program = Some(program);
    spec.sandbox.start_ms = 300;
    let error = EngineInstance::open(&spec, &patient()).expect_err("late").to_string();
    assert!(error.contains("exceeded 300 ms (plugins.sandbox.start_ms)"), "{error}");
}

#[test]
fn the_file_is_checked_before_a_worker_starts() {
    let mut spec = chaos("good", Isolation::Process);
    spec.sha256 = Some("0".repeat(64));
    let error = EngineInstance::open(&spec, &patient()).expect_err("pinned to others").to_string();
    let found = inspect(&chaos_library()).unwrap().sha256;
    assert!(error.contains(&found[..12]), "{error}");
}

#[test]
fn the_hidden_command_is_for_the_host_alone() {
    let help = ctxhost_tests::ctxhost().arg("--help").output().unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains("engine-sandbox"));
    let by_hand = ctxhost_tests::ctxhost().arg("engine-sandbox").output().unwrap();
    assert_eq!(by_hand.status.code(), Some(2));
    let said = String::from_utf8_lossy(&by_hand.stderr).into_owned();
    assert!(said.contains("started by ctxhost itself"), "{said}");
}
