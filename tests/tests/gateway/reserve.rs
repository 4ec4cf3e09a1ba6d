//! Clients that ask for the longest answer of a model: the conversation keeps its room, and a strict
//! provider accepts what is sent.

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Model, ScriptedServer, Step, Steps};
use serde_json::{Value, json};

use crate::overflow::{WIRES, ask, request, said};
use crate::stage::Gate;

/// What system prompt and tools of an agent take, some 12,000 tokens.
fn instructions() -> String {
    "Read the file before you edit it, and run the tests behind each change. ".repeat(750)
}

fn server(wire: Wire, window_tokens: u64) -> ScriptedServer {
    // The provider takes any `max_tokens` that fits its window together with the prompt.
    let model = Model { max_output_tokens: 200_000, ..Model::new(window_tokens) };
    ScriptedServer::start(wire, model).script(Steps::new([vec![Step::say("Here you are.")]]))
}

fn config(window_tokens: u64) -> String {
    format!("[model]\ndefault_window_tokens = {window_tokens}\n")
}

/// The request of a client that asks for an answer of so many tokens.
fn greedy(wire: Wire, texts: &[String], max_tokens: u64) -> Value {
    let mut body = request(wire, texts, false);
    match wire {
        Wire::Anthropic => {
            body["max_tokens"] = max_tokens.into();
            body["thinking"] = json!({"type": "enabled", "budget_tokens": max_tokens - 1});
            body["system"] = instructions().into();
        }
        Wire::OpenAiChat => {
            body["max_tokens"] = max_tokens.into();
            let system = json!({"role": "system", "content": instructions()});
            body["messages"].as_array_mut().unwrap().insert(0, system);
        }
        Wire::Responses => {
            body["max_output_tokens"] = max_tokens.into();
            body["instructions"] = instructions().into();
        }
        _ => {
            body["generationConfig"]["maxOutputTokens"] = max_tokens.into();
            body["systemInstruction"] = json!({"parts": [{"text": instructions()}]});
        }
    }
    body
}

fn header(answer: &reqwest::Response, name: &str) -> String {
    let value = answer.headers().get(name).map(|it| it.to_str().unwrap());
    value.unwrap_or_default().to_owned()
}

/// One conversation past three windows.
async fn talk(wire: Wire, window_tokens: u64, max_tokens: u64) {
    let case = format!("{wire:?} window {window_tokens} max_tokens {max_tokens}");
    let server = server(wire, window_tokens);
    let gate = Gate::before(&server.url(), &config(window_tokens)).await;
    let step =
        "The parser reads the ledger and notes each row. ".repeat(window_tokens as usize / 150);
    let mut texts: Vec<String> = Vec::new();
    let (mut is_compacted, mut most_tokens, mut lowered) = (false, 0, 0);
    for n in 0..24 {
        texts.push(format!("Part {n} of the plan. {step}"));
        let answer = ask(&gate, wire, &greedy(wire, &texts, max_tokens), false).await;
        let (engine, compaction) =
            (header(&answer, "x-ctxhost-engine"), header(&answer, "x-ctxhost-compaction"));
        let reported = header(&answer, "x-ctxhost-max-tokens");
        let header_tokens = header(&answer, "x-ctxhost-tokens");
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert_eq!(status, 200, "{case}, request {n}: {text}");
        let seen = server.requests().pop().unwrap();
        let sizes = (seen.prompt_tokens, seen.output_tokens, header_tokens);
        assert_eq!(engine, "legacy", "{case}, request {n}: {sizes:?}");
        assert!(
            matches!(seen.answered, Answered::Answer { .. }),
            "{case}, request {n}: {:?} {sizes:?}",
            seen.answered
        );
        assert!(seen.prompt_tokens + seen.output_tokens <= window_tokens, "{case}, request {n}");
        match reported.as_str() {
            "" => assert_eq!(seen.output_tokens, max_tokens, "{case}, request {n}"),
            reported => {
                lowered += 1;
                assert_eq!(reported, seen.output_tokens.to_string(), "{case}, request {n}");
                assert!(seen.output_tokens >= window_tokens / 8, "{case}, request {n}: {reported}");
            }
        }
        is_compacted |= compaction == "applied";
        most_tokens = most_tokens.max(seen.prompt_tokens);
        let answer: Value = serde_json::from_str(&text).unwrap();
        texts.push(said(wire, &answer));
    }
    assert!(is_compacted && lowered > 0, "{case}: lowered {lowered} times");
    assert!(most_tokens >= window_tokens / 2, "{case}: at most {most_tokens} were used");
    assert_eq!(server.broken(), [], "{case}");
}

#[tokio::test]
async fn a_long_answer_leaves_the_conversation_its_room() {
    for wire in WIRES {
        for max_tokens in [32_000, 64_000, 128_000] {
            talk(wire, 48_000, max_tokens).await;
        }
    }
}

#[tokio::test]
async fn a_large_window_is_used_beside_a_long_answer() {
    talk(Wire::OpenAiChat, 128_000, 64_000).await;
    talk(Wire::Anthropic, 128_000, 128_000).await;
}

#[tokio::test]
async fn a_body_keeps_its_answer_where_the_config_says_so() {
    let window_tokens = 48_000;
    let server = server(Wire::OpenAiChat, window_tokens);
    let config = config(window_tokens) + "[gateway]\nlower_max_tokens = false\n";
    let gate = Gate::before(&server.url(), &config).await;
    let body = greedy(Wire::OpenAiChat, &["Where are we?".to_owned()], 64_000);
    let answer = ask(&gate, Wire::OpenAiChat, &body, false).await;
    assert_eq!(header(&answer, "x-ctxhost-max-tokens"), "");
    let first = server.requests().into_iter().next().unwrap();
    assert_eq!(first.output_tokens, 64_000, "it goes out as it came");
}

#[tokio::test]
async fn what_fits_only_without_a_reserve_is_sent_before_anything_is_given_up() {
    let window_tokens = 48_000;
    let server = server(Wire::OpenAiChat, window_tokens);
    let gate = Gate::before(&server.url(), &config(window_tokens)).await;
    // One question that fills the window but for what a short answer takes.
    let question = "The parser reads the ledger and notes each row. ".repeat(1_800);
    let body = greedy(Wire::OpenAiChat, std::slice::from_ref(&question), 32_000);
    let answer = ask(&gate, Wire::OpenAiChat, &body, false).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(header(&answer, "x-ctxhost-engine"), "legacy");
    let sent = server.requests().pop().unwrap();
    assert!(sent.body.to_string().contains(&question), "the question is whole");
    assert!(sent.prompt_tokens + sent.output_tokens <= window_tokens);
}
