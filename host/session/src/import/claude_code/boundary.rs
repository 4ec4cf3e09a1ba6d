//! Reads the compaction records of a Claude Code session: what stays, and which results were cleared.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use serde_json::Value;

use super::super::block::{string, tokens};
use super::super::json_lines::JsonRecord;
use super::super::transcript::{ImportedCompaction, ImportedItem};

/// The parent of each record, by id.
pub(super) struct RecordChain {
    parents: HashMap<String, String>,
}

impl RecordChain {
    pub(super) fn new(records: &[JsonRecord]) -> RecordChain {
        let links = records.iter().filter_map(|record| {
            Some((record.text("uuid")?.to_owned(), record.text("parentUuid")?.to_owned()))
        });
        RecordChain { parents: links.collect() }
    }

    /// The records from `tail` back to `head`; `None` if `head` is not above `tail`.
    fn segment<'a>(&'a self, head: &'a str, tail: &'a str) -> Option<Vec<&'a str>> {
        let mut segment = vec![tail];
        // Damaged links may form a circle.
        let mut seen = HashSet::from([tail]);
        let mut at = tail;
        while at != head {
            at = self.parents.get(at)?;
            if !seen.insert(at) {
                return None;
            }
            segment.push(at);
        }
        Some(segment)
    }
}

/// The compaction of a boundary record, still without its summary.
pub(super) fn compaction(
    record: &JsonRecord,
    chain: &RecordChain,
    messages: &HashMap<String, Range<usize>>,
) -> ImportedCompaction {
    let metadata = record.fields.get("compactMetadata").unwrap_or(&Value::Null);
    let mut kept: BTreeSet<usize> = BTreeSet::new();
    for uuid in preserved_records(metadata, chain) {
        kept.extend(messages.get(uuid).cloned().into_iter().flatten());
    }
    ImportedCompaction {
        items: kept.into_iter().map(ImportedItem::Keep).collect(),
        trigger: string(metadata, "trigger").unwrap_or_default().to_owned(),
        tokens_before: tokens(metadata, "preTokens"),
        tokens_after: tokens(metadata, "postTokens"),
        ..ImportedCompaction::default()
    }
}

/// The ids of the records that stay: a list, or the ends of a chain.
fn preserved_records<'a>(metadata: &'a Value, chain: &'a RecordChain) -> Vec<&'a str> {
    let listed = metadata.get("preservedMessages").and_then(|preserved| {
        // `allUuids` also names records that the model does not see.
        preserved.get("uuids").or_else(|| preserved.get("allUuids"))?.as_array()
    });
    if let Some(listed) = listed {
        return listed.iter().filter_map(Value::as_str).collect();
    }
    let segment = metadata.get("preservedSegment");
    let ends = segment.and_then(|s| string(s, "headUuid").zip(string(s, "tailUuid")));
    ends.and_then(|(head, tail)| chain.segment(head, tail)).unwrap_or_default()
}

/// The calls whose results were cleared.
pub(super) fn cleared_calls(record: &JsonRecord) -> Vec<String> {
    let calls = record.fields.get("microcompactMetadata").and_then(|m| m.get("compactedToolIds"));
    let calls = calls.and_then(Value::as_array).into_iter().flatten();
    calls.filter_map(Value::as_str).map(str::to_owned).collect()
}
