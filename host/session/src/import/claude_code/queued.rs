//! Reads the prompts that the user typed while the agent worked, which are attachments.
//!
//! Some versions also write a record of the user with the same text or under the id that the attachment names.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use serde_json::{Value, json};

use super::super::block::{joined_text, kind, string};
use super::super::injected;
use super::super::json_lines::JsonRecord;

/// The id of the record of the user that an attachment repeats.
const SOURCES: [&str; 2] = ["source_uuid", "sourceUuid"];

/// A queued prompt as a record of the user; any other record unchanged. Notifications of the program are marked as text
/// that is not the user's.
pub(super) fn as_user_record(mut record: JsonRecord) -> JsonRecord {
    let Some(content) = queued_content(&record) else { return record };
    record.fields.insert("type".into(), "user".into());
    record.fields.insert("message".into(), json!({ "role": "user", "content": content }));
    record
}

fn queued_content(record: &JsonRecord) -> Option<Value> {
    let attachment = attachment(record)?;
    if attachment.get("isMeta").and_then(Value::as_bool) == Some(true) {
        return None;
    }
    let mut content = attachment.get("prompt")?.clone();
    let origin = attachment.get("origin").and_then(|origin| string(origin, "kind"));
    match string(attachment, "commandMode") {
        // Without an origin, the mode tells who wrote it.
        None | Some("prompt") if origin.is_none_or(|origin| origin == "human") => {}
        None | Some("prompt" | "task-notification") => mark_injected(&mut content),
        // Commands of the shell and of the program, which have records of their own.
        Some(_) => return None,
    }
    Some(content)
}

fn attachment(record: &JsonRecord) -> Option<&Value> {
    let attachment = record.fields.get("attachment")?;
    (kind(attachment) == "queued_command").then_some(attachment)
}

fn mark_injected(content: &mut Value) {
    match content {
        Value::String(text) => *text = injected::mark(text),
        Value::Array(blocks) => {
            for block in blocks {
                if let Some(Value::String(text)) = block.get_mut("text") {
                    *text = injected::mark(text);
                }
            }
        }
        _ => {}
    }
}

/// The queued prompts that a record of the user may repeat.
#[derive(Default)]
pub(super) struct QueuedPrompts {
    /// The messages of the prompts since the newest reply, by their text.
    by_text: HashMap<String, Vec<Range<usize>>>,
    /// The messages of all of them, by the id of their record of the user.
    by_source: HashMap<String, Range<usize>>,
}

impl QueuedPrompts {
    /// Whether a record is a queued prompt whose record of the user is among those read.
    pub(super) fn is_read(record: &JsonRecord, read: &HashSet<String>) -> bool {
        sources(record).any(|source| read.contains(source))
    }

    /// Adds the messages that a queued prompt became.
    pub(super) fn add(&mut self, record: &JsonRecord, text: String, messages: Range<usize>) {
        for source in sources(record) {
            self.by_source.insert(source.to_owned(), messages.clone());
        }
        if !text.is_empty() {
            self.by_text.entry(text).or_default().push(messages);
        }
    }

    /// The messages of the queued prompt that a record of the user repeats. A text is repeated once.
    pub(super) fn take_repeated(&mut self, record: &JsonRecord) -> Option<Range<usize>> {
        let is_empty = self.by_text.is_empty() && self.by_source.is_empty();
        if is_empty || record.text("type") != Some("user") || attachment(record).is_some() {
            return None;
        }
        let by_source = record.text("uuid").and_then(|id| self.by_source.remove(id));
        let same = self.by_text.get_mut(&text_of(record));
        let by_text = same.and_then(|same| {
            let is_same = |of: &Range<usize>| by_source.as_ref().is_none_or(|known| known == of);
            same.iter().position(is_same).map(|at| same.remove(at))
        });
        by_source.or(by_text)
    }

    /// Forgets the texts: after a reply, the same text is a prompt of its own.
    pub(super) fn end_texts(&mut self) {
        self.by_text.clear();
    }
}

/// The text of a queued prompt; `None` for any other record.
pub(super) fn queued_text(record: &JsonRecord) -> Option<String> {
    attachment(record).map(|_| text_of(record))
}

/// The text by which prompts are compared; empty without one.
fn text_of(record: &JsonRecord) -> String {
    let content = record.fields.get("message").and_then(|message| message.get("content"));
    content.map(joined_text).unwrap_or_default().trim().to_owned()
}

fn sources(record: &JsonRecord) -> impl Iterator<Item = &str> {
    let attachment = attachment(record).into_iter();
    attachment.flat_map(|attachment| SOURCES.iter().filter_map(|name| string(attachment, name)))
}
