//! Writes the conversation as chat completions.

use serde_json::{Map, Value, json};

use crate::blocks::data_url;
use crate::call_id::{CallIds, IdRule};
use crate::message::{
    AssistantMessage, ChatBlock, ChatMessage, ToolCallBlock, ToolResultMessage, arguments_object,
    text_of,
};
use crate::openai_chat::alternation::join_messages;
use crate::openai_chat::compat::Compat;
use crate::request::ModelRequest;

/// O-9: the longest call id that older servers accept.
const CALL_ID_MAX_CHARS: usize = 40;

/// The messages of a request; never empty.
pub(super) fn request_messages(request: &ModelRequest, compat: &Compat) -> Vec<Value> {
    let rule = if compat.nine_char_ids {
        IdRule::Mistral
    } else {
        IdRule::Any { max_chars: CALL_ID_MAX_CHARS }
    };
    let ids = CallIds::from_messages(&request.messages, rule);
    let mut writer = MessageWriter { compat, ids, written: Vec::new(), images: Vec::new() };
    if !request.system.is_empty() {
        let role = if compat.developer_role { "developer" } else { "system" };
        writer.written.push(json!({ "role": role, "content": request.system }));
    }
    // O-7: some servers require a user message.
    if !request.messages.iter().any(|message| matches!(message, ChatMessage::User(_))) {
        writer.written.push(json!({ "role": "user", "content": "Go on." }));
    }
    for message in &request.messages {
        writer.write(message);
    }
    writer.write_images();
    writer.written
}

struct MessageWriter<'a> {
    compat: &'a Compat,
    ids: CallIds,
    written: Vec<Value>,
    /// Images of the last results. They follow after all results of the turn.
    images: Vec<Value>,
}

impl MessageWriter<'_> {
    fn write(&mut self, message: &ChatMessage) {
        match message {
            ChatMessage::ToolResult(result) => self.write_result(result),
            ChatMessage::User(message) => {
                self.write_images();
                let content = user_content(&message.content);
                if let Some(content) = content {
                    self.write_user(content);
                }
            }
            ChatMessage::Assistant(message) => {
                self.write_images();
                self.write_assistant(message);
            }
        }
    }

    fn write_user(&mut self, content: Value) {
        let follows_result = self.written.last().is_some_and(|last| last["role"] == "tool");
        if follows_result && self.compat.assistant_after_results {
            // Mistral refuses a user message directly after tool results.
            let between = "I have read the results.";
            self.written.push(json!({ "role": "assistant", "content": between }));
        }
        self.push(json!({ "role": "user", "content": content }));
    }

    fn push(&mut self, message: Value) {
        let separate = match self.written.last_mut() {
            Some(last) => join_messages(last, message),
            None => Some(message),
        };
        self.written.extend(separate);
    }

    /// O-4: an answer without text and calls is omitted. O-5: arguments are a string.
    fn write_assistant(&mut self, message: &AssistantMessage) {
        let text = text_of(&message.content);
        let calls: Vec<_> = message.tool_calls().map(|call| self.call(call)).collect();
        if text.is_empty() && calls.is_empty() {
            return;
        }
        let content = if text.is_empty() { Value::Null } else { text.into() };
        let mut written = Map::new();
        written.insert("role".to_owned(), "assistant".into());
        written.insert("content".to_owned(), content);
        // Servers that want thinking back require it with every call, even if empty.
        let thinking = thinking(&message.content);
        if self.compat.reasoning_content && !(thinking.is_empty() && calls.is_empty()) {
            written.insert("reasoning_content".to_owned(), thinking.into());
        }
        if !calls.is_empty() {
            written.insert("tool_calls".to_owned(), calls.into());
        }
        self.push(Value::Object(written));
    }

    fn call(&self, call: &ToolCallBlock) -> Value {
        let arguments = Value::Object(arguments_object(&call.arguments)).to_string();
        let function = json!({ "name": call.name, "arguments": arguments });
        json!({ "id": self.ids.wire_id(&call.id), "type": "function", "function": function })
    }

    /// O-8: the content of a result is text; images follow separately.
    fn write_result(&mut self, result: &ToolResultMessage) {
        let id = self.ids.wire_id(&result.tool_call_id);
        let images: Vec<_> = result.content.iter().filter_map(image).collect();
        let text = match text_of(&result.content) {
            text if !text.is_empty() => text,
            _ if !images.is_empty() => "(see the image below)".to_owned(),
            _ => "(no output)".to_owned(),
        };
        let mut written = json!({ "role": "tool", "tool_call_id": id, "content": text });
        if let (true, Some(fields)) = (self.compat.tool_result_name, written.as_object_mut()) {
            fields.insert("name".to_owned(), result.tool_name.as_str().into());
        }
        self.written.push(written);
        if !images.is_empty() {
            let title = format!("Images from {} ({id}):", result.tool_name);
            self.images.push(json!({ "type": "text", "text": title }));
            self.images.extend(images);
        }
    }

    /// Puts the images of results into a user message after all results (O-1).
    fn write_images(&mut self) {
        if !self.images.is_empty() {
            let images = std::mem::take(&mut self.images);
            self.write_user(images.into());
        }
    }
}

/// A string if there is only text, else parts; `None` if there is neither text nor image.
fn user_content(blocks: &[ChatBlock]) -> Option<Value> {
    if !blocks.iter().any(|block| matches!(block, ChatBlock::Image { .. })) {
        let text = text_of(blocks);
        return (!text.is_empty()).then(|| text.into());
    }
    let part = |block: &ChatBlock| match block {
        ChatBlock::Text { text, .. } if !text.is_empty() => {
            Some(json!({ "type": "text", "text": text }))
        }
        other => image(other),
    };
    Some(blocks.iter().filter_map(part).collect::<Vec<_>>().into())
}

fn image(block: &ChatBlock) -> Option<Value> {
    let ChatBlock::Image { data, mime_type } = block else { return None };
    let url = data_url(mime_type, data);
    Some(json!({ "type": "image_url", "image_url": { "url": url } }))
}

fn thinking(blocks: &[ChatBlock]) -> String {
    let thought = |block: &'_ ChatBlock| match block {
        ChatBlock::Thinking { thinking, .. } => Some(thinking.clone()),
        _ => None,
    };
    blocks.iter().filter_map(thought).collect::<Vec<_>>().join("\n")
}
