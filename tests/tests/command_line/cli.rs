//! Transcripts of the binary, compared word for word, and the files it leaves behind.

mod journey;
mod sync;
mod trust;

use std::fs;
use std::path::Path;

use ctxhost_tests::{broken_library, bundled_library, ctxhost, root};

/// `TRYCMD=overwrite cargo test -p ctxhost-tests --test command_line cli::` writes down what the binary says now.
#[test]
fn transcripts() {
    let state = tempfile::tempdir().unwrap();
    let binary = Path::new(ctxhost().get_program()).to_owned();
    libraries_to_check(&root().join("tests/cli/check.in"));
    trycmd::TestCases::new()
        .register_bin("ctxhost", binary)
        .env("NO_COLOR", "1")
        .env("CTXHOST_LOG", "error")
        // What engines did on this machine is no business of these. A case may name another folder.
        .env("XDG_STATE_HOME", state.path().to_string_lossy())
        .case("cli/*.trycmd");
}

/// The libraries that `cli/check.trycmd` names: one engine, sound and broken, of another ABI, and without
/// the symbol that a host looks for.
fn libraries_to_check(folder: &Path) {
    for kind in ["good", "drops", "aborts"] {
        broken_library(kind, folder);
    }
    let bytes = fs::read(folder.join("libgood.so")).unwrap();
    let other_abi = with_last(&bytes, b"abi_major=1", b'9');
    fs::write(folder.join("libabi_9.so"), other_abi).unwrap();
    let no_door = with_last(&bytes, b"CONTEXT_ENGINE_ROOT_V1", b'9');
    fs::write(folder.join("libno_door.so"), no_door).unwrap();
}

/// Other bytes where `text` stands: its last one is another.
fn with_last(bytes: &[u8], text: &[u8], last: u8) -> Vec<u8> {
    let places: Vec<usize> = memchr::memmem::find_iter(bytes, text).collect();
    assert!(!places.is_empty(), "the library says {}", String::from_utf8_lossy(text));
    let mut other = bytes.to_vec();
    places.into_iter().for_each(|at| other[at + text.len() - 1] = last);
    other
}

/// Runs a command in a folder; its exit code and all that it said.
fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = ctxhost().current_dir(folder).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (output.status.code(), said.concat())
}

/// A config whose entry `mask` is a library, with the slot and the rest of the entry as given.
fn library_config(slot: &str, entry: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let library = bundled_library("mask");
    let text = format!(
        "[plugins.slots]\ncontext_engine = {slot:?}\n\n\
         [plugins.entries.mask]\npath = {library:?}\n{entry}\n"
    );
    fs::write(folder.path().join("ctxhost.toml"), text).unwrap();
    folder
}

#[test]
fn a_check_loads_the_library_of_the_slot_and_reads_the_others() {
    let bystander = library_config("legacy", "");
    let (code, said) = run(bystander.path(), &["config", "check"]);
    assert_eq!(code, Some(0), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("ok  engine  mask 0.1.0 ("), "{said}");
    assert!(last.ends_with("libmask.so) - read, not loaded"), "{said}");

    let in_use = library_config("mask", "");
    let (code, said) = run(in_use.path(), &["config", "check"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.trim_end().ends_with("libmask.so)"), "{said}");
}

#[test]
fn a_report_of_shadows_is_of_the_config_it_is_asked_with() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    let configs = ["here.toml", "there.toml"].map(|name| folder.path().join(name));
    let line = |path: &Path| {
        fs::write(path, "[plugins.slots]\nshadow = [\"mask\"]\n").unwrap();
        let config = path.canonicalize().unwrap();
        format!("{{\"at_ms\":1795200000000,\"config\":{config:?},\"session\":\"s\"}}\n")
    };
    let [here, there] = configs.each_ref().map(|path| line(path));
    fs::write(state.join("shadow.jsonl"), format!("{here}{here}{there}")).unwrap();
    let requests = |more: &[&str]| {
        let asked = ["shadow", "report", "--json", "--since", "36500d", "--config", "here.toml"];
        let mut command = ctxhost();
        command.current_dir(folder.path()).env("CTXHOST_STATE_DIR", &state);
        let output = command.args(asked).args(more).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["requests"].clone()
    };
    assert_eq!((requests(&[]), requests(&["--all"])), (2.into(), 3.into()));
}

#[test]
fn a_library_that_is_only_read_must_have_its_pinned_bytes_all_the_same() {
    let pinned = library_config("legacy", &format!("sha256 = \"{}\"", "0".repeat(64)));
    let (code, said) = run(pinned.path(), &["config", "check"]);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("does not match the sha256 of its entry 000000000000; not"), "{said}");
    assert!(said.contains("ctxhost.toml:5 sets this file for engine \"mask\""), "{said}");
}

#[test]
fn a_canary_that_somebody_wrote_into_the_slot_by_hand_has_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("ctxhost.toml");
    let write = |engine: &str| {
        fs::write(&config, format!("[plugins.slots]\ncontext_engine = {engine:?}\n")).unwrap();
    };
    let slot = |arguments: &[&str]| {
        let mut command = ctxhost();
        command.current_dir(folder.path()).env("CTXHOST_STATE_DIR", folder.path().join("state"));
        let output = command.arg("slot").args(arguments).output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code(), said.concat())
    };
    write("legacy");
    assert_eq!(slot(&["set", "mask", "--canary", "10%"]).0, Some(0));
    write("mask");
    let (_, said) = slot(&["status"]);
    assert!(said.starts_with("context_engine  mask 100%\n"), "{said}");
    assert!(said.contains("the config already names the canary mask"), "{said}");
    let (_, said) = slot(&["promote"]);
    assert!(said.starts_with("mask 100%"), "{said}");
    let (code, said) = slot(&["rollback"]);
    assert_eq!(code, Some(2), "nobody knows what the slot held before: {said}");
    assert!(said.contains("nothing to roll back"), "{said}");
}

#[test]
fn an_engine_is_put_to_use_though_the_notes_of_its_slot_are_broken() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("ctxhost.toml"), "").unwrap();
    let state = folder.path().join("state");
    let run = |arguments: &[&str]| {
        let mut command = ctxhost();
        command.current_dir(folder.path()).env("CTXHOST_STATE_DIR", &state);
        let output = command.args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(run(&["slot", "set", "window", "--canary", "10%"]).0, Some(0));
    let slot = fs::read_dir(state.join("slots")).unwrap().next().unwrap().unwrap();
    fs::write(slot.path().join("state.json"), "{").unwrap();
    let (code, said) = run(&["use", "mask"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("is not a valid slot state"), "{said}");
    let (code, said) = run(&["engines", "list"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("cannot read the canary state"), "{said}");
}
