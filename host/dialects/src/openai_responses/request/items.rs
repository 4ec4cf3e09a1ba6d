//! Writes messages as input items.

use serde_json::{Map, Value, json};

use super::rules::{InputItem, apply_rules};
use crate::blocks::{InlineImage, images_of};
use crate::call_id::{CallIds, IdRule};
use crate::message::{
    AssistantMessage, ChatBlock, ChatMessage, ToolCallBlock, ToolResultMessage, UserMessage,
    arguments_object, text_of,
};
use crate::openai_responses::{API, ID_MAX_CHARS};
use crate::tool_name::legalize_tool_name;

/// The text of a result that has only images.
const ONLY_IMAGES: &str = "(the images follow below)";

/// The input items of a conversation, by the rules of pairs, ids and reasoning.
pub(in crate::openai_responses) fn input_items(messages: &[ChatMessage]) -> Vec<Value> {
    let mut items = Vec::new();
    let mut shown = ResultImages::default();
    let ids = CallIds::from_messages(messages, IdRule::Any { max_chars: ID_MAX_CHARS });
    for (origin, message) in messages.iter().enumerate() {
        let values = match message {
            ChatMessage::ToolResult(result) => {
                shown.collect(result);
                vec![result_item(result, &ids)]
            }
            ChatMessage::User(user) => shown.flush().chain(user_item(user)).collect(),
            ChatMessage::Assistant(answer) => {
                shown.flush().chain(answer_items(answer, &ids)).collect()
            }
        };
        items.extend(values.into_iter().map(|value| InputItem { value, origin }));
    }
    let after = messages.len();
    items.extend(shown.flush().map(|value| InputItem { value, origin: after }));
    apply_rules(items)
}

/// Images of results, which follow after all results of their turn.
#[derive(Default)]
struct ResultImages {
    parts: Vec<Value>,
}

impl ResultImages {
    fn collect(&mut self, result: &ToolResultMessage) {
        let images = images_of(&result.content);
        if !images.is_empty() {
            let title = format!("(images of the result of {})", result.tool_name);
            self.parts.push(json!({ "type": "input_text", "text": title }));
            self.parts.extend(images.into_iter().map(image_part));
        }
    }

    fn flush(&mut self) -> impl Iterator<Item = Value> + use<> {
        user_message(std::mem::take(&mut self.parts)).into_iter()
    }
}

fn user_item(user: &UserMessage) -> Option<Value> {
    let part = |block: &ChatBlock| match block {
        ChatBlock::Text { text, .. } if !text.is_empty() => {
            Some(json!({ "type": "input_text", "text": text }))
        }
        ChatBlock::Image { data, mime_type } if !data.is_empty() => {
            Some(image_part(InlineImage { data, mime_type }))
        }
        _ => None,
    };
    user_message(user.content.iter().filter_map(part).collect())
}

fn user_message(parts: Vec<Value>) -> Option<Value> {
    let message = || json!({ "type": "message", "role": "user", "content": parts });
    (!parts.is_empty()).then(message)
}

fn image_part(image: InlineImage<'_>) -> Value {
    json!({ "type": "input_image", "detail": "auto", "image_url": image.url() })
}

fn result_item(result: &ToolResultMessage, ids: &CallIds) -> Value {
    let mut output = text_of(&result.content);
    if output.is_empty() && !images_of(&result.content).is_empty() {
        ONLY_IMAGES.clone_into(&mut output);
    }
    let call_id = ids.wire_id(&result.tool_call_id);
    json!({ "type": "function_call_output", "call_id": call_id, "output": output })
}

fn answer_items(answer: &AssistantMessage, ids: &CallIds) -> Vec<Value> {
    let item = |block: &ChatBlock| match block {
        ChatBlock::Text { text, .. } if text.is_empty() => None,
        ChatBlock::Text { text, text_signature } => {
            Some(text_item(text, text_signature.as_deref().filter(|_| answer.api == API)))
        }
        // Thinking of another dialect cannot be read here, and answers hold no images.
        ChatBlock::Thinking { thinking_signature, .. } if answer.api == API => {
            reasoning_item(thinking_signature.as_deref()?)
        }
        ChatBlock::ToolCall(call) => Some(call_item(call, ids)),
        ChatBlock::ProviderItem { api, item } if api == API && item.is_object() => {
            Some(item.clone())
        }
        _ => None,
    };
    answer.content.iter().filter_map(item).collect()
}

fn text_item(text: &str, signature: Option<&str>) -> Value {
    let content = json!([{ "type": "output_text", "text": text }]);
    let mut item = json!({ "type": "message", "role": "assistant", "content": content });
    let signature: Option<Value> = signature.and_then(|json| serde_json::from_str(json).ok());
    let phase = signature.as_ref().and_then(|signature| signature.get("phase"));
    if let (Some(Value::String(phase)), Some(fields)) = (phase, item.as_object_mut()) {
        fields.insert("phase".into(), phase.as_str().into());
    }
    item
}

/// The reasoning item as received; `None` without encrypted content, since the server stores none.
fn reasoning_item(signature: &str) -> Option<Value> {
    let mut item: Map<String, Value> = serde_json::from_str(signature).ok()?;
    let field = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
    if field("type") != "reasoning" || field("encrypted_content").is_empty() {
        return None;
    }
    // The API refuses reasoning without a summary, even an empty one.
    if !item.get("summary").is_some_and(Value::is_array) {
        item.insert("summary".into(), json!([]));
    }
    Some(Value::Object(item))
}

fn call_item(call: &ToolCallBlock, ids: &CallIds) -> Value {
    json!({
        // Without its item id: with one, the API would require the reasoning before it.
        "type": "function_call",
        "call_id": ids.wire_id(&call.id),
        "name": legalize_tool_name(&call.name),
        "arguments": Value::Object(arguments_object(&call.arguments)).to_string(),
    })
}
