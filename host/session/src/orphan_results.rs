//! Matches tool results without a call id to the only open call before them.

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::transcript::open_calls::OpenCalls;
use ctxhost_engine_api::{Flags, Message, Role};

use super::contents::SessionContents;
use super::json_fields::{JsonFields, json_string};
use super::record::Record;
use super::text_results;

/// Attaches a result without a call id to the only open call before it, if the tool matches. Other entries are
/// returned unchanged.
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
    // Why the id is missing is unknown, so the result cannot count as a success.
    fields.set("isError", "true".to_owned());
    NewEntry {
        raw: fields.to_line(),
        flags: entry.flags.with(Flags::ERROR),
        answers: Some(id),
        ..entry
    }
}

/// The records that determine the entry of a record after `parent` besides it: of a result without a call id, and of a
/// [tool result in text](text_results). `None` if some of them are not loaded.
pub(super) fn context_records(
    contents: &SessionContents,
    record: &Record,
    parent: Option<usize>,
) -> Option<Vec<usize>> {
    if !record.to_entry().is_some_and(|entry| lacks_call_id(&entry)) {
        return text_results::answer_records(contents, record, parent);
    }
    let search = CallSearch::before(contents, parent, false);
    (!search.is_cut).then_some(search.seen)
}

/// Whether the loaded contents determine the entry of a record.
pub(super) fn is_resolvable(contents: &SessionContents, record: &Record) -> bool {
    context_records(contents, record, contents.parent_of(record)).is_some()
}

fn lacks_call_id(entry: &NewEntry) -> bool {
    let has_id = entry.answers.as_deref().is_some_and(|id| !id.trim().is_empty());
    entry.role == Role::Tool && !has_id
}

/// A search backwards for the nearest message with calls.
#[derive(Default)]
struct CallSearch {
    seen: Vec<usize>,
    calling: Option<NewEntry>,
    /// Call ids of the results in between.
    answered: Vec<String>,
    /// Number of results in between without a call id.
    orphans: usize,
    /// Whether the search ended at a record whose predecessor is not loaded.
    is_cut: bool,
}

impl CallSearch {
    /// Searches from a record on. With `ends_early`, stops at another result without an id.
    fn before(contents: &SessionContents, parent: Option<usize>, ends_early: bool) -> CallSearch {
        let mut search = CallSearch::default();
        let back = parent.into_iter().flat_map(|at| contents.tree.path_backwards_from(at));
        for at in back {
            search.seen.push(at);
            match contents.record_at(at).and_then(Record::to_entry) {
                Some(entry) if entry.role == Role::Tool => search.add_result(entry),
                Some(entry) if !entry.calls.is_empty() => {
                    search.calling = Some(entry);
                    return search;
                }
                _ => {}
            }
            // No call is unique then, and thousands of such results would make this quadratic.
            if ends_early && search.orphans > 0 {
                return search;
            }
            if contents.skipped.as_ref().is_some_and(|skipped| skipped.has_gap_before(at)) {
                search.is_cut = true;
                return search;
            }
        }
        search
    }

    fn add_result(&mut self, entry: NewEntry) {
        match entry.answers {
            Some(id) if !id.trim().is_empty() => self.answered.push(id),
            _ => self.orphans += 1,
        }
    }

    /// Id and tool of the only call without a result.
    fn only_open_call(&self) -> Option<(String, String)> {
        let calling = self.calling.as_ref().filter(|_| self.orphans == 0)?;
        let calls = Message::parse(&calling.raw, "").tool_calls().into_iter();
        let mut open = OpenCalls::default();
        open.open(calls.map(|call| (call.id.to_string(), (call.id.into(), call.name.into()))));
        // From the newest result to the oldest.
        self.answered.iter().rev().for_each(|id| drop(open.take(id)));
        let mut open = open.into_open();
        let only = open.next()?;
        open.next().is_none().then_some(only)
    }
}
