//! `ctxhost diff`, `context` and `statusline` on a recorded session that was compacted.

use std::fs;
use std::path::{Path, PathBuf};

use ctxhost_session::Session;
use ctxhost_tests::{ctxhost, recorded_session};
use serde_json::Value;
use tempfile::TempDir;

/// A copy of the recorded session, compacted so many times with these engines.
fn compacted(engines: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("session.jsonl");
    fs::write(&path, recorded_session()).unwrap();
    for (engine, window) in engines.iter().zip(["64k", "24k"]) {
        let mut command = ctxhost();
        command.arg("compact").arg(&path).args(["--engine", engine, "--window", window]);
        let output = command.env("SOURCE_DATE_EPOCH", "1795249139").output().unwrap();
        assert!(output.status.success());
    }
    (folder, path)
}

fn said(arguments: &[&str], session: &str) -> String {
    let output = ctxhost().args(arguments).arg(session).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str], session: &str) -> Value {
    serde_json::from_str(&said(arguments, session)).unwrap()
}

/// The record on a line of a file, from 1.
fn line(path: &Path, number: u64) -> Value {
    let text = fs::read_to_string(path).unwrap();
    serde_json::from_str(text.lines().nth(number as usize - 1).unwrap()).unwrap()
}

#[test]
fn whatever_is_lost_stands_where_diff_says() {
    let (_folder, path) = compacted(&["legacy"]);
    let session = path.to_str().unwrap();
    let difference = json(&["diff", "--json"], session);
    let lost = difference["lost"].as_array().unwrap();
    let dropped = difference["dropped"].as_array().unwrap();
    assert!(lost.len() > 20 && dropped.len() > 20, "{} {}", lost.len(), dropped.len());
    for place in lost.iter().chain(dropped).map(|row| &row["at"]) {
        let (record, number) = (place["entry"].as_str().unwrap(), place["line"].as_u64().unwrap());
        assert_eq!(line(&path, number)["id"], record);
    }
    let first = &dropped[0]["at"]["entry"];
    let fetch = ctxhost().args(["fetch", session, first.as_str().unwrap()]).output().unwrap();
    assert!(fetch.status.success());
}

#[test]
fn what_is_recorded_is_what_diff_counts() {
    let (_folder, path) = compacted(&["legacy"]);
    let recorded = Session::read(&path).unwrap().leaf().unwrap().compaction().unwrap();
    let difference = json(&["diff", "--json"], path.to_str().unwrap());
    assert_eq!(difference["retention"], recorded.host_details["survival"]);
    assert_eq!(difference["before_tokens"], recorded.tokens_before);
    assert_eq!(difference["after_tokens"], recorded.tokens_after.unwrap());
    let status = json(&["statusline", "--json"], path.to_str().unwrap());
    assert_eq!(status["retention"], difference["retention"]);
    assert_eq!(status["tokens"], difference["after_tokens"]);
}

#[test]
fn each_of_several_compactions_is_named_by_its_number() {
    let (_folder, path) = compacted(&["legacy", "legacy"]);
    let session = path.to_str().unwrap();
    let at = |number: &str| json(&["diff", "--json"], &format!("{session}{number}"));
    let (first, second) = (at("@1"), at("@2"));
    assert_eq!((&first["number"], &second["number"]), (&1.into(), &2.into()));
    assert_eq!(first["after_tokens"], second["before_tokens"], "nothing was said in between");
    assert_eq!((at(""), at("@-1"), at("@-2")), (second.clone(), second, first));
}

#[test]
fn the_figures_of_context_are_the_live_transcript() {
    let (_folder, path) = compacted(&["legacy"]);
    let context = json(&["context", "--window", "64k", "--json"], path.to_str().unwrap());
    let live = Session::read(&path).unwrap().live(0).total_tokens();
    let parts = context["usage"]["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["tokens"].as_u64().unwrap()).sum();
    assert_eq!(sum, live);
    assert_eq!(context["free_tokens"], context["window"]["budget_tokens"].as_u64().unwrap() - live);
}

#[test]
fn without_a_session_the_status_line_takes_the_newest_of_the_folder() {
    let (folder, path) = compacted(&[]);
    let work = folder.path().join("work");
    fs::create_dir(&work).unwrap();
    let run = || {
        let mut command = ctxhost();
        command.arg("statusline").current_dir(&work).env("CTXHOST_STATE_DIR", folder.path());
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(run(), "legacy · no session yet\n");
    let name = work.canonicalize().unwrap().display().to_string();
    let name = name.trim_start_matches('/').replace('/', "-");
    let kept = folder.path().join(format!("sessions/--{name}--"));
    fs::create_dir_all(&kept).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    // Of a working folder that shares the session folder.
    fs::write(kept.join("a.jsonl"), &text).unwrap();
    assert_eq!(run(), "legacy · no session yet\n");
    let (header, rest) = text.split_once('\n').unwrap();
    let mut header: Value = serde_json::from_str(header).unwrap();
    header["cwd"] = work.canonicalize().unwrap().display().to_string().into();
    fs::write(kept.join("a.jsonl"), format!("{header}\n{rest}")).unwrap();
    assert!(run().contains(" tokens, window 200,000 · 0 compactions"), "{}", run());
}

/// What `context` and `statusline` say of a session with an engine, in a window.
fn next_request(session: &Path, engine: &str, window: &str) -> (Value, String) {
    let config = session.with_file_name("ctxhost.toml");
    fs::write(&config, format!("[plugins.slots]\ncontext_engine = {engine:?}\n")).unwrap();
    let config = ["--config", config.to_str().unwrap()];
    let session = session.to_str().unwrap();
    let context =
        json(&[&config[..], &["context", "--window", window, "--json"]].concat(), session);
    let line = said(&[&config[..], &["statusline", "--window", window]].concat(), session);
    (context, line)
}

#[test]
fn an_engine_that_selects_what_fits_does_not_compact() {
    let (_folder, path) = compacted(&[]);
    for engine in ["window", "mask", "recall", "dag"] {
        let (context, line) = next_request(&path, engine, "64k");
        let (next, free) = (&context["next_request"], context["free_tokens"].as_u64().unwrap());
        assert_eq!((&next["engine"], &next["needs_compaction"]), (&engine.into(), &false.into()));
        let budget = next["tokens"].as_u64().unwrap() + free;
        assert!(context["usage"]["tokens"].as_u64().unwrap() > budget && free > 0, "{context}");
        let percent = line.split(['·', '%']).nth(1).unwrap().trim();
        assert!((50..=100).contains(&percent.parse::<u64>().unwrap()), "{line}");
        assert!(line.contains(" · from 140,768 tokens of history"), "{line}");
    }
    let (context, line) = next_request(&path, "legacy", "64k");
    assert_eq!(context["next_request"]["needs_compaction"], true);
    assert!(line.contains(" · compacted before the next request"), "{line}");
}

#[test]
fn a_compaction_for_a_much_smaller_window_does_not_count() {
    let (_folder, path) = compacted(&["legacy"]);
    // As if the host had made it for a model with this window.
    let text = fs::read_to_string(&path).unwrap();
    let made = text.replace(r#""trigger":"manual""#, r#""trigger":"threshold""#);
    let made = made.replace(r#""survival":"#, r#""windowTokens":64000,"survival":"#);
    fs::write(&path, &made).unwrap();
    fs::remove_file(path.with_file_name("session.jsonl.crc")).unwrap();
    let tokens = |window: &str| {
        let (context, line) = next_request(&path, "legacy", window);
        (context["usage"]["tokens"].as_u64().unwrap(), line)
    };
    let (small, line) = tokens("64k");
    assert!(small < 40_000 && line.contains("1 compaction"), "{line}");
    let (large, line) = tokens("1m");
    assert_eq!(large, 140_768);
    assert!(line.contains("140,768 of "), "{line}");
}
