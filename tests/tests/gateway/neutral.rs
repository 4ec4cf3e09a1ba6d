//! The compression API: smaller messages, retrievable originals, no upstream call.

use axum::http::StatusCode;
use ctxhost_tests::rules::{self, Wire};
use reqwest::Response;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};

use crate::stage::{Gate, Upstream, client, plain};

const WINDOW_TOKENS: u64 = 24_000;

/// The lines of a file that nobody could shorten without a loss.
fn file(number: usize) -> String {
    (0..300)
        .map(|at| format!("let value_{number}_{at} = compute({});\n", at * 31 + number))
        .collect()
}

/// An agent that reads a file in each turn.
fn conversation(turns: usize) -> Vec<Value> {
    let mut messages = vec![json!({ "role": "system", "content": "You read files." })];
    for turn in 0..turns {
        let id = format!("call_{turn}");
        let arguments = json!({ "path": format!("src/file{turn}.rs") }).to_string();
        let function = json!({ "name": "read", "arguments": arguments });
        let call = json!({ "id": id, "type": "function", "function": function });
        messages.extend([
            json!({ "role": "user", "content": format!("Please look at file {turn}.") }),
            json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
            json!({ "role": "tool", "tool_call_id": id, "content": file(turn) }),
            json!({ "role": "assistant", "content": format!("It computes value {turn}.") }),
        ]);
    }
    messages.push(json!({ "role": "user", "content": "And now?" }));
    messages
}

fn body(messages: &[Value]) -> Value {
    json!({ "model": "gpt-5", "messages": messages, "window_tokens": WINDOW_TOKENS })
}

async fn post(gate: &Gate, body: &Value) -> Response {
    let request = client().post(gate.at("/v1/compress")).header("authorization", "Bearer k");
    request.body(body.to_string()).send().await.unwrap()
}

async fn compressed(gate: &Gate, body: &Value) -> Value {
    let answer = post(gate, body).await;
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn messages(answer: &Value) -> &[Value] {
    answer["messages"].as_array().unwrap()
}

/// The hashes in a message, as those who bring originals back look for them.
fn hashes(message: &Value) -> Vec<String> {
    let text = message.to_string();
    let marks = text.match_indices("hash=").map(|(at, mark)| &text[at + mark.len()..]);
    marks.map(|rest| rest.chars().take_while(char::is_ascii_hexdigit).collect()).collect()
}

async fn retrieve(gate: &Gate, path: &str) -> (u16, Value) {
    let answer = client().get(gate.at(&format!("/v1/retrieve/{path}"))).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap())
}

async fn original(gate: &Gate, path: &str) -> String {
    let (status, answer) = retrieve(gate, path).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer["original_content"].as_str().unwrap().to_owned()
}

/// An upstream that must not be asked, and a gateway before it.
async fn stage() -> (Upstream, Gate) {
    let upstream = Upstream::start(|_| plain(500, "text/plain", "asked")).await;
    let gate = Gate::before(&upstream.url, "").await;
    (upstream, gate)
}

#[tokio::test]
async fn messages_come_back_smaller_and_what_they_stand_for_can_be_had_again() {
    let (upstream, gate) = stage().await;
    let asked = conversation(14);
    let answer = compressed(&gate, &body(&asked)).await;
    let number = |name: &str| answer[name].as_u64().unwrap();
    let (before, after) = (number("tokens_before"), number("tokens_after"));
    assert_eq!(number("tokens_saved"), before - after);
    assert!(before > WINDOW_TOKENS && after < WINDOW_TOKENS, "{before} {after}");
    let ratio = answer["compression_ratio"].as_f64().unwrap();
    assert!((ratio - after as f64 / before as f64).abs() < 1e-3, "{ratio}");
    assert_eq!(answer["engine"], "legacy");
    let sent = json!({ "model": "gpt-5", "messages": answer["messages"] });
    let broken = rules::check(Wire::OpenAiChat, "/v1/chat/completions", &Default::default(), &sent);
    assert!(broken.is_empty(), "{broken:?}");
    // What is not as it came names what it stands for, and nothing else does.
    let mut originals = String::new();
    for message in messages(&answer) {
        let hashes = hashes(message);
        assert_eq!(hashes.is_empty(), asked.contains(message), "{message}");
        for hash in hashes {
            assert_eq!(hash.len(), 24, "{message}");
            originals.push_str(&original(&gate, &hash).await);
        }
    }
    assert!(originals.contains(&file(0)), "{originals}");
    let shown = answer["messages"].to_string();
    for turn in 0..14 {
        let result = file(turn);
        let line = result.lines().nth(150).unwrap();
        assert!(originals.contains(line) || shown.contains(line), "file {turn} is lost");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn the_same_messages_give_the_same_bytes_and_more_of_them_keep_the_beginning() {
    let (upstream, gate) = stage().await;
    let mut asked = conversation(14);
    let first = post(&gate, &body(&asked)).await.bytes().await.unwrap();
    assert_eq!(post(&gate, &body(&asked)).await.bytes().await.unwrap(), first);
    let Gate { end, task, state, .. } = gate;
    end.cancel();
    task.await.unwrap();
    let gate = Gate::again(&upstream.url, "", state).await;
    assert_eq!(post(&gate, &body(&asked)).await.bytes().await.unwrap(), first, "a restart");
    let first: Value = serde_json::from_slice(&first).unwrap();
    let hash = messages(&first).iter().flat_map(hashes).next().unwrap();
    let whole = original(&gate, &hash).await;
    let query = format!("{hash}?query=VALUE_0_17%20=");
    let some = original(&gate, &query).await;
    assert!(some.contains("let value_0_17 = compute") && some.len() * 20 < whole.len(), "{some}");
    assert_eq!(original(&gate, &format!("{hash}?query=giraffe")).await, whole);
    asked.push(json!({ "role": "assistant", "content": "Nothing more." }));
    asked.push(json!({ "role": "user", "content": "Thanks." }));
    let next = compressed(&gate, &body(&asked)).await;
    assert!(messages(&next).starts_with(messages(&first)), "the prefix has moved");
}

/// An agent that reads three short files in each turn.
fn short_files(turns: usize) -> Vec<Value> {
    let mut messages = vec![json!({ "role": "system", "content": "You read files." })];
    for turn in 0..turns {
        let ids: Vec<String> = (0..3).map(|file| format!("call_{turn}_{file}")).collect();
        let call = |id: &String| {
            let arguments = json!({ "path": format!("src/file{id}.rs") }).to_string();
            json!({ "id": id, "type": "function", "function": { "name": "read", "arguments": arguments } })
        };
        let calls: Vec<Value> = ids.iter().map(call).collect();
        messages.push(json!({ "role": "user", "content": format!("Please look at file {turn}.") }));
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": calls }));
        messages.extend(ids.iter().map(|id| {
            let lines =
                (0..20).map(|at| format!("let value_{id}_{at} = compute({});\n", at * 31 + turn));
            json!({ "role": "tool", "tool_call_id": id, "content": lines.collect::<String>() })
        }));
        messages
            .push(json!({ "role": "assistant", "content": format!("It computes value {turn}.") }));
    }
    messages.push(json!({ "role": "user", "content": "And now?" }));
    messages
}

#[tokio::test]
async fn what_did_not_fit_at_first_gives_the_same_bytes_as_well() {
    let upstream = Upstream::start(|_| plain(500, "text/plain", "asked")).await;
    let config = "[plugins.slots]\ncontext_engine = \"mask\"\n";
    let gate = Gate::before(&upstream.url, config).await;
    for window_tokens in (3_000..12_000).step_by(500) {
        let mut asked = short_files(20);
        asked[1]["content"] = format!("Please look at file 0 for {window_tokens}.").into();
        let body = json!({ "model": "gpt-5", "messages": asked, "window_tokens": window_tokens });
        let first = post(&gate, &body).await.bytes().await.unwrap();
        assert_eq!(post(&gate, &body).await.bytes().await.unwrap(), first, "{window_tokens}");
    }
}

#[tokio::test]
async fn what_is_small_or_bypassed_keeps_its_bytes() {
    let (_upstream, gate) = stage().await;
    let list = "[ {\"content\":\"h\\u00e9 \", \"role\":\"user\", \"x\": 1.50} ]";
    let text = format!("{{\"model\":\"gpt-5\",\t\"messages\" : {list}}}");
    for (bypass, engine) in [("false", "legacy"), ("true", "none")] {
        let request = client().post(gate.at("/v1/compress")).header("x-headroom-bypass", bypass);
        let answer = request.body(text.clone()).send().await.unwrap();
        assert_eq!(answer.headers()["x-ctxhost-engine"], engine);
        let text = answer.text().await.unwrap();
        assert!(text.starts_with("{\"messages\":"), "{text}");
        assert!(text.contains(list.trim_matches(['[', ']', ' '])), "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&answer["engine"], &answer["tokens_saved"]), (&json!(engine), &json!(0)));
        assert_eq!(answer["compression_ratio"], 1.0);
    }
    let large = body(&conversation(14)).to_string();
    let request = client().post(gate.at("/v1/compress")).header("x-headroom-bypass", "true");
    let answer: Value = request.body(large).send().await.unwrap().json().await.unwrap();
    assert_eq!(messages(&answer), conversation(14));
}

#[tokio::test]
async fn a_compressed_body_is_read_and_any_other_encoding_is_named() {
    let (_upstream, gate) = stage().await;
    let whole = body(&conversation(3)).to_string();
    let packed = compress_to_vec(whole.as_bytes(), CompressionLevel::Fastest);
    let ask = async |encoding: &str, body: &[u8]| {
        let request = client().post(gate.at("/v1/compress")).header("content-encoding", encoding);
        let answer = request.body(body.to_vec()).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let (status, answer) = ask("zstd", &packed[..]).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let plain = compressed(&gate, &body(&conversation(3))).await;
    assert_eq!((status, messages(&answer)), (200, messages(&plain)));
    // The same messages are counted alike, whether an engine sees them or not.
    let bypass = client().post(gate.at("/v1/compress")).header("x-headroom-bypass", "true");
    let bypassed: Value = bypass.body(whole).send().await.unwrap().json().await.unwrap();
    assert_eq!(bypassed["tokens_before"], answer["tokens_before"]);
    let (status, refused) = ask("gzip", &packed[..]).await;
    assert!(status == 415 && refused.contains("gzip"), "{status} {refused}");
    let (status, refused) = ask("zstd", &b"no zstd"[..]).await;
    assert!(status == 400 && refused.contains("cannot be decompressed"), "{status} {refused}");
}

#[tokio::test]
async fn a_wanted_size_is_kept_and_an_impossible_one_changes_nothing() {
    let (_upstream, gate) = stage().await;
    let asked = conversation(10);
    for target in [12_000, 6_000] {
        let wanted = json!({ "model": "gpt-5", "messages": asked, "target_tokens": target });
        let answer = compressed(&gate, &wanted).await;
        assert_eq!(answer["engine"], "legacy", "{target}: {answer}");
        assert!(answer["tokens_after"].as_u64().unwrap() <= target, "{target}: {answer}");
        assert_eq!(messages(&answer).last(), asked.last());
    }
    let wanted = json!({ "model": "gpt-5", "messages": asked, "target_tokens": 3 });
    let answer = compressed(&gate, &wanted).await;
    assert_eq!((&answer["engine"], messages(&answer)), (&json!("none"), &asked[..]));
    assert_eq!(answer["tokens_saved"], 0);
    // A limit of another type says nothing about the messages.
    let strange = json!({ "messages": [{ "role": "user", "content": "x" }], "max_tokens": "many" });
    let answer = compressed(&gate, &strange).await;
    assert_eq!((&answer["engine"], &answer["messages"]), (&json!("legacy"), &strange["messages"]));
}

/// An agent with many small results, as large as their marks would be.
fn of_small_results(turns: usize) -> Vec<Value> {
    let mut messages = vec![json!({ "role": "user", "content": "Look at every port." })];
    for turn in 0..turns {
        let id = format!("call_{turn}");
        let arguments = json!({ "port": 4_000 + turn }).to_string();
        let function = json!({ "name": "probe", "arguments": arguments });
        let call = json!({ "id": id, "type": "function", "function": function });
        let result = format!("port {} answers\n", 4_000 + turn).repeat(1 + turn % 40);
        messages.extend([
            json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
            json!({ "role": "tool", "tool_call_id": id, "content": result }),
        ]);
    }
    messages.push(json!({ "role": "user", "content": "Which of them answer?" }));
    messages
}

#[tokio::test]
async fn no_engine_answers_above_the_wanted_size() {
    let upstream = Upstream::start(|_| plain(500, "text/plain", "asked")).await;
    let long = [conversation(8), of_small_results(400)].concat();
    let engines = [
        "'legacy'",
        "'mask'",
        "'head-tail'",
        "'window'",
        "'boundary'",
        "'recall'",
        "'dag'",
        "['mask', 'legacy']",
    ];
    for engine in engines {
        let slot = format!("[plugins.slots]\ncontext_engine = {engine}\n");
        let gate = Gate::before(&upstream.url, &slot).await;
        for (messages, target) in [
            (conversation(12), 16_000),
            (of_small_results(500), 8_000),
            (of_small_results(500), 1_500),
            (long.clone(), 4_000),
        ] {
            let wanted = json!({ "model": "gpt-5", "messages": messages, "target_tokens": target });
            let answer = compressed(&gate, &wanted).await;
            let (before, after) = (&answer["tokens_before"], &answer["tokens_after"]);
            assert_ne!(answer["engine"], "none", "{engine} {target}: {before} -> {after}");
            assert!(after.as_u64().unwrap() <= target, "{engine} {target}: {before} -> {after}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused() {
    let (_upstream, gate) = stage().await;
    let compress = |text: &'static str| client().post(gate.at("/v1/compress")).body(text).send();
    for wrong in
        ["", "[]", "{}", r#"{"messages":[]}"#, r#"{"messages":["x"]}"#, r#"{"messages":{}}"#]
    {
        let answer = compress(wrong).await.unwrap();
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{wrong}");
        let error: Value = answer.json().await.unwrap();
        assert!(error["error"]["message"].as_str().unwrap().contains("`messages`"), "{error}");
    }
    let request = client().post(gate.at("/v1/compress")).header("x-ctxhost-session", "../x");
    let answer = request.body(body(&conversation(1)).to_string()).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    for wrong in
        ["x", "ABCDEF012345678901234567", "0123456789", &"0".repeat(64), "..%2F..%2Fsecret"]
    {
        assert_eq!(retrieve(&gate, wrong).await.0, 400, "{wrong}");
    }
    assert_eq!(retrieve(&gate, &"0".repeat(24)).await.0, 404);
}

#[tokio::test]
async fn the_socket_asks_for_the_token() {
    let gate = Gate::open("", "", |mut options| {
        options.token = Some("a secret of its own".to_owned().into());
        options
    })
    .await;
    let text = body(&conversation(1)).to_string();
    let answer = client().post(gate.at("/v1/compress")).body(text.clone()).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let hash = "0".repeat(24);
    assert_eq!(retrieve(&gate, &hash).await.0, 401);
    let request =
        client().post(gate.at("/v1/compress")).bearer_auth("a secret of its own").body(text);
    assert_eq!(request.send().await.unwrap().status(), StatusCode::OK);
}
