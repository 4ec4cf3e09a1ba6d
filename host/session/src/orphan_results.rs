//! Results that do not say which call they answer, and the one call that they can only mean.

use std::collections::HashSet;

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::{Flags, Message, Role};

use super::contents::SessionContents;
use super::json_fields::{JsonFields, json_string};
use super::record::Record;

/// A result without an id answers the one open call before it, where the tool agrees. Nobody knows
/// what went wrong when it was written, so it counts as an error. Any other entry stays as it is.
pub(super) fn attach_call(
    contents: &SessionContents,
    record: &Record,
    entry: NewEntry,
) -> NewEntry {
    if !lacks_call_id(&entry) {
        return entry;
    }
    let Some(mut fields) = JsonFields::parse(&entry.raw) else { return entry };
    let tool = fields.get("toolName").and_then(|json| serde_json::from_str::<String>(json).ok());
    let search = CallSearch::before(contents, contents.parent_of(record), true);
    let Some((id, name)) = search.only_open_call() else { return entry };
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

/// The records that say whose result a record behind `parent` is; `None` where some of them are left
/// out of an excerpt. None but for a result without an id.
pub(super) fn call_records(
    contents: &SessionContents,
    record: &Record,
    parent: Option<usize>,
) -> Option<Vec<usize>> {
    if !record.to_entry().is_some_and(|entry| lacks_call_id(&entry)) {
        return Some(Vec::new());
    }
    let search = CallSearch::before(contents, parent, false);
    (!search.is_cut).then_some(search.seen)
}

fn lacks_call_id(entry: &NewEntry) -> bool {
    let is_named = entry.answers.as_deref().is_some_and(|id| !id.trim().is_empty());
    entry.role == Role::Tool && !is_named
}

/// A look back for the nearest calling message.
#[derive(Default)]
struct CallSearch {
    seen: Vec<usize>,
    calling: Option<NewEntry>,
    /// Ids of the calls that results on the way answer.
    answered: Vec<String>,
    /// How many results on the way do not say what they answer.
    nameless: usize,
    /// Whether it ended where an excerpt leaves records out.
    is_cut: bool,
}

impl CallSearch {
    /// `ends_early` where only the call counts: behind another result without an id it is none, and thousands of them
    /// are not looked through for each.
    fn before(contents: &SessionContents, parent: Option<usize>, ends_early: bool) -> CallSearch {
        let mut search = CallSearch::default();
        let back = parent.into_iter().flat_map(|at| contents.tree.path_backwards_from(at));
        for at in back {
            search.seen.push(at);
            match contents.record_at(at).and_then(Record::to_entry) {
                Some(entry) if entry.role == Role::Tool => search.result(entry),
                Some(entry) if !entry.calls.is_empty() => {
                    search.calling = Some(entry);
                    return search;
                }
                _ => {}
            }
            if ends_early && search.nameless > 0 {
                return search;
            }
            if contents.skipped.as_ref().is_some_and(|older| older.has_gap_before(at)) {
                search.is_cut = true;
                return search;
            }
        }
        search
    }

    fn result(&mut self, entry: NewEntry) {
        match entry.answers {
            Some(id) if !id.trim().is_empty() => self.answered.push(id),
            _ => self.nameless += 1,
        }
    }

    /// Id and tool of the one call that no result on the way answers.
    fn only_open_call(&self) -> Option<(String, String)> {
        let calling = self.calling.as_ref().filter(|_| self.nameless == 0)?;
        let calls = Message::parse(&calling.raw, "").tool_calls();
        let answered: HashSet<&str> = self.answered.iter().map(String::as_str).collect();
        let mut open = calls.into_iter().filter(|call| !answered.contains(&*call.id));
        let only = open.next()?;
        open.next().is_none().then(|| (only.id.into_owned(), only.name.into_owned()))
    }
}
