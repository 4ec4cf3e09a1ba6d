//! Replays of long sessions: deterministic, valid at every window, and with a failing summary model.

use std::fs;
use std::path::{Path, PathBuf};

use ctxhost_tests::native::native_library;
use ctxhost_tests::{bundled_library, ctxhost, root, shared_fixtures};
use serde_json::Value;
use tempfile::TempDir;

mod generated;
mod server;

use server::{Answer, Server};

const ENGINES: &str = "legacy,window,mask,mask+legacy";
const WINDOWS: [&str; 4] = ["16k", "32k", "64k", "200k"];
/// A key that stands nowhere but in the environment of one command.
const KEY: &str = "sk-never-to-be-shown-4711";

/// A folder with the generated session.
fn long_session() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = generated::write(folder.path());
    (folder, path)
}

/// The generated session, and those the project brings, where they are.
fn sessions(folder: &TempDir) -> Vec<PathBuf> {
    let mut found = vec![generated::write(folder.path())];
    let examples = fs::read_dir(root().join("examples/sessions"));
    let paths = examples.into_iter().flatten().map(|entry| entry.unwrap().path());
    found.extend(paths.filter(|path| path.extension().is_some_and(|e| e == "jsonl")));
    found.sort();
    found
}

/// The JSON of a replay, as printed.
fn replay(session: &Path, arguments: &[&str]) -> String {
    let mut command = ctxhost();
    command.arg("replay").arg(session).args(["--json", "--no-timings"]).args(arguments);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}: {said}", session.display());
    String::from_utf8(output.stdout).unwrap()
}

fn runs(report: &str) -> Vec<Value> {
    let report: Value = serde_json::from_str(report).unwrap();
    report["runs"].as_array().unwrap().clone()
}

fn count(run: &Value, total: &str) -> u64 {
    run["totals"][total].as_u64().unwrap()
}

/// No law was broken, no other engine had to step in, and every request fits.
fn check_lawful(what: &str, report: &str) {
    for run in runs(report) {
        let what = format!("{what}, engine {}: {}", run["engine"]["id"], run["totals"]);
        assert!(count(&run, "requests") > 0, "{what}");
        assert_eq!(count(&run, "violations"), 0, "{what}");
        assert_eq!(run["totals"]["quarantine"], "", "{what}");
        assert!(run["totals"]["peak_percent"].as_f64().unwrap() <= 100.0, "{what}");
    }
}

#[test]
fn two_replays_are_the_same_to_the_byte_and_leave_the_recording_alone() {
    let folder = tempfile::tempdir().unwrap();
    for session in sessions(&folder) {
        let (bytes, meta) = (fs::read(&session).unwrap(), fs::metadata(&session).unwrap());
        let first = replay(&session, &["--engines", ENGINES, "--window", "32k"]);
        let second = replay(&session, &["--engines", ENGINES, "--window", "32k"]);
        assert!(first == second, "two replays of {} differ", session.display());
        assert!(fs::read(&session).unwrap() == bytes, "{} was written to", session.display());
        let after = fs::metadata(&session).unwrap().modified().unwrap();
        assert_eq!(after, meta.modified().unwrap(), "{}", session.display());
    }
    let beside: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(beside.len(), 1, "a replay leaves nothing beside the recording: {beside:?}");
}

#[test]
fn no_law_is_broken_at_any_window() {
    let folder = tempfile::tempdir().unwrap();
    for session in sessions(&folder) {
        for window in WINDOWS {
            let report = replay(&session, &["--engines", ENGINES, "--window", window]);
            check_lawful(&format!("{} at {window}", session.display()), &report);
        }
    }
}

#[test]
fn the_generated_session_is_long_enough_to_be_folded() {
    let (_folder, session) = long_session();
    for window in ["32k", "64k"] {
        let report = replay(&session, &["--engine", "legacy", "--window", window]);
        let run = &runs(&report)[0];
        assert!(count(run, "compactions") >= 2, "{window}: {}", run["totals"]);
    }
}

#[test]
fn linked_or_loaded_an_engine_does_the_same() {
    let (_folder, session) = long_session();
    for id in ["legacy", "window", "mask"] {
        let library = bundled_library(id);
        let reports = [id, library.to_str().unwrap()].map(|engine| {
            let report = replay(&session, &["--engine", engine, "--window", "32k"]);
            let mut report: Value = serde_json::from_str(&report).unwrap();
            let source = report["runs"][0]["engine"]["source"].take();
            (source, report)
        });
        let [(linked_source, linked), (loaded_source, loaded)] = reports;
        assert_eq!(linked_source, "bundled");
        assert_eq!(loaded_source, library.to_str().unwrap());
        assert!(linked == loaded, "{id} and {} differ", library.display());
    }
}

#[test]
fn a_real_session_is_shaped_lawfully() {
    let Some(fixtures) = shared_fixtures() else { return };
    let session = fixtures.join("pi/before-compaction.jsonl");
    for window in ["32k", "200k"] {
        let report = replay(&session, &["--engines", ENGINES, "--window", window]);
        check_lawful(&format!("{} at {window}", session.display()), &report);
    }
}

// ---- A model for summaries ----

/// What a replay with a model said and reported.
struct Summarised {
    said: String,
    run: Value,
}

/// Replays the generated session at 32k with the model of a server.
fn summarised(server: &Server, timeout_ms: u64) -> Summarised {
    let (folder, session) = long_session();
    let before = fs::read(&session).unwrap();
    let config = folder.path().join("ctxhost.toml");
    // One try and a short pause: the server never changes its mind.
    let text = format!(
        "[summariser]\nbase_url = {:?}\nmodel = \"scripted\"\napi_key_env = \"CTXHOST_TEST_KEY\"\n\
         timeout_ms = {timeout_ms}\n\n\
         [plugins.entries.legacy.config.compaction]\nrequest_tries = 1\nbackoff_ms = 1\n",
        server.base_url,
    );
    fs::write(&config, text).unwrap();
    let page = folder.path().join("page.html");
    let mut command = ctxhost();
    command.arg("--config").arg(&config).arg("replay").arg(&session).arg("--report").arg(&page);
    command.args(["--json", "--no-timings", "--engine", "legacy", "--window", "32k"]);
    let output = command.env("CTXHOST_TEST_KEY", KEY).env("CTXHOST_LOG", "trace").output().unwrap();
    let [report, log] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
    assert_eq!(output.status.code(), Some(0), "{log}");
    check_lawful("with a model", &report);
    assert!(fs::read(&session).unwrap() == before, "{} was written to", session.display());
    let run = runs(&report).remove(0);
    Summarised { said: report + &log + &fs::read_to_string(page).unwrap(), run }
}

/// The compactions that were applied. That there are some, and that each made room, is checked.
fn applied(run: &Value) -> Vec<&Value> {
    let rows = run["compactions"].as_array().unwrap();
    let applied: Vec<_> = rows.iter().filter(|row| row["applied"] == true).collect();
    assert!(applied.len() >= 2, "{}", run["compactions"]);
    for row in &applied {
        assert!(row["after_tokens"].as_u64() < row["before_tokens"].as_u64(), "{row}");
        assert!(row["folded_entries"].as_u64() > Some(0), "{row}");
    }
    applied
}

/// A summary that passes every check: five sections, the newest request and every identifier.
fn good_summary() -> String {
    let modules: Vec<_> = (0..generated::TURNS).map(generated::module).collect();
    format!(
        "## Decisions\n- The scripted model tells: modules were checked one after the other.\n\n\
         ## Open TODOs\n- Go on with the next importer module.\n\n\
         ## Constraints/Rules\n- Lose no records.\n\n\
         ## Pending user asks\n- Please check the importer module for lost records.\n\n\
         ## Exact identifiers\n- {}",
        modules.join("\n- ")
    )
}

#[test]
fn a_model_that_answers_writes_the_summaries() {
    let server = Server::start(Answer::Says(good_summary()));
    let reported = summarised(&server, 5_000);
    for row in applied(&reported.run) {
        let summary = row["summary"].as_str().unwrap();
        assert!(summary.contains("The scripted model tells"), "{row}");
        let reason = row["reason"].as_str().unwrap();
        assert!(reason.ends_with(", scripted-1"), "{row}");
    }
    let asked = server.asked();
    assert!(!asked.is_empty());
    for request in asked {
        assert_eq!(request.line, "POST /v1/chat/completions HTTP/1.1");
        assert_eq!(request.authorization, format!("Bearer {KEY}"));
        assert_eq!(request.body["model"], "scripted");
    }
    assert!(!reported.said.contains(KEY), "the key is shown");
}

/// A run without what engines said of their compactions.
fn wordless(run: &Value) -> Value {
    let mut run = run.clone();
    for row in run["compactions"].as_array_mut().unwrap() {
        row["reason"].take();
    }
    run
}

#[test]
fn a_model_that_fails_or_never_answers_changes_nothing_but_is_reported() {
    let (_folder, session) = long_session();
    let offline = replay(&session, &["--engine", "legacy", "--window", "32k"]);
    let offline = runs(&offline).remove(0);
    for row in applied(&offline) {
        assert!(row["reason"].as_str().unwrap().ends_with(", extractive"), "{row}");
    }
    for (answer, timeout_ms) in [(Answer::Fails, 5_000), (Answer::Silent, 200)] {
        let server = Server::start(answer.clone());
        let reported = summarised(&server, timeout_ms);
        assert!(!server.asked().is_empty(), "{answer:?}: the model was never asked");
        assert!(
            wordless(&reported.run) == wordless(&offline),
            "{answer:?}: {}",
            reported.run["totals"]
        );
        for row in applied(&reported.run) {
            let reason = row["reason"].as_str().unwrap();
            assert!(
                reason.contains(", extractive; model failed, extractive summary instead: "),
                "{answer:?}: {row}"
            );
        }
        assert!(!reported.said.contains(KEY), "{answer:?}: the key is shown");
    }
}

#[test]
fn a_key_that_is_not_set_is_missed_at_its_line() {
    let (folder, session) = long_session();
    let text = "[summariser]\nbase_url = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n\
                api_key_env = \"CTXHOST_NO_SUCH_KEY\"\n";
    fs::write(folder.path().join("ctxhost.toml"), text).unwrap();
    let mut command = ctxhost();
    let output = command.current_dir(folder.path()).arg("replay").arg(session).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("CTXHOST_NO_SUCH_KEY is not set"), "{said}");
    assert!(said.contains("ctxhost.toml:4"), "{said}");
}

#[test]
fn engines_in_c_and_cpp_replay_lawfully() {
    let session = root().join("examples/sessions/coding.jsonl");
    for source in ["examples/c-window/window.c", "examples/cpp-elide/elide.cpp"] {
        let library = native_library(source, &[]);
        for window in ["32k", "200k"] {
            let engine = library.to_str().unwrap();
            let report = replay(&session, &["--engine", engine, "--window", window]);
            check_lawful(&format!("{source}, {window}"), &report);
            let run = &runs(&report)[0];
            assert_eq!(count(run, "fallbacks"), 0, "{source}, {window}: {}", run["totals"]);
        }
    }
}
