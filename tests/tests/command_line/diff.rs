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
    fs::copy(&path, kept.join("a.jsonl")).unwrap();
    assert!(run().contains(" tokens, window 200,000 · 0 compactions"), "{}", run());
}
