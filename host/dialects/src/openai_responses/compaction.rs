//! Compaction at the server: what is sent to `/responses/compact`, and what its answer becomes.
//!
//! The answer replaces the history as a whole: the person's messages that the server kept and
//! an encrypted item for the rest. All of it is stored in one message of the model, item by item and
//! word for word, and goes back in its place.

use serde_json::{Map, Value};

use super::API;
use super::errors::refusal;
use super::request::add_cache_key;
use super::request::input_items;
use crate::dialect::StreamError;
use crate::message::{AssistantMessage, ChatBlock, ChatMessage};
use crate::request::ModelRequest;

/// Where a history is compacted, and the body of the request.
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

/// The history in the place of the one that was sent.
///
/// Its usage is left at zeros: what the compaction cost is not the size of what it left. Provider and
/// model are left to whoever asked: only the model of that very name may read the items again.
pub(super) fn parse_compaction(answer: &Value) -> Result<Vec<ChatMessage>, StreamError> {
    if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
        return Err(StreamError::Refused(refusal(error)));
    }
    let output = answer.get("output").and_then(Value::as_array);
    let items = output.ok_or_else(|| nonsense("it has no output"))?;
    if !items.iter().any(is_compaction) {
        return Err(nonsense("no item of its output is a compaction"));
    }
    if !items.iter().all(Value::is_object) {
        return Err(nonsense("something in its output is no item"));
    }
    let item = |item: &Value| ChatBlock::ProviderItem { api: API.to_owned(), item: item.clone() };
    let id = answer.get("id").and_then(Value::as_str).unwrap_or_default();
    Ok(vec![ChatMessage::Assistant(AssistantMessage {
        content: items.iter().map(item).collect(),
        api: API.to_owned(),
        response_id: id.to_owned(),
        ..AssistantMessage::default()
    })])
}

/// Codex's servers have called the item `compaction_summary` as well.
fn is_compaction(item: &Value) -> bool {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or_default();
    let content = item.get("encrypted_content").and_then(Value::as_str).unwrap_or_default();
    kind.starts_with("compaction") && !content.is_empty()
}

fn nonsense(what: &str) -> StreamError {
    StreamError::InvalidFrame { reason: format!("the answer to a compaction is none: {what}") }
}
