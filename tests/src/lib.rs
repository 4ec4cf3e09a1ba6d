//! What the stories in `tests/` share: built engines, recorded sessions, the binary, and a
//! provider that is none.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::indexing_slicing
)]

pub mod client_bodies;
pub mod crashtest;
pub mod cutter;
pub mod large;
pub mod many;
pub mod native;
pub mod postgres;
pub mod rules;
pub mod scripted;
pub mod stage;
pub mod workplace;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use memchr::memmem;

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests have a parent").into()
}

/// The library of a bundled engine, by its id. Built at the first call.
pub fn bundled_library(id: &str) -> PathBuf {
    product(&library_name(id))
}

/// The same, optimised: for measurements.
pub fn bundled_library_release(id: &str) -> PathBuf {
    let package = format!("ctxhost-engine-{id}-plugin");
    build(&root(), &["--release", "-p", &package], &target_folder());
    target_folder().join("release").join(library_name(id))
}

/// The file of an engine's library, as cargo names it.
fn library_name(id: &str) -> String {
    format!("lib{}.so", id.replace('-', "_"))
}

/// The library of the example engine. Built at the first call, of the dependencies that all fixtures share; the gate builds it
/// alone and optimised, as its README says.
pub fn keep_ends_library() -> PathBuf {
    let target = fixtures_target();
    build(&root().join("examples/keep-ends"), &[], &target);
    target.join("debug/libkeep_ends.so")
}

/// The library of the engine that misbehaves as its config says. Built at the first call.
pub fn chaos_library() -> PathBuf {
    let target = fixtures_target();
    build(&root().join("tests/fixtures/chaos"), &[], &target);
    target.join("debug/libchaos.so")
}

/// The library of the engine that is broken on purpose, as one of its kinds: a copy in `folder`, in which
/// the marker names the kind. Built at the first call.
pub fn broken_library(kind: &str, folder: &Path) -> PathBuf {
    const MARKER: &[u8] = b"BROKEN-ENGINE-KIND=good~~~~~~~~~";
    let target = fixtures_target();
    build(&root().join("tests/fixtures/broken"), &[], &target);
    let mut bytes = std::fs::read(target.join("debug/libbroken.so")).expect("it was built");
    let places: Vec<usize> = memmem::find_iter(&bytes, MARKER).collect();
    assert_eq!(places.len(), 1, "the marker stands once in the library");
    let end = places[0] + MARKER.len();
    let name = bytes[places[0]..end].iter().position(|byte| *byte == b'=').expect("a marker") + 1;
    let field = &mut bytes[places[0] + name..end];
    assert!(kind.len() <= field.len(), "{kind} does not fit into the marker");
    field.fill(b'~');
    field[..kind.len()].copy_from_slice(kind.as_bytes());
    let path = folder.join(format!("lib{}.so", kind.replace('-', "_")));
    std::fs::write(&path, bytes).expect("a library can be written");
    path
}

/// How cargo builds crates outside the workspace in debug, as variables of its environment. Their libraries are copied, hashed and
/// searched in nearly every test of the loader, and tables for a debugger are nine tenths of each.
pub const FIXTURE_PROFILE: [(&str, &str); 2] =
    [("CARGO_PROFILE_DEV_DEBUG", "false"), ("CARGO_INCREMENTAL", "0")];

/// Where crates outside the workspace are built: their dependencies are compiled once for all.
pub fn fixtures_target() -> PathBuf {
    target_folder().join("fixtures")
}

/// The folder of recorded real sessions, where this machine has it: beside the project, or where
/// `CTXHOST_FIXTURES` says.
pub fn shared_fixtures() -> Option<PathBuf> {
    let beside = || root().join("../shared/fixtures");
    let folder = std::env::var_os("CTXHOST_FIXTURES").map_or_else(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!(
        "SKIPPED: {} is not there, so no real session was read; set CTXHOST_FIXTURES",
        folder.display()
    );
    None
}

/// The bytes of the recorded coding session that the project brings.
pub fn recorded_session() -> Vec<u8> {
    let path = root().join("examples/sessions/coding.jsonl");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A library or a program of the workspace, by the name of its file. Built at the first call: all of them, since cargo
/// works features out over the packages that are named, and would compile nearly everything a second time for some
/// of those that `cargo test --workspace` names.
pub fn product(file: &str) -> PathBuf {
    build(&root(), &["--workspace", "--lib", "--bins"], &target_folder());
    target_folder().join("debug").join(file)
}

/// The `ctxhost` binary, built at the first call.
pub fn ctxhost() -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let mut command = Command::new(BUILT.get_or_init(|| product("ctxhost")));
    command.current_dir(root()).env_remove("CTXHOST_LOG").env("NO_COLOR", "1");
    command
}

/// The same binary, optimised: for measurements.
pub fn ctxhost_release() -> PathBuf {
    build(&root(), &["--release", "--workspace", "--bins"], &target_folder());
    target_folder().join("release/ctxhost")
}

/// Where this test was built, and what it builds goes.
pub fn target_folder() -> PathBuf {
    // This test's own executable is `<target>/<profile>/deps/name`, that of a program `<target>/<profile>/name`.
    let executable = std::env::current_exe().expect("a test has a path");
    let is_test = executable.parent().is_some_and(|folder| folder.ends_with("deps"));
    let depth = if is_test { 3 } else { 2 };
    executable.ancestors().nth(depth).expect("a test is three folders deep").into()
}

/// Builds with cargo, once for each combination, one at a time: two builds in one folder only wait
/// for each other.
pub fn build(folder: &Path, arguments: &[&str], target: &Path) {
    static DONE: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let what = format!("{} {arguments:?} {}", folder.display(), target.display());
    let mut done = DONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if done.contains(&what) {
        return;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.arg("build").arg("--quiet").args(arguments).arg("--target-dir").arg(target);
    if folder != root() {
        cargo.envs(FIXTURE_PROFILE);
    }
    for (name, _) in std::env::vars_os().filter(|(name, _)| describes_the_test(name)) {
        cargo.env_remove(name);
    }
    let output = cargo.current_dir(folder).output().expect("cargo runs");
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    done.push(what);
}

/// Whether cargo set a variable for the package under test. Build scripts are run again when such a variable changes
/// (that of ring is), and with them all that stands on their crates: nearly the whole workspace.
fn describes_the_test(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_"].iter().any(|start| name.starts_with(start))
        || ["CARGO_TARGET_DIR", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE", "OUT_DIR"]
            .contains(&&*name)
}
