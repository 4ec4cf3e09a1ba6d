//! The conversation as Anthropic takes it: roles in turn, results at once, nothing empty.

use serde_json::{Map, Value, json};

use crate::anthropic::API;
use crate::call_id::{CallIds, IdRule};
use crate::message::{AssistantMessage, ChatBlock, ChatMessage, arguments_object};
use crate::pairing::{
    BOOTSTRAP, CONTINUE, ConversationStep, NO_RESULT, PairedCall, is_blank, pair_messages,
    tool_name,
};
use crate::request::ModelRequest;

/// Images in one request, by the smallest limit of any model. The oldest are left out.
const IMAGES_MAX: usize = 100;

/// The largest image, in bytes of its base64, by the smallest limit of any endpoint. One that
/// is too large would be refused in every later request too.
const IMAGE_MAX_BYTES: usize = 5 * 1024 * 1024;

/// What can be seen at all.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The text of a result that has none: an empty text is refused.
const NO_TEXT: &str = "(no output)";

/// One message.
#[derive(Debug)]
pub(super) struct AnthropicMessage {
    /// Who speaks.
    pub role: AnthropicRole,
    /// The blocks; never none.
    pub content: Vec<Value>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnthropicRole {
    /// The person and the tools.
    User,
    /// The model.
    Assistant,
}

impl AnthropicMessage {
    /// Whether it answers calls.
    pub(super) fn has_results(&self) -> bool {
        self.content.first().is_some_and(|block| is_of_type(block, "tool_result"))
    }
}

impl From<AnthropicMessage> for Value {
    fn from(message: AnthropicMessage) -> Value {
        let role = match message.role {
            AnthropicRole::User => "user",
            AnthropicRole::Assistant => "assistant",
        };
        json!({ "role": role, "content": message.content })
    }
}

/// The messages of a request.
pub(super) fn messages(request: &ModelRequest) -> Vec<AnthropicMessage> {
    let mut images = ImageQuota::for_messages(&request.messages);
    let mut history = AnthropicHistory::default();
    let ids = CallIds::from_messages(&request.messages, IdRule::Anthropic);
    for step in pair_messages(&request.messages, |id| ids.wire_id(id)) {
        match step {
            ConversationStep::User(content) => {
                history.push(AnthropicRole::User, user_blocks(content, &mut images))
            }
            ConversationStep::Assistant { message, calls } => {
                history.push(AnthropicRole::Assistant, assistant_blocks(message, &calls));
                history.push(AnthropicRole::User, results(&calls, &mut images));
            }
        }
    }
    history.into_messages()
}

/// Whether a block is thinking, hidden or not.
pub(super) fn is_thinking(block: &Value) -> bool {
    is_of_type(block, "thinking") || is_of_type(block, "redacted_thinking")
}

/// Messages that are still added to: equal neighbours become one, empty ones none.
#[derive(Default)]
struct AnthropicHistory {
    messages: Vec<AnthropicMessage>,
}

impl AnthropicHistory {
    fn push(&mut self, role: AnthropicRole, mut content: Vec<Value>) {
        match self.messages.last_mut() {
            _ if content.is_empty() => {}
            Some(last) if last.role == role => last.content.append(&mut content),
            _ => self.messages.push(AnthropicMessage { role, content }),
        }
    }

    /// Begins and ends with the person.
    fn into_messages(mut self) -> Vec<AnthropicMessage> {
        if self.messages.first().is_none_or(|first| first.role == AnthropicRole::Assistant) {
            let bootstrap =
                AnthropicMessage { role: AnthropicRole::User, content: vec![text(BOOTSTRAP)] };
            self.messages.insert(0, bootstrap);
        }
        if self.messages.last().is_some_and(|last| last.role == AnthropicRole::Assistant) {
            self.push(AnthropicRole::User, vec![text(CONTINUE)]);
        }
        self.messages
    }
}

fn user_blocks(content: &[ChatBlock], images: &mut ImageQuota) -> Vec<Value> {
    content.iter().filter_map(|block| visible_block(block, images)).collect()
}

/// What the model said. Thinking at the end led to nothing, and no message may end with it.
fn assistant_blocks(message: &AssistantMessage, calls: &[PairedCall<'_>]) -> Vec<Value> {
    let mut calls = calls.iter();
    let mut blocks: Vec<_> = message
        .content
        .iter()
        .filter_map(|block| assistant_block(message, block, &mut calls))
        .collect();
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
        ChatBlock::Text { text: said, .. } => Some(text(said)).filter(|_| !is_blank(said)),
        ChatBlock::ToolCall(_) => calls.next().map(call),
        ChatBlock::ProviderItem { api, item } => Some(item.clone()).filter(|_| api == API),
        // Without a signature nobody believes it, and another dialect's is none.
        ChatBlock::Thinking { thinking, thinking_signature: Some(signature), redacted }
            if message.api == API && !signature.is_empty() =>
        {
            Some(match redacted {
                true => json!({ "type": "redacted_thinking", "data": signature }),
                false => {
                    json!({ "type": "thinking", "thinking": thinking, "signature": signature })
                }
            })
        }
        ChatBlock::Thinking { .. } | ChatBlock::Image { .. } | ChatBlock::Other(_) => None,
    }
}

fn call(answered: &PairedCall<'_>) -> Value {
    json!({
        "type": "tool_use",
        "id": answered.id,
        "name": tool_name(&answered.call.name),
        "input": arguments_object(&answered.call.arguments),
    })
}

/// All results of one message, and then the images that failed tools gave.
fn results(calls: &[PairedCall<'_>], images: &mut ImageQuota) -> Vec<Value> {
    let mut moved = Vec::new();
    let mut blocks: Vec<_> =
        calls.iter().map(|answered| result(answered, images, &mut moved)).collect();
    blocks.append(&mut moved);
    blocks
}

fn result(answered: &PairedCall<'_>, images: &mut ImageQuota, moved: &mut Vec<Value>) -> Value {
    let (mut content, is_error) = match answered.result {
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
    block.insert("tool_use_id".into(), answered.id.clone().into());
    block.insert("content".into(), content.into());
    if is_error {
        block.insert("is_error".into(), true.into());
    }
    Value::Object(block)
}

/// A block that a person or a tool may show.
fn visible_block(block: &ChatBlock, images: &mut ImageQuota) -> Option<Value> {
    match block {
        ChatBlock::Text { text: seen, .. } => Some(text(seen)).filter(|_| !is_blank(seen)),
        ChatBlock::Image { data, mime_type } => Some(images.block(data, mime_type)),
        _ => None,
    }
}

/// Counts the images of a request, so that the newest stay.
struct ImageQuota {
    too_many: usize,
}

impl ImageQuota {
    fn for_messages(messages: &[ChatMessage]) -> ImageQuota {
        let blocks = messages.iter().flat_map(ChatMessage::content);
        let visible = |block: &&ChatBlock| matches!(block, ChatBlock::Image { data, mime_type } if is_visible(data, mime_type));
        ImageQuota { too_many: blocks.filter(visible).count().saturating_sub(IMAGES_MAX) }
    }

    fn block(&mut self, data: &str, mime_type: &str) -> Value {
        if !is_visible(data, mime_type) {
            return text(&format!(
                "[{mime_type} of {} bytes left out: it cannot be shown]",
                data.len()
            ));
        }
        if self.too_many > 0 {
            self.too_many -= 1;
            return text("[image left out: there are too many newer ones]");
        }
        let source = json!({ "type": "base64", "media_type": mime_type, "data": data });
        json!({ "type": "image", "source": source })
    }
}

fn is_visible(data: &str, mime_type: &str) -> bool {
    IMAGE_TYPES.contains(&mime_type) && !data.is_empty() && data.len() <= IMAGE_MAX_BYTES
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn is_of_type(block: &Value, name: &str) -> bool {
    block.get("type").is_some_and(|given| given == name)
}
