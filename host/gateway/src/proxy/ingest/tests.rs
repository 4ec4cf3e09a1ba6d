//! Clients that change earlier messages: one conversation stays one session, and two stay two.

mod edited;
mod eviction;
mod left_out;
mod unusual_items;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use axum::body::Bytes;
use ctxhost_engine_api::*;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::proxy::{ClientRequest, Endpoint, Proxy, ProxyAction, ShapingReport, UpstreamRequest};
use ctxhost_agent::{Runtime, RuntimeBuilder};
use ctxhost_config::Config;
use ctxhost_dialects::DialectName;
use ctxhost_dialects::message::TokenUsage;
use ctxhost_dialects::usage::AnswerReport;
use ctxhost_engine::EngineSpec;

/// An engine that keeps all entries and lets the host compact.
struct KeepAll;

impl ContextEngine for KeepAll {
    const INFO: Info = Info::new("keep-all", "Keep all", "1.0.0");

    fn create(_: Host, _: Value) -> Result<Self> {
        Ok(KeepAll)
    }

    async fn ingest(&self, _: Transcript, request: IngestRequest) -> Result<IngestReply> {
        Ok(IngestReply { entries: request.entries.end - request.entries.start })
    }

    async fn assemble(&self, view: Transcript, _: AssembleRequest) -> Result<Plan> {
        Ok(Plan::keep_all(view.len()))
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        Ok(Compaction::Delegate)
    }
}

struct Gateway {
    proxy: Arc<Proxy>,
    runtime: Runtime,
}

impl Gateway {
    async fn open(folder: &Path, window_tokens: u64) -> Gateway {
        Gateway::small(folder, window_tokens, 256).await
    }

    /// A gateway that keeps at most this many conversations in memory.
    async fn small(folder: &Path, window_tokens: u64, conversations: usize) -> Gateway {
        Gateway::with(folder, window_tokens, &format!("conversations = {conversations}")).await
    }

    /// A gateway with this line in its settings.
    async fn with(folder: &Path, window_tokens: u64, settings: &str) -> Gateway {
        let config =
            format!("[models.m]\nwindow_tokens = {window_tokens}\n[gateway]\n{settings}\n");
        let config = Config::parse("c", &config).unwrap();
        let spec = EngineSpec::linked::<KeepAll>(json!({}));
        let builder =
            RuntimeBuilder::from_config(&config).engine_spec(spec).without_builtin_tools();
        let runtime = builder.store_folder(folder.join("engines")).build().await.unwrap();
        Gateway { proxy: Proxy::new(runtime.clone(), &config, folder), runtime }
    }

    /// Sends a request that is answered completely.
    async fn ask(&self, messages: &[Value]) -> ShapingReport {
        self.ask_as(None, messages).await
    }

    async fn ask_as(&self, name: Option<&str>, messages: &[Value]) -> ShapingReport {
        let forward = self.forward(name, messages).await;
        let report = forward.report.clone();
        self.proxy.record_answer(forward.in_flight, AnswerReport::default());
        report
    }

    async fn forward(&self, name: Option<&str>, messages: &[Value]) -> UpstreamRequest {
        let body = json!({ "model": "m", "max_tokens": 10, "messages": messages });
        self.send(name, body.to_string()).await
    }

    async fn send(&self, name: Option<&str>, body: impl Into<Bytes>) -> UpstreamRequest {
        let mut headers = axum::http::HeaderMap::new();
        if let Some(name) = name {
            headers.insert("x-ctxhost-session", name.parse().unwrap());
        }
        let request = ClientRequest {
            endpoint: Endpoint::generate(DialectName::OpenAiCompletions),
            provider: "openai".into(),
            headers,
            body: body.into(),
        };
        match self.proxy.handle(&request).await {
            ProxyAction::Forward(forward) => forward,
            ProxyAction::Respond(answer) => panic!("{:?}", answer.body),
        }
    }

    /// Waits until the number of conversations in memory is within the limit.
    async fn settle(&self) {
        let proxy = &self.proxy;
        for _ in 0..2_000 {
            if !proxy.conversations.is_crowded() {
                return;
            }
            proxy.start_eviction();
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        panic!("too many conversations stay in memory");
    }

    async fn close(self) {
        self.proxy.persist_all().await;
        drop(self.proxy);
        self.runtime.shutdown().await;
    }
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

fn call(number: usize) -> Value {
    let function = json!({ "name": "read", "arguments": format!("{{\"n\":{number}}}") });
    json!({ "role": "assistant", "content": null,
            "tool_calls": [{ "id": format!("call_{number}"), "type": "function", "function": function }] })
}

fn result(number: usize, text: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": format!("call_{number}"), "content": text })
}

const INTERNAL: &str =
    "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nNo sub-agents.\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>";

/// The sessions of requests that end with a message the client drops afterwards.
async fn with_tail(
    gateway: &Gateway,
    task: &str,
    tail: impl Fn(usize) -> String,
) -> BTreeSet<String> {
    let mut kept = vec![user(task)];
    let mut sessions = BTreeSet::new();
    for round in 0..60 {
        kept.extend([call(round), result(round, &format!("{round}: {}", "line ".repeat(20)))]);
        let mut shaped = kept.clone();
        shaped.push(user(&tail(round)));
        sessions.insert(gateway.ask(&shaped).await.session);
    }
    sessions
}

#[tokio::test]
async fn a_last_message_that_changes_with_each_request_keeps_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 200_000).await;
    assert_eq!(with_tail(&gateway, "One.", |_| INTERNAL.to_owned()).await.len(), 1);
    assert_eq!(with_tail(&gateway, "Two.", |round| format!("The time is {round}.")).await.len(), 1);
    gateway.close().await;
}

#[tokio::test]
async fn a_reminder_after_the_last_message_keeps_the_session_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let reminder = "\n\n# *SEARCH/REPLACE block* Rules:\nEvery block must use this format.";
    let (mut kept, mut sessions) = (Vec::new(), BTreeSet::new());
    kept.extend([
        user("I am not sharing any files that you can edit yet."),
        json!({ "role": "assistant", "content": "Ok." }),
    ]);
    for process in 0..4 {
        let gateway = Gateway::open(folder.path(), 200_000).await;
        for round in 3 * process..3 * process + 3 {
            let meta = format!("Do step {round}.");
            let mut shaped = kept.clone();
            shaped.push(user(&format!("{meta}{reminder}")));
            sessions.insert(gateway.ask(&shaped).await.session);
            sessions.insert(gateway.ask(&shaped).await.session);
            let answer = json!({ "role": "assistant", "content": format!("Done {round}.") });
            kept.extend([user(&meta), answer]);
        }
        gateway.close().await;
    }
    assert_eq!(sessions.len(), 1, "{sessions:?}");
}

#[tokio::test]
async fn cleared_results_keep_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 200_000).await;
    let mut messages = vec![user("Read all files.")];
    let mut sessions = BTreeSet::new();
    for round in 0..20 {
        messages.extend([call(round), result(round, &format!("{round}: {}", "line ".repeat(60)))]);
        if round % 6 == 5 {
            for old in 0..round.saturating_sub(2) {
                messages[2 + 2 * old] = result(old, "[Old tool result content cleared]");
            }
        }
        let report = gateway.ask(&messages).await;
        sessions.insert(report.session.clone());
        if round == 19 {
            assert!(report.before_tokens.unwrap() < 3_000, "{report:?}");
        }
    }
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    gateway.close().await;
    let gateway = Gateway::open(folder.path(), 200_000).await;
    messages.extend([call(20), result(20, "the last")]);
    sessions.insert(gateway.ask(&messages).await.session);
    assert_eq!(sessions.len(), 1, "behind a restart: {sessions:?}");
    gateway.close().await;
}

#[tokio::test]
async fn a_summary_by_the_client_keeps_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 200_000).await;
    let task = "Read part 1 to part 60 one after the other and keep QX-1 in mind.";
    let mut messages = vec![user(task)];
    let ask_for = "Please create a detailed summary of the conversation so far. Be brief.";
    for round in 0..10 {
        messages.extend([call(round), result(round, &format!("{round}: {}", "line ".repeat(60)))]);
        gateway.ask(&messages).await;
    }
    let first = gateway.ask(&messages).await.session;
    // The client asks for the summary in the background, and the conversation continues.
    let mut asking = messages.clone();
    asking.push(user(ask_for));
    assert_eq!(gateway.ask(&asking).await.session, first);
    assert_eq!(gateway.ask(&messages).await.session, first);
    // Only what the summary quotes is left.
    let summary = format!(
        "Some of the conversation history has been summarized to free up context.\n{task}\nAll read."
    );
    let mut after = vec![user(&summary), call(10), result(10, "ten")];
    assert_eq!(gateway.ask(&after).await.session, first);
    after.extend([call(11), result(11, "eleven")]);
    assert_eq!(gateway.ask(&after).await.session, first);
    // Another client keeps the newest rounds.
    for round in 12..16 {
        after.extend([call(round), result(round, "more")]);
        assert_eq!(gateway.ask(&after).await.session, first);
    }
    let mut newest = vec![user("Context summary:\n\nAll read.")];
    newest.extend_from_slice(&after[after.len() - 6..]);
    newest.extend([call(16), result(16, "sixteen")]);
    assert_eq!(gateway.ask(&newest).await.session, first);
    // The summary of another task belongs to another conversation.
    let other = vec![user(
        "Some of the conversation history has been summarized to free up context.\nBake a cake.",
    )];
    assert_ne!(gateway.ask(&other).await.session, first);
    gateway.close().await;
}

#[tokio::test]
async fn a_conversation_that_is_sent_again_forks_at_most_once() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 200_000).await;
    let mut messages = vec![user("Read all files.")];
    for round in 0..40 {
        messages.extend([call(round), result(round, &format!("{round}"))]);
    }
    let mut sessions = BTreeSet::new();
    for _ in 0..2 {
        for end in (0..40).map(|round| 1 + 2 * round) {
            sessions.insert(gateway.ask(&messages[..end]).await.session);
        }
    }
    assert!(sessions.len() <= 2, "{sessions:?}");
    gateway.close().await;
}

#[tokio::test]
async fn a_session_id_of_the_client_keeps_the_session_after_edits() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 200_000).await;
    let answer = |text: &str| json!({ "role": "assistant", "content": text });
    let straight = [user("One."), answer("1."), user("Two."), answer("2."), user("Three.")];
    let mut edited = straight.clone();
    edited[2] = user("Another two.");
    edited[3] = answer("Another.");
    let mut sessions = BTreeSet::new();
    for messages in
        [&straight[..1], &straight[..3], &straight[..], &edited[..3], &edited[..], &straight[..]]
    {
        sessions.insert(gateway.ask_as(Some("mine"), messages).await.session);
    }
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    // A request for a title under the same name shares no items with it.
    let title = gateway.ask_as(Some("mine"), &[user("Write a title.")]).await.session;
    assert!(!sessions.contains(&title));
    assert_ne!(gateway.ask_as(Some("yours"), &straight).await.session, *sessions.first().unwrap());
    gateway.close().await;
}

#[tokio::test]
async fn an_edited_message_forks_if_it_was_answered_and_is_replaced_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 200_000).await;
    let begun = [user("One."), json!({ "role": "assistant", "content": "1." })];
    let with = |text: &str| [&begun[..], &[user(text)]].concat();
    let first = gateway.ask(&with("Two.")).await.session;
    assert_ne!(gateway.ask(&with("Three.")).await.session, first);
    // The response was broken off.
    let begun = gateway
        .forward(
            None,
            &[user("Begin."), json!({ "role": "assistant", "content": "a" }), user("Go.")],
        )
        .await;
    let session = begun.report.session.clone();
    drop(begun);
    let other = [user("Begin."), json!({ "role": "assistant", "content": "a" }), user("Stop.")];
    assert_eq!(gateway.ask(&other).await.session, session);
    gateway.close().await;
}

#[tokio::test]
async fn sessions_that_wait_for_the_upstream_are_closed_and_reopened_for_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::small(folder.path(), 200_000, 2).await;
    let task = |number: usize| user(&format!("Task {number}."));
    let mut out = Vec::new();
    for number in 0..10 {
        out.push(gateway.forward(None, &[task(number)]).await);
    }
    for _ in 0..2_000 {
        if gateway.runtime.open_sessions() <= 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert!(gateway.runtime.open_sessions() <= 2, "{} are open", gateway.runtime.open_sessions());
    let sessions: Vec<String> = out.iter().map(|forward| forward.report.session.clone()).collect();
    let usage = TokenUsage { input: 40, output: 2, ..TokenUsage::default() };
    for forward in out {
        gateway.proxy.record_answer(
            forward.in_flight,
            AnswerReport { usage: Some(usage), ..AnswerReport::default() },
        );
    }
    for (number, session) in sessions.iter().enumerate() {
        let done = json!({ "role": "assistant", "content": "Done." });
        let next = [task(number), done, user("And now?")];
        assert_eq!(gateway.ask(&next).await.session, *session);
    }
    gateway.close().await;
}

/// The next step of one of several agents.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Continues, with a last message that it drops afterwards: 0 none, 1 injected, 2 plain.
    Continue(u8),
    /// Continues, and clears all results except the newest two.
    Clear,
    /// Sends the same request again.
    Again,
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let step = prop_oneof![
        6 => (0u8..3).prop_map(Step::Continue),
        1 => Just(Step::Clear),
        1 => Just(Step::Again),
    ];
    prop::collection::vec((0usize..3, step), 10..36)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 64, ..ProptestConfig::with_cases(16) })]

    /// Agents with the same first message and the same tool call ids: only the tool results differ.
    #[test]
    fn each_conversation_has_one_session_of_its_own(
        steps in steps(),
        is_small in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let seen = runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let conversations = if is_small { 1 } else { 256 };
            let gateway = Gateway::small(folder.path(), 200_000, conversations).await;
            let mut agents: Vec<Vec<Value>> = vec![vec![user("Read all files.")]; 3];
            let mut rounds = [0usize; 3];
            let mut last: Vec<Vec<Value>> = vec![Vec::new(); 3];
            let mut seen: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
            for (agent, step) in steps {
                let messages = &mut agents[agent];
                let mut tail = None;
                if !matches!(step, Step::Again) {
                    let round = rounds[agent];
                    rounds[agent] += 1;
                    let text = format!("agent {agent}, {round}: {}", "x".repeat((agent * 7 + round) % 40));
                    messages.extend([call(round), result(round, &text)]);
                    tail = match step {
                        Step::Continue(1) => Some(user(INTERNAL)),
                        Step::Continue(2) => Some(user(&format!("It is {round}."))),
                        _ => None,
                    };
                }
                if matches!(step, Step::Clear) {
                    for old in 0..rounds[agent].saturating_sub(2) {
                        messages[2 + 2 * old] = result(old, "[cleared]");
                    }
                }
                if !matches!(step, Step::Again) || last[agent].is_empty() {
                    last[agent] = messages.iter().cloned().chain(tail).collect();
                }
                let session = gateway.ask(&last[agent]).await.session;
                gateway.settle().await;
                if rounds[agent] > 0 {
                    seen.entry(agent).or_default().insert(session);
                }
            }
            gateway.close().await;
            seen
        });
        for (agent, sessions) in &seen {
            prop_assert_eq!(sessions.len(), 1, "agent {}: {:?}", agent, sessions);
        }
        let all: BTreeSet<&String> = seen.values().flatten().collect();
        prop_assert_eq!(all.len(), seen.len(), "{:?}", seen);
    }
}

#[tokio::test]
async fn instructions_before_the_newest_message_only_make_no_fork() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(folder.path(), 100_000).await;
    let mut history = Vec::new();
    let mut sessions = BTreeSet::new();
    for turn in 0..5 {
        let question = json!({ "role": "user", "content": format!("Question {turn}?") });
        let retrieved = json!({ "role": "system", "content": format!("Retrieved for {turn}.") });
        let mut messages = history.clone();
        messages.extend([retrieved, question.clone()]);
        sessions.insert(gateway.ask(&messages).await.session);
        history.extend([
            question,
            json!({ "role": "assistant", "content": format!("Answer {turn}.") }),
        ]);
    }
    assert_eq!(sessions.len(), 1, "{sessions:?}");
}
