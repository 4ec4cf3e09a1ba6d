//! Any conversation that the law let through is written by the rules of chat completions.

use axum::http::HeaderMap;
use ctxhost_dialects::cross_model::for_model;
use ctxhost_dialects::message::{ToolResultMessage, UserMessage};
use ctxhost_dialects::openai_chat::{self, Compat, CompatSettings, OpenAiChat};
use ctxhost_dialects::{AssistantMessage, ChatMessage, Content, Dialect, ModelRequest};
use ctxhost_engine_api::testing::generate::{plans_of, transcripts};
use ctxhost_engine_api::{Item, Plan, Role, Transcript};
use ctxhost_law::{LawSettings, enforce};
use ctxhost_tests::rules::{self, Broken, Wire};
use proptest::prelude::*;

use super::encoded::told;

/// The messages of items, as a runtime would write them.
fn messages_of(items: &[Item<'_>]) -> Vec<ChatMessage> {
    let of_raw = |raw: &str, text: &str, role: Role| {
        serde_json::from_str(raw).unwrap_or_else(|_| spoken(role, text))
    };
    let one = |item: &Item<'_>| match item {
        Item::Kept(entry) => of_raw(entry.raw(), entry.text(), entry.role()),
        Item::Rewritten { entry, raw } => of_raw(raw, entry.text(), entry.role()),
        Item::Retold { entry, text } => retold(of_raw(entry.raw(), text, entry.role()), text),
        Item::Inserted { role, text } => spoken(*role, text),
        Item::MissingResult { call_id, .. } => {
            let tool_call_id = call_id.clone().into_owned();
            ChatMessage::ToolResult(ToolResultMessage { tool_call_id, ..Default::default() })
        }
        other => panic!("an item that this test does not know: {other:?}"),
    };
    items.iter().map(one).collect()
}

fn spoken(role: Role, text: &str) -> ChatMessage {
    let content = vec![Content::text(text)];
    match role {
        Role::Assistant => {
            ChatMessage::Assistant(AssistantMessage { content, ..Default::default() })
        }
        _ => ChatMessage::User(UserMessage { content, ..Default::default() }),
    }
}

/// A message with another text; its calls and images stay.
fn retold(mut message: ChatMessage, text: &str) -> ChatMessage {
    let content = match &mut message {
        ChatMessage::User(message) => &mut message.content,
        ChatMessage::Assistant(message) => &mut message.content,
        ChatMessage::ToolResult(message) => &mut message.content,
    };
    content.retain(|block| !matches!(block, Content::Text { .. }));
    content.insert(0, Content::text(text));
    message
}

/// The rules that the request breaks; `None` where the plan cannot be made lawful.
fn broken_by(view: &Transcript, plan: Plan, compat: &Compat) -> Option<Vec<Broken>> {
    let lawful = enforce(view, plan, u64::MAX, &LawSettings::default()).ok()?;
    let messages = messages_of(&lawful.items(view));
    let messages = for_model(&messages, openai_chat::API, "here", "m");
    let request = ModelRequest { model: "m".into(), messages, ..Default::default() };
    let dialect = OpenAiChat::new(compat.clone());
    let (path, body) = (dialect.path(&request), dialect.encode(&request));
    Some(rules::check(Wire::OpenAiChat, &path, &HeaderMap::new(), &body))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_lawful_conversation_is_written_by_the_rules(
        (generated, plan) in transcripts().prop_flat_map(|it| (Just(it.clone()), plans_of(&it))),
    ) {
        let view = generated.transcript();
        for base_url in ["http://x/v1", "https://api.mistral.ai/v1", "https://api.deepseek.com"] {
            let compat = Compat::of(&CompatSettings::default(), base_url);
            let whole = broken_by(&view, Plan::keep_all(view.len()), &compat);
            let planned = broken_by(&view, plan.clone(), &compat);
            prop_assert!(whole.is_some());
            for broken in [whole, planned].into_iter().flatten() {
                prop_assert!(broken.is_empty(), "{}", told(&broken));
            }
        }
    }
}
