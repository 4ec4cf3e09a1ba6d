//! Unusual histories that their provider accepts are forwarded unchanged.

use axum::body::Bytes;
use axum::http::HeaderMap;
use ctxhost_dialects::DialectName;
use ctxhost_engine_api::transcript::tokens;
use ctxhost_gateway::proxy::{ClientRequest, Endpoint, ProxyAction, UpstreamRequest};
use ctxhost_tests::rules::Wire;
use serde_json::{Value, json};

use super::client::Client;
use super::exchange::{Gateway, WINDOW_TOKENS, long_answer, text, work};

fn incoming(dialect: DialectName, body: &Value) -> ClientRequest {
    let endpoint = Endpoint::generate(dialect);
    let provider = endpoint.provider().into();
    ClientRequest {
        endpoint,
        provider,
        headers: HeaderMap::new(),
        body: Bytes::from(body.to_string()),
    }
}

fn responses(items: &[Value]) -> ClientRequest {
    incoming(
        DialectName::OpenAiResponses,
        &json!({ "model": "gpt-5", "store": false, "input": items }),
    )
}

fn chat(items: &[Value]) -> ClientRequest {
    incoming(DialectName::OpenAiCompletions, &json!({ "model": "gpt-5", "messages": items }))
}

fn says(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": text })
}

/// Each beginning of a conversation that ends with the person or a tool, and then all of it.
async fn assert_untouched(request: fn(&[Value]) -> ClientRequest, items: &[Value], engine: &str) {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), 200_000).await;
    for length in [1, items.len(), items.len()] {
        let request = request(&items[..length]);
        let forward = gateway.forward(&request).await;
        assert_eq!(text(&forward.body), text(&request.body));
        if length == items.len() {
            assert_eq!(forward.report.engine, engine, "{}", text(&request.body));
        }
    }
    gateway.close().await;
}

fn searched(call_id: &Value, execution: &str) -> [Value; 2] {
    let call = json!({
        "type": "tool_search_call", "call_id": call_id, "status": "completed",
        "execution": execution, "arguments": { "query": "calendar" },
    });
    let output = json!({
        "type": "tool_search_output", "call_id": call_id, "status": "completed",
        "execution": execution, "tools": [{ "type": "function", "name": "list_events" }],
    });
    [call, output]
}

#[tokio::test]
async fn a_search_for_tools_is_answered_by_what_answers_it() {
    for (id, execution) in [(json!("search-1"), "client"), (Value::Null, "server")] {
        let mut items = vec![says("user", "What is on today?")];
        items.extend(searched(&id, execution));
        items.push(says("assistant", "Nothing."));
        items.push(says("user", "And tomorrow?"));
        assert_untouched(responses, &items, "legacy").await;
    }
}

#[tokio::test]
async fn a_search_for_tools_is_folded_with_its_answer() {
    for (id, execution) in [(json!("search-1"), "client"), (Value::Null, "server")] {
        let state = tempfile::tempdir().unwrap();
        let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
        let mut client = Client::new(Wire::Responses);
        client.say("What is on today?");
        client.items.extend(searched(&id, execution));
        client.answer("Nothing.");
        let mut compactions = 0;
        for turn in 0..8 {
            work(&mut client, turn, 12_000);
            let forward = gateway.ask(&client).await;
            compactions += usize::from(forward.report.compaction == "applied");
            let body = text(&forward.body);
            let [called, answered] = ["\"tool_search_call\"", "\"tool_search_output\""]
                .map(|it| body.matches(it).count());
            assert_eq!(called, answered, "{execution}, turn {turn}: {body}");
            client.answer("Done.");
        }
        assert!(compactions > 0);
        let last = gateway.ask(&client).await;
        assert!(!text(&last.body).contains("tool_search"), "{execution}: it is folded");
        gateway.close().await;
    }
}

#[tokio::test]
async fn a_call_of_an_unknown_kind_gets_no_result_of_another_kind() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let call =
        |kind: &str, id: &str| json!({ "type": kind, "call_id": id, "name": "run", "input": "ls" });
    let mut client = Client::new(Wire::Responses);
    for turn in 0..20 {
        work(&mut client, turn, 12_000);
        client.answer(&long_answer(turn));
    }
    client.say("Go on.");
    client.items.push(call("custom_tool_call", "custom"));
    client.items.push(call("dream_call", "dream"));
    client.say("Without these.");
    let forward = gateway.ask(&client).await;
    assert_eq!(forward.report.compaction, "applied", "{:?} {}", forward.report, forward.body.len());
    let body: Value = serde_json::from_slice(&forward.body).unwrap();
    let results = |id: &str| -> Vec<String> {
        let items = body["input"].as_array().unwrap().iter();
        let of_call = items.filter(|item| item["call_id"] == *id && item["output"].is_string());
        of_call.map(|item| item["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(results("custom"), ["custom_tool_call_output"]);
    assert_eq!(results("dream"), Vec::<String>::new());
    gateway.close().await;
}

#[tokio::test]
async fn what_a_server_keeps_is_not_read_for_what_it_is() {
    let reference = |id: &str| json!({ "type": "item_reference", "id": id });
    let result =
        json!({ "type": "function_call_output", "call_id": "call_1", "output": "the file" });
    let items = [says("user", "Read it."), reference("msg_1"), reference("fc_1"), result];
    assert_untouched(responses, &items, "legacy").await;
    // What was asked may be stored there too.
    let items = [reference("msg_0"), reference("msg_1"), says("user", "Read it.")];
    assert_untouched(responses, &items, "none").await;
}

#[tokio::test]
async fn what_an_upstream_takes_is_not_mended() {
    let call = |id: &str| json!({ "id": id, "type": "function", "function": { "name": "read", "arguments": "{}" } });
    let asks =
        |calls: &[Value]| json!({ "role": "assistant", "content": null, "tool_calls": calls });
    let result =
        |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "content": text });
    let histories = [
        // Servers on one's own machine want no ids.
        vec![asks(&[call("a")]), json!({ "role": "tool", "content": "the file" })],
        // Nor ids of their own for each call.
        vec![asks(&[call("a"), call("a")]), result("a", "one"), result("a", "two")],
        vec![asks(&[call(""), call("")]), result("", "one"), result("", "two")],
        // A call that nobody answered, and a result that nobody asked for.
        vec![asks(&[call("a")])],
        vec![result("lost", "the file")],
        // OpenClaw's own word for a result that it has lost.
        vec![
            asks(&[call("a")]),
            result(
                "a",
                "[openclaw] missing tool result in session history; inserted synthetic error result for transcript repair.",
            ),
        ],
    ];
    for history in histories {
        let mut items = vec![says("user", "Read them.")];
        items.extend(history);
        items.push(says("user", "Well?"));
        assert_untouched(chat, &items, "legacy").await;
    }
}

#[tokio::test]
async fn a_result_without_its_call_stays_where_others_are_folded() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut client = Client::new(Wire::OpenAiChat);
    for turn in 0..20 {
        work(&mut client, turn, 12_000);
        client.answer(&long_answer(turn));
    }
    client.items.push(json!({ "role": "tool", "tool_call_id": "lost", "content": "pelican" }));
    client.say("Which bird?");
    let forward = gateway.ask(&client).await;
    assert_eq!(forward.report.compaction, "applied", "{:?} {}", forward.report, forward.body.len());
    assert!(text(&forward.body).contains("\"tool_call_id\":\"lost\""));
    assert!(text(&forward.body).contains("pelican"));
    gateway.close().await;
}

#[tokio::test]
async fn a_clock_in_the_instructions_makes_no_conversation_of_its_own() {
    for (request, lists) in
        [(chat as fn(&[Value]) -> ClientRequest, "chat"), (responses, "responses")]
    {
        let state = tempfile::tempdir().unwrap();
        let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
        let mut said = Vec::new();
        let (mut sessions, mut compactions) = (Vec::new(), 0);
        for turn in 0..12 {
            let words = "The parser reads the ledger again. ".repeat(300);
            said.push(says("user", &format!("Step {turn}. {words}")));
            let clock = format!("It is 10:{turn:02}.");
            let mut items = vec![says("system", &clock), says("developer", "Be brief.")];
            items.extend(said.clone());
            let forward = gateway.forward(&request(&items)).await;
            let body = text(&forward.body);
            assert!(body.contains(&clock) && body.contains("Be brief."), "{lists}: {body}");
            assert!(!body.contains("It is 10:00.") || turn == 0, "{lists}: {body}");
            assert!(tokens::estimate(body) < WINDOW_TOKENS);
            compactions += usize::from(forward.report.compaction == "applied");
            sessions.push(forward.report.session);
            said.push(says("assistant", "Noted."));
        }
        sessions.dedup();
        assert_eq!(sessions.len(), 1, "{lists}");
        assert!((1..6).contains(&compactions), "{lists}: {compactions}");
        gateway.close().await;
    }
}

fn claude(system: &str, max_tokens: u64, items: &[Value]) -> ClientRequest {
    let body = json!({
        "model": "claude-sonnet-4-5", "max_tokens": max_tokens, "system": system,
        "messages": items,
    });
    incoming(DialectName::AnthropicMessages, &body)
}

/// Words that count as so many tokens.
fn words_of(tokens_wanted: u64) -> String {
    let sentence = "The parser reads the ledger and writes down what it has found there. ";
    let one = tokens::estimate(&sentence.repeat(100));
    sentence.repeat((tokens_wanted * 100 / one) as usize)
}

#[tokio::test]
async fn what_may_fit_is_asked_and_not_refused_by_an_estimate() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), 48_000).await;
    // With the share held free for an answer and a fifth of margin nothing is left of the window.
    for system_tokens in [28_000, 45_000] {
        let request = claude(&words_of(system_tokens), 32_000, &[says("user", "hi")]);
        let forward = gateway.forward(&request).await;
        let max_tokens = forward.report.max_tokens.unwrap_or(32_000);
        assert!(system_tokens + max_tokens <= 48_100, "{system_tokens}: {max_tokens}");
        let lowered = text(&request.body).replace("32000", &max_tokens.to_string());
        assert_eq!(text(&forward.body), lowered, "{system_tokens}");
    }
    // A long conversation beside it is made as small as it may have to be.
    let mut items = vec![says("user", "Begin.")];
    for turn in 0..12 {
        items.push(says("assistant", &format!("Part {turn}: {}", words_of(2_000))));
        items.push(says("user", &format!("Next, {turn}.")));
    }
    let forward = gateway.forward(&claude(&words_of(28_000), 32_000, &items)).await;
    let size = tokens::estimate(text(&forward.body));
    assert!(size < 42_000 && forward.report.engine != "none", "{size} {:?}", forward.report);
    gateway.close().await;
}

#[tokio::test]
async fn what_cannot_fit_is_refused_with_what_it_takes() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), 48_000).await;
    let request = claude(&words_of(60_000), 32_000, &[says("user", "hi")]);
    let taken = gateway.exchange.handle(&request).await;
    let ProxyAction::Respond(answer) = taken else { panic!("{taken:?}") };
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let message = body["error"]["message"].as_str().unwrap();
    let number = message.strip_prefix("prompt is too long: ").unwrap().split(' ').next().unwrap();
    let number: u64 = number.parse().unwrap();
    assert!((59_000..62_000).contains(&number), "{message}");
    gateway.close().await;
}

/// The whole of what a request was told of it.
async fn compaction(gateway: &Gateway, client: &Client) -> &'static str {
    gateway.ask(client).await.report.compaction
}

#[tokio::test]
async fn that_a_client_compacts_by_itself_is_known_behind_a_restart_and_a_fork() {
    let state = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut client = Client::new(Wire::Anthropic);
    client.say("This session is being continued from a previous conversation. Begun.");
    assert_eq!(compaction(&gateway, &client).await, "client");
    client.answer("On.");
    let before = client.clone();
    client.say("Go on.");
    assert_eq!(compaction(&gateway, &client).await, "client");
    let mut fork = before.clone();
    fork.say("Go elsewhere.");
    assert_eq!(compaction(&gateway, &fork).await, "client", "a fork");
    gateway.close().await;
    gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    assert_eq!(compaction(&gateway, &client).await, "client", "behind a restart");
    client.answer("On and on.");
    client.say("And on.");
    assert_eq!(compaction(&gateway, &client).await, "client", "the one after it");
    // Whoever goes back before the summary goes on without it.
    let mut codex = Client::new(Wire::Responses);
    codex.say("The first words.");
    let first = codex.clone();
    codex.say("Another language model started to solve this problem and produced a summary");
    let mut long = first.clone();
    long.answer("Yes.");
    long.say("On.");
    assert_eq!(compaction(&gateway, &long).await, "none");
    assert_eq!(compaction(&gateway, &codex).await, "client");
    let mut other = first.clone();
    other.say("Something else.");
    assert_eq!(compaction(&gateway, &other).await, "none");
    gateway.close().await;
}

#[tokio::test]
async fn codex_says_with_every_request_that_it_has_compacted() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut client = Client::new(Wire::Responses).with_header("x-codex-window-id", "t:0");
    client.say("Begin.");
    assert_eq!(compaction(&gateway, &client).await, "none");
    client.answer("Begun.");
    client.say("Go on.");
    let client = client.with_header("x-codex-window-id", "t:1");
    assert_eq!(compaction(&gateway, &client).await, "client");
    gateway.close().await;
}

/// A conversation of a program that gives all of its conversations one name, and greets alike in some.
fn of_program(number: usize, is_alike: bool) -> Client {
    let mut client = Client::new(Wire::Anthropic).with_header("x-ctxhost-session", "program");
    if is_alike {
        client.say("Hello.");
        client.answer(&format!("Hello, number {number}."));
    }
    client.say(&format!("I am number {number}."));
    client
}

#[tokio::test]
async fn many_conversations_of_one_name_are_all_found_again() {
    for is_alike in [true, false] {
        let state = tempfile::tempdir().unwrap();
        let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
        let mut clients: Vec<Client> = (0..70).map(|number| of_program(number, is_alike)).collect();
        let mut sessions = Vec::new();
        for client in &mut clients {
            sessions.push(gateway.ask(client).await.report.session);
            client.answer("Yes.");
            client.say("More.");
            gateway.ask(client).await;
            client.answer("Fine.");
            client.say("And more.");
        }
        for round in 0..2 {
            for (client, session) in clients.iter().zip(&sessions) {
                let truth = gateway.ask(client).await.report;
                assert_eq!(&truth.session, session, "round {round}, alike: {is_alike}");
            }
        }
        let files = walkdir(&state.path().join("gateway/sessions"));
        assert_eq!(files, 70, "alike: {is_alike}");
        gateway.close().await;
    }
}

/// How many sessions are in files.
fn walkdir(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let count = |path: std::path::PathBuf| {
        if path.is_dir() {
            walkdir(&path)
        } else {
            usize::from(path.extension().is_some_and(|it| it == "jsonl"))
        }
    };
    entries.map(count).sum()
}

#[tokio::test]
async fn a_request_that_is_none_leaves_no_session_behind() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let good = claude("", 10, &[says("user", "hi"), says("assistant", "ho"), says("user", "on")]);
    gateway.forward(&good).await;
    let before = gateway.runtime.open_sessions();
    for number in 0..5 {
        // One begins, the other would be a fork.
        let odd = json!({ "role": "user", "said": number });
        for items in [vec![odd.clone()], vec![says("user", "hi"), odd]] {
            let request = claude("", 10, &items);
            assert_eq!(gateway.forward(&request).await.report.engine, "none");
        }
    }
    assert_eq!(gateway.runtime.open_sessions(), before);
    gateway.close().await;
}

#[tokio::test]
async fn the_reminder_beside_a_result_is_not_the_persons_word() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut client = Client::new(Wire::Anthropic);
    for turn in 0..3 {
        client.say("Some other task.");
        client.read(&[words_of(900)]);
        client.answer(&format!("Done, {turn}."));
    }
    client.say("Find the pelican in these files, and nothing else.");
    for _ in 0..10 {
        client.read(&[words_of(2_000)]);
        let last = client.items.last_mut().unwrap();
        let reminder = "<system-reminder>\nThe list of tasks is empty.\n</system-reminder>";
        last["content"].as_array_mut().unwrap().push(json!({ "type": "text", "text": reminder }));
        let UpstreamRequest { body, .. } = gateway.ask(&client).await;
        assert!(text(&body).contains("Find the pelican in these files"), "{}", text(&body));
    }
    gateway.close().await;
}

#[tokio::test]
async fn a_cut_call_keeps_its_name_only_with_its_reasoning() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::of(state.path(), WINDOW_TOKENS, "window", "").await;
    let mut client = Client::new(Wire::Responses);
    client.say("Write the file.");
    client.items.push(
        json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" }),
    );
    let arguments = json!({ "path": "a", "text": words_of(30_000) }).to_string();
    client.items.push(json!({
        "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "write", "arguments": arguments,
    }));
    client
        .items
        .push(json!({ "type": "function_call_output", "call_id": "call_1", "output": "ok" }));
    let body = gateway.ask(&client).await.body;
    let body = text(&body);
    assert!(body.contains("\"call_1\"") && body.len() < 90_000, "{body}");
    // The name belongs to the reasoning: the provider refuses one without the other.
    assert_eq!(body.contains("rs_1"), body.contains("fc_1"), "{body}");
    gateway.close().await;
}
