//! What a model is sent of a lawful plan: its items as messages, in no dialect yet.

use ctxhost_engine_api::{Entry, EntryKind, PlanItem, Role};

use ctxhost_blobs::ImageStore;
use ctxhost_dialects::message::{AssistantMessage, ToolResultMessage, UserMessage};
use ctxhost_dialects::{ChatBlock, ChatMessage};

/// The conversation as it is sent, and what the session adds to the system prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelMessages {
    /// Texts of system messages in the session, in order.
    pub(super) system: Vec<String>,
    /// Everything else.
    pub(super) messages: Vec<ChatMessage>,
    /// What each of them costs, as entries count.
    pub(super) tokens: Vec<u64>,
}

impl ModelMessages {
    /// Of the items of a lawful plan, with the images that were put away.
    pub(super) fn from_items(items: &[PlanItem<'_>], images: &ImageStore) -> ModelMessages {
        let mut projection = ModelMessages::default();
        for item in items {
            match item.role() {
                Role::System => projection.system.push(item.text().into_owned()),
                _ => {
                    projection.messages.push(item_message(item, images));
                    projection.tokens.push(item.tokens());
                }
            }
        }
        projection
    }
}

fn item_message(item: &PlanItem<'_>, images: &ImageStore) -> ChatMessage {
    match item {
        PlanItem::Kept(entry) => entry_message(entry, images),
        PlanItem::ReplacedRaw { entry, raw } => {
            parsed(&images.load_images(raw)).unwrap_or_else(|| entry_message(entry, images))
        }
        // Its images go, so none is fetched.
        PlanItem::ReplacedText { entry, text } => {
            with_text(entry_message(entry, &ImageStore::default()), text)
        }
        PlanItem::MissingResult { call_id, tool } => ChatMessage::ToolResult(ToolResultMessage {
            tool_call_id: call_id.to_string(),
            tool_name: tool.to_string(),
            content: vec![ChatBlock::text(item.text())],
            is_error: true,
            timestamp: 0,
        }),
        other => text_message(other.role(), &other.text()),
    }
}

/// Only messages are sent as they stand; summaries, commands and the like are told by their text.
fn entry_message(entry: &Entry<'_>, images: &ImageStore) -> ChatMessage {
    // What a client put in is a message of the person's role: its images stay.
    let is_message = matches!(entry.kind(), EntryKind::Message | EntryKind::Custom);
    let verbatim = if is_message { parsed(&images.load_images(entry.raw())) } else { None };
    verbatim.unwrap_or_else(|| text_message(entry.role(), entry.text()))
}

fn parsed(raw: &str) -> Option<ChatMessage> {
    serde_json::from_str(raw).ok()
}

fn text_message(role: Role, text: &str) -> ChatMessage {
    let content = vec![ChatBlock::text(text)];
    match role {
        Role::Assistant => {
            ChatMessage::Assistant(AssistantMessage { content, ..AssistantMessage::default() })
        }
        _ => ChatMessage::User(UserMessage { content, timestamp: 0 }),
    }
}

/// Another text in the place of a message's own: calls stay, images and thinking go.
fn with_text(message: ChatMessage, text: &str) -> ChatMessage {
    let told = ChatBlock::text(text);
    match message {
        ChatMessage::User(user) => ChatMessage::User(UserMessage { content: vec![told], ..user }),
        ChatMessage::ToolResult(result) => {
            ChatMessage::ToolResult(ToolResultMessage { content: vec![told], ..result })
        }
        ChatMessage::Assistant(mut assistant) => {
            let mut calls = assistant.content;
            calls.retain(|block| matches!(block, ChatBlock::ToolCall(_)));
            assistant.content = vec![told];
            assistant.content.extend(calls);
            ChatMessage::Assistant(assistant)
        }
    }
}
