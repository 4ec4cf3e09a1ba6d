//! Reads the prompts that the user typed while the agent worked, which are attachments, and who wrote a prompt.
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

/// A queued prompt as a record of the user; any other record unchanged. Text of the program and of other agents is
/// marked as text that is not the user's.
pub(super) fn as_user_record(mut record: JsonRecord) -> JsonRecord {
    let Some(content) = queued_content(&record) else {
        mark_origin(&mut record);
        return record;
    };
    record.fields.insert("type".into(), "user".into());
    record.fields.insert("message".into(), json!({ "role": "user", "content": content }));
    record
}

/// Marks the text of a record of the user that names another origin. A command holds what the user typed behind it,
/// and its tags tell.
fn mark_origin(record: &mut JsonRecord) {
    let is_user = record.text("type") == Some("user");
    let origin = record.fields.get("origin").and_then(|origin| string(origin, "kind"));
    let is_command =
        || origin == Some("slash-command") && text_of(record).contains("<command-name>");
    if !is_user || origin.is_none_or(|origin| origin == "human") || is_command() {
        return;
    }
    let message = record.fields.get_mut("message");
    if let Some(content) = message.and_then(|message| message.get_mut("content")) {
        mark_injected(content);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use ctxhost_text::injected_text::user_text;

    fn text_of_record(record: &Value) -> String {
        let line = record.to_string();
        let mut read = super::super::records(line.as_bytes());
        text_of(&as_user_record(read.next().unwrap().unwrap()))
    }

    #[test]
    fn only_what_the_user_wrote_is_a_request() {
        let record = |content: Value, origin: Value| {
            json!({ "type": "user", "uuid": "u", "origin": origin,
                    "message": { "role": "user", "content": content } })
        };
        let own = |record: &Value| user_text(&text_of_record(record)).into_owned();
        for kind in ["task-notification", "coordinator", "channel", "slash-command"] {
            let origin = json!({ "kind": kind });
            assert_eq!(own(&record(json!("the build is done"), origin.clone())), "", "{kind}");
            let blocks = json!([{ "type": "text", "text": "the build is done" }]);
            assert_eq!(own(&record(blocks, origin)), "", "{kind}");
        }
        for origin in [json!({ "kind": "human" }), json!({}), Value::Null] {
            assert_eq!(own(&record(json!("Mend it."), origin)), "Mend it.");
        }
        let command = "<command-name>/mend</command-name>\n<command-args>the parser</command-args>";
        let origin = json!({ "kind": "slash-command" });
        assert_eq!(own(&record(json!(command), origin)), "the parser");
        let mut reply = record(json!("done"), json!({ "kind": "coordinator" }));
        reply["type"] = "assistant".into();
        assert_eq!(text_of_record(&reply), "done");
    }
}
