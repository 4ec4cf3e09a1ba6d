//! Messages about kernels that lack a feature, simulated by an inherited seccomp filter.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use ctxhost_tests::{broken_library, chaos_library, ctxhost};
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// The number of the call that the kernel of a child lacks.
const LACKS: &str = "CTXHOST_TEST_LACKS";
/// Its folder.
const FOLDER: &str = "CTXHOST_TEST_FOLDER";
/// The arguments of ctxhost, a line each.
const ARGUMENTS: &str = "CTXHOST_TEST_ARGUMENTS";

/// No test by itself: what the others start again. It becomes a ctxhost.
#[test]
fn becomes_a_host_on_such_a_kernel() {
    let (Ok(call), Ok(folder)) = (std::env::var(LACKS), std::env::var(FOLDER)) else { return };
    let rules: BTreeMap<i64, _> = [(call.parse().unwrap(), Vec::new())].into();
    let unknown = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, unknown, arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
    let mut host = ctxhost();
    host.args(std::env::var(ARGUMENTS).unwrap().lines()).current_dir(&folder);
    panic!("{}", host.env("CTXHOST_STATE_DIR", format!("{folder}/state")).exec());
}

/// Runs ctxhost in a folder, on a kernel without a call.
fn run_without(lacks: libc::c_long, folder: &Path, arguments: &[&str]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "isolation::kernels::becomes_a_host_on_such_a_kernel", "--nocapture"])
        .env(LACKS, lacks.to_string())
        .env(FOLDER, folder)
        .env(ARGUMENTS, arguments.join("\n"))
        .output()
        .unwrap()
}

/// What `engines info` says there: what holds, and what does not.
fn reported(lacks: Option<libc::c_long>) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let library = chaos_library();
    let config =
        format!("[plugins]\ntrust = \"any\"\n[plugins.entries.chaos]\npath = {library:?}\n");
    std::fs::write(folder.path().join("ctxhost.toml"), config).unwrap();
    // A number that no kernel has, where nothing is lacking.
    let lacks = lacks.unwrap_or(9_999);
    let arguments = ["engines", "info", "chaos", "--config", "ctxhost.toml"];
    let output = run_without(lacks, folder.path(), &arguments);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("chaos"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let row = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    (row("process "), row("missing "))
}

#[test]
fn missing_kernel_features_are_reported_and_present_ones_hold() {
    let (all, _) = reported(None);
    let lacks = [
        ("landlock", libc::SYS_landlock_create_ruleset),
        ("seccomp", libc::SYS_seccomp),
        ("no capabilities", libc::SYS_capset),
    ];
    for (name, call) in lacks {
        if !all.contains(name) {
            println!("SKIPPED: this kernel has no {name}");
            continue;
        }
        let (holds, missing) = reported(Some(call));
        assert!(missing.contains(name) && !holds.contains(name), "{holds}\nnot here: {missing}");
        assert!(holds.contains("no core files"), "{holds}");
    }
}

#[test]
fn a_check_without_landlock_reports_it_and_lets_the_engine_write_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = |library: &Path| {
        let library = library.display().to_string();
        ["check", "--only", "isolation,security", &library].map(str::to_owned)
    };
    for (kind, says) in [("good", "CONFORMANT  "), ("aborts", "(signal 6); host unaffected")] {
        let arguments = arguments(&broken_library(kind, folder.path()));
        let arguments = arguments.each_ref().map(String::as_str);
        let output = run_without(libc::SYS_landlock_create_ruleset, folder.path(), &arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(says), "{kind}: {text}");
        let missing = text.lines().find(|line| line.contains("the engine ran without: "));
        assert!(missing.unwrap().contains("this kernel has no landlock"), "{text}");
    }
    // Only landlock tells the working folder from other folders.
    let arguments = arguments(&broken_library("writes", folder.path()));
    let arguments = arguments.each_ref().map(String::as_str);
    let output = run_without(libc::SYS_landlock_create_ruleset, folder.path(), &arguments);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("the engine wrote the file"), "{text}");
}
