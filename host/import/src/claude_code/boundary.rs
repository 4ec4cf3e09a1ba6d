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
        let mut places: HashMap<String, usize> = ids.collect();
        // The boundaries of a copied session name the records of its source.
        for (place, record) in records.iter().enumerate() {
            let source = record.fields.get("forkedFrom").and_then(|it| string(it, "messageUuid"));
            if let Some(source) = source {
                places.entry(source.to_owned()).or_insert(place);
            }
        }
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

    /// Whether both ids name one record, which is in the file.
    fn is_same(&self, id: &str, other: &str) -> bool {
        self.places.get(id).is_some_and(|place| self.places.get(other) == Some(place))
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

/// Whether the summary follows what stays ("Summarize from here"): what stays then follows the boundary itself.
pub(super) fn is_summary_last(record: &JsonRecord, chain: &RecordChain) -> bool {
    let Some((id, metadata)) = record.text("uuid").zip(record.fields.get("compactMetadata")) else {
        return false;
    };
    let anchors = ["preservedMessages", "preservedSegment"].into_iter();
    let mut anchors = anchors.filter_map(|name| string(metadata.get(name)?, "anchorUuid"));
    anchors.any(|anchor| chain.is_same(anchor, id))
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::{ImportFormat, import_messages};
    use super::*;

    /// Two prompts with their replies, and a compaction that keeps the first ones.
    fn session(anchor: &str) -> Vec<Value> {
        let user = |uuid: &str, parent: Value| {
            json!({ "type": "user", "uuid": uuid, "parentUuid": parent,
                    "message": { "role": "user", "content": uuid } })
        };
        let reply = |uuid: &str, parent: &str| {
            json!({ "type": "assistant", "uuid": uuid, "parentUuid": parent,
                    "message": { "id": uuid, "role": "assistant", "model": "m",
                                 "content": [{ "type": "text", "text": uuid }] } })
        };
        let mut summary = user("s", json!("b"));
        summary["isCompactSummary"] = true.into();
        let kept = json!({ "headUuid": "u1", "anchorUuid": anchor, "tailUuid": "a1" });
        vec![
            user("u1", Value::Null),
            reply("a1", "u1"),
            user("u2", json!("a1")),
            reply("a2", "u2"),
            json!({ "type": "system", "subtype": "compact_boundary", "uuid": "b",
                    "parentUuid": null, "logicalParentUuid": "a2",
                    "compactMetadata": { "trigger": "manual", "preservedSegment": kept } }),
            summary,
            user("u3", json!("s")),
        ]
    }

    fn items(records: &[Value]) -> Vec<ImportedItem> {
        let lines: Vec<String> = records.iter().map(Value::to_string).collect();
        let format = ImportFormat::ClaudeCode;
        let imported = import_messages(format, lines.join("\n").as_bytes()).unwrap();
        assert_eq!(imported.compactions.len(), 1);
        imported.compactions.into_iter().flat_map(|compaction| compaction.items).collect()
    }

    fn summary() -> ImportedItem {
        ImportedItem::Insert { is_reply: false, text: "s".into() }
    }

    #[test]
    fn a_summary_follows_what_stays_if_that_follows_the_boundary() {
        let kept = ImportedItem::Keep(0..2);
        assert_eq!(items(&session("b")), [kept.clone(), summary()]);
        assert_eq!(items(&session("s")), [summary(), kept]);
    }

    #[test]
    fn the_boundary_of_a_copy_names_records_of_its_source() {
        for anchor in ["b", "s"] {
            let mut copy = session(anchor);
            for record in &mut copy {
                record["forkedFrom"] =
                    json!({ "sessionId": "source", "messageUuid": record["uuid"] });
                for name in ["uuid", "parentUuid", "logicalParentUuid"] {
                    let id = record[name].as_str().map(|id| format!("copy-{id}"));
                    record[name] = id.into();
                }
            }
            assert_eq!(items(&copy), items(&session(anchor)));
        }
    }
}
