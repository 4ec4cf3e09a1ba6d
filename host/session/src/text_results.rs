//! Tells tool results in text of the user from what people write alike, by the answer before them.

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::{EntryKind, Role};
use ctxhost_text::injected_text::tool_output;

use super::contents::SessionContents;
use super::record::{Record, RecordKind};

/// The entry as a message of the user, if no answer before it called a tool.
pub(super) fn set_kind(contents: &SessionContents, record: &Record, entry: NewEntry) -> NewEntry {
    if !depends_on_answer(record, &entry) {
        return entry;
    }
    let search = AnswerSearch::before(contents, contents.parent_of(record));
    let is_result = search.answer.is_some_and(|answer| {
        !answer.calls.is_empty() || tool_output::calls_in_text(&answer.text, &entry.text)
    });
    if is_result { entry } else { NewEntry { kind: EntryKind::Message, ..entry } }
}

/// The records that determine the kind of a record after `parent`: empty for most, `None` if some of them are not
/// loaded.
pub(super) fn answer_records(
    contents: &SessionContents,
    record: &Record,
    parent: Option<usize>,
) -> Option<Vec<usize>> {
    if !record.to_entry().is_some_and(|entry| depends_on_answer(record, &entry)) {
        return Some(Vec::new());
    }
    let search = AnswerSearch::before(contents, parent);
    (!search.is_cut).then_some(search.seen)
}

fn depends_on_answer(record: &Record, entry: &NewEntry) -> bool {
    *record.kind() == RecordKind::Message
        && (entry.role, entry.kind) == (Role::User, EntryKind::Custom)
        && tool_output::needs_answer(&entry.text)
}

/// A search backwards for the answer before a record.
#[derive(Default)]
struct AnswerSearch {
    seen: Vec<usize>,
    answer: Option<NewEntry>,
    /// Whether the search ended at a record whose predecessor is not loaded.
    is_cut: bool,
}

impl AnswerSearch {
    fn before(contents: &SessionContents, parent: Option<usize>) -> AnswerSearch {
        let mut search = AnswerSearch::default();
        for at in parent.into_iter().flat_map(|at| contents.tree.path_backwards_from(at)) {
            search.seen.push(at);
            match contents.record_at(at).and_then(Record::to_entry) {
                Some(entry) if entry.role == Role::Assistant => {
                    search.answer = Some(entry);
                    break;
                }
                // A request of the user, or the result of another protocol.
                Some(entry) if entry.kind == EntryKind::Message => break,
                _ => {}
            }
            if contents.skipped.as_ref().is_some_and(|skipped| skipped.has_gap_before(at)) {
                search.is_cut = true;
                break;
            }
        }
        search
    }
}
