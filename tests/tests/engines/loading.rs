//! Files that are no engine, or not the one they should be: each is refused in one sentence, the host
//! lives, and the slot falls back or fails as configured.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_config::Config;
use ctxhost_engine::{
    ActiveEngine, EngineEnvironment, EngineInstance, EngineOpenError, EngineSpec, EngineTimeouts,
    HostClock, OnEngineError, SlotError,
};
use ctxhost_tests::{chaos_library, root};
use memchr::memmem;
use serde_json::{Value, json};
use tempfile::TempDir;

mod c_door;
mod header;
mod wicked;

fn environment() -> EngineEnvironment {
    let timeouts = EngineTimeouts { create_ms: 1_000, ..EngineTimeouts::default() };
    EngineEnvironment::new(timeouts, HostClock::default())
}

fn legacy() -> EngineSpec {
    EngineSpec::bundled("legacy", json!({}))
}

/// A file of the given bytes, readable by its owner.
fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libengine.so");
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    (folder, path)
}

fn chaos_bytes() -> Vec<u8> {
    fs::read(chaos_library()).unwrap()
}

/// The engine's bytes with every occurrence of one text replaced by another of the same length.
fn patched(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = chaos_bytes();
    let places: Vec<usize> = memmem::find_iter(&bytes, from).collect();
    assert!(!places.is_empty(), "{from:?} is not in the library");
    for place in places {
        bytes.splice(place..place + to.len(), to.bytes());
    }
    bytes
}

/// Opens the file as the engine `chaos` in both policies: with `fallback` the bundled engine serves and
/// the reason is known, with `fail` the error is the answer.
fn refused(path: &Path, config: Value, says: &str) {
    let spec = EngineSpec::file("chaos", path, config);
    let slot =
        ActiveEngine::open(&spec, &legacy(), OnEngineError::Fallback, &environment()).unwrap();
    assert_eq!(slot.serving_info().id, "legacy");
    assert_eq!(slot.configured_id(), "chaos");
    let reason = slot.quarantine_record().expect("a reason anybody can see").reason;
    assert!(reason.contains(says), "{reason:?} does not say {says:?}");
    assert!(reason.len() < 600 && !reason.contains('\n'), "one sentence, not {reason:?}");
    let failed = ActiveEngine::open(&spec, &legacy(), OnEngineError::Fail, &environment());
    match failed {
        Err(SlotError::Open(error)) => assert!(error.to_string().contains(says), "{error}"),
        other => panic!("on_engine_error = fail, but {other:?}"),
    }
}

fn refused_bytes(bytes: &[u8], says: &str) {
    let (_folder, path) = file(bytes);
    refused(&path, json!({}), says);
}

#[test]
fn the_good_file_loads() {
    let spec = EngineSpec::file("chaos", &chaos_library(), json!({}));
    let slot = ActiveEngine::open(&spec, &legacy(), OnEngineError::Fail, &environment()).unwrap();
    assert_eq!(slot.serving_info().id, "chaos");
}

#[test]
fn what_is_no_library() {
    refused_bytes(b"", "is not a shared library (it is empty)");
    refused_bytes(&[0x42; 4096], "is not a shared library");
    refused_bytes(b"\x7fELF\x02\x01\x01", "is not a shared library");
    refused_bytes(&fs::read(std::env::current_exe().unwrap()).unwrap()[..100_000], "");
    refused(&root(), json!({}), "is not a regular file");
    refused(Path::new("/nowhere/libengine.so"), json!({}), "cannot read /nowhere/libengine.so");
}

#[test]
fn what_was_cut_short() {
    let bytes = chaos_bytes();
    for permille in [1, 10, 100, 500, 900, 990] {
        let (_folder, path) = file(&bytes[..bytes.len() * permille / 1000]);
        let spec = EngineSpec::file("chaos", &path, json!({}));
        let opened = EngineInstance::open(&spec, &environment());
        let error = opened.expect_err("a library cut short must not load").to_string();
        let plain = error.contains("cut short") || error.contains("not a shared library");
        assert!(plain, "{permille} permille: {error}");
    }
}

#[test]
fn a_library_without_metadata_or_symbol() {
    refused_bytes(
        &patched("CTXHOST\x01ENGMETA\n", "CTXHOST\x02ENGMETA\n"),
        "is a library but no engine",
    );
    refused_bytes(
        &patched("CONTEXT_ENGINE_ROOT_V1", "CONTEXT_ENGINE_ROOT_V9"),
        "does not export CONTEXT_ENGINE_ROOT_V1",
    );
}

#[test]
fn what_is_no_id_leads_out_of_no_folder() {
    refused_bytes(&patched("\nid=chaos\n", "\nid=../ab\n"), "calls its engine \"../ab\"");
    refused_bytes(&patched("\nid=chaos\n", "\nid=-haos\n"), "which is not a valid id");
    refused_bytes(&patched("\nid=chaos\n", "\nid=Chaos\n"), "which is not a valid id");
}

/// What a config made of a name while nobody could read the file, and the file that stood there then.
#[test]
fn what_could_not_be_judged_is_not_loaded_a_moment_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libengine.so");
    let config = folder.path().join("ctxhost.toml");
    let demands = "[plugins]\nrequire_signature = true\ndeny = [\"chaos\"]\n";
    let entry =
        format!("[plugins]\nrequire_signature = true\n[plugins.entries.chaos]\npath = {path:?}\n");
    for (text, name) in [(&*entry, "chaos"), (demands, path.to_str().unwrap())] {
        fs::write(&config, text).unwrap();
        let config = Config::load(&config).unwrap();
        let spec = EngineRegistry::load(&config).spec(&config, name).unwrap();
        let missing = EngineInstance::open(&spec, &environment()).unwrap_err().to_string();
        assert!(missing.contains("cannot read "), "{missing}");
        fs::copy(chaos_library(), &path).unwrap();
        let error = EngineInstance::open(&spec, &environment()).unwrap_err();
        assert!(matches!(error, EngineOpenError::Untrusted { .. }), "{name}: {error}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn another_major() {
    refused_bytes(&patched("abi_major=1", "abi_major=9"), "was built for engine ABI 9");
    // Before anything of it runs: who installs it learns so, and not who uses it.
    let of_the_api = "was built for engine ABI 2, this host supports 1; rebuild it with";
    refused_bytes(&patched("api=1.", "api=2."), of_the_api);
}

#[test]
fn another_machine_or_panic_strategy() {
    refused_bytes(&patched("panic=unwind\n", "panic=abort!\n"), "panic = \"abort!\"");
    refused_bytes(&patched("pointer=64", "pointer=32"), "32-bit pointers");
}

#[test]
fn two_names() {
    refused_bytes(&patched("\nid=chaos\n", "\nid=chaox\n"), "holds engine \"chaox\"");
    let (_folder, path) = file(&patched("\nid=chaos\n", "\nid=chaox\n"));
    let spec = EngineSpec::file("chaox", &path, json!({}));
    let error = EngineInstance::open(&spec, &environment()).expect_err("two names").to_string();
    assert!(error.contains("calls itself \"chaos\" but its metadata says \"chaox\""), "{error}");
}

#[test]
fn a_file_that_everybody_can_write() {
    let (_folder, path) = file(&chaos_bytes());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    refused(&path, json!({}), "can be written by every user");
}

#[test]
fn other_bytes_than_the_pinned_ones() {
    let (_folder, path) = file(&chaos_bytes());
    let mut spec = EngineSpec::file("chaos", &path, json!({}));
    spec.sha256 = Some("0".repeat(64));
    let error = EngineInstance::open(&spec, &environment()).expect_err("wrong hash").to_string();
    assert!(error.contains("does not match the pinned 000000000000; not loaded"), "{error}");
    spec.sha256 = Some(ctxhost_engine::inspect(&path).unwrap().sha256.to_uppercase());
    EngineInstance::open(&spec, &environment()).unwrap();
}

#[test]
fn what_goes_wrong_in_create() {
    let library = chaos_library();
    refused(
        &library,
        json!({ "mode": "panic-create" }),
        "panicked at src/lib.rs:43: chaos: panic in create",
    );
    refused(&library, json!({ "mode": "error-create" }), "chaos does not like its config");
    refused(&library, json!({ "mode": "hang-create" }), "exceeded 1,000 ms (timeouts.create_ms)");
}

#[test]
fn a_panic_in_the_drop_of_an_engine_stays_inside() {
    let spec = EngineSpec::file("chaos", &chaos_library(), json!({ "mode": "panic-drop" }));
    drop(EngineInstance::open(&spec, &environment()).unwrap());
    drop(EngineInstance::open(&spec, &environment()).unwrap());
}

#[test]
fn a_newer_build_of_the_same_path_is_really_loaded() {
    let (_folder, path) = file(&chaos_bytes());
    let spec = EngineSpec::file("", &path, json!({}));
    let first = EngineInstance::open(&spec, &environment()).unwrap();
    // The linker would answer the old image for the same path; the private copy prevents it.
    fs::write(&path, patched("version=0.1.0", "version=0.1.9")).unwrap();
    assert_eq!(ctxhost_engine::inspect(&path).unwrap().meta.version, "0.1.9");
    let second = EngineInstance::open(&spec, &environment()).unwrap();
    assert_eq!((first.id(), second.id()), ("chaos", "chaos"));
}

#[test]
fn thirty_threads_load_at_once() {
    let library = chaos_library();
    std::thread::scope(|scope| {
        for _ in 0..30 {
            scope.spawn(|| {
                let spec = EngineSpec::file("chaos", &library, json!({}));
                EngineInstance::open(&spec, &environment()).unwrap();
            });
        }
    });
}

#[test]
fn nothing_is_left_behind() {
    let state = tempfile::tempdir().unwrap();
    let mut environment = environment();
    environment.copies_folder = state.path().join("engines/cache");
    let spec = EngineSpec::file("chaos", &chaos_library(), json!({}));
    EngineInstance::open(&spec, &environment).unwrap();
    let cache = state.path().join("engines/cache");
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
    assert_eq!(fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
}
