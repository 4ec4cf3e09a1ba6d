//! Converts the items of a checked plan to the messages of a model request, independent of the dialect.

use ctxhost_engine_api::{Entry, EntryKind, PlanItem, Role};

use ctxhost_blobs::ImageStore;
use ctxhost_dialects::message::{AssistantMessage, ToolResultMessage, UserMessage};
use ctxhost_dialects::{ChatBlock, ChatMessage};

/// The messages of a request, and what the session adds to the system prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelMessages {
    /// The texts of the session's system messages, in order.
    pub(super) system: Vec<String>,
    /// All other messages.
    pub(super) messages: Vec<ChatMessage>,
    /// The size of each message, in estimated tokens.
    pub(super) tokens: Vec<u64>,
}

impl ModelMessages {
    /// Converts the items of a plan and loads their stored images.
    pub(super) fn from_items(items: &[PlanItem<'_>], images: &ImageStore) -> ModelMessages {
        let mut converted = ModelMessages::default();
        for item in items {
            match item.role() {
                Role::System => converted.system.push(item.text().into_owned()),
                _ => {
                    converted.messages.push(item_message(item, images));
                    converted.tokens.push(item.tokens());
                }
            }
        }
        converted
    }
}

fn item_message(item: &PlanItem<'_>, images: &ImageStore) -> ChatMessage {
    match item {
        PlanItem::Kept(entry) => entry_message(entry, images),
        PlanItem::ReplacedRaw { entry, raw } => {
            parsed(&images.load_images(raw)).unwrap_or_else(|| entry_message(entry, images))
        }
        // An empty image store: the replaced message's images are dropped, so none is loaded.
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

/// Messages are sent unchanged; summaries, commands and other entries by their text.
fn entry_message(entry: &Entry<'_>, images: &ImageStore) -> ChatMessage {
    // Custom entries are messages that a client injected, which may contain images.
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
        // Dialects do not send the time.
        _ => ChatMessage::User(UserMessage { content, timestamp: 0 }),
    }
}

/// Replaces the text of a message. Tool calls stay; images and thinking are dropped.
fn with_text(message: ChatMessage, text: &str) -> ChatMessage {
    let text = ChatBlock::text(text);
    match message {
        ChatMessage::User(user) => ChatMessage::User(UserMessage { content: vec![text], ..user }),
        ChatMessage::ToolResult(result) => {
            ChatMessage::ToolResult(ToolResultMessage { content: vec![text], ..result })
        }
        ChatMessage::Assistant(mut assistant) => {
            let mut calls = assistant.content;
            calls.retain(|block| matches!(block, ChatBlock::ToolCall(_)));
            assistant.content = vec![text];
            assistant.content.extend(calls);
            ChatMessage::Assistant(assistant)
        }
    }
}
