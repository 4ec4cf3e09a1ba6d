//! Import of Claude Code sessions: JSON lines linked by `parentUuid`, one content block of a reply per line.
//!
//! A user record has either text or tool results. Records of one reply share their `message.id`, even with
//! results of its first calls between them, and become one message.
//!
//! A compaction is a `compact_boundary` record, which points at the messages that stay, and a user record with
//! the summary. A `microcompact_boundary` names calls whose results were cleared.

mod boundary;
mod branch;
mod queued;

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use self::boundary::RecordChain;
use self::queued::QueuedPrompts;
use super::anthropic::{self, API, PROVIDER};
use super::block::{joined_text, kind, string};
use super::draft::{CLEARED_RESULT, ImportDraft};
use super::json_lines::{JsonRecord, records};
use super::transcript::{
    ImportError, ImportFormat, ImportedCompaction, ImportedItem, ImportedTranscript,
};

/// The model of replies that the agent wrote itself.
const SYNTHETIC_MODEL: &str = "<synthetic>";

/// Imports a session, or the file of a sub-agent, in which every record is on a side chain.
pub(super) fn import(bytes: &[u8]) -> Result<ImportedTranscript, ImportError> {
    let mut draft = ImportDraft::new(ImportFormat::ClaudeCode, PROVIDER, API);
    let read = records(bytes).filter_map(|record| draft.accept(record));
    let mut records: Vec<JsonRecord> = read.collect();
    // Side chains are the sub-agents of this session. In the file of a sub-agent, every record
    // is on one.
    if records.iter().any(|record| is_message(record) && !record.is_true("isSidechain")) {
        records.retain(|record| !record.is_true("isSidechain"));
    }
    let abandoned = branch::find_abandoned(&records);
    let mut reader = ClaudeCodeReader {
        draft,
        replies: HashMap::new(),
        read: HashSet::new(),
        chain: RecordChain::new(&records),
        unsummarized: None,
        queued: QueuedPrompts::default(),
    };
    let records = records.into_iter().zip(abandoned);
    for (record, _) in records.filter(|(_, is_abandoned)| !is_abandoned) {
        reader.add(queued::as_user_record(record));
    }
    reader.draft.finish()
}

struct ClaudeCodeReader {
    draft: ImportDraft,
    /// Index of the reply of each `message.id`.
    replies: HashMap<String, usize>,
    /// Ids of the records read so far, because a resumed session repeats some.
    read: HashSet<String>,
    chain: RecordChain,
    /// A compaction whose summary has not come yet.
    unsummarized: Option<UnsummarizedCompaction>,
    queued: QueuedPrompts,
}

#[derive(Clone, Copy)]
struct UnsummarizedCompaction {
    /// Its index.
    place: usize,
    /// Whether its summary follows what stays.
    is_summary_last: bool,
}

impl ClaudeCodeReader {
    fn add(&mut self, mut record: JsonRecord) {
        let id = record.text("sessionId").or_else(|| record.text("session_id"));
        self.draft.identify(id, record.text("cwd"));
        if let Some(version) = record.text("version") {
            self.draft.set_agent_version(version);
        }
        if record.text("type") == Some("system") {
            return self.add_system_record(&record);
        }
        if !is_message(&record) {
            if record.text("type").is_none() {
                self.draft.add_problem(record.line, "a record without a type");
            }
            return;
        }
        let uuid = record.text("uuid").map(str::to_owned);
        let is_read = uuid.as_ref().is_some_and(|uuid| self.read.contains(uuid));
        if is_read || record.is_true("isMeta") || QueuedPrompts::is_read(&record, &self.read) {
            return;
        }
        if let Some(messages) = self.queued.take_repeated(&record) {
            if let Some(uuid) = uuid {
                self.chain.set_messages(&uuid, messages);
                self.read.insert(uuid);
            }
            return;
        }
        // Without messages before it, the summary is all that is left of them: it becomes one.
        if record.is_true("isCompactSummary") && self.draft.has_conversation() {
            self.read.extend(uuid);
            return self.add_summary(&record);
        }
        if record.text("type") == Some("assistant") {
            self.queued.end_texts();
        }
        let queued_text = queued::queued_text(&record);
        let (messages, problems) = (self.draft.len(), self.draft.problem_count());
        let reply = self.add_message(&mut record);
        // A record without usable content may be repeated with content.
        if self.draft.len() > messages || self.draft.problem_count() == problems {
            let places = reply.map_or(messages..self.draft.len(), |reply| reply..reply + 1);
            if let Some(text) = queued_text {
                self.queued.add(&record, text, places.clone());
            }
            if let Some(uuid) = uuid {
                self.chain.set_messages(&uuid, places);
                self.read.insert(uuid);
            }
        }
    }

    fn add_system_record(&mut self, record: &JsonRecord) {
        // Nothing that stays is in the file: its summary becomes the first message.
        if !self.draft.has_conversation() {
            return;
        }
        let uuid = record.text("uuid").map(str::to_owned);
        if uuid.as_ref().is_some_and(|uuid| self.read.contains(uuid)) {
            return;
        }
        match record.text("subtype") {
            Some("compact_boundary") => {
                let compaction = boundary::compaction(record, &self.chain);
                let place = self.draft.add_compaction(compaction, record.timestamp_ms());
                let is_summary_last = boundary::is_summary_last(record, &self.chain);
                self.unsummarized = Some(UnsummarizedCompaction { place, is_summary_last });
            }
            Some("microcompact_boundary") => {
                let calls = boundary::cleared_calls(record);
                self.draft.clear_results(&calls, CLEARED_RESULT, record.timestamp_ms());
            }
            _ => return,
        }
        self.read.extend(uuid);
    }

    /// Adds the summary to its compaction. Old versions wrote no boundary before it.
    fn add_summary(&mut self, record: &JsonRecord) {
        let content = record.fields.get("message").and_then(|message| message.get("content"));
        let text = content.map(joined_text).unwrap_or_default();
        if text.is_empty() {
            return self.draft.add_problem(record.line, "a summary without text");
        }
        let unsummarized = self.unsummarized.take();
        let place = match unsummarized {
            Some(unsummarized) => unsummarized.place,
            None => self.draft.add_compaction(ImportedCompaction::default(), record.timestamp_ms()),
        };
        if let Some(compaction) = self.draft.compaction_mut(place) {
            let is_last = unsummarized.is_some_and(|unsummarized| unsummarized.is_summary_last);
            let at = if is_last { compaction.items.len() } else { 0 };
            compaction.items.insert(at, ImportedItem::Insert { is_reply: false, text });
        }
    }

    /// Adds the messages of a record. Returns the index of the reply if it is a part of one.
    fn add_message(&mut self, record: &mut JsonRecord) -> Option<usize> {
        let mut message = record.take("message");
        if message.get("content").is_none() {
            self.draft.add_problem(record.line, "a message without content");
            return None;
        }
        if record.text("type") == Some("assistant") {
            return self.add_reply(record, message);
        }
        let mut content = message.get_mut("content").map(Value::take).unwrap_or_default();
        if self.take_cleared(&mut content, record.timestamp_ms()) {
            return None;
        }
        anthropic::add_user(&mut self.draft, record.line, content, record.timestamp_ms());
        None
    }

    /// Removes the results that repeat an earlier one as cleared, and records the clearing. Returns whether
    /// nothing else is left.
    fn take_cleared(&mut self, content: &mut Value, known_ms: Option<i64>) -> bool {
        let Some(blocks) = content.as_array_mut() else { return false };
        let mut cleared = Vec::new();
        blocks.retain(|block| {
            let id = string(block, "tool_use_id").filter(|_| kind(block) == "tool_result");
            let Some(id) = id.map(str::to_owned) else { return true };
            let is_marker =
                block.get("content").map(joined_text).as_deref() == Some(CLEARED_RESULT);
            let is_cleared = is_marker && self.draft.has_result(&id);
            cleared.extend(is_cleared.then_some(id));
            !is_cleared
        });
        let is_empty = blocks.is_empty() && !cleared.is_empty();
        if !cleared.is_empty() {
            self.draft.clear_results(&cleared, CLEARED_RESULT, known_ms);
        }
        is_empty
    }

    fn add_reply(&mut self, record: &JsonRecord, mut message: Value) -> Option<usize> {
        let id = string(&message, "id").map(str::to_owned);
        let error = record.is_true("isApiErrorMessage").then(|| joined_content(&message));
        let mut reply = anthropic::reply(&mut self.draft, record.line, &mut message);
        // Written by the agent instead of the model, so it has neither model nor usage.
        if error.is_some() || reply.model.as_deref() == Some(SYNTHETIC_MODEL) {
            reply.model = None;
            reply.usage = None;
        }
        if let Some(error) = error {
            reply.stop_reason = Some("error");
            reply.error = Some(error);
        }
        let index = id.as_ref().and_then(|id| self.replies.get(id).copied());
        if let Some(index) = index {
            self.draft.extend_reply(index, reply);
            return Some(index);
        }
        let index = self.draft.add_reply(record.line, reply, record.timestamp_ms());
        self.replies.extend(id.zip(index));
        index
    }
}

fn joined_content(message: &Value) -> String {
    message.get("content").map(joined_text).unwrap_or_default()
}

/// Whether the record is of the user, a tool or the model.
fn is_message(record: &JsonRecord) -> bool {
    matches!(record.text("type"), Some("user" | "assistant"))
}

#[cfg(test)]
mod tests;
