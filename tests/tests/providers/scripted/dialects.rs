//! Each dialect streams texts, thinking and calls, counts, and remembers what it sent.

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Model, ScriptedServer, Step, Steps};
use serde_json::json;

use super::client::{ask, frames, hear, request, send};

const SAID: &str = "Fertig: naïve 日志 und 部署 🎉.";

fn server(wire: Wire) -> ScriptedServer {
    let answers = [
        vec![Step::think("First ü."), Step::say(SAID)],
        vec![
            Step::think("Two at once."),
            Step::call("read", json!({"path": "a 日志.rs"})),
            Step::call("read", json!({"path": "b.rs"})),
        ],
    ];
    ScriptedServer::start(wire, Model::new(32_000)).script(Steps::new(answers))
}

#[tokio::test]
async fn each_dialect_streams_a_text_and_then_two_calls() {
    for wire in Wire::ALL {
        let server = server(wire);
        let came = ask(&server, wire, "hello").await.unwrap();
        assert_eq!(came.status, 200, "{wire:?}: {}", came.text);
        let received = hear(wire, &came.text);
        assert_eq!(
            (received.text.as_str(), received.thinking.as_str()),
            (SAID, "First ü."),
            "{wire:?}"
        );
        let stop = ["stop", "completed", "end_turn", "STOP", "stop"];
        assert_eq!(received.stop, stop[wire as usize]);
        assert_eq!(received.prompt_tokens, server.requests()[0].prompt_tokens);

        let received = hear(wire, &ask(&server, wire, "go on").await.unwrap().text);
        let called: Vec<_> =
            received.calls.iter().map(|(_, name, arguments)| (name.as_str(), arguments)).collect();
        let expected = [json!({"path": "a 日志.rs"}), json!({"path": "b.rs"})];
        assert_eq!(called, [("read", &expected[0]), ("read", &expected[1])], "{wire:?}");
        assert_ne!(received.calls[0].0, received.calls[1].0);
        let stop = ["tool_calls", "completed", "tool_use", "STOP", "stop"];
        assert_eq!(received.stop, stop[wire as usize]);
        let signed = [Wire::Responses, Wire::Anthropic, Wire::Gemini].contains(&wire);
        assert_eq!(!received.signature.is_empty(), signed, "{wire:?}");
        assert_eq!(server.requests()[1].answered, Answered::Answer { calls: 2 });
        assert_eq!(server.broken(), []);
    }
}

#[tokio::test]
async fn characters_are_split_between_chunks() {
    for wire in Wire::ALL {
        let server = ScriptedServer::start(wire, Model::new(32_000))
            .script(Steps::new([vec![Step::say("日志部署".repeat(60))]]));
        let came = ask(&server, wire, "hello").await.unwrap();
        let split = came.chunks.iter().any(|chunk| std::str::from_utf8(chunk).is_err());
        assert!(split, "{wire:?}: {} chunks", came.chunks.len());
    }
}

#[tokio::test]
async fn the_same_seed_sends_the_same_bytes() {
    let mut texts = Vec::new();
    for seed in [7, 7, 8] {
        let server = server(Wire::Anthropic).seed(seed);
        texts.push(ask(&server, Wire::Anthropic, "hello").await.unwrap().text);
    }
    assert_eq!(texts[0], texts[1]);
    assert_ne!(texts[0], texts[2]);
}

#[tokio::test]
async fn responses_are_numbered_and_named() {
    let server = server(Wire::Responses);
    let came = ask(&server, Wire::Responses, "hello").await.unwrap();
    let names: Vec<&str> =
        came.text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    for (at, frame) in frames(Wire::Responses, &came.text).iter().enumerate() {
        assert_eq!(frame["sequence_number"], at);
        assert_eq!(frame["type"], names[at]);
    }
    assert_eq!((names[0], *names.last().unwrap()), ("response.created", "response.completed"));
}

#[tokio::test]
async fn requests_without_a_stream_get_one_body() {
    let pointers = [
        (Wire::OpenAiChat, "/choices/0/message/content"),
        (Wire::Responses, "/output/1/content/0/text"),
        (Wire::Anthropic, "/content/1/text"),
        (Wire::Gemini, "/candidates/0/content/parts/1/text"),
        (Wire::Ollama, "/message/content"),
    ];
    for (wire, pointer) in pointers {
        let server = server(wire);
        let (path, mut body) = request(wire, "hello", false);
        let path = path.replace(":streamGenerateContent?alt=sse", ":generateContent");
        if wire != Wire::Gemini {
            body["stream"] = json!(false);
        }
        let came = send(&server, &path, &body).await.unwrap();
        assert_eq!(came.json().pointer(pointer).unwrap(), SAID, "{wire:?}");
    }
}

#[tokio::test]
async fn tokens_are_counted_as_they_are_measured() {
    let counts = [
        (Wire::Responses, "/v1/responses/input_tokens", "/input_tokens"),
        (Wire::Anthropic, "/v1/messages/count_tokens", "/input_tokens"),
        (Wire::Gemini, "/v1beta/models/gemini-3-pro:countTokens", "/totalTokens"),
    ];
    for (wire, path, pointer) in counts {
        let server = server(wire);
        let (_, body) = request(wire, "how many?", true);
        let came = send(&server, path, &body).await.unwrap();
        let seen = &server.requests()[0];
        assert_eq!(came.json().pointer(pointer).unwrap(), seen.prompt_tokens, "{wire:?}");
        assert_eq!((&seen.answered, seen.broken.len()), (&Answered::Counted, 0));
    }
}

#[tokio::test]
async fn what_was_read_before_comes_from_the_cache() {
    for wire in [Wire::OpenAiChat, Wire::Responses, Wire::Anthropic, Wire::Gemini] {
        let server = server(wire);
        let long = "the same again ".repeat(400);
        let (path, mut body) = request(wire, &long, false);
        if wire == Wire::Anthropic {
            body["messages"][0]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
        }
        let first = hear(wire, &send(&server, &path, &body).await.unwrap().text);
        let second = hear(wire, &send(&server, &path, &body).await.unwrap().text);
        assert_eq!(
            (first.cached_tokens, first.prompt_tokens),
            (0, second.prompt_tokens),
            "{wire:?}"
        );
        assert!(second.cached_tokens * 10 > second.prompt_tokens * 8, "{wire:?}: {second:?}");
    }
}

#[tokio::test]
async fn a_compaction_is_an_item_that_comes_back_as_it_was() {
    let server = server(Wire::Responses);
    let (_, body) = request(Wire::Responses, "long ago", false);
    let input = json!({"model": "m", "input": body["input"]});
    let compacted = send(&server, "/v1/responses/compact", &input).await.unwrap().json();
    assert_eq!(compacted["object"], "response.compaction");
    let output = compacted["output"].as_array().unwrap();
    assert_eq!(output.last().unwrap()["type"], "compaction");

    let (path, mut body) = request(Wire::Responses, "and now?", false);
    body["input"].as_array_mut().unwrap().insert(0, output.last().unwrap().clone());
    assert_eq!(send(&server, &path, &body).await.unwrap().status, 200);
    body["input"][0]["encrypted_content"] = json!("b3RoZXI=");
    let refused = send(&server, &path, &body).await.unwrap();
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (400, &json!("invalid_encrypted_content"))
    );
    assert_eq!(server.broken()[0].1.rule, "R-6");
}

#[tokio::test]
async fn changed_thinking_is_refused() {
    let server = server(Wire::Anthropic);
    ask(&server, Wire::Anthropic, "hello").await.unwrap();
    let received =
        hear(Wire::Anthropic, &ask(&server, Wire::Anthropic, "go on").await.unwrap().text);
    let (path, mut body) = request(Wire::Anthropic, "go on", true);
    let mut content = vec![
        json!({"type": "thinking", "thinking": received.thinking, "signature": received.signature}),
    ];
    let mut results = Vec::new();
    for (id, name, input) in &received.calls {
        content.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
        results.push(json!({"type": "tool_result", "tool_use_id": id, "content": "ok"}));
    }
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": content}));
    messages.push(json!({"role": "user", "content": results}));
    assert_eq!(send(&server, &path, &body).await.unwrap().status, 200);
    body["messages"][1]["content"][0]["thinking"] = json!("Two at once!");
    let refused = send(&server, &path, &body).await.unwrap();
    assert_eq!(refused.status, 400);
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("Invalid `signature` in `thinking` block"), "{message}");
    assert_eq!(server.requests()[3].answered, Answered::Malformed);
}

#[tokio::test]
async fn keys_are_kept_as_a_hash() {
    let server = server(Wire::Gemini);
    let (path, body) = request(Wire::Gemini, "hello", false);
    send(&server, &format!("{path}&key=secret-1"), &body).await.unwrap();
    let seen = &server.requests()[0];
    let reported = format!("{seen:?}");
    assert!(!reported.contains("k-123") && !reported.contains("secret-1"), "{reported}");
    assert!(reported.contains("sha256:"));
}
