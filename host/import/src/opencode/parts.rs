//! Converts the parts of an opencode message.

use serde_json::Value;

use super::super::block::{self, kind, string};
use super::super::draft::{ImportDraft, ImportedResult};
use super::super::injected;

/// The content of one message.
#[derive(Default)]
pub(super) struct MessageContent {
    /// Text, thinking, images and calls.
    pub(super) blocks: Vec<Value>,
    /// The results of its calls.
    pub(super) results: Vec<ImportedResult>,
    /// The results that were cleared later: when, and of which call.
    pub(super) cleared: Vec<(i64, String)>,
}

impl MessageContent {
    /// Reads the parts in the order of their ids, in which they were written.
    pub(super) fn read(
        draft: &mut ImportDraft,
        line: u64,
        mut parts: Vec<Value>,
    ) -> MessageContent {
        parts.sort_by(|a, b| string(a, "id").cmp(&string(b, "id")));
        let mut content = MessageContent::default();
        for part in parts {
            content.add(draft, line, part);
        }
        content
    }

    fn add(&mut self, draft: &mut ImportDraft, line: u64, part: Value) {
        match kind(&part) {
            // Shown to the user only.
            "text" if part.get("ignored").and_then(Value::as_bool) == Some(true) => {}
            "text" => {
                let text = string(&part, "text").filter(|text| !text.is_empty());
                self.blocks.extend(text.map(block::text));
            }
            "reasoning" => {
                let text = string(&part, "text").filter(|text| !text.is_empty());
                self.blocks.extend(text.map(|text| block::thinking(text, None)));
            }
            "file" => self.blocks.extend(file(&part)),
            "tool" => self.add_tool(draft, line, &part),
            "" => draft.add_problem(line, "a part without a type"),
            // Steps, snapshots, patches and other state that the model does not see.
            _ => {}
        }
    }

    fn add_tool(&mut self, draft: &mut ImportDraft, line: u64, part: &Value) {
        let (Some(call_id), Some(tool)) = (string(part, "callID"), string(part, "tool")) else {
            return draft.add_problem(line, "a tool call without id or name");
        };
        let state = part.get("state").unwrap_or(&Value::Null);
        let input = state.get("input").cloned().unwrap_or_default();
        self.blocks.push(block::tool_call(call_id, tool, input));
        let is_error = string(state, "status") == Some("error");
        let text = string(state, if is_error { "error" } else { "output" });
        if let Some(text) = text {
            let mut content = vec![block::text(text)];
            let attachments = state.get("attachments").and_then(Value::as_array);
            content.extend(attachments.into_iter().flatten().filter_map(file));
            self.results.push(ImportedResult {
                call_id: call_id.to_owned(),
                tool: Some(tool.to_owned()),
                content,
                is_error,
            });
        }
        let cleared_ms = state.get("time").and_then(|time| time.get("compacted")?.as_i64());
        self.cleared.extend(cleared_ms.map(|cleared_ms| (cleared_ms, call_id.to_owned())));
    }
}

/// Marks a text part of a user message that opencode wrote: the content of an attached file, a reminder of a mode.
pub(super) fn mark_injected(mut part: Value) -> Value {
    let is_synthetic = part.get("synthetic").and_then(Value::as_bool) == Some(true);
    if let Some(Value::String(text)) = part.get_mut("text").filter(|_| is_synthetic) {
        *text = injected::mark(text);
    }
    part
}

/// An attached image; a note for any other file, whose text is a part of its own.
fn file(part: &Value) -> Option<Value> {
    let url = string(part, "url")?;
    if string(part, "mime").is_some_and(|mime| mime.starts_with("image/")) {
        return Some(block::image_at(url));
    }
    let name = string(part, "filename").unwrap_or(url);
    Some(block::text(format!("[file: {name}]")))
}
