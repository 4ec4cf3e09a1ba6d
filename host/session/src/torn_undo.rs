//! Detects an undo whose write was torn, and continues at the leaf from before it.
//!
//! An undo writes the records after a compaction again, as a new branch. This is one write, but a crash can end
//! a write after any line:
//!
//! ```text
//!  a b [compaction] c d e            undo: since 3, stood at e
//!    └─ undo c' d' ✂                 two of three records: the leaf is e
//! ```

use serde::Deserialize;

use super::body::RecordBody;
use super::contents::SessionContents;
use super::record::{Record, RecordKind};
use super::undo::UNDO_TYPE;

/// The content of the record that starts an undo.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UndoMarker {
    /// Number of records that follow it.
    since: usize,
    /// The previous leaf.
    stood_at: String,
}

/// Moves the leaf off a branch that holds a partial undo. Its lines stay in the file.
pub(super) fn skip_torn_undo(contents: &mut SessionContents) {
    if let Some(leaf) = leaf_before_torn_undo(contents) {
        tracing::warn!("the last undo was not written completely and is ignored");
        contents.tree.set_leaf(Some(leaf));
    }
}

/// The leaf before a partial undo.
fn leaf_before_torn_undo(contents: &SessionContents) -> Option<usize> {
    let mut leaf = None;
    let mut later: Vec<&Record> = Vec::new();
    for record in contents.tree.path_backwards().filter_map(|at| contents.record_at(at)) {
        if let Some(marker) = undo_marker(record) {
            // An undo may contain copies of earlier ones, so the outermost partial one counts.
            leaf = previous_leaf(contents, record, &marker, &later).or(leaf);
        }
        later.push(record);
    }
    leaf
}

fn undo_marker(record: &Record) -> Option<UndoMarker> {
    // Most records are no undo, and parsing each would make opening a long session slow.
    let may_be_undo = record.line().contains(UNDO_TYPE);
    let data = may_be_undo.then(|| record.custom_data(UNDO_TYPE)).flatten()?;
    serde_json::from_value(data).ok()
}

/// The leaf before an undo, if the records after it, newest first, are only a part of it.
fn previous_leaf(
    contents: &SessionContents,
    undo: &Record,
    marker: &UndoMarker,
    later: &[&Record],
) -> Option<usize> {
    if later.len() >= marker.since {
        return None;
    }
    let leaf = contents.tree.position(&marker.stood_at)?;
    let originals = records_to_copy(contents, undo.parent_id(), leaf);
    let mut pairs = later.iter().rev().zip(originals);
    // Otherwise the branch was continued with other records, for example by Pi.
    pairs.all(|(copy, original)| is_copy(copy, original)).then_some(leaf)
}

/// The records that an undo copies: those between a record and a leaf except compactions, oldest first.
fn records_to_copy<'a>(
    contents: &'a SessionContents,
    before: Option<&str>,
    leaf: usize,
) -> Vec<&'a Record> {
    let backwards = contents.tree.path_backwards_from(leaf).filter_map(|at| contents.record_at(at));
    let later = backwards.take_while(|record| Some(record.id()) != before);
    let mut records: Vec<&Record> =
        later.filter(|record| *record.kind() != RecordKind::Compaction).collect();
    records.reverse();
    records
}

fn is_copy(copy: &Record, original: &Record) -> bool {
    if copy.kind() != original.kind() || copy.timestamp_ms() != original.timestamp_ms() {
        return false;
    }
    let content = |record| RecordBody::from_record(record).map(|body| body.id_seed()).ok();
    // These name other records, whose copies have new ids.
    let names_record = matches!(copy.kind(), RecordKind::ContextEdit | RecordKind::Label);
    names_record || content(copy) == content(original)
}
