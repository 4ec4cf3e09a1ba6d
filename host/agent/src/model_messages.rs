//! Converts the items of a checked plan to the messages of a model request, independent of the dialect.

use ctxhost_engine_api::{ContentBlock, Entry, EntryKind, Message, PlanItem, Role};

use ctxhost_blobs::ImageStore;
use ctxhost_dialects::inbound::parse_item;
use ctxhost_dialects::message::{AssistantMessage, ToolCallBlock, ToolResultMessage, UserMessage};
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
        // Never the original: what is counted is the rewrite.
        PlanItem::ReplacedRaw { entry, raw } => parsed(&images.load_images(raw))
            .unwrap_or_else(|| text_message(entry.role(), &item.text())),
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
    let verbatim = match entry.kind() {
        EntryKind::Message => parsed(&images.load_images(entry.raw())),
        // Messages that a client injected, which may contain images; those of this host are texts in a record.
        EntryKind::Custom => serde_json::from_str(&images.load_images(entry.raw())).ok(),
        _ => None,
    };
    verbatim.unwrap_or_else(|| text_message(entry.role(), entry.text()))
}

/// A message as written. Of one with a field of another type, such as a time, what the transcript counts of it.
fn parsed(raw: &str) -> Option<ChatMessage> {
    serde_json::from_str(raw).ok().or_else(|| from_counted(Message::parse(raw, "")))
}

fn from_counted(message: Message<'_>) -> Option<ChatMessage> {
    let content = || message.blocks.iter().map(block_of).collect::<Vec<_>>();
    let counted = match &*message.role {
        "user" => ChatMessage::User(UserMessage { content: content(), timestamp: 0 }),
        "assistant" => {
            let content = content();
            ChatMessage::Assistant(AssistantMessage { content, ..AssistantMessage::default() })
        }
        "toolResult" => {
            let content = content();
            let result = message.tool_result()?;
            ChatMessage::ToolResult(ToolResultMessage {
                tool_call_id: result.call_id.into_owned(),
                tool_name: result.tool.into_owned(),
                content,
                is_error: result.is_error,
                timestamp: 0,
            })
        }
        _ => return None,
    };
    (!counted.content().is_empty()).then_some(counted)
}

fn block_of(block: &ContentBlock<'_>) -> ChatBlock {
    match block {
        ContentBlock::Text(text) => ChatBlock::text(text.as_ref()),
        ContentBlock::Thinking { text, signature } => {
            ChatBlock::thinking(text.as_ref(), signature.as_deref().map(str::to_owned))
        }
        ContentBlock::ToolCall(call) => ChatBlock::ToolCall(ToolCallBlock::new(
            call.id.to_string(),
            call.name.to_string(),
            call.arguments_value(),
        )),
        ContentBlock::Image { mime, data } => {
            ChatBlock::Image { data: data.to_string(), mime_type: mime.to_string() }
        }
        ContentBlock::Other(json) => ChatBlock::Other(parse_item(json).unwrap_or_default()),
        // A kind that the contract gained later.
        _ => ChatBlock::Other(serde_json::Value::Null),
    }
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

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::generate::Script;

    use super::*;

    #[test]
    fn a_field_of_another_type_hides_no_message() {
        let raw = r#"{"role":"toolResult","toolCallId":"c","toolName":"shell","timestamp":"now",
            "content":[{"type":"text","text":"found"}],"isError":true}"#;
        let Some(ChatMessage::ToolResult(result)) = parsed(raw) else { panic!("hidden") };
        assert_eq!(
            (&*result.tool_call_id, &*result.tool_name, result.is_error),
            ("c", "shell", true)
        );
        assert_eq!(result.content, [ChatBlock::text("found")]);
        let raw = r#"{"role":"assistant","timestamp":"now","content":[{"type":"text","text":"I look"},
            {"type":"toolCall","id":"c","name":"shell","arguments":{"command":"ls"}}]}"#;
        let Some(ChatMessage::Assistant(answer)) = parsed(raw) else { panic!("hidden") };
        let call = answer.tool_calls().next().unwrap();
        assert_eq!(
            (&*call.id, call.arguments.to_string()),
            ("c", r#"{"command":"ls"}"#.to_owned())
        );
        assert_eq!(parsed(r#"{"role":"custom","content":"note"}"#), None);
    }

    #[test]
    fn the_original_of_a_rewrite_is_never_sent() {
        let generated = Script::new().user("the long original").finish();
        let view = generated.transcript();
        let entry = view.get(0).unwrap();
        for raw in [
            r#"{"role":"custom","content":"short"}"#,
            r#"{"role":"user","timestamp":1e999,"content":"short"}"#,
        ] {
            let item = PlanItem::ReplacedRaw { entry, raw };
            let sent = ModelMessages::from_items(&[item], &ImageStore::default());
            assert_eq!(sent.messages, [ChatMessage::from_user_text("short")], "{raw}");
        }
    }
}
