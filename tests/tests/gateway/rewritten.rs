//! Clients that write their history anew at each request, and clients that leave it to the provider.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::linked::text;
use crate::stage::{Gate, Upstream, client, plain};

const CONFIG: &str = "[models.m]\nwindow_tokens = 20000\n";

/// Sends the bodies; the sessions of the responses, and the bodies that the model gets.
async fn sessions(path: &str, bodies: Vec<Value>) -> (HashSet<String>, Vec<Value>) {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let gate = Gate::before(&upstream.url, CONFIG).await;
    let mut sessions = HashSet::new();
    for body in bodies {
        let request = client().post(gate.at(path)).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        sessions.insert(answer.headers()["x-ctxhost-session"].to_str().unwrap().to_owned());
    }
    let seen = upstream.seen.lock().unwrap();
    let seen = seen.iter().map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect();
    (sessions, seen)
}

fn chat(messages: &[Value]) -> Value {
    json!({ "model": "m", "messages": messages })
}

#[tokio::test]
async fn a_question_that_is_stored_without_what_was_retrieved_for_it_is_the_same() {
    let message = |role: &str, words: &str| json!({ "role": role, "content": words });
    let mut stored = vec![message("system", "You answer from the context.")];
    let mut bodies = Vec::new();
    for turn in 0..30 {
        let question = format!("What does page {turn} say?");
        let wrapped = format!("Context:\n{}\n\nQuestion: {question}", text("A line. ", turn));
        let mut messages = stored.clone();
        messages.push(message("user", &wrapped));
        bodies.push(chat(&messages));
        stored.push(message("user", &question));
        stored.push(message("assistant", &text("It says this and that. ", turn)));
    }
    let (sessions, seen) = sessions("/v1/chat/completions", bodies).await;
    // Nothing of the first request is in the second one.
    assert_eq!(sessions.len(), 2);
    let last = seen.last().unwrap()["messages"].as_array().unwrap();
    assert!(last.len() < stored.len(), "nothing was shaped");
    assert!(last.last().unwrap().to_string().contains("Question: What does page 29 say?"));
}

#[tokio::test]
async fn a_reminder_inside_a_question_may_go() {
    let message = |role: &str, words: &str| json!({ "role": role, "content": words });
    let reminded =
        "Read the ledger.\n<system-reminder>\nBe brief.\n</system-reminder>\nThen the log.";
    let start =
        [message("user", "Begin."), message("assistant", "Yes?"), message("user", reminded)];
    let answered =
        [&start[..], &[message("assistant", "Fine."), message("user", "Go on.")]].concat();
    let mut plain = answered.clone();
    plain[2] = message("user", "Read the ledger.\n\nThen the log.");
    plain.extend([message("assistant", "Done."), message("user", "And now?")]);
    let bodies = vec![chat(&start), chat(&answered), chat(&plain)];
    let (sessions, _) = sessions("/v1/chat/completions", bodies).await;
    assert_eq!(sessions.len(), 1);
}

/// Requests of a conversation whose first message is made anew for each of them.
fn changing(
    turns: usize,
    task: impl Fn(usize) -> String,
    answer: impl Fn(usize) -> String,
) -> Vec<Value> {
    let message = |role: &str, words: &str| json!({ "role": role, "content": words });
    let mut rest = Vec::new();
    let mut bodies = Vec::new();
    for turn in 0..turns {
        if turn > 0 {
            rest.push(message("assistant", &answer(turn - 1)));
            rest.push(message("user", &format!("Go on with page {turn}.")));
        }
        let start = [message("system", "You are brief."), message("user", &task(turn))];
        bodies.push(chat(&[&start[..], &rest].concat()));
    }
    bodies
}

#[tokio::test]
async fn a_first_message_with_the_time_does_not_make_another_conversation() {
    let answer = |turn: usize| text("It says this and that. ", turn).repeat(3);
    let timed = |turn: usize| format!("Current time: 12:{turn:02}\n\nMend the ledger.");
    let memory = |turn: usize| {
        let notes = text("A note. ", turn / 2);
        format!(
            "You know:\n{notes}\n\nNow the task. Mend the ledger, page by page, and keep the first one."
        )
    };
    for task in [&timed as &dyn Fn(usize) -> String, &memory] {
        let bodies = changing(30, task, answer);
        let (sessions, seen) = sessions("/v1/chat/completions", bodies).await;
        // The first requests have too few answers to prove what they belong to.
        assert!(sessions.len() <= 3, "{sessions:?}");
        let last = seen.last().unwrap()["messages"].as_array().unwrap();
        assert!(last.len() < 60, "nothing was shaped");
        // User messages that are neighbours now are one.
        let content = |message: &Value| message["content"].as_str().unwrap().to_owned();
        assert!(content(&last[1]).starts_with(&task(29)), "{}", content(&last[1]));
        assert!(content(last.last().unwrap()).ends_with("Go on with page 29."));
    }
}

#[tokio::test]
async fn agents_with_tasks_that_are_alike_are_not_mixed() {
    let short = |_: usize| "ok".to_owned();
    let long =
        |_: usize| "I have read the page and found nothing that has to be changed. ".repeat(9);
    let same = |turn: usize| text("It says this and that. ", turn);
    let alike =
        |file: usize| move |_: usize| format!("Review the file number {file} of the ledger.");
    let tasks = ["Mend the ledger.", "Write a poem about the sea, in four lines."];
    let other = |number: usize| move |_: usize| tasks[number].to_owned();
    let pairs = [
        [changing(12, alike(1), short), changing(12, alike(2), short)],
        [changing(12, alike(1), long), changing(12, alike(2), long)],
        [changing(12, other(0), same), changing(12, other(1), same)],
    ];
    for pair in pairs {
        let [one, other] = pair;
        // In step, and the second one a step behind.
        for behind in [0_usize, 1] {
            let turns = (0..12 + behind).flat_map(|turn| {
                let second = turn.checked_sub(behind).and_then(|turn| other.get(turn));
                one.get(turn).into_iter().chain(second).cloned()
            });
            let (sessions, seen) = sessions("/v1/chat/completions", turns.collect()).await;
            assert_eq!(sessions.len(), 2, "{}", one[0]);
            assert_eq!(seen.len(), 24);
        }
    }
}

#[tokio::test]
async fn a_changed_first_message_that_starts_anew_is_another_conversation() {
    let answer = |turn: usize| text("It says this and that. ", turn);
    let first = changing(8, |_| "Mend the ledger, page by page.".into(), answer);
    let again = changing(3, |_| "Mend the ledger, line by line.".into(), answer);
    let (sessions, _) = sessions("/v1/chat/completions", [first, again].concat()).await;
    assert_eq!(sessions.len(), 2);
}

#[tokio::test]
async fn another_question_with_the_same_answer_is_another_conversation() {
    let message = |role: &str, words: &str| json!({ "role": role, "content": words });
    let system = message("system", "You are brief.");
    let conversation = |question: &str| {
        let start = vec![system.clone(), message("user", question)];
        let mut messages = start.clone();
        messages.extend([message("assistant", "Fine."), message("user", "Go on.")]);
        [chat(&start), chat(&messages)]
    };
    let bodies = ["Read the long ledger.", "Read the log."].map(conversation).concat();
    let (sessions, _) = sessions("/v1/chat/completions", bodies).await;
    assert_eq!(sessions.len(), 2);
}

#[tokio::test]
async fn a_turn_that_is_one_growing_answer_is_one_conversation() {
    let call = |at: usize| json!({ "id": format!("call_{at}"), "type": "function", "function": { "name": "read", "arguments": format!("{{\"page\":{at}}}") } });
    let result = |at: usize| json!({ "role": "tool", "tool_call_id": format!("call_{at}"), "content": text("A line. ", at) });
    let bodies = (0..40).map(|steps| {
        let mut messages = vec![
            json!({ "role": "system", "content": "You read." }),
            json!({ "role": "user", "content": "Read the ledger." }),
        ];
        if steps > 0 {
            let calls: Vec<Value> = (0..steps).map(call).collect();
            messages.push(json!({ "role": "assistant", "content": "", "tool_calls": calls }));
            messages.extend((0..steps).map(result));
        }
        chat(&messages)
    });
    let (sessions, seen) = sessions("/v1/chat/completions", bodies.collect()).await;
    assert_eq!(sessions.len(), 1);
    for body in seen {
        let messages = body["messages"].as_array().unwrap();
        let called: Vec<&Value> = messages
            .iter()
            .filter_map(|message| message["tool_calls"].as_array())
            .flatten()
            .map(|call| &call["id"])
            .collect();
        let answered: Vec<&Value> = messages
            .iter()
            .map(|message| &message["tool_call_id"])
            .filter(|id| !id.is_null())
            .collect();
        assert_eq!(called, answered, "{} messages", messages.len());
    }
}

#[tokio::test]
async fn a_thread_that_is_too_large_is_sent_whole_by_its_client() {
    let refusal = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "prompt is too long: 24001 tokens > 20000 maximum" } });
    let upstream =
        Upstream::start(move |_| plain(400, "application/json", refusal.to_string())).await;
    let gate = Gate::before(&upstream.url, CONFIG).await;
    let body = json!({ "model": "m", "max_tokens": 500, "messages": [{ "role": "user", "content": "Go on." }],
        "thread": { "type": "continue", "previous_message_id": "msg_1" } });
    let request = client().post(gate.at("/v1/messages")).header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 404);
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(answer["error"]["details"]["error_code"], "thread_not_found");
    assert_eq!(upstream.seen.lock().unwrap().len(), 1, "a smaller form cannot help");
}

#[tokio::test]
async fn a_stored_history_that_is_too_large_is_truncated_by_its_provider() {
    let refusal = json!({ "error": { "message": "Your input exceeds the context window of this model.", "type": "invalid_request_error", "param": "input", "code": "context_length_exceeded" } });
    let upstream = Upstream::start(move |seen| {
        let is_truncated = String::from_utf8_lossy(&seen.body).contains(r#""truncation":"auto""#);
        let (status, body) =
            if is_truncated { (200, "{}".to_owned()) } else { (400, refusal.to_string()) };
        plain(status, "application/json", body)
    })
    .await;
    let gate = Gate::before(&upstream.url, CONFIG).await;
    let ask = async |truncation: Option<&str>| {
        let mut body = json!({ "model": "m", "previous_response_id": "resp_1", "input": "Go on." });
        if let Some(truncation) = truncation {
            body["truncation"] = truncation.into();
        }
        let request = client().post(gate.at("/v1/responses"));
        let request = request.header("content-type", "application/json").body(body.to_string());
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!((ask(None).await, upstream.seen.lock().unwrap().len()), (200, 2));
    assert_eq!(ask(Some("disabled")).await, 400);
}

/// A provider that stores conversations, each of them too large: it answers only what it may truncate.
async fn full_store(is_stream: bool) -> Upstream {
    let refusal = json!({ "error": { "message": "Your input exceeds the context window of this model.", "type": "invalid_request_error", "param": "input", "code": "context_length_exceeded" } });
    let answered = AtomicUsize::new(1);
    Upstream::start(move |seen| {
        if !String::from_utf8_lossy(&seen.body).contains(r#""truncation":"auto""#) {
            return plain(400, "application/json", refusal.to_string());
        }
        let id = format!("resp_{}", answered.fetch_add(1, Ordering::Relaxed) + 1);
        let usage = json!({ "input_tokens": 10, "output_tokens": 2, "total_tokens": 12 });
        let answer = json!({ "id": id, "object": "response", "output": [], "usage": usage });
        if !is_stream {
            return plain(200, "application/json", answer.to_string());
        }
        let event = json!({ "type": "response.completed", "response": answer });
        plain(200, "text/event-stream", format!("event: response.completed\ndata: {event}\n\n"))
    })
    .await
}

#[tokio::test]
async fn a_stored_history_that_was_too_large_is_refused_once() {
    for is_stream in [false, true] {
        let upstream = full_store(is_stream).await;
        let gate = Gate::before(&upstream.url, CONFIG).await;
        let ask = async |field: &str, id: Value| {
            let mut body = json!({ "model": "m", "stream": is_stream, "input": "Go on." });
            body[field] = id;
            let request = client().post(gate.at("/v1/responses"));
            let request = request.header("content-type", "application/json").body(body.to_string());
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 200);
            answer.text().await.unwrap();
        };
        for turn in 1..=4 {
            ask("previous_response_id", format!("resp_{turn}").into()).await;
        }
        // A branch from an earlier answer is as large.
        ask("previous_response_id", "resp_2".into()).await;
        assert_eq!(upstream.count(), 6, "one refusal, then five requests");
        // Nothing is known of another history.
        ask("conversation", "conv_1".into()).await;
        ask("conversation", json!({ "id": "conv_1" })).await;
        assert_eq!(upstream.count(), 9);
    }
}
