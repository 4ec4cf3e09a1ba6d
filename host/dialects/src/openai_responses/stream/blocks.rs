//! One output item and the block it becomes.

use serde_json::{Value, json};

use crate::json::text;
use crate::message::{ChatBlock, ToolCallBlock};
use crate::openai_responses::API;

/// An output item while it comes.
#[derive(Debug, Default)]
pub(super) struct OutputItem {
    /// The item: as it began, then as it is.
    pub(super) item: Value,
    /// Whether it is whole.
    pub(super) is_done: bool,
    /// Its text so far.
    pub(super) text: String,
    /// Its arguments so far.
    pub(super) arguments: String,
    /// Its thinking so far.
    pub(super) thinking: String,
}

impl OutputItem {
    /// The block. A call that was cut short was never made.
    pub(super) fn into_content(self, is_cut_short: bool) -> Option<ChatBlock> {
        let item = self.whole();
        match text(&item, "type") {
            "message" => text_block(&item),
            "reasoning" => Some(thinking_block(&item)),
            "function_call" => call_block(&item, is_cut_short),
            "" => None,
            _ => Some(ChatBlock::ProviderItem { api: API.to_owned(), item }),
        }
    }

    /// The item; of one that never was done, what the deltas said.
    fn whole(self) -> Value {
        let OutputItem { mut item, is_done, text: said, arguments, thinking } = self;
        if is_done {
            return item;
        }
        if item.is_null() && !said.is_empty() {
            item = json!({ "type": "message" });
        }
        let (field, value) = match text(&item, "type") {
            "message" => ("content", json!([{ "type": "output_text", "text": said }])),
            "function_call" => ("arguments", arguments.into()),
            "reasoning" => ("summary", json!([{ "type": "summary_text", "text": thinking }])),
            _ => return item,
        };
        if let Some(fields) = item.as_object_mut() {
            fields.insert(field.into(), value);
        }
        item
    }
}

fn text_block(item: &Value) -> Option<ChatBlock> {
    let said = |part: &Value| match text(part, "type") {
        "refusal" => text(part, "refusal").to_owned(),
        _ => text(part, "text").to_owned(),
    };
    let parts = item.get("content").and_then(Value::as_array);
    let whole: String = parts.into_iter().flatten().map(said).collect();
    let text_signature = Some(signature(item)).filter(|_| !text(item, "id").is_empty());
    (!whole.is_empty()).then_some(ChatBlock::Text { text: whole, text_signature })
}

/// What Pi keeps of a message item.
fn signature(item: &Value) -> String {
    let mut signature = json!({ "v": 1, "id": text(item, "id") });
    let phase = text(item, "phase");
    if let (false, Some(fields)) = (phase.is_empty(), signature.as_object_mut()) {
        fields.insert("phase".into(), phase.into());
    }
    signature.to_string()
}

fn thinking_block(item: &Value) -> ChatBlock {
    let texts = |field| {
        let parts = item.get(field).and_then(Value::as_array).into_iter().flatten();
        parts.map(|part| text(part, "text")).collect::<Vec<_>>().join("\n\n")
    };
    let summary = texts("summary");
    let thinking = if summary.is_empty() { texts("content") } else { summary };
    ChatBlock::Thinking { thinking, thinking_signature: Some(item.to_string()), redacted: false }
}

fn call_block(item: &Value, is_cut_short: bool) -> Option<ChatBlock> {
    let written = text(item, "arguments");
    let parsed = match written.trim() {
        "" => Ok(json!({})),
        arguments => serde_json::from_str(arguments),
    };
    if is_cut_short && (parsed.is_err() || text(item, "status") == "incomplete") {
        return None;
    }
    // What is no JSON goes on as it is: the tool's refusal tells the model what it wrote.
    let arguments = parsed.unwrap_or_else(|_| written.into());
    let id = [text(item, "call_id"), text(item, "id")].into_iter().find(|id| !id.is_empty());
    Some(ChatBlock::ToolCall(ToolCallBlock {
        id: id.unwrap_or_default().to_owned(),
        name: text(item, "name").to_owned(),
        arguments,
        thought_signature: None,
    }))
}
