//! Tests of context utility against a small language model on the loopback that computes its
//! log-probabilities.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::routing::post;
use axum::{Json, Router};
use ctxhost_config::Config;
use ctxhost_provider::LogprobClient;
use ctxhost_quality::report::UtilityRow;
use ctxhost_quality::{BenchSubject, UtilityProbe};
use ctxhost_session::Session;
use serde_json::{Value, json};

/// The words of a text, each with the blanks behind it.
fn split(text: &str) -> Vec<&str> {
    text.split_inclusive(|char: char| char.is_whitespace()).collect()
}

/// A language model that knows only its prompt: pairs of words, then words, then all words alike.
fn logprobs(prompt: &str) -> Value {
    const WORDS: f64 = 50_000.0;
    let (mut words, mut pairs) = (HashMap::<&str, f64>::new(), HashMap::<(&str, &str), f64>::new());
    let (mut tokens, mut scores, mut offsets) = (vec![], vec![], vec![]);
    let (mut previous, mut offset) = ("", 0);
    for token in split(prompt) {
        let word = token.trim();
        let count = |count: Option<&f64>| count.copied().unwrap_or(0.0);
        let after = count(words.get(previous)).max(1.0);
        let chance = 0.6 * count(pairs.get(&(previous, word))) / after
            + 0.3 * count(words.get(word)) / (tokens.len() as f64).max(1.0)
            + 0.1 / WORDS;
        // Like real servers: the first token has no log-probability.
        scores.push(if tokens.is_empty() { Value::Null } else { json!(chance.ln()) });
        offsets.push(offset);
        tokens.push(token);
        offset += token.chars().count();
        *words.entry(word).or_default() += 1.0;
        *pairs.entry((previous, word)).or_default() += 1.0;
        previous = word;
    }
    json!({ "tokens": tokens, "token_logprobs": scores, "text_offset": offsets })
}

/// Starts the model; returns its address and the prompts that it received.
async fn start() -> (String, Arc<Mutex<Vec<String>>>) {
    let received = Arc::new(Mutex::new(Vec::new()));
    let prompts = received.clone();
    let answer = move |Json(body): Json<Value>| async move {
        let prompt = body["prompt"].as_str().unwrap().to_owned();
        let answer = json!({ "choices": [{ "text": prompt, "logprobs": logprobs(&prompt) }] });
        prompts.lock().unwrap().push(prompt);
        Json(answer)
    };
    let router = Router::new().route("/v1/completions", post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, received)
}

/// A session that states 60 facts and is asked for some of the first ones at its end.
fn session() -> Session {
    let fact = |at: usize| {
        let names = ["billing", "search", "ledger", "upload", "report", "mailer"];
        let name = format!("{}-{at}", names[at % names.len()]);
        (
            name.clone(),
            format!("the {name} service listens on port {} of host-{}", 4_000 + at * 7, at * 13),
        )
    };
    let mut lines = vec![
        json!({ "type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z", "cwd": "/" }),
    ];
    let mut say = |role: &str, text: String| {
        let at = lines.len();
        let parent = (at > 1).then(|| format!("{:08x}", at - 1));
        let content = json!([{ "type": "text", "text": text }]);
        let stop = (role == "assistant").then_some("stop");
        lines.push(json!({ "type": "message", "id": format!("{at:08x}"), "parentId": parent,
            "timestamp": at * 1_000,
            "message": { "role": role, "content": content, "stopReason": stop, "timestamp": at * 1_000 } }));
    };
    for at in 0..60 {
        say("user", format!("Note that {}.", fact(at).1));
    }
    for at in [3, 8, 14, 21] {
        say("user", format!("Where does the {} service listen?", fact(at).0));
        say("assistant", format!("I looked it up: {}", fact(at).1));
    }
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    Session::parse("s", lines.join("\n").as_bytes()).unwrap()
}

async fn measure(probe: &UtilityProbe, name: &str, budget_tokens: u64) -> UtilityRow {
    let (config, session) = (Config::default(), session());
    let answers = probe.probe_answers(&session, &config, |_| ()).await.unwrap();
    let subject = BenchSubject::parse(name, &config).unwrap();
    let (file, budgets) = (("f", &session), [budget_tokens]);
    let rows = probe.measure(file, &answers, &subject, &budgets, &config, |_| ());
    rows.await.unwrap().rows.remove(0)
}

#[tokio::test]
async fn relevant_contexts_predict_the_next_answer_better() {
    let (url, received) = start().await;
    let client = LogprobClient::new(&url, "m", None).unwrap();
    let probe = UtilityProbe { client, answers: 16, whole_tokens: None };
    let (tail, bm25) = (measure(&probe, "tail", 600).await, measure(&probe, "bm25", 600).await);
    let (recall, whole) =
        (measure(&probe, "recall", 600).await, measure(&probe, "whole", 600).await);
    assert_eq!(whole.utility, Some(1.0), "{whole:?}");
    assert_eq!((whole.nats, whole.answers), (whole.nats_with_all, 4));
    assert!(tail.nats < tail.nats_without, "{tail:?}");
    assert!(bm25.nats < bm25.nats_without, "{bm25:?}");
    assert!(recall.utility > tail.utility, "{recall:?} {tail:?}");
    assert_eq!(tail, measure(&probe, "tail", 600).await, "two runs are equal");
    let prompts = received.lock().unwrap();
    let asked = "I looked it up: the upload-21 service listens on port 4147 of host-273";
    let ends = prompts.iter().filter(|prompt| prompt.ends_with(&format!("assistant:\n{asked}")));
    assert!(ends.count() > 4, "every context ends in the same line");
}

#[tokio::test]
async fn the_whole_history_is_limited_to_a_window() {
    let (url, received) = start().await;
    let client = LogprobClient::new(&url, "m", None).unwrap();
    let probe = UtilityProbe { client, answers: 3, whole_tokens: Some(200) };
    let row = measure(&probe, "tail", 100).await;
    assert_eq!(row.answers, 3);
    let longest = received.lock().unwrap().iter().map(String::len).max().unwrap();
    assert!(longest < 200 * 4 * 2, "{longest}");
}

#[tokio::test]
async fn an_error_names_subject_budget_and_answer() {
    let client = LogprobClient::new("http://127.0.0.1:1/v1", "m", None).unwrap();
    let probe = UtilityProbe { client, answers: 1, whole_tokens: None };
    let error = probe.probe_answers(&session(), &Config::default(), |_| ()).await.unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("nothing at 0 tokens, answer 4: "), "{message}");
}
