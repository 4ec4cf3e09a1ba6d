//! The examples of embedding programs as a person runs them, against a scripted provider.

use std::io::Write;
use std::process::{Command, Stdio};

use ctxhost_tests::product;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer, Step, Steps};
use ctxhost_tests::workplace::{ConfigText, words};
use serde_json::json;

#[test]
fn the_example_answers_with_an_engine_of_its_own() {
    let wire = Wire::Anthropic;
    let read = Step::call("read_file", json!({"path": "notes.txt"}));
    let server = ScriptedServer::start(wire, Model::new(32_000))
        .script(Steps::new([vec![read], vec![Step::say("It is 4711.")]]));
    let place = ConfigText::new().provider("fake", wire, &server.url(), 32_000).workplace();
    let output = Command::new(product("agent"))
        .arg("What is the number?")
        .current_dir(place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("It is 4711."), "{said}");
    assert!(said.contains("[newest shaped 2 requests]"), "{said}");
    assert_eq!(server.broken(), []);
    let session = ctxhost_tests::workplace::lawful_session(&place.path().join("agent.jsonl"));
    assert_eq!(words(&session), ["What is the number?"]);
}

#[test]
fn a_context_keeps_what_its_engine_chose_inside_the_window() {
    let place = tempfile::tempdir().unwrap();
    let output = Command::new(product("embed")).current_dir(place.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sent: Vec<(u64, u64)> = said.lines().map(sent_of_all).collect();
    assert_eq!(sent.first(), Some(&(100, 100)), "a hundred fit: {said}");
    let (last, all) = *sent.last().unwrap();
    assert!(all == 500 && last < 100, "the conversation is shortened: {said}");
    let session = ctxhost_tests::workplace::lawful_session(&place.path().join("embed.jsonl"));
    assert_eq!(words(&session).len(), 500);
}

/// The numbers in `newest sends 28 messages of 500: …`.
fn sent_of_all(line: &str) -> (u64, u64) {
    let words: Vec<&str> = line.strip_prefix("newest sends ").unwrap().split(' ').collect();
    (words[0].parse().unwrap(), words[3].trim_end_matches(':').parse().unwrap())
}

#[test]
fn the_http_client_prints_errors_as_sentences() {
    let output = Command::new(product("http-client")).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(printed, "error: usage: http-client URL MODEL WINDOW_TOKENS\n");
}

#[test]
fn a_plain_http_client_stays_inside_its_window() {
    let wire = Wire::OpenAiChat;
    let answers = (0..30).map(|_| vec![Step::say("Nothing of the kind. ".repeat(400))]);
    let server = ScriptedServer::start(wire, Model::new(20_000)).script(Steps::new(answers));
    let place = tempfile::tempdir().unwrap();
    let url = format!("{}/v1/chat/completions", server.url());
    let mut client = Command::new(product("http-client"))
        .args([&url, "scripted", "20000"])
        .current_dir(place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let questions: String = (0..30).map(|number| format!("What of number {number}?\n")).collect();
    client.stdin.take().unwrap().write_all(questions.as_bytes()).unwrap();
    let output = client.wait_with_output().unwrap();
    assert!(output.status.success(), "its provider refused a request");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 30);
    let session = ctxhost_tests::workplace::lawful_session(&place.path().join("http-client.jsonl"));
    let asked = words(&session).iter().filter(|it| it.starts_with("What of number")).count();
    assert_eq!(asked, 30, "nothing is lost of the session");
}
