//! Compaction by the server: the request to `/responses/compact` and its response.
//!
//! The response replaces the whole history: the user messages that the server kept and an
//! encrypted item for the rest. It is stored unchanged in one assistant message.

use serde_json::{Map, Value};

use super::API;
use super::errors::refusal;
use super::request::add_cache_key;
use super::request::input_items;
use crate::dialect::StreamError;
use crate::json::{string, text};
use crate::message::{AssistantMessage, ChatBlock, ChatMessage};
use crate::request::ModelRequest;

/// Path and body of the request.
pub(super) fn compact_request(request: &ModelRequest) -> (String, Value) {
    let mut body = Map::new();
    body.insert("model".into(), request.model.as_str().into());
    if !request.system.is_empty() {
        body.insert("instructions".into(), request.system.as_str().into());
    }
    body.insert("input".into(), input_items(&request.messages).into());
    add_cache_key(&mut body, request);
    ("/responses/compact".to_owned(), Value::Object(body))
}

/// The history in the response. The caller sets provider and model: only that model may read the
/// items.
pub(super) fn parse_compaction(answer: &Value) -> Result<Vec<ChatMessage>, StreamError> {
    if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
        return Err(StreamError::Refused(refusal(error)));
    }
    let items = answer.get("output").and_then(Value::as_array);
    let items = items.ok_or_else(|| invalid("it has no output"))?;
    // Without one the history would be lost, since the response replaces it.
    if !items.iter().any(is_compaction) {
        return Err(invalid("its output has no compaction item"));
    }
    if !items.iter().all(Value::is_object) {
        return Err(invalid("an item of its output is not an object"));
    }
    let item = |item: &Value| ChatBlock::ProviderItem { api: API.to_owned(), item: item.clone() };
    Ok(vec![ChatMessage::Assistant(AssistantMessage {
        response_id: string(answer, "id"),
        // The usage stays zero: the cost of a compaction is not the size of its result.
        ..AssistantMessage::new(API, items.iter().map(item).collect())
    })])
}

fn is_compaction(item: &Value) -> bool {
    // Codex's servers have also named the item `compaction_summary`.
    text(item, "type").starts_with("compaction") && !text(item, "encrypted_content").is_empty()
}

fn invalid(problem: &str) -> StreamError {
    StreamError::invalid(format!("the response is not a compaction: {problem}"))
}
