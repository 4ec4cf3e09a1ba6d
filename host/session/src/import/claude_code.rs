//! Import of Claude Code sessions: JSON lines linked by `parentUuid`, one content block of a reply per line.
//!
//! A user record has either text or tool results. Records of one reply share their `message.id`, even with
//! results of its first calls between them, and become one message.

mod branch;

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::anthropic::{self, API, PROVIDER};
use super::block::{joined_text, string};
use super::draft::ImportDraft;
use super::json_lines::{JsonRecord, records};
use super::transcript::{ImportError, ImportFormat, ImportedTranscript};

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
    let reverted = branch::find_reverted(&records);
    let mut reader = ClaudeCodeReader { draft, replies: HashMap::new(), read: HashSet::new() };
    for (record, _) in records.into_iter().zip(reverted).filter(|(_, is_reverted)| !is_reverted) {
        reader.add(record);
    }
    reader.draft.finish()
}

struct ClaudeCodeReader {
    draft: ImportDraft,
    /// Index of the reply of each `message.id`.
    replies: HashMap<String, usize>,
    /// Ids of the records read so far, because a resumed session repeats some.
    read: HashSet<String>,
}

impl ClaudeCodeReader {
    fn add(&mut self, record: JsonRecord) {
        let id = record.text("sessionId").or_else(|| record.text("session_id"));
        self.draft.identify(id, record.text("cwd"));
        if !is_message(&record) {
            if record.text("type").is_none() {
                self.draft.add_problem(record.line, "a record without a type");
            }
            return;
        }
        let uuid = record.text("uuid").map(str::to_owned);
        if uuid.as_ref().is_some_and(|uuid| self.read.contains(uuid)) || self.is_skipped(&record) {
            return;
        }
        let (messages, problems) = (self.draft.len(), self.draft.problem_count());
        self.add_message(record);
        // A record without usable content may be repeated with content.
        if self.draft.len() > messages || self.draft.problem_count() == problems {
            self.read.extend(uuid);
        }
    }

    /// Whether to skip notes of the agent, and summaries of messages that are in the file.
    fn is_skipped(&self, record: &JsonRecord) -> bool {
        record.is_true("isMeta")
            || (record.is_true("isCompactSummary") && self.draft.has_conversation())
    }

    fn add_message(&mut self, mut record: JsonRecord) {
        let mut message = record.take("message");
        if message.get("content").is_none() {
            return self.draft.add_problem(record.line, "a message without content");
        }
        if record.text("type") == Some("assistant") {
            return self.add_reply(&record, message);
        }
        let content = message.get_mut("content").map(Value::take).unwrap_or_default();
        anthropic::add_user(&mut self.draft, record.line, content, record.timestamp_ms());
    }

    fn add_reply(&mut self, record: &JsonRecord, mut message: Value) {
        let id = string(&message, "id").map(str::to_owned);
        let error = record.is_true("isApiErrorMessage").then(|| joined_content(&message));
        let mut reply = anthropic::reply(&mut self.draft, record.line, &mut message);
        if let Some(error) = error {
            // Written by the agent instead of the model, so it has neither model nor usage.
            reply.model = None;
            reply.usage = None;
            reply.stop_reason = Some("error");
            reply.error = Some(error);
        }
        let index = id.as_ref().and_then(|id| self.replies.get(id).copied());
        if let Some(index) = index {
            return self.draft.extend_reply(index, reply);
        }
        let index = self.draft.add_reply(record.line, reply, record.timestamp_ms());
        self.replies.extend(id.zip(index));
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
