//! Reads the compaction records of a Claude Code session: what stays, and which results were cleared.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;

use super::super::block::{string, tokens};
use super::super::json_lines::JsonRecord;
use super::super::transcript::{ImportedCompaction, ImportedItem};

/// The records with their parents, by their places.
pub(super) struct RecordChain {
    places: HashMap<String, usize>,
    parents: Vec<Option<usize>>,
    /// The messages of each record.
    messages: Vec<Range<usize>>,
}

impl RecordChain {
    pub(super) fn new(records: &[JsonRecord]) -> RecordChain {
        let ids = records.iter().enumerate();
        let ids = ids.filter_map(|(place, record)| Some((record.text("uuid")?.to_owned(), place)));
        let places: HashMap<String, usize> = ids.collect();
        let mut parents = vec![None; records.len()];
        for record in records {
            let own = record.text("uuid").and_then(|id| places.get(id)).copied();
            let parent = record.text("parentUuid").and_then(|id| places.get(id)).copied();
            if let (Some(slot), Some(parent)) = (own.and_then(|own| parents.get_mut(own)), parent) {
                *slot = Some(parent);
            }
        }
        RecordChain { places, parents, messages: vec![0..0; records.len()] }
    }

    /// Sets the messages that a record became.
    pub(super) fn set_messages(&mut self, id: &str, messages: Range<usize>) {
        let place = self.places.get(id).copied();
        if let Some(known) = place.and_then(|place| self.messages.get_mut(place)) {
            *known = messages;
        }
    }

    fn messages_of(&self, id: &str) -> Range<usize> {
        let place = self.places.get(id).copied();
        place.and_then(|place| self.messages.get(place)).cloned().unwrap_or_default()
    }

    /// The messages of the records from `tail` back to `head`; `None` if `head` is not above `tail`.
    fn segment(&self, head: &str, tail: &str) -> Option<Vec<Range<usize>>> {
        let (head, mut at) = (*self.places.get(head)?, *self.places.get(tail)?);
        let mut segment: Vec<Range<usize>> = Vec::new();
        // Damaged links may form a circle, which is longer than all records.
        for _ in &self.parents {
            let messages = self.messages.get(at)?;
            // Joined at once: many boundaries may keep the same long segment.
            match segment.last_mut() {
                _ if messages.is_empty() => {}
                Some(later) if messages.end == later.start => later.start = messages.start,
                _ => segment.push(messages.clone()),
            }
            if at == head {
                return Some(segment);
            }
            at = (*self.parents.get(at)?)?;
        }
        None
    }
}

/// The compaction of a boundary record, still without its summary.
pub(super) fn compaction(record: &JsonRecord, chain: &RecordChain) -> ImportedCompaction {
    let metadata = record.fields.get("compactMetadata").unwrap_or(&Value::Null);
    let mut kept = preserved_messages(metadata, chain);
    kept.sort_by_key(|messages| messages.start);
    let (mut items, mut next) = (Vec::new(), 0);
    for messages in kept {
        // Two records may be parts of one reply.
        ImportedItem::keep(&mut items, messages.start.max(next)..messages.end);
        next = next.max(messages.end);
    }
    ImportedCompaction {
        items,
        trigger: string(metadata, "trigger").unwrap_or_default().to_owned(),
        tokens_before: tokens(metadata, "preTokens"),
        tokens_after: tokens(metadata, "postTokens"),
        ..ImportedCompaction::default()
    }
}

/// The messages of the records that stay: a list, or the ends of a chain.
fn preserved_messages(metadata: &Value, chain: &RecordChain) -> Vec<Range<usize>> {
    let listed = metadata.get("preservedMessages").and_then(|preserved| {
        // `allUuids` also names records that the model does not see.
        preserved.get("uuids").or_else(|| preserved.get("allUuids"))?.as_array()
    });
    if let Some(listed) = listed {
        return listed.iter().filter_map(Value::as_str).map(|id| chain.messages_of(id)).collect();
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
