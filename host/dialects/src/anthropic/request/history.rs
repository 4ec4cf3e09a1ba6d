//! The conversation as Anthropic takes it: roles in turn, results at once, nothing empty.

use serde_json::{Map, Value, json};

use crate::anthropic::API;
use crate::call_id::{CallIds, IdRule};
use crate::message::{AssistantMessage, ChatMessage, Content, as_object};
use crate::pairing::{Answered, BOOTSTRAP, CONTINUE, NO_RESULT, Step, is_blank, steps, tool_name};
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
pub(super) struct Message {
    /// Who speaks.
    pub role: Role,
    /// The blocks; never none.
    pub content: Vec<Value>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The person and the tools.
    User,
    /// The model.
    Assistant,
}

impl Message {
    /// Whether it answers calls.
    pub(super) fn has_results(&self) -> bool {
        self.content.first().is_some_and(|block| is_of_type(block, "tool_result"))
    }
}

impl From<Message> for Value {
    fn from(message: Message) -> Value {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        json!({ "role": role, "content": message.content })
    }
}

/// The messages of a request.
pub(super) fn messages(request: &ModelRequest) -> Vec<Message> {
    let mut images = Images::of(&request.messages);
    let mut history = History::default();
    let ids = CallIds::of(&request.messages, IdRule::Anthropic);
    for step in steps(&request.messages, |id| ids.get(id)) {
        match step {
            Step::Person(content) => history.push(Role::User, person(content, &mut images)),
            Step::Model { message, calls } => {
                history.push(Role::Assistant, model(message, &calls));
                history.push(Role::User, results(&calls, &mut images));
            }
        }
    }
    history.closed()
}

/// Whether a block is thinking, hidden or not.
pub(super) fn is_thinking(block: &Value) -> bool {
    is_of_type(block, "thinking") || is_of_type(block, "redacted_thinking")
}

/// Messages that are still added to: equal neighbours become one, empty ones none.
#[derive(Default)]
struct History {
    messages: Vec<Message>,
}

impl History {
    fn push(&mut self, role: Role, mut content: Vec<Value>) {
        match self.messages.last_mut() {
            _ if content.is_empty() => {}
            Some(last) if last.role == role => last.content.append(&mut content),
            _ => self.messages.push(Message { role, content }),
        }
    }

    /// Begins and ends with the person.
    fn closed(mut self) -> Vec<Message> {
        if self.messages.first().is_none_or(|first| first.role == Role::Assistant) {
            let bootstrap = Message { role: Role::User, content: vec![text(BOOTSTRAP)] };
            self.messages.insert(0, bootstrap);
        }
        if self.messages.last().is_some_and(|last| last.role == Role::Assistant) {
            self.push(Role::User, vec![text(CONTINUE)]);
        }
        self.messages
    }
}

fn person(content: &[Content], images: &mut Images) -> Vec<Value> {
    content.iter().filter_map(|block| seen(block, images)).collect()
}

/// What the model said. Thinking at the end led to nothing, and no message may end with it.
fn model(message: &AssistantMessage, calls: &[Answered<'_>]) -> Vec<Value> {
    let mut calls = calls.iter();
    let mut blocks: Vec<_> =
        message.content.iter().filter_map(|block| said(message, block, &mut calls)).collect();
    while blocks.last().is_some_and(is_thinking) {
        blocks.pop();
    }
    blocks
}

fn said<'a>(
    message: &AssistantMessage,
    block: &Content,
    calls: &mut impl Iterator<Item = &'a Answered<'a>>,
) -> Option<Value> {
    match block {
        Content::Text { text: said, .. } => Some(text(said)).filter(|_| !is_blank(said)),
        Content::ToolCall(_) => calls.next().map(call),
        Content::ProviderItem { api, item } => Some(item.clone()).filter(|_| api == API),
        // Without a signature nobody believes it, and another dialect's is none.
        Content::Thinking { thinking, thinking_signature: Some(signature), redacted }
            if message.api == API && !signature.is_empty() =>
        {
            Some(match redacted {
                true => json!({ "type": "redacted_thinking", "data": signature }),
                false => {
                    json!({ "type": "thinking", "thinking": thinking, "signature": signature })
                }
            })
        }
        Content::Thinking { .. } | Content::Image { .. } | Content::Other(_) => None,
    }
}

fn call(answered: &Answered<'_>) -> Value {
    json!({
        "type": "tool_use",
        "id": answered.id,
        "name": tool_name(&answered.call.name),
        "input": as_object(&answered.call.arguments),
    })
}

/// All results of one message, and then the images that failed tools gave.
fn results(calls: &[Answered<'_>], images: &mut Images) -> Vec<Value> {
    let mut moved = Vec::new();
    let mut blocks: Vec<_> =
        calls.iter().map(|answered| result(answered, images, &mut moved)).collect();
    blocks.append(&mut moved);
    blocks
}

fn result(answered: &Answered<'_>, images: &mut Images, moved: &mut Vec<Value>) -> Value {
    let (mut content, is_error) = match answered.result {
        Some(result) => (person(&result.content, images), result.is_error),
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
fn seen(block: &Content, images: &mut Images) -> Option<Value> {
    match block {
        Content::Text { text: seen, .. } => Some(text(seen)).filter(|_| !is_blank(seen)),
        Content::Image { data, mime_type } => Some(images.block(data, mime_type)),
        _ => None,
    }
}

/// Counts the images of a request, so that the newest stay.
struct Images {
    too_many: usize,
}

impl Images {
    fn of(messages: &[ChatMessage]) -> Images {
        let blocks = messages.iter().flat_map(ChatMessage::content);
        let visible = |block: &&Content| matches!(block, Content::Image { data, mime_type } if is_visible(data, mime_type));
        Images { too_many: blocks.filter(visible).count().saturating_sub(IMAGES_MAX) }
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
