//! Writes the conversation as Anthropic's messages.

use serde_json::{Map, Value, json};

use crate::anthropic::API;
use crate::call_id::{CallIds, IdRule};
use crate::json::text as field_text;
use crate::message::{AssistantMessage, ChatBlock, ChatMessage, arguments_object};
use crate::pairing::{ConversationStep, NO_RESULT, PairedCall, is_blank, pair_messages};
use crate::request::ModelRequest;
use crate::tool_name::legalize_tool_name;
use crate::turns::{RoleTurn, TurnList};

/// The most images in one request, the smallest limit of any model. The oldest are left out.
const IMAGES_MAX: usize = 100;

/// The largest image, in bytes of base64, the smallest limit of any endpoint.
const IMAGE_MAX_BYTES: usize = 5 * 1024 * 1024;

/// The image types that the API accepts.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The text of a result without content: an empty text is refused.
const NO_TEXT: &str = "(no output)";

/// One message.
pub(super) type AnthropicMessage = RoleTurn<AnthropicRole>;

/// The role of a message. Tool results have the role `user`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnthropicRole {
    User,
    Assistant,
}

impl AnthropicMessage {
    /// Whether it holds tool results.
    pub(super) fn has_results(&self) -> bool {
        self.parts.first().is_some_and(|block| is_of_type(block, "tool_result"))
    }
}

impl From<AnthropicMessage> for Value {
    fn from(message: AnthropicMessage) -> Value {
        let role = match message.role {
            AnthropicRole::User => "user",
            AnthropicRole::Assistant => "assistant",
        };
        json!({ "role": role, "content": message.parts })
    }
}

/// The messages of a request.
pub(super) fn messages(request: &ModelRequest) -> Vec<AnthropicMessage> {
    let mut images = ImageQuota::for_messages(&request.messages);
    // Roles alternate, and no message is empty.
    let mut turns = TurnList::new();
    let ids = CallIds::from_messages(&request.messages, IdRule::Anthropic);
    for step in pair_messages(&request.messages, |id| ids.wire_id(id)) {
        match step {
            ConversationStep::User(content) => {
                turns.push(AnthropicRole::User, user_blocks(content, &mut images));
            }
            ConversationStep::Assistant { message, calls } => {
                turns.push(AnthropicRole::Assistant, assistant_blocks(message, &calls));
                turns.push(AnthropicRole::User, results(&calls, &mut images));
            }
        }
    }
    // Starts and ends with the user.
    turns.close(AnthropicRole::User, AnthropicRole::Assistant, text)
}

/// Whether a block is thinking, redacted or not.
pub(super) fn is_thinking(block: &Value) -> bool {
    is_of_type(block, "thinking") || is_of_type(block, "redacted_thinking")
}

fn user_blocks(content: &[ChatBlock], images: &mut ImageQuota) -> Vec<Value> {
    content.iter().filter_map(|block| visible_block(block, images)).collect()
}

fn assistant_blocks(message: &AssistantMessage, calls: &[PairedCall<'_>]) -> Vec<Value> {
    let mut calls = calls.iter();
    let block = |block: &ChatBlock| assistant_block(message, block, &mut calls);
    let mut blocks: Vec<_> = message.content.iter().filter_map(block).collect();
    // The API refuses a message that ends with thinking; an aborted answer may.
    while blocks.last().is_some_and(is_thinking) {
        blocks.pop();
    }
    blocks
}

fn assistant_block<'a>(
    message: &AssistantMessage,
    block: &ChatBlock,
    calls: &mut impl Iterator<Item = &'a PairedCall<'a>>,
) -> Option<Value> {
    match block {
        ChatBlock::Text { text: content, .. } => Some(text(content)).filter(|_| !is_blank(content)),
        ChatBlock::ToolCall(_) => calls.next().map(call),
        ChatBlock::ProviderItem { api, item } => Some(item.clone()).filter(|_| api == API),
        // Thinking is sent back in every turn, though only the current one requires it:
        // dropping it changes the prefix that later thinking may be bound to.
        // Unsigned thinking is refused, and a signature of another dialect is not valid.
        ChatBlock::Thinking { thinking_signature: Some(signature), redacted: true, .. }
            if message.api == API && !signature.is_empty() =>
        {
            Some(json!({ "type": "redacted_thinking", "data": signature }))
        }
        ChatBlock::Thinking { thinking, thinking_signature: Some(signature), .. }
            if message.api == API && !signature.is_empty() =>
        {
            Some(json!({ "type": "thinking", "thinking": thinking, "signature": signature }))
        }
        ChatBlock::Thinking { .. } | ChatBlock::Image { .. } | ChatBlock::Other(_) => None,
    }
}

fn call(paired: &PairedCall<'_>) -> Value {
    json!({
        "type": "tool_use",
        "id": paired.id,
        "name": legalize_tool_name(&paired.call.name),
        "input": arguments_object(&paired.call.arguments),
    })
}

/// All results of one message, then the images of failed tools.
fn results(calls: &[PairedCall<'_>], images: &mut ImageQuota) -> Vec<Value> {
    let mut moved = Vec::new();
    let mut blocks: Vec<_> =
        calls.iter().map(|paired| result(paired, images, &mut moved)).collect();
    blocks.append(&mut moved);
    blocks
}

fn result(paired: &PairedCall<'_>, images: &mut ImageQuota, moved: &mut Vec<Value>) -> Value {
    let (mut content, is_error) = match paired.result {
        Some(result) => (user_blocks(&result.content, images), result.is_error),
        None => (vec![text(NO_RESULT)], true),
    };
    if is_error {
        moved.extend(content.extract_if(.., |block| is_of_type(block, "image")));
    }
    if content.is_empty() {
        content.push(text(NO_TEXT));
    }
    let mut block = Map::new();
    block.insert("type".into(), "tool_result".into());
    block.insert("tool_use_id".into(), paired.id.clone().into());
    block.insert("content".into(), content.into());
    if is_error {
        block.insert("is_error".into(), true.into());
    }
    Value::Object(block)
}

/// A block of a user message or a result.
fn visible_block(block: &ChatBlock, images: &mut ImageQuota) -> Option<Value> {
    match block {
        ChatBlock::Text { text: content, .. } => Some(text(content)).filter(|_| !is_blank(content)),
        ChatBlock::Image { data, mime_type } => Some(images.block(data, mime_type)),
        _ => None,
    }
}

/// Limits the images of a request to the newest.
struct ImageQuota {
    excess: usize,
}

impl ImageQuota {
    fn for_messages(messages: &[ChatMessage]) -> ImageQuota {
        let blocks = messages.iter().flat_map(ChatMessage::content);
        let images = blocks.filter(|block| match block {
            ChatBlock::Image { data, mime_type } => is_accepted(data, mime_type),
            _ => false,
        });
        ImageQuota { excess: images.count().saturating_sub(IMAGES_MAX) }
    }

    fn block(&mut self, data: &str, mime_type: &str) -> Value {
        // An image that is too large would be refused in every later request, too.
        if !is_accepted(data, mime_type) {
            return text(&format!(
                "[{mime_type} of {} bytes left out: it cannot be shown]",
                data.len()
            ));
        }
        if self.excess > 0 {
            self.excess -= 1;
            return text("[image left out: there are too many newer ones]");
        }
        let source = json!({ "type": "base64", "media_type": mime_type, "data": data });
        json!({ "type": "image", "source": source })
    }
}

fn is_accepted(data: &str, mime_type: &str) -> bool {
    IMAGE_TYPES.contains(&mime_type) && !data.is_empty() && data.len() <= IMAGE_MAX_BYTES
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn is_of_type(block: &Value, name: &str) -> bool {
    field_text(block, "type") == name
}
