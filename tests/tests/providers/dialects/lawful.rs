//! Every conversation that passes the invariants is encoded by the rules of chat completions.

use axum::http::HeaderMap;
use ctxhost_dialects::cross_model::adapt_messages;
use ctxhost_dialects::message::{ToolResultMessage, UserMessage};
use ctxhost_dialects::openai_chat::{self, Compat, CompatSettings, OpenAiChat};
use ctxhost_dialects::{AssistantMessage, ChatBlock, ChatMessage, Dialect, ModelRequest};
use ctxhost_engine_api::testing::generate::{plans_for, transcripts};
use ctxhost_engine_api::{Plan, PlanItem, Role, Transcript};
use ctxhost_invariants::{InvariantSettings, enforce};
use ctxhost_tests::rules::{self, Broken, Wire};
use proptest::prelude::*;

use super::encoded::reported;

/// The messages of items, as a runtime would write them.
fn messages_of(items: &[PlanItem<'_>]) -> Vec<ChatMessage> {
    let of_raw = |raw: &str, text: &str, role: Role| {
        serde_json::from_str(raw).unwrap_or_else(|_| spoken(role, text))
    };
    let one = |item: &PlanItem<'_>| match item {
        PlanItem::Kept(entry) => of_raw(entry.raw(), entry.text(), entry.role()),
        PlanItem::ReplacedRaw { entry, raw } => of_raw(raw, entry.text(), entry.role()),
        PlanItem::ReplacedText { entry, text } => {
            retold(of_raw(entry.raw(), text, entry.role()), text)
        }
        PlanItem::Inserted { role, text } => spoken(*role, text),
        PlanItem::MissingResult { call_id, .. } => {
            let tool_call_id = call_id.clone().into_owned();
            ChatMessage::ToolResult(ToolResultMessage { tool_call_id, ..Default::default() })
        }
        other => panic!("an item that this test does not know: {other:?}"),
    };
    items.iter().map(one).collect()
}

fn spoken(role: Role, text: &str) -> ChatMessage {
    let content = vec![ChatBlock::text(text)];
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
    content.retain(|block| !matches!(block, ChatBlock::Text { .. }));
    content.insert(0, ChatBlock::text(text));
    message
}

/// The rules that the request breaks; `None` where the plan cannot be made lawful.
fn broken_by(view: &Transcript, plan: Plan, compat: &Compat) -> Option<Vec<Broken>> {
    let lawful = enforce(view, plan, u64::MAX, &InvariantSettings::default()).ok()?;
    let messages = messages_of(&lawful.items(view));
    let messages = adapt_messages(&messages, openai_chat::API, "here", "m");
    let request = ModelRequest { model: "m".into(), messages, ..Default::default() };
    let dialect = OpenAiChat::new(compat.clone());
    let (path, body) = (dialect.path(&request), dialect.encode(&request));
    Some(rules::check(Wire::OpenAiChat, &path, &HeaderMap::new(), &body))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_lawful_conversation_is_written_by_the_rules(
        (generated, plan) in transcripts().prop_flat_map(|it| (Just(it.clone()), plans_for(&it))),
    ) {
        let view = generated.transcript();
        for base_url in ["http://x/v1", "https://api.mistral.ai/v1", "https://api.deepseek.com"] {
            let compat = Compat::new(&CompatSettings::default(), base_url);
            let whole = broken_by(&view, Plan::keep_all(view.len()), &compat);
            let planned = broken_by(&view, plan.clone(), &compat);
            prop_assert!(whole.is_some());
            for broken in [whole, planned].into_iter().flatten() {
                prop_assert!(broken.is_empty(), "{}", reported(&broken));
            }
        }
    }
}
