//! Facts that a user states once stay in the prompt of every engine, however long the chat and however much tools print.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use ctxhost_config::Config;
use ctxhost_context::{Budget, Context, ContextSettings, Target};
use ctxhost_engine::{
    ActiveEngine, EngineEnvironment, EngineSpec, EngineTimeouts, HostClock, OnEngineError, bundled,
};
use ctxhost_engine_api::PlanItem;
use ctxhost_session::{RecordBody, Session, SessionHeader};
use serde_json::{Value, json};

/// What the user states in the second turn.
const FACTS: &str = "My order is ORD-2024-00817 with booking LX8K2P and ticket #48213; the invoice INV/2023/55 is about \
    € 1.249,50. Write to max.mueller@example.com or call +49 170 1234567. The database is at 192.168.178.20, port 5433. \
    The file is /srv/jürgen/Dokumente/Müller.xlsx, also Rechnung_2024.pdf. We meet on 2026-11-23. \
    The project is called \"Blue Heron\".";

const STATED: [&str; 12] = [
    "ORD-2024-00817",
    "LX8K2P",
    "#48213",
    "INV/2023/55",
    "€ 1.249,50",
    "max.mueller@example.com",
    "+49 170 1234567",
    "192.168.178.20",
    "/srv/jürgen/Dokumente/Müller.xlsx",
    "Rechnung_2024.pdf",
    "2026-11-23",
    "Blue Heron",
];

const TURNS: usize = 60;
const BUDGET_TOKENS: u64 = 4_000;

/// The least window that every engine accepts.
const WINDOW_TOKENS: u64 = 32_000;

struct Chat {
    context: Context,
    calls: usize,
}

impl Chat {
    fn new(engine: &str) -> Chat {
        let environment = EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
        let legacy = EngineSpec::bundled("legacy", json!({}));
        let engines = [EngineSpec::bundled(engine, json!({}))];
        let active =
            ActiveEngine::open(&engines, &legacy, OnEngineError::Fail, &environment).unwrap();
        let settings = ContextSettings::from_config(&Config::default());
        let session = Session::in_memory(SessionHeader::new(None, "/", 1));
        Chat { context: Context::new(session, Arc::new(active), Arc::new(settings)), calls: 0 }
    }

    fn append(&mut self, raw: &Value) {
        self.context.append([RecordBody::message(&raw.to_string()).unwrap()]).unwrap();
    }

    fn write(&mut self, role: &str, text: &str) {
        self.append(&json!({"role": role, "content": [{"type": "text", "text": text}]}));
    }

    /// A call whose output names files that no later turn needs.
    fn list_files(&mut self, turn: usize) {
        self.calls += 1;
        let id = format!("call{}", self.calls);
        let call = json!({"type": "toolCall", "id": id, "name": "bash", "arguments": {"command": "find ."}});
        self.append(&json!({"role": "assistant", "content": [call]}));
        let files: Vec<String> = (0..20)
            .map(|number| format!("src/module{turn}/part{number}.rs 2026-01-{:02}", number + 1))
            .collect();
        let content = json!([{"type": "text", "text": files.join("\n")}]);
        self.append(&json!({"role": "toolResult", "toolCallId": id, "toolName": "bash", "content": content, "isError": false}));
    }

    /// The text of the prompt for the next answer.
    async fn prompt(&mut self) -> String {
        let budget = Some(Budget { tokens: BUDGET_TOKENS, ..Budget::default() });
        let target = Target { window_tokens: WINDOW_TOKENS, budget, ..Target::default() };
        let prompt = self.context.prepare(&target).await.unwrap();
        assert!(prompt.checked.tokens <= BUDGET_TOKENS);
        prompt.items().iter().map(|item: &PlanItem<'_>| item.text().into_owned() + "\n").collect()
    }
}

/// Sentences without a fact, different in each turn.
fn filler(turn: usize, sentences: usize) -> String {
    let subjects =
        ["river", "garden", "kitchen", "library", "winter", "harbour", "orchestra", "forest"];
    let verbs = ["changes", "grows", "sleeps", "waits", "answers", "turns", "shines", "rests"];
    (0..sentences)
        .map(|number| {
            let subject = subjects[(turn * 3 + number) % subjects.len()];
            let verb = verbs[(turn * 5 + number * 3) % verbs.len()];
            format!(
                "The {subject} of the {} town {verb} slowly while people watch it from afar. ",
                verbs[turn % verbs.len()]
            )
        })
        .collect()
}

/// The facts that a prompt after the second turn lacks, by the turn.
async fn lost(engine: &str, has_tools: bool) -> Vec<String> {
    let mut chat = Chat::new(engine);
    let mut lost = Vec::new();
    for turn in 1..=TURNS {
        let request =
            if turn == 2 { FACTS.to_owned() } else { format!("Tell me more. {}", filler(turn, 2)) };
        chat.write("user", &request);
        let mut prompt = chat.prompt().await;
        if has_tools {
            chat.list_files(turn);
            prompt = chat.prompt().await;
        }
        if turn > 2 {
            let missing = STATED.iter().filter(|fact| !prompt.contains(**fact));
            lost.extend(missing.map(|fact| format!("{fact} in turn {turn}")));
        }
        chat.write("assistant", &filler(turn + 7, 6));
    }
    lost
}

async fn check(engine: &str) {
    assert!(bundled(engine).is_some());
    for has_tools in [false, true] {
        let lost = lost(engine, has_tools).await;
        let shown: Vec<&String> = lost.iter().rev().take(14).collect();
        assert!(
            lost.is_empty(),
            "{engine}, with tools: {has_tools}: {} lost: {shown:?}",
            lost.len()
        );
    }
}

#[tokio::test]
async fn window_keeps_the_facts_of_the_user() {
    check("window").await;
}

#[tokio::test]
async fn mask_keeps_the_facts_of_the_user() {
    check("mask").await;
}

#[tokio::test]
async fn recall_keeps_the_facts_of_the_user() {
    check("recall").await;
}

#[tokio::test]
async fn dag_keeps_the_facts_of_the_user() {
    check("dag").await;
}

#[tokio::test]
async fn legacy_keeps_the_facts_of_the_user() {
    check("legacy").await;
}

#[tokio::test]
async fn boundary_keeps_the_facts_of_the_user() {
    check("boundary").await;
}

#[tokio::test]
async fn head_tail_keeps_the_facts_of_the_user() {
    check("head-tail").await;
}
