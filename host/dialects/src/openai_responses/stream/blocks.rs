//! One output item of a stream and the block it becomes.

use serde_json::{Value, json};

use crate::inbound::parse_item;
use crate::json::{set, string, text};
use crate::message::{ChatBlock, ToolCallBlock};
use crate::openai_responses::API;

/// An output item that is still streamed.
#[derive(Debug, Default)]
pub(super) struct OutputItem {
    /// The item of its first event, then that of its last.
    pub(super) item: Value,
    /// Whether `item` is complete.
    pub(super) is_done: bool,
    /// Its text so far.
    pub(super) text: String,
    /// Its arguments so far.
    pub(super) arguments: String,
    /// Its thinking so far.
    pub(super) thinking: String,
}

impl OutputItem {
    /// The block; `None` for a call that was cut short.
    pub(super) fn into_content(self, is_cut_short: bool) -> Option<ChatBlock> {
        let item = self.into_item();
        match text(&item, "type") {
            "message" => text_block(&item),
            "reasoning" => Some(thinking_block(&item)),
            "function_call" => call_block(&item, is_cut_short),
            "" => None,
            _ => Some(ChatBlock::ProviderItem { api: API.to_owned(), item }),
        }
    }

    /// The item; for one without a `done` event what its deltas add up to.
    fn into_item(self) -> Value {
        let OutputItem { mut item, is_done, text: message, arguments, thinking } = self;
        if is_done {
            return item;
        }
        if item.is_null() && !message.is_empty() {
            item = json!({ "type": "message" });
        }
        let (field, value) = match text(&item, "type") {
            "message" => ("content", json!([{ "type": "output_text", "text": message }])),
            "function_call" => ("arguments", arguments.into()),
            "reasoning" => ("summary", json!([{ "type": "summary_text", "text": thinking }])),
            _ => return item,
        };
        set(&mut item, field, value);
        item
    }
}

fn text_block(item: &Value) -> Option<ChatBlock> {
    let parts = item.get("content").and_then(Value::as_array);
    let whole: String = parts.into_iter().flatten().map(part_text).collect();
    let text_signature = (!text(item, "id").is_empty()).then(|| signature(item));
    (!whole.is_empty()).then_some(ChatBlock::Text { text: whole, text_signature })
}

fn part_text(part: &Value) -> &str {
    let field = if text(part, "type") == "refusal" { "refusal" } else { "text" };
    text(part, field)
}

/// The signature of a text block as Pi writes it: id and phase of the message item.
fn signature(item: &Value) -> String {
    let mut signature = json!({ "v": 1, "id": text(item, "id") });
    let phase = text(item, "phase");
    if !phase.is_empty() {
        set(&mut signature, "phase", phase);
    }
    signature.to_string()
}

fn thinking_block(item: &Value) -> ChatBlock {
    let texts = |field| {
        let parts = item.get(field).and_then(Value::as_array).into_iter().flatten();
        parts.map(|part| text(part, "text")).collect::<Vec<_>>().join("\n\n")
    };
    let summary = texts("summary");
    // Open models behind this API send their thinking as `content`, OpenAI only a summary.
    let thinking = if summary.is_empty() { texts("content") } else { summary };
    // The whole item goes back to the API, with its id and `encrypted_content`.
    ChatBlock::thinking(thinking, Some(item.to_string()))
}

fn call_block(item: &Value, is_cut_short: bool) -> Option<ChatBlock> {
    let written = text(item, "arguments");
    let parsed = match written.trim() {
        // Null would mark an interrupted call, which is not sent again.
        "" | "null" => Ok(json!({})),
        json => parse_item(json),
    };
    if is_cut_short && (parsed.is_err() || text(item, "status") == "incomplete") {
        return None;
    }
    // Arguments that are not JSON stay a string: the tool's error then shows them to the model.
    let arguments = parsed.unwrap_or_else(|_| written.into());
    let ids = [text(item, "call_id"), text(item, "id")];
    let id = ids.into_iter().find(|id| !id.is_empty()).unwrap_or_default().to_owned();
    Some(ChatBlock::ToolCall(ToolCallBlock::new(id, string(item, "name"), arguments)))
}
