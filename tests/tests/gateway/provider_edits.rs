//! Providers that change the prompt themselves: tools that are loaded later, compactions, removed tool results.

use std::collections::HashSet;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::stage::{Gate, Seen, Upstream, client, plain};

const WINDOW_TOKENS: usize = 32_000;

const ENGINES: [&str; 7] = ["legacy", "window", "mask", "boundary", "head-tail", "recall", "dag"];

fn config(engine: &str) -> String {
    format!(
        "[plugins.slots]\ncontext_engine = \"{engine}\"\n[models.m]\nwindow_tokens = {WINDOW_TOKENS}\n"
    )
}

/// A text of so many tokens, each time another one.
fn filler(seed: usize, tokens: usize) -> String {
    let words =
        (0..tokens * 4 / 12).map(|at| format!("word {:06} ", (seed * 7_919 + at) % 999_983));
    words.collect()
}

fn tokens(value: &Value) -> usize {
    value.to_string().len() / 4
}

/// An API whose provider compacts by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Api {
    Anthropic,
    Responses,
}

impl Api {
    fn path(self) -> &'static str {
        match self {
            Api::Anthropic => "/v1/messages",
            Api::Responses => "/v1/responses",
        }
    }

    fn body(self, items: &[Value], threshold: usize) -> Value {
        match self {
            Api::Anthropic => json!({ "model": "m", "max_tokens": 1_000, "messages": items,
                "context_management": { "edits": [{ "type": "compact_20260112",
                    "trigger": { "type": "input_tokens", "value": threshold } }] } }),
            Api::Responses => json!({ "model": "m", "store": false, "input": items,
                "context_management": [{ "type": "compaction", "compact_threshold": threshold }] }),
        }
    }

    fn items(self, body: &Value) -> Vec<Value> {
        let field = if self == Api::Anthropic { "messages" } else { "input" };
        body[field].as_array().unwrap().clone()
    }

    fn user(self, text: &str) -> Value {
        let kind = if self == Api::Anthropic { "text" } else { "input_text" };
        json!({ "role": "user", "content": [{ "type": kind, "text": text }] })
    }

    fn result(self, call_id: &str, text: &str) -> Value {
        match self {
            Api::Anthropic => json!({ "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": call_id, "content": text }] }),
            Api::Responses => {
                json!({ "type": "function_call_output", "call_id": call_id, "output": text })
            }
        }
    }

    /// The blocks or items of an answer.
    fn answer(self, compaction: Option<usize>, number: usize, call_id: Option<&str>) -> Vec<Value> {
        let text = format!("ANSWER {number}: {}", filler(number, 40));
        let mut parts = Vec::new();
        match self {
            Api::Anthropic => {
                parts.extend(compaction.map(|of| {
                    json!({ "type": "compaction",
                    "content": format!("COMPACTION {of}: {}", filler(of, 900)) })
                }));
                parts.push(json!({ "type": "text", "text": text }));
                parts.extend(call_id.map(
                    |id| json!({ "type": "tool_use", "id": id, "name": "read", "input": {} }),
                ));
            }
            Api::Responses => {
                parts.extend(compaction.map(|of| {
                    json!({ "type": "compaction",
                    "id": format!("cmp_{of}"),
                    "encrypted_content": format!("COMPACTION {of}: {}", filler(of, 900)) })
                }));
                parts.push(json!({ "type": "message", "role": "assistant",
                    "content": [{ "type": "output_text", "text": text }] }));
                parts.extend(call_id.map(|id| {
                    json!({ "type": "function_call", "call_id": id,
                    "name": "read", "arguments": "{}" })
                }));
            }
        }
        parts
    }

    /// What the model reads: the items from the newest compaction on.
    fn effective(self, items: &[Value]) -> Vec<Value> {
        let is_compaction = |part: &Value| part["type"] == "compaction";
        if self == Api::Responses {
            return items[items.iter().rposition(is_compaction).unwrap_or(0)..].to_vec();
        }
        let newest =
            |item: &Value| item["content"].as_array().unwrap().iter().rposition(is_compaction);
        let Some(at) = items.iter().rposition(|item| newest(item).is_some()) else {
            return items.to_vec();
        };
        let mut items = items[at..].to_vec();
        let blocks = items[0]["content"].as_array().unwrap();
        let blocks = blocks[newest(&items[0]).unwrap()..].to_vec();
        items[0]["content"] = blocks.into();
        items
    }

    /// The calls and the results that a model reads, by id.
    fn pairs(self, items: &[Value]) -> (HashSet<String>, HashSet<String>) {
        let parts: Vec<Value> = match self {
            Api::Responses => items.to_vec(),
            Api::Anthropic => {
                let blocks = items.iter().map(|item| item["content"].as_array().unwrap().clone());
                blocks.flatten().collect()
            }
        };
        let ids = |kind: &str, field: &str| {
            let of_kind = parts.iter().filter(|part| part["type"] == kind);
            of_kind.map(|part| part[field].as_str().unwrap().to_owned()).collect()
        };
        match self {
            Api::Anthropic => (ids("tool_use", "id"), ids("tool_result", "tool_use_id")),
            Api::Responses => {
                (ids("function_call", "call_id"), ids("function_call_output", "call_id"))
            }
        }
    }
}

/// A provider that compacts where a prompt exceeds the threshold, up to so many times.
async fn compacting(api: Api, most: usize, with_calls: bool) -> Upstream {
    let counts = Mutex::new((0, 0));
    let answer = move |seen: &Seen| {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        let sent = Value::from(api.effective(&api.items(&body)));
        let read = tokens(&sent);
        let mut counts = counts.lock().unwrap();
        counts.0 += 1;
        let compacts = read > WINDOW_TOKENS / 2 && counts.1 < most;
        counts.1 += usize::from(compacts);
        let call_id = with_calls.then(|| format!("call_{:020}", counts.0));
        let parts = api.answer(compacts.then_some(counts.1), counts.0, call_id.as_deref());
        let read = if compacts { 1_000 } else { read };
        let usage = json!({ "input_tokens": read, "output_tokens": 50, "total_tokens": read + 50 });
        let answer = match api {
            Api::Anthropic => json!({ "id": "msg_1", "type": "message", "role": "assistant",
                "model": "m", "content": parts, "stop_reason": "end_turn", "usage": usage }),
            Api::Responses => json!({ "id": "resp_1", "object": "response", "status": "completed",
                "output": parts, "usage": usage }),
        };
        plain(200, "application/json", answer.to_string())
    };
    Upstream::start(answer).await
}

/// A client that keeps all that it got.
struct Agent {
    api: Api,
    url: String,
    items: Vec<Value>,
    sessions: HashSet<String>,
    labels: Vec<String>,
}

impl Agent {
    fn new(api: Api, gate: &Gate) -> Agent {
        let (items, sessions, labels) = (Vec::new(), HashSet::new(), Vec::new());
        Agent { api, url: gate.at(api.path()), items, sessions, labels }
    }

    /// Sends its history; returns the ids of the calls in the answer.
    async fn send(&mut self) -> Vec<String> {
        let body = self.api.body(&self.items, WINDOW_TOKENS / 2);
        let request = client().post(&self.url).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.unwrap();
        let status = answer.status();
        let header = |name: &str| {
            let value = answer.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        self.sessions.insert(header("x-ctxhost-session"));
        self.labels.push(header("x-ctxhost-compaction"));
        let text = answer.text().await.unwrap();
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let parts = match self.api {
            Api::Anthropic => {
                let parts = answer["content"].as_array().unwrap().clone();
                self.items.push(json!({ "role": "assistant", "content": parts }));
                parts
            }
            Api::Responses => {
                let parts = answer["output"].as_array().unwrap().clone();
                self.items.extend(parts.iter().cloned());
                parts
            }
        };
        let id = |part: &Value| Some(part.get("id").or(part.get("call_id"))?.as_str()?.to_owned());
        let calls = parts
            .iter()
            .filter(|part| part["type"] == "tool_use" || part["type"] == "function_call");
        calls.filter_map(id).collect()
    }

    /// A question, or the results of the last calls.
    fn ask(&mut self, round: usize, calls: &[String]) {
        let text = format!("REQUEST {round}: {}", filler(round + 1_000, 900));
        if calls.is_empty() {
            self.items.push(self.api.user(&text));
        }
        for call in calls {
            self.items.push(self.api.result(call, &text));
        }
    }
}

async fn check_compactions(api: Api, engine: &str, with_calls: bool) {
    let case = format!("{api:?} {engine} calls {with_calls}");
    let upstream = compacting(api, 3, with_calls).await;
    let gate = Gate::before(&upstream.url, &config(engine)).await;
    let mut agent = Agent::new(api, &gate);
    let mut calls = Vec::new();
    let (mut compactions, mut is_shortened) = (0, false);
    for round in 0..110 {
        agent.ask(round, &calls);
        let effective = api.effective(&agent.items);
        let newest = agent.items.last().unwrap().to_string();
        calls = agent.send().await;
        let body: Value = serde_json::from_slice(&upstream.last().body).unwrap();
        let sent = api.effective(&api.items(&body));
        if tokens(&effective.clone().into()) < WINDOW_TOKENS * 6 / 10 {
            assert_eq!(sent, effective, "{case}, round {round}: changed without need");
        }
        is_shortened |= sent != effective;
        assert!(tokens(&sent.clone().into()) < WINDOW_TOKENS, "{case}, round {round}");
        let text = Value::from(sent.clone()).to_string();
        assert!(text.contains(&format!("REQUEST {round}:")), "{case}, round {round}: {newest}");
        if compactions > 0 {
            let mark = format!("COMPACTION {compactions}: ");
            assert!(sent[0].to_string().contains(&mark), "{case}, round {round}: {}", sent[0]);
        }
        let (called, answered) = api.pairs(&sent);
        assert_eq!(called, answered, "{case}, round {round}");
        let roles = sent.windows(2).filter(|pair| pair[0]["role"] == pair[1]["role"]).count();
        assert!(api == Api::Responses || roles == 0, "{case}, round {round}: {sent:?}");
        let last = Value::from(agent.items.clone()).to_string();
        compactions =
            (0..4).rev().find(|of| last.contains(&format!("COMPACTION {of}: "))).unwrap_or(0);
    }
    assert_eq!(compactions, 3, "{case}");
    assert!(is_shortened, "{case}: {:?}", agent.labels);
    assert_eq!(agent.sessions.len(), 1, "{case}: {:?}", agent.sessions);
}

#[tokio::test]
async fn a_compaction_of_anthropic_replaces_what_is_before_it() {
    for engine in ENGINES {
        check_compactions(Api::Anthropic, engine, false).await;
    }
    check_compactions(Api::Anthropic, "legacy", true).await;
    check_compactions(Api::Anthropic, "window", true).await;
}

#[tokio::test]
async fn a_compaction_of_openai_replaces_what_is_before_it() {
    for engine in ENGINES {
        check_compactions(Api::Responses, engine, false).await;
    }
    check_compactions(Api::Responses, "legacy", true).await;
    check_compactions(Api::Responses, "window", true).await;
}

#[tokio::test]
async fn a_compacted_conversation_is_found_after_a_restart() {
    for api in [Api::Anthropic, Api::Responses] {
        let upstream = compacting(api, 9, true).await;
        let gate = Gate::before(&upstream.url, &config("legacy")).await;
        let mut agent = Agent::new(api, &gate);
        let mut calls = Vec::new();
        for round in 0..24 {
            agent.ask(round, &calls);
            calls = agent.send().await;
        }
        let Gate { end, task, state, .. } = gate;
        end.cancel();
        task.await.unwrap();
        let gate = Gate::again(&upstream.url, &config("legacy"), state).await;
        agent.url = gate.at(api.path());
        agent.ask(24, &calls);
        agent.send().await;
        assert_eq!(agent.sessions.len(), 1, "{api:?}: {:?}", agent.sessions);
    }
}

/// A list of tools that are loaded later, each of some 500 tokens.
fn deferred_tools(api: Api, count: usize) -> Vec<Value> {
    let schema = |of: usize| {
        json!({ "type": "object", "properties": {
        "path": { "type": "string", "description": filler(of, 450) } } })
    };
    let tool = |of: usize| match api {
        Api::Anthropic => json!({ "name": format!("tool_{of}"), "description": "does",
            "input_schema": schema(of), "defer_loading": true }),
        Api::Responses => json!({ "type": "function", "name": format!("tool_{of}"),
            "description": "does", "parameters": schema(of), "defer_loading": true }),
    };
    (0..count).map(tool).collect()
}

#[tokio::test]
async fn tools_that_are_loaded_later_take_no_room() {
    for api in [Api::Anthropic, Api::Responses] {
        let upstream = compacting(api, 0, false).await;
        let gate = Gate::before(&upstream.url, &config("legacy")).await;
        let send = async |is_deferred: bool| {
            let mut tools = deferred_tools(api, 200);
            if !is_deferred {
                tools.iter_mut().for_each(|tool| tool["defer_loading"] = false.into());
            }
            let mut body = api.body(&[api.user(&filler(1, 16_000))], 150_000);
            body["tools"] = tools.into();
            let request = client().post(gate.at(api.path()));
            let request = request.header("content-type", "application/json");
            let answer = request.body(body.to_string()).send().await.unwrap();
            (answer.status().as_u16(), body.to_string())
        };
        let (status, body) = send(true).await;
        assert_eq!((status, upstream.count()), (200, 1), "{api:?}");
        assert_eq!(upstream.last().body, body, "{api:?}");
        let (status, _) = send(false).await;
        assert_eq!((status, upstream.count()), (400, 1), "{api:?}");
    }
}

/// Reports so many tokens of each prompt, as a provider that leaves out old results.
async fn clearing(most_tokens: usize) -> Upstream {
    Upstream::start(move |seen| {
        let body: Value = serde_json::from_slice(&seen.body).unwrap();
        let read = tokens(&body["messages"]).min(most_tokens);
        let usage =
            json!({ "input_tokens": 10, "cache_read_input_tokens": read, "output_tokens": 50 });
        let answer = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{ "type": "text", "text": "Done." }], "stop_reason": "end_turn",
            "usage": usage });
        plain(200, "application/json", answer.to_string())
    })
    .await
}

/// The truncations that a gateway has seen, in a conversation whose provider counts at most 6,000 tokens.
async fn seen_truncations(fields: Value) -> usize {
    let upstream = clearing(6_000).await;
    let gate = Gate::before(&upstream.url, &config("legacy")).await;
    let mut items = Vec::new();
    for round in 0..16 {
        items.push(Api::Anthropic.user(&format!("{round} {}", filler(round, 900))));
        let mut body = json!({ "model": "m", "max_tokens": 1_000, "messages": items });
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        let request = client().post(gate.at("/v1/messages"));
        let request = request.header("content-type", "application/json").body(body.to_string());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.text().await.unwrap();
        items
            .push(json!({ "role": "assistant", "content": [{ "type": "text", "text": "Done." }] }));
    }
    let metrics = client().get(gate.at("/metrics")).send().await.unwrap().text().await.unwrap();
    let name = "ctxhost_truncated_upstream_total ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().parse().unwrap()
}

#[tokio::test]
async fn a_prompt_that_the_provider_may_shorten_is_not_truncated() {
    let edits = json!([{ "type": "clear_tool_uses_20250919" }]);
    assert_eq!(seen_truncations(json!({ "context_management": { "edits": edits } })).await, 0);
    assert!(seen_truncations(json!({})).await > 0);
    assert!(seen_truncations(json!({ "context_management": { "edits": [] } })).await > 0);
}
