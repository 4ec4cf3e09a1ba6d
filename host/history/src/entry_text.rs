//! The readable content of an entry: author, text, calls and images.

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::{ContentBlock, Entry, EntryKind, Message, Role};
use ctxhost_retention::normalize;
use serde_json::Value;

/// The readable content of an entry.
#[derive(Clone, Debug)]
pub(super) struct EntryText {
    /// The author.
    pub(super) speaker: String,
    /// The text.
    pub(super) text: String,
    /// The calls: tool and arguments as JSON.
    pub(super) calls: Vec<(String, String)>,
    /// The MIME types of the images.
    pub(super) images: Vec<String>,
}

impl From<&NewEntry> for EntryText {
    fn from(entry: &NewEntry) -> EntryText {
        EntryText::new(entry.role, entry.kind, &entry.text, &entry.raw)
    }
}

impl From<Entry<'_>> for EntryText {
    fn from(entry: Entry<'_>) -> EntryText {
        EntryText::new(entry.role(), entry.kind(), entry.text(), entry.raw())
    }
}

impl EntryText {
    fn new(role: Role, kind: EntryKind, text: &str, raw: &str) -> EntryText {
        let message = Message::parse(raw, "");
        let speaker = match (role, kind) {
            (Role::Tool, _) => result_of(&message),
            (_, EntryKind::CompactionSummary | EntryKind::BranchSummary) => "summary".to_owned(),
            (_, EntryKind::Custom) => "note".to_owned(),
            (role, _) => role.name().to_owned(),
        };
        let (mut calls, mut images) = (Vec::new(), Vec::new());
        for block in message.blocks {
            match block {
                ContentBlock::ToolCall(call) => {
                    calls.push((call.name.into_owned(), call.arguments.into_owned()));
                }
                ContentBlock::Image { mime, .. } => images.push(mime.into_owned()),
                _ => {}
            }
        }
        EntryText { speaker, text: text.to_owned(), calls, images }
    }

    /// Whether text or calls contain a [normalized](normalize) text.
    pub(super) fn contains(&self, needle: &str) -> bool {
        let mut texts = vec![self.text.clone()];
        for (tool, arguments) in &self.calls {
            texts.push(tool.clone());
            // The values and not the JSON: in it a line break is an escape, and the text would not be found.
            flatten(&serde_json::from_str(arguments).unwrap_or_default(), &mut texts);
        }
        // Users search for what they saw, and terminals wrap lines at other places than the record does.
        normalize(&texts.join("\n")).contains(needle)
    }
}

fn result_of(message: &Message<'_>) -> String {
    let Some(head) = message.clone().tool_result() else { return "result".to_owned() };
    let failed = if head.is_error { " (failed)" } else { "" };
    format!("result of {}{failed}", head.tool)
}

/// Collects the strings and numbers of arguments in order.
fn flatten(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| flatten(value, texts)),
        Value::Object(fields) => fields.values().for_each(|value| flatten(value, texts)),
        Value::Null => {}
        scalar => texts.push(scalar.to_string()),
    }
}
