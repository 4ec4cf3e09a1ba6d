//! An undo whose write was cut short: the session stands where it stood before it.
//!
//! An undo writes the records since a compaction once more, as a branch of their own. All of it is one
//! write, but a kill can end a write after any line:
//!
//! ```text
//!  a b [compaction] c d e            undo says: since 3, stood at e
//!    └─ undo c' d' ✂                 two of three are there: the session stands at e
//! ```

use serde::Deserialize;

use super::body::RecordBody;
use super::contents::SessionContents;
use super::record::{Record, RecordKind};
use super::undo::UNDO_TYPE;

/// What the record of an undo says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UndoMarker {
    /// How many records follow it.
    since: usize,
    /// Where the session stood.
    stood_at: String,
}

/// Leaves a branch that holds a part of an undo only. Its lines stay in the file.
pub(super) fn skip_torn_undo(contents: &mut SessionContents) {
    if let Some(stood_at) = before_half_an_undo(contents) {
        tracing::warn!("an undo was cut short; the session stands where it stood before it");
        contents.tree.set_leaf(Some(stood_at));
    }
}

/// Where the session stood before an undo of which only a part is there.
///
/// An undo may write earlier ones again, so the outermost that lacks something counts.
fn before_half_an_undo(contents: &SessionContents) -> Option<usize> {
    let mut stood_at = None;
    let mut behind: Vec<&Record> = Vec::new();
    for record in contents.tree.path_backwards().filter_map(|at| contents.record_at(at)) {
        if let Some(said) = said_by(record) {
            stood_at = where_it_stood(contents, record, &said, &behind).or(stood_at);
        }
        behind.push(record);
    }
    stood_at
}

/// What a record says of an undo, if it is one of an undo.
fn said_by(record: &Record) -> Option<UndoMarker> {
    // Most records are none, and parsing each would make opening a long session slow.
    let may_be = record.line().contains(UNDO_TYPE);
    let said = may_be.then(|| record.custom_data(UNDO_TYPE)).flatten()?;
    serde_json::from_value(said).ok()
}

/// Where the session stood, if what stands behind the undo, newest first, is a part of it and no more.
fn where_it_stood(
    contents: &SessionContents,
    undo: &Record,
    said: &UndoMarker,
    behind: &[&Record],
) -> Option<usize> {
    if behind.len() >= said.since {
        return None;
    }
    let stood_at = contents.tree.position(&said.stood_at)?;
    let since = said_since(contents, undo.parent_id(), stood_at);
    let mut again = behind.iter().rev().zip(since);
    // Whoever went on from there made the branch their own.
    again.all(|(again, first)| says_the_same(again, first)).then_some(stood_at)
}

/// What was said behind a record up to a position, oldest first: all that an undo writes again.
fn said_since<'a>(
    contents: &'a SessionContents,
    before: Option<&str>,
    at: usize,
) -> Vec<&'a Record> {
    let backwards = contents.tree.path_backwards_from(at).filter_map(|at| contents.record_at(at));
    let since = backwards.take_while(|record| Some(record.id()) != before);
    let mut said: Vec<&Record> =
        since.filter(|record| *record.kind() != RecordKind::Compaction).collect();
    said.reverse();
    said
}

fn says_the_same(again: &Record, first: &Record) -> bool {
    if again.kind() != first.kind() || again.timestamp_ms() != first.timestamp_ms() {
        return false;
    }
    let said = |record| RecordBody::from_record(record).map(|body| body.id_seed()).ok();
    // These name records, which have other ids on the new branch.
    let names_records = matches!(again.kind(), RecordKind::ContextEdit | RecordKind::Label);
    names_records || said(again) == said(first)
}
