//! `ctxhost compact` on real sessions: dry run, applied, repeated, and killed at any moment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use ctxhost_session::{RecordBody, Session};
use ctxhost_tests::{ctxhost, recorded_session, shared_fixtures};
use serde_json::json;
use tempfile::TempDir;

/// A time that every run of these tests takes for now, in seconds since 1970.
const NOW_SECONDS: &str = "1795249139";
const KILLS: u64 = 24;

/// A copy of the recorded session in a folder of its own.
fn copy() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    fs::write(&path, recorded_session()).unwrap();
    (folder, path)
}

fn compact(path: &Path, arguments: &[&str]) -> Output {
    let mut command = ctxhost();
    command.arg("compact").arg(path).args(["--window", "64k"]).args(arguments);
    command.env("SOURCE_DATE_EPOCH", NOW_SECONDS).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_dry_run_writes_nothing() {
    let (folder, path) = copy();
    let output = compact(&path, &["--dry-run"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("dry run - nothing written\nlegacy: "));
    assert_eq!(fs::read(&path).unwrap(), recorded_session());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_compaction_is_one_more_line_and_the_session_goes_on_from_it() {
    let (_folder, path) = copy();
    let before = Session::read(&path).unwrap().live(0).total_tokens();
    assert!(compact(&path, &[]).status.success());
    let written = fs::read(&path).unwrap();
    assert!(written.starts_with(&recorded_session()), "what was there is there");
    let added = text(&written[recorded_session().len()..]);
    assert_eq!(added.trim_end().lines().count(), 1);
    let session = Session::read(&path).unwrap();
    assert!(session.problems().is_empty(), "{:?}", session.problems());
    assert!(session.live(0).total_tokens() < before / 2);
    let replayed = ctxhost().arg("replay").arg(&path).args(["--window", "64k"]).output().unwrap();
    assert!(replayed.status.success());
    assert!(text(&replayed.stdout).contains("0 invariant violations"));
}

#[test]
fn two_runs_write_the_same_bytes() {
    let ((_one, first), (_two, second)) = (copy(), copy());
    compact(&first, &[]);
    compact(&second, &[]);
    assert_eq!(fs::read(&first).unwrap(), fs::read(&second).unwrap());
}

#[test]
fn killed_at_any_moment_the_session_is_as_before_or_as_after() {
    let (_done, path) = copy();
    compact(&path, &[]);
    let (before, after) = (recorded_session(), fs::read(&path).unwrap());
    for kill in 0..KILLS {
        let (_folder, path) = copy();
        let mut command = ctxhost();
        command.arg("compact").arg(&path).args(["--window", "64k"]);
        command.env("SOURCE_DATE_EPOCH", NOW_SECONDS).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // From before the file is open to after the last byte is written.
        std::thread::sleep(Duration::from_millis(kill * 16));
        let _ = child.kill();
        child.wait().unwrap();
        let found = fs::read(&path).unwrap();
        assert!(found == before || found == after, "killed after {} ms", kill * 16);
        // A lock that a dead process held does not keep the next one out.
        assert!(compact(&path, &[]).status.success());
    }
}

#[test]
fn the_real_session_of_version_1_is_compacted_and_its_original_kept() {
    let Some(fixtures) = shared_fixtures() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.jsonl");
    let original = fs::read(fixtures.join("pi/before-compaction.jsonl")).unwrap();
    fs::write(&path, &original).unwrap();
    let output = compact(&path, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read(folder.path().join("old.jsonl.v1.bak")).unwrap(), original);
    let session = Session::read(&path).unwrap();
    assert_eq!(session.header().version(), 3);
    assert!(session.live(0).total_tokens() < 50_000);
}

#[test]
fn what_is_no_pi_session_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("messages.json");
    let messages = r#"[{"role":"user","content":"hello"},{"role":"assistant","content":"hi"}]"#;
    fs::write(&path, messages).unwrap();
    let output = compact(&path, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("error: "));
    assert_eq!(fs::read_to_string(&path).unwrap(), messages);
}

/// A session of which little can be folded: its last request has six large results.
fn crowded(path: &Path, cwd: &Path) {
    let mut session = Session::create(path, cwd.to_str().unwrap(), Some("crowded")).unwrap();
    let mut add = |message: serde_json::Value| {
        let body = RecordBody::message(&message.to_string()).unwrap();
        session.append_at(body, 1_795_249_000_000).unwrap();
    };
    for turn in ["look around", "now run all of them"] {
        add(json!({"role": "user", "content": turn}));
        add(json!({"role": "assistant", "content": "Good. ".repeat(600)}));
    }
    let ids: Vec<String> = (0..6).map(|call| format!("c{call}")).collect();
    let call = |id: &String| json!({"type": "toolCall", "id": id, "name": "exec", "arguments": {}});
    add(json!({"role": "user", "content": "go"}));
    add(json!({"role": "assistant", "content": ids.iter().map(call).collect::<Vec<_>>()}));
    for id in &ids {
        let text = json!({"type": "text", "text": format!("a line of {id}\n").repeat(6_000)});
        add(json!({"role": "toolResult", "toolCallId": id, "toolName": "exec", "content": [text]}));
    }
}

#[test]
fn large_results_are_put_away_beside_the_session_and_fetched_by_the_handle_of_the_notice() {
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = (folder.path().join("s.jsonl"), folder.path().join("ctxhost.toml"));
    fs::write(&config, "[plugins.entries.legacy.config.tool_results]\nspill_chars = 4000\n")
        .unwrap();
    crowded(&path, Path::new("/srv/app"));
    let arguments = ["--config", config.to_str().unwrap()];
    let dry = compact(&path, &[&arguments[..], &["--dry-run"]].concat());
    assert!(dry.status.success(), "{}", text(&dry.stderr));
    let blobs = folder.path().join("s.jsonl.blobs");
    assert!(!blobs.exists(), "a dry run writes nothing");
    let output = compact(&path, &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let live = Session::read(&path).unwrap().live(0).snapshot();
    let notices: Vec<&str> = live
        .iter()
        .filter_map(|entry| entry.text().split_once("of the session and file "))
        .map(|(_, rest)| rest.split(' ').next().unwrap())
        .collect();
    assert!(!notices.is_empty());
    for handle in notices {
        let fetched = ctxhost().arg("fetch").arg(&path).arg(handle).output().unwrap();
        assert!(fetched.status.success(), "{}", text(&fetched.stderr));
        assert_eq!(text(&fetched.stdout).lines().count(), 6_000);
        assert!(blobs.join(handle).is_file());
    }
}

#[test]
fn the_rules_of_the_session_s_workspace_close_its_summary() {
    let folder = tempfile::tempdir().unwrap();
    let (path, work) = (folder.path().join("s.jsonl"), folder.path().join("work"));
    fs::create_dir(&work).unwrap();
    fs::write(work.join("AGENTS.md"), "# Work\n\n## Red Lines\n\nNever force-push.\n").unwrap();
    crowded(&path, &work);
    let output = compact(&path, &["--dry-run", "--all"]);
    let (said, reported) = (text(&output.stderr), text(&output.stdout));
    assert!(
        said.contains(&format!("workspace rules {}", work.join("AGENTS.md").display())),
        "{said}"
    );
    assert!(
        reported.contains("<workspace-critical-rules>\n  ## Red Lines\n\n  Never force-push."),
        "{reported}"
    );
    let replayed = ctxhost().arg("replay").arg(&path).args(["--window", "64k"]).output().unwrap();
    assert!(text(&replayed.stderr).contains("workspace rules "));
    let other = ctxhost().arg("replay").arg(&path).args(["--engine", "window"]).output().unwrap();
    assert!(!text(&other.stderr).contains("workspace rules "), "it has no use for them");
}
