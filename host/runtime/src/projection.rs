//! What a model is sent of a lawful plan: its items as messages, in no dialect yet.

use ctxhost_engine_api::{Entry, Item, Kind, Role};

use ctxhost_dialects::message::{AssistantMessage, ToolResultMessage, UserMessage};
use ctxhost_dialects::{ChatMessage, Content};
use ctxhost_media::Images;

/// The conversation as it is sent, and what the session adds to the system prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Projection {
    /// Texts of system messages in the session, in order.
    pub(super) system: Vec<String>,
    /// Everything else.
    pub(super) messages: Vec<ChatMessage>,
    /// What each of them costs, as entries count.
    pub(super) tokens: Vec<u64>,
}

impl Projection {
    /// Of the items of a lawful plan, with the images that were put away.
    pub(super) fn of(items: &[Item<'_>], images: &Images) -> Projection {
        let mut projection = Projection::default();
        for item in items {
            match item.role() {
                Role::System => projection.system.push(item.text().into_owned()),
                _ => {
                    projection.messages.push(message_of(item, images));
                    projection.tokens.push(item.tokens());
                }
            }
        }
        projection
    }
}

fn message_of(item: &Item<'_>, images: &Images) -> ChatMessage {
    match item {
        Item::Kept(entry) => of_entry(entry, images),
        Item::Rewritten { entry, raw } => {
            parsed(&images.bring_back(raw)).unwrap_or_else(|| of_entry(entry, images))
        }
        // Its images go, so none is fetched.
        Item::Retold { entry, text } => retold(of_entry(entry, &Images::default()), text),
        Item::MissingResult { call_id, tool } => ChatMessage::ToolResult(ToolResultMessage {
            tool_call_id: call_id.to_string(),
            tool_name: tool.to_string(),
            content: vec![Content::text(item.text())],
            is_error: true,
            timestamp: 0,
        }),
        other => said(other.role(), &other.text()),
    }
}

/// Only messages are sent as they stand; summaries, commands and the like are told by their text.
fn of_entry(entry: &Entry<'_>, images: &Images) -> ChatMessage {
    // What a client put in is a message of the person's role: its images stay.
    let is_message = matches!(entry.kind(), Kind::Message | Kind::Custom);
    let verbatim = if is_message { parsed(&images.bring_back(entry.raw())) } else { None };
    verbatim.unwrap_or_else(|| said(entry.role(), entry.text()))
}

fn parsed(raw: &str) -> Option<ChatMessage> {
    serde_json::from_str(raw).ok()
}

fn said(role: Role, text: &str) -> ChatMessage {
    let content = vec![Content::text(text)];
    match role {
        Role::Assistant => {
            ChatMessage::Assistant(AssistantMessage { content, ..AssistantMessage::default() })
        }
        _ => ChatMessage::User(UserMessage { content, timestamp: 0 }),
    }
}

/// Another text in the place of a message's own: calls stay, images and thinking go.
fn retold(message: ChatMessage, text: &str) -> ChatMessage {
    let told = Content::text(text);
    match message {
        ChatMessage::User(user) => ChatMessage::User(UserMessage { content: vec![told], ..user }),
        ChatMessage::ToolResult(result) => {
            ChatMessage::ToolResult(ToolResultMessage { content: vec![told], ..result })
        }
        ChatMessage::Assistant(mut assistant) => {
            let mut calls = assistant.content;
            calls.retain(|block| matches!(block, Content::ToolCall(_)));
            assistant.content = vec![told];
            assistant.content.extend(calls);
            ChatMessage::Assistant(assistant)
        }
    }
}
