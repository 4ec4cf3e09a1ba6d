//! The conformance kit: engines that are broken on purpose are caught by name, good ones pass, and a
//! report speaks for the bytes it was made of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ctxhost_check::{CheckFailure, CheckGroup, CheckReport, ReportError};
use ctxhost_tests::native::native_library;
use ctxhost_tests::{broken_library, bundled_library, ctxhost, keep_ends_library};
use tempfile::TempDir;

/// Patience with single calls, in seconds: engines and kit are unoptimised, and the machine is busy.
const PATIENT: &str = "2m";

/// A folder with one library, and where the report is left.
struct Bench {
    folder: TempDir,
    library: PathBuf,
}

impl Bench {
    fn of(library: &Path) -> Bench {
        Bench { folder: tempfile::tempdir().unwrap(), library: library.into() }
    }

    fn broken(kind: &str) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let library = broken_library(kind, folder.path());
        Bench { folder, library }
    }

    /// The exit code and all that was said.
    fn check(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = ctxhost();
        command.current_dir(self.folder.path()).arg("check").args(arguments).arg(&self.library);
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code().unwrap(), said.concat())
    }

    /// What the command does that a failure names, typed into a shell in the same folder.
    fn again(&self, said: &str) -> (Option<i32>, String) {
        let command = said.lines().find_map(|line| line.trim().strip_prefix("repeat: ")).unwrap();
        let binary = ctxhost();
        let binaries = Path::new(binary.get_program()).parent().unwrap();
        let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(self.folder.path()).env("PATH", path);
        let output = shell.output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }

    fn report(&self, arguments: &[&str]) -> CheckReport {
        let (_, said) = self.check(&[&["--json"], arguments].concat());
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }
}

/// The first failure of a kind in a group, whose message says `words`.
fn caught(kind: &str, group: CheckGroup, words: &str) -> CheckFailure {
    caught_within(kind, group, words, PATIENT)
}

fn caught_within(kind: &str, group: CheckGroup, words: &str, call_limit: &str) -> CheckFailure {
    let bench = Bench::broken(kind);
    let report = bench.report(&["--only", group.name(), "--call-limit", call_limit]);
    assert!(!report.conformant, "{kind} passed {group}");
    let failures = report.groups.into_iter().flat_map(|reported| reported.failures);
    let failures: Vec<CheckFailure> = failures.collect();
    let found = failures.iter().find(|failure| failure.message.contains(words));
    found.unwrap_or_else(|| panic!("{kind}: nobody said {words:?}: {failures:#?}")).clone()
}

#[test]
fn a_dropped_call_is_shown_with_the_smallest_history_and_what_the_provider_answers() {
    let bench = Bench::broken("drops");
    let (code, said) = bench.check(&["--only", "transcript"]);
    assert_eq!(code, 1, "{said}");
    for words in [
        "  transcript   FAIL  case 1 shrunk to 2 messages\n    [0] assistant  ",
        "\n    [1] tool       tool_result r0a\n",
        "assemble returned [1] without [0]; anthropic answers 400 \"unexpected `tool_use_id`",
        "\n    repeat: ctxhost check ",
        "libdrops.so --only transcript --case 1\n",
        "NOT CONFORMANT  ",
    ] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    assert!(
        !bench.folder.path().join("conformance.json").exists(),
        "a part of the kit is no verdict"
    );

    let (code, repeated) = bench.again(&said);
    assert_eq!(code, Some(1), "{repeated}");
    let message = |said: &str| said.lines().find(|l| l.contains("answers 400")).map(str::to_owned);
    assert_eq!(message(&said), message(&repeated), "the command repeats the failure");
}

#[test]
fn growth_and_no_ops_are_caught() {
    let failure = caught("grows", CheckGroup::Progress, "tokens of ");
    assert_eq!((failure.rule.as_str(), failure.history.len()), ("larger", 1), "{failure:?}");
    let failure =
        caught("no-op", CheckGroup::Progress, "a no-op is answered as Compaction::Nothing");
    assert_eq!(failure.rule, "no-op");
}

#[test]
fn an_abort_is_named_with_its_call_and_shrunk_like_any_other_fault() {
    let says = "engine aborted the process in compact (signal 6); host unaffected";
    assert_eq!(caught("aborts", CheckGroup::Isolation, says).scenario, "compact");
    assert_eq!(caught("aborts", CheckGroup::Progress, says).history.len(), 1);
    caught("exits", CheckGroup::Isolation, "engine ended the process in compact (exit code 7)");
}

#[test]
fn calls_that_never_come_back_are_named() {
    let says = "did not return from assemble within 2000 ms";
    assert_eq!(caught_within("hangs", CheckGroup::Isolation, says, "2s").scenario, "assemble");
    assert_eq!(caught_within("spins", CheckGroup::Isolation, says, "2s").scenario, "assemble");
}

#[test]
fn a_call_that_holds_its_thread_while_it_waits_cannot_be_cancelled() {
    let says = "held its thread in compact while the host had not answered kv_get";
    assert_eq!(caught_within("blocks", CheckGroup::Cancellation, says, "2s").scenario, "compact");
}

#[test]
fn chance_in_a_plan_is_caught_within_a_process_and_between_two() {
    let failure = caught("random", CheckGroup::Determinism, "two instances got the same entries");
    assert_eq!(failure.rule, "differs");
    let failure =
        caught("process", CheckGroup::Determinism, "two processes returned different bytes");
    assert_eq!(failure.history.len(), 1, "{failure:?}");
}

#[test]
fn a_prefix_that_moves_with_every_message_is_caught() {
    let failure = caught("prefix", CheckGroup::Determinism, "the prefix moved in 1 of 1 steps");
    assert_eq!((failure.rule.as_str(), failure.history.len()), ("prefix", 2));
}

#[test]
fn state_that_is_lost_when_entries_are_ingested_again_is_caught() {
    let failure = caught("forgets", CheckGroup::Restart, "state was lost or counted twice");
    assert!(failure.scenario.ends_with("ingested again"), "{failure:?}");
    assert_eq!(failure.history.len(), 2);
}

#[test]
fn secrets_in_summaries_and_in_stored_values_are_caught() {
    let failure =
        caught("leaks", CheckGroup::Security, "of the session is in an inserted text of compact");
    assert_eq!(failure.scenario, "secrets in a session");
    caught("leaks", CheckGroup::Security, "let tool output close the <summary>");
    caught("stores", CheckGroup::Security, "of the session is in the stored value \"said\"");
    let failure = caught("mixes", CheckGroup::Security, "is in a replaced text of assemble");
    assert_eq!(failure.rule, "secret", "an entry may repeat its own secrets, not those of others");
}

#[test]
fn a_file_by_the_name_of_a_session_is_caught() {
    let failure = caught("writes", CheckGroup::Security, "the engine wrote the file");
    assert_eq!(failure.scenario, "path-like session ids");
}

#[test]
fn panics_bad_plans_and_greed_are_caught() {
    caught("panics", CheckGroup::Isolation, ": no idea what to do in assemble");
    caught("unordered", CheckGroup::Contract, "position 2 is already passed");
    caught("greedy", CheckGroup::Isolation, "made more than 5000 service calls");
}

/// The first failure of a group, for the C library that a macro breaks.
fn wicked(macros: &str, group: CheckGroup) -> CheckFailure {
    let bench = Bench::of(&native_library("tests/fixtures/c/wicked.c", &[macros]));
    let report = bench.report(&["--only", group.name(), "--call-limit", PATIENT]);
    assert!(!report.conformant, "{macros} passed {group}");
    let mut failures = report.groups.iter().flat_map(|reported| &reported.failures);
    // It breaks other rules as well.
    let is_meant = |failure: &&CheckFailure| ["requires", "tools"].contains(&&*failure.rule);
    failures.find(is_meant).cloned().unwrap()
}

#[test]
fn a_required_capability_that_no_host_has_is_caught() {
    let failure = wicked("UNKNOWN_NEEDS", CheckGroup::Load);
    assert_eq!(failure.rule, "requires");
    let words = "info requires \"time.travel\", \"model.complet\", which no host of version ";
    assert!(failure.message.starts_with(words), "{failure:?}");
}

#[test]
fn two_tools_of_one_name_are_caught() {
    let failure = wicked("TWIN_TOOLS", CheckGroup::Contract);
    assert_eq!(failure.rule, "tools");
    assert!(failure.message.contains("2 tools named \"search\""), "{failure:?}");
}

#[test]
fn a_library_that_does_not_survive_its_load_is_a_failure_of_its_own() {
    let hint =
        "\nonly the constructors of the library ran, no call of the engine: no host can use it\n";
    for (macros, words) in [
        (
            "LOAD_BLOCKS",
            "error: the load of the library did not end within 2000 ms, the time limit of a call",
        ),
        ("LOAD_ABORTS", "error: engine aborted the process in the load of the library (signal 6)"),
    ] {
        let bench = Bench::of(&native_library("tests/fixtures/c/wicked.c", &[macros]));
        let start = Instant::now();
        let (code, printed) = bench.check(&["--call-limit", "2s"]);
        assert_eq!(code, 1, "{macros}: {printed}");
        assert!(printed.contains(words) && printed.ends_with(hint), "{macros}: {printed}");
        assert!(start.elapsed() < Duration::from_mins(1), "{macros}: {:?}", start.elapsed());
    }
}

#[test]
fn an_engine_that_blocks_in_create_is_noticed_once() {
    let bench = Bench::broken("never-made");
    let start = Instant::now();
    let (code, printed) = bench.check(&["--call-limit", "2s"]);
    assert_eq!(code, 1, "{printed}");
    assert_eq!(printed.matches("FAIL").count(), 1, "{printed}");
    assert!(printed.contains("the engine did not return from create within 2000 ms"), "{printed}");
    assert!(
        printed.contains("the remaining groups did not run: every case creates the engine"),
        "{printed}"
    );
    assert!(!bench.folder.path().join("conformance.json").exists(), "{printed}");
    assert!(start.elapsed() < Duration::from_mins(1), "{:?}", start.elapsed());
}

#[test]
fn a_wrong_abi_is_refused_before_anything_is_called() {
    let bench = Bench::broken("aborts");
    let mut bytes = fs::read(&bench.library).unwrap();
    let major = b"abi_major=1\n";
    let at = memchr::memmem::find(&bytes, major).unwrap();
    bytes[at + major.len() - 2] = b'9';
    fs::write(&bench.library, bytes).unwrap();
    let (code, said) = bench.check(&[]);
    assert_eq!(code, 3);
    let expected = format!(
        "error: {} was built for engine ABI 9, this host supports 1; rebuild it with ctxhost-engine-api 1.x\n\
         the engine was not run\n",
        bench.library.canonicalize().unwrap().display()
    );
    assert_eq!(said, expected);
}

#[test]
fn files_that_are_no_engine_are_distinguished() {
    let bench = Bench::broken("good");
    let bytes = fs::read(&bench.library).unwrap();
    fs::write(&bench.library, &bytes[..bytes.len() / 2]).unwrap();
    let (code, said) = bench.check(&[]);
    assert_eq!(code, 3, "{said}");
    assert!(said.ends_with("the engine was not run\n"), "{said}");
    let (code, said) = Bench::of(Path::new("no-such-file.so")).check(&[]);
    assert_eq!(code, 2, "{said}");
}

#[test]
fn a_whole_run_leaves_a_report_that_speaks_for_these_bytes_only() {
    let bench = Bench::broken("good");
    let (code, said) = bench.check(&["--call-limit", PATIENT]);
    assert_eq!(code, 0, "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("CONFORMANT  ") && last.ends_with("  → conformance.json"), "{said}");

    let report = CheckReport::read(&bench.folder.path().join("conformance.json")).unwrap();
    report.verify_file(&bench.library).unwrap();
    assert_eq!((report.engine.id.as_str(), report.engine.version.as_str()), ("broken", "0.1.0"));
    assert!(report.groups.iter().map(|group| group.name).eq(CheckGroup::ALL));
    assert!(report.groups.iter().all(|group| group.checks > 0), "{said}");
    let measured: Vec<&str> = report.methods.iter().map(|time| time.method.as_str()).collect();
    assert!(measured.contains(&"assemble") && measured.contains(&"compact"), "{measured:?}");
    assert!(report.peak_bytes > 0);

    let mut bytes = fs::read(&bench.library).unwrap();
    bytes.push(b'x');
    fs::write(&bench.library, bytes).unwrap();
    let refused = report.verify_file(&bench.library);
    assert!(matches!(refused, Err(ReportError::OtherFile { .. })), "{refused:?}");
}

#[test]
fn the_settings_of_an_engine_come_from_the_config_that_is_named() {
    let bench = Bench::broken("good");
    let config = bench.folder.path().join("ctxhost.toml");
    fs::write(&config, "[plugins.entries.broken.config]\nkind = \"panics\"\n").unwrap();
    let (code, said) = bench.check(&["--only", "isolation"]);
    assert_eq!(code, 0, "a config that nobody named does not count: {said}");
    let (code, said) = bench.check(&["--only", "isolation", "--config", "ctxhost.toml"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("the engine panicked"), "{said}");
}

#[test]
fn a_failure_of_certain_settings_and_a_certain_limit_is_repeated_with_them() {
    let mut bench = Bench::broken("good");
    let odd = bench.folder.path().join("my engine's.so");
    fs::rename(&bench.library, &odd).unwrap();
    bench.library = odd;
    let config = bench.folder.path().join("my config.toml");
    fs::write(&config, "[plugins.entries.broken.config]\nkind = \"panics\"\n").unwrap();
    let limited = ["--config", "my config.toml", "--call-limit", PATIENT];
    let (code, said) = bench.check(&[&limited[..], &["--only", "isolation"]].concat());
    assert_eq!(code, 1, "{said}");
    let command =
        format!("repeat: ctxhost check --config 'my config.toml' --call-limit {PATIENT} '");
    assert!(said.contains(&command), "{said}");
    let (code, repeated) = bench.again(&said);
    assert_eq!(code, Some(1), "{repeated}");
    assert!(repeated.contains("the engine panicked"), "{repeated}");
}

#[test]
fn unknown_cases_and_groups_are_named() {
    let bench = Bench::broken("good");
    let (code, said) = bench.check(&["--only", "isolation", "--case", "99"]);
    assert_eq!((code, said.lines().count()), (2, 1), "{said}");
    assert!(said.contains("has a case 99; the largest is 13"), "{said}");
    let (code, said) = Bench::of(Path::new("no-such-file.so")).check(&["--case", "99999"]);
    assert_eq!(code, 2);
    assert!(said.contains("has a case 99999; the largest is "), "{said}");
    let (code, said) = bench.check(&["--call-limit", "0"]);
    assert_eq!(code, 2);
    assert!(said.contains("\"0\" is not a duration"), "{said}");
    let (code, said) = bench.check(&["--only", "speed"]);
    assert_eq!(code, 2);
    assert!(said.contains("unknown group \"speed\""), "{said}");
}

/// What is neither long nor giant: sizes are tried on the smallest engine, and in the run in full. The
/// contract suite has a test of its own.
const QUICK: &str =
    "load,transcript,progress,determinism,restart,cancellation,services,isolation,security";

fn passes(library: &Path, arguments: &[&str]) {
    let bench = Bench::of(library);
    let (code, said) = bench.check(&[&["--call-limit", PATIENT], arguments].concat());
    assert_eq!(code, 0, "{said}");
}

#[test]
fn the_bundled_engines_conform() {
    passes(&bundled_library("legacy"), &["--only", QUICK]);
    // The tests of the contract load the others, too, and the gate checks each of them in full, optimised.
    for id in ["boundary", "head-tail", "window", "mask", "recall", "dag"] {
        passes(&bundled_library(id), &["--only", "load"]);
    }
}

#[test]
fn the_example_conforms() {
    passes(&keep_ends_library(), &["--only", "load,contract"]);
}

/// Minutes, unoptimised: `cargo test -p ctxhost-tests --test engines check:: -- --ignored`.
#[test]
#[ignore = "takes minutes in a debug build"]
fn the_bundled_engines_conform_in_full() {
    for id in ["legacy", "boundary", "head-tail", "window", "mask", "recall", "dag"] {
        passes(&bundled_library(id), &[]);
    }
    passes(&keep_ends_library(), &[]);
}
