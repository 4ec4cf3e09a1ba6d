//! Requests as providers accept them, though no client of the tests writes them so.

use serde_json::{Value, json};

use crate::stage::{DOORS, Gate, Upstream, body_for, client, plain};

/// Sends a body to a door; the engine that looked at it, or the status and text of a refusal.
async fn engine_of(gate: &Gate, door: &str, body: &str) -> String {
    let request = client().post(gate.at(door)).header("content-type", "application/json");
    let answer = request.body(body.to_owned()).send().await.unwrap();
    let engine = answer.headers().get("x-ctxhost-engine").map(|it| it.to_str().unwrap().to_owned());
    match (answer.status().as_u16(), engine) {
        (200, Some(engine)) => engine,
        (status, _) => format!("{status} {}", answer.text().await.unwrap()),
    }
}

/// Where each dialect has the limit of the answer.
fn with_limit(door: &str, limit: &str) -> String {
    let body = body_for(door);
    if door.starts_with("/v1beta") {
        let limit = format!("\"generationConfig\":{{\"maxOutputTokens\":{limit}}}");
        return body.replacen('{', &format!("{{{limit},"), 1);
    }
    let name = if door.contains("responses") { "max_output_tokens" } else { "max_tokens" };
    body.replace("\"max_tokens\":  5", &format!("\"{name}\": {limit}"))
}

#[tokio::test]
async fn a_limit_of_any_kind_keeps_no_request_from_its_engine() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let gate = Gate::before(&upstream.url, "").await;
    for door in DOORS {
        // LM Studio and llama.cpp document `-1` for no limit; some languages write every number with a fraction.
        for limit in ["-1", "4096.0", "null", "\"4096\"", "1e3", "1e999", "18446744073709551616"] {
            let body = with_limit(door, limit);
            assert_eq!(engine_of(&gate, door, &body).await, "legacy", "{door} {limit}");
            assert_eq!(upstream.last().body, body, "{door} {limit}");
        }
    }
}

#[tokio::test]
async fn empty_fields_keep_no_request_from_its_engine() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let gate = Gate::before(&upstream.url, "").await;
    for door in &DOORS[..3] {
        for (name, value) in [("stream", "null"), ("stream", "\"no\""), ("tools", "null")] {
            let body = body_for(door).replacen('{', &format!("{{\"{name}\":{value},"), 1);
            assert_eq!(engine_of(&gate, door, &body).await, "legacy", "{door} {name}");
            assert_eq!(upstream.last().body, body, "{door} {name}");
        }
        let body = body_for(door).replace("\"some-model\"", "null");
        assert_eq!(engine_of(&gate, door, &body).await, "legacy", "{door}");
        assert_eq!(upstream.last().body, body, "{door}");
    }
}

/// A user message with a file, as each dialect writes it.
fn with_file(door: &str, file: &str) -> Value {
    let text = "What is in it?";
    match door {
        "/v1/messages" => {
            let source = json!({ "type": "base64", "media_type": "application/pdf", "data": file });
            let blocks =
                json!([{ "type": "document", "source": source }, { "type": "text", "text": text }]);
            json!({ "model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [{ "role": "user", "content": blocks }] })
        }
        "/v1/chat/completions" => {
            let file = format!("data:application/pdf;base64,{file}");
            let audio = json!({ "type": "input_audio", "input_audio": { "data": "QUJD", "format": "wav" } });
            let parts = json!([{ "type": "file", "file": { "filename": "a.pdf", "file_data": file } }, audio, { "type": "text", "text": text }]);
            json!({ "model": "gpt-4o", "messages": [{ "role": "user", "content": parts }] })
        }
        "/v1/responses" => {
            let file = format!("data:application/pdf;base64,{file}");
            let parts = json!([{ "type": "input_file", "filename": "a.pdf", "file_data": file }, { "type": "input_text", "text": text }]);
            json!({ "model": "gpt-4o", "input": [{ "role": "user", "content": parts }] })
        }
        _ => {
            let data = json!({ "mimeType": "application/pdf", "data": file });
            json!({ "contents": [{ "role": "user", "parts": [{ "inlineData": data }, { "text": text }] }] })
        }
    }
}

#[tokio::test]
async fn a_document_is_no_text_of_its_length() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let windows = ["claude-sonnet-4-5", "gpt-4o", "gemini-3-pro"]
        .map(|model| format!("[models.\"{model}\"]\nwindow_tokens = 128000\n"));
    let gate = Gate::before(&upstream.url, &windows.concat()).await;
    // A scan of a few pages: as text it would have 350,000 tokens.
    let file = "JVBERi0xLjQKJcOkw7zDtsOf".repeat(58_000);
    for door in [
        "/v1/messages",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1beta/models/gemini-3-pro:generateContent",
    ] {
        let body = with_file(door, &file).to_string();
        assert_eq!(engine_of(&gate, door, &body).await, "legacy", "{door}");
        assert_eq!(upstream.last().body, body, "{door}");
    }
}

#[tokio::test]
async fn the_beginning_of_an_answer_splits_no_session() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let gate = Gate::before(&upstream.url, "").await;
    for (door, name) in [
        ("/v1/messages", "messages"),
        ("/v1/chat/completions", "messages"),
        ("/v1/responses", "input"),
    ] {
        let (mut history, mut sessions) = (Vec::new(), std::collections::BTreeSet::new());
        for turn in 0..4 {
            history.push(json!({ "role": "user", "content": format!("List the files of {door}, folder {turn}.") }));
            let answer = |text: &str| json!({ "role": "assistant", "content": text });
            let mut asked = history.clone();
            asked.push(answer("{\"files\":["));
            let body = json!({ "model": "m", "max_tokens": 100, name: asked }).to_string();
            let sent = client().post(gate.at(door)).body(body.clone()).send().await.unwrap();
            assert_eq!(sent.status(), 200);
            sessions.insert(sent.headers()["x-ctxhost-session"].to_str().unwrap().to_owned());
            assert_eq!(upstream.last().body, body, "{door}");
            history.push(answer(&format!("{{\"files\":[{turn}]}}")));
        }
        assert_eq!(sessions.len(), 1, "{door}: {sessions:?}");
    }
}
