//! Results that do not say which call they answer, and the one call that they can only mean.

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::{Flags, Message, Role};

use super::contents::Contents;
use super::fields::{Fields, json_string};
use super::record::Record;

/// A result without an id answers the one open call before it, where the tool agrees. Nobody knows
/// what went wrong when it was written, so it counts as an error. Any other entry stays as it is.
pub(super) fn adopt(contents: &Contents, record: &Record, entry: NewEntry) -> NewEntry {
    let is_nameless = entry.answers.as_deref().is_none_or(|id| id.trim().is_empty());
    if entry.role != Role::Tool || !is_nameless {
        return entry;
    }
    let Some(mut fields) = Fields::parse(&entry.raw) else { return entry };
    let tool = fields.get("toolName").and_then(|json| serde_json::from_str::<String>(json).ok());
    let Some((id, name)) = only_open_call(contents, record) else { return entry };
    match tool.as_deref().map(str::trim) {
        None | Some("") => fields.set("toolName", json_string(&name)),
        Some(tool) if tool == name => {}
        Some(_) => return entry,
    }
    fields.set("toolCallId", json_string(&id));
    fields.set("isError", "true".to_owned());
    NewEntry {
        raw: fields.to_line(),
        flags: entry.flags.with(Flags::ERROR),
        answers: Some(id),
        ..entry
    }
}

/// Id and tool of the one call of the nearest calling message before a record that no result between
/// them answers.
fn only_open_call(contents: &Contents, record: &Record) -> Option<(String, String)> {
    let mut answered: Vec<String> = Vec::new();
    let mut nameless = 0;
    let before = |record: &Record| contents.record(record.parent_id()?);
    let mut at = before(record);
    while let Some(earlier) = at {
        let entry = earlier.to_entry();
        match entry.filter(|entry| entry.role == Role::Tool || !entry.calls.is_empty()) {
            Some(result) if result.role == Role::Tool => match result.answers {
                Some(id) if !id.trim().is_empty() => answered.push(id),
                _ => nameless += 1,
            },
            Some(calling) => return only_call(&calling, &answered).filter(|_| nameless == 0),
            None => {}
        }
        at = before(earlier);
    }
    None
}

fn only_call(calling: &NewEntry, answered: &[String]) -> Option<(String, String)> {
    let calls = Message::parse(&calling.raw, "").tool_calls();
    let mut open = calls.into_iter().filter(|call| !answered.iter().any(|id| *id == call.id));
    let only = open.next()?;
    open.next().is_none().then(|| (only.id.into_owned(), only.name.into_owned()))
}
