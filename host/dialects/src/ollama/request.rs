//! The body of a request in Ollama's dialect.

use std::collections::HashMap;

use ctxhost_engine_api::ToolSpec;
use serde_json::{Map, Value, json};

use super::API;
use crate::blocks::{decimal, images_of};
use crate::message::{
    AssistantMessage, ChatBlock, ChatMessage, ToolCallBlock, ToolResultMessage, UserMessage,
    arguments_object, text_of,
};
use crate::pairing::BOOTSTRAP;
use crate::request::ModelRequest;

/// The model family that takes thinking levels. All others take a boolean and refuse a level.
const LEVELLED_FAMILY: &str = "gpt-oss";

/// The text of a result that has only images.
const ONLY_IMAGES: &str = "(the images follow below)";

/// The body of a streaming request.
pub(super) fn request_body(request: &ModelRequest) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), request.model.as_str().into());
    body.insert("messages".into(), messages(request).into());
    body.insert("stream".into(), true.into());
    // A refusal is better than an answer by a model that never saw the beginning of the prompt.
    body.insert("truncate".into(), false.into());
    body.insert("think".into(), think(request));
    if !request.tools.is_empty() {
        body.insert("tools".into(), request.tools.iter().map(tool).collect::<Vec<_>>().into());
    }
    let options = options(request);
    if !options.is_empty() {
        body.insert("options".into(), options.into());
    }
    Value::Object(body)
}

fn options(request: &ModelRequest) -> Map<String, Value> {
    let known = |tokens: u64| (tokens > 0).then(|| Value::from(tokens));
    let options = [
        // Without `num_ctx` the server uses a small default window, whatever the model supports.
        ("num_ctx", known(request.window_tokens)),
        ("num_predict", known(request.max_output_tokens)),
        ("temperature", request.temperature.map(decimal)),
    ];
    options.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn think(request: &ModelRequest) -> Value {
    match request.thinking.effort() {
        None => false.into(),
        Some(effort) if request.model.contains(LEVELLED_FAMILY) => effort.into(),
        Some(_) => true.into(),
    }
}

fn tool(spec: &ToolSpec) -> Value {
    let function = json!({
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.input_schema,
    });
    json!({ "type": "function", "function": function })
}

fn messages(request: &ModelRequest) -> Vec<Value> {
    let mut written = Vec::new();
    if !request.system.is_empty() {
        written.push(json!({ "role": "system", "content": request.system }));
    }
    let mut names = HashMap::new();
    // Images of results follow after all results: chat templates render images only in user
    // messages.
    let mut shown = Vec::new();
    for message in &request.messages {
        if !matches!(message, ChatMessage::ToolResult(_)) {
            written.extend(image_message(&mut shown));
        }
        match message {
            ChatMessage::User(user) => written.extend(user_message(user)),
            ChatMessage::Assistant(answer) => {
                names
                    .extend(answer.tool_calls().map(|call| (call.id.as_str(), call.name.as_str())));
                written.extend(answer_message(answer));
            }
            ChatMessage::ToolResult(result) => {
                let images = images_of(&result.content);
                shown.extend(images.iter().map(|image| image.data.to_owned()));
                let called = names.get(result.tool_call_id.as_str()).copied();
                written.push(result_message(result, called.unwrap_or(&result.tool_name)));
            }
        }
    }
    written.extend(image_message(&mut shown));
    // OL-1: without a conversation the server loads the model and answers nothing.
    if written.iter().all(|message| message["role"] == "system") {
        written.push(json!({ "role": "user", "content": BOOTSTRAP }));
    }
    written
}

fn user_message(user: &UserMessage) -> Option<Value> {
    let text = text_of(&user.content);
    let images: Vec<_> = images_of(&user.content).iter().map(|image| image.data).collect();
    match (text.is_empty(), images.is_empty()) {
        (true, true) => None,
        (false, true) => Some(json!({ "role": "user", "content": text })),
        (_, false) => Some(json!({ "role": "user", "content": text, "images": images })),
    }
}

fn answer_message(answer: &AssistantMessage) -> Option<Value> {
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    message.insert("content".into(), text_of(&answer.content).into());
    let thinking = if answer.api == API { thinking_of(answer) } else { String::new() };
    if !thinking.is_empty() {
        message.insert("thinking".into(), thinking.into());
    }
    let calls: Vec<_> = answer.tool_calls().map(call).collect();
    let says_nothing = message.get("content").is_some_and(|text| text == "");
    if says_nothing && calls.is_empty() {
        return None;
    }
    if !calls.is_empty() {
        message.insert("tool_calls".into(), calls.into());
    }
    Some(Value::Object(message))
}

fn thinking_of(answer: &AssistantMessage) -> String {
    let thoughts = answer.content.iter().filter_map(|block| match block {
        ChatBlock::Thinking { thinking, .. } if !thinking.is_empty() => Some(thinking.as_str()),
        _ => None,
    });
    thoughts.collect::<Vec<_>>().join("\n")
}

/// A tool call. Older versions ignore the id.
fn call(call: &ToolCallBlock) -> Value {
    let arguments = Value::Object(arguments_object(&call.arguments));
    json!({ "id": call.id, "function": { "name": call.name, "arguments": arguments } })
}

fn result_message(result: &ToolResultMessage, tool_name: &str) -> Value {
    let mut content = text_of(&result.content);
    if content.is_empty() && !images_of(&result.content).is_empty() {
        ONLY_IMAGES.clone_into(&mut content);
    }
    json!({
        "role": "tool",
        "content": content,
        "tool_name": tool_name,
        "tool_call_id": result.tool_call_id,
    })
}

fn image_message(shown: &mut Vec<String>) -> Option<Value> {
    let images = std::mem::take(shown);
    let message = json!({ "role": "user", "content": "(images of the results)", "images": images });
    (!images.is_empty()).then_some(message)
}
