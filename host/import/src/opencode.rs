//! Import of opencode sessions: an export, or what its database or its files hold put together as one.
//!
//! A compaction is a user message with a part `compaction`, which may name the first message that stays, and a
//! finished reply marked `summary`. Old versions wrote only the reply. Cleared results carry their time.

#[cfg_attr(not(feature = "opencode"), path = "opencode/no_database.rs")]
mod database;
mod database_path;
mod parts;
mod storage;

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use serde_json::Value;

pub use self::database::list_database;
pub(super) use self::database::read_session;
pub use self::database_path::DatabaseSession;
pub(super) use self::database_path::{database_of, is_database};
use self::parts::MessageContent;
pub(super) use self::storage::read_storage;
use super::block::{self, ReplyUsage, kind, string, tokens};
use super::chat::ChatDocument;
use super::draft::{CLEARED_RESULT, ImportDraft, ImportedReply};
use super::json_lines::{JsonRecord, records};
use super::transcript::{
    ImportError, ImportFormat, ImportedCompaction, ImportedItem, ImportedTranscript,
};

const PROVIDER: &str = "opencode";
const API: &str = "opencode";

#[derive(Default, Deserialize)]
struct SessionDocument {
    #[serde(default)]
    info: Value,
}

/// Imports a session.
pub(super) fn import(bytes: &[u8]) -> Result<ImportedTranscript, ImportError> {
    let draft = ImportDraft::new(ImportFormat::OpenCode, PROVIDER, API);
    let mut reader = SessionReader {
        draft,
        begins: HashMap::new(),
        markers: HashMap::new(),
        cleared: BTreeSet::new(),
    };
    let document: SessionDocument = serde_json::from_slice(bytes).unwrap_or_default();
    let info = &document.info;
    reader.draft.identify(string(info, "id"), string(info, "directory"));
    if let Some(version) = string(info, "version") {
        reader.draft.set_agent_version(version);
    }
    let messages = ChatDocument::document(bytes).map(|chat| chat.messages);
    let messages = messages.unwrap_or_else(|| records(bytes).collect()).into_iter();
    let messages = messages.filter_map(|message| reader.draft.accept(message));
    let mut messages: Vec<StoredMessage> = messages.map(StoredMessage::new).collect();
    messages.sort_by_key(StoredMessage::order);
    let reverted = info.get("revert").and_then(|revert| string(revert, "messageID"));
    for message in messages {
        // The user took this message back, and everything after it.
        if reverted.is_some() && string(&message.info, "id") == reverted {
            break;
        }
        reader.add(message);
    }
    reader.clear_until(i64::MAX);
    reader.draft.finish()
}

/// A message with its parts.
struct StoredMessage {
    line: u64,
    info: Value,
    parts: Vec<Value>,
}

impl StoredMessage {
    fn new(mut record: JsonRecord) -> StoredMessage {
        let info = record.take("info");
        let parts = match record.take("parts") {
            Value::Array(parts) => parts,
            _ => Vec::new(),
        };
        StoredMessage { line: record.line, info, parts }
    }

    /// The time, then the id, which ascends.
    fn order(&self) -> (Option<i64>, Option<String>) {
        (created_ms(&self.info), string(&self.info, "id").map(str::to_owned))
    }
}

struct SessionReader {
    draft: ImportDraft,
    /// The index at which each message begins, by its id.
    begins: HashMap<String, usize>,
    /// Messages that asked for a compaction, with the first message that stays.
    markers: HashMap<String, CompactionMarker>,
    /// Results that are cleared later: when, and of which call.
    cleared: BTreeSet<(i64, String)>,
}

struct CompactionMarker {
    trigger: &'static str,
    /// The id of the first message that stays.
    tail: Option<String>,
}

impl SessionReader {
    fn add(&mut self, message: StoredMessage) {
        let StoredMessage { line, info, parts } = message;
        let known_ms = created_ms(&info);
        self.clear_until(known_ms.unwrap_or(i64::MIN));
        let id = string(&info, "id").unwrap_or_default().to_owned();
        self.begins.entry(id.clone()).or_insert(self.draft.len());
        match string(&info, "role") {
            Some("user") => {
                if let Some(marker) = parts.iter().find(|part| kind(part) == "compaction") {
                    let is_auto = marker.get("auto").and_then(Value::as_bool) == Some(true);
                    self.markers.entry(id).or_insert_with(|| CompactionMarker {
                        trigger: if is_auto { "auto" } else { "manual" },
                        tail: string(marker, "tail_start_id").map(str::to_owned),
                    });
                }
                let parts = parts.into_iter().map(parts::mark_injected).collect();
                let content = MessageContent::read(&mut self.draft, line, parts);
                if !content.blocks.is_empty() {
                    self.draft.add_user(line, content.blocks, known_ms);
                }
            }
            Some("assistant") if info.get("summary").and_then(Value::as_bool) == Some(true) => {
                self.add_summary(line, &info, parts, known_ms);
            }
            Some("assistant") => self.add_reply(line, &info, parts, known_ms),
            _ => self.draft.add_problem(line, "a message with an unknown role"),
        }
    }

    fn add_reply(&mut self, line: u64, info: &Value, parts: Vec<Value>, known_ms: Option<i64>) {
        if let Some(provider) = string(info, "providerID") {
            self.draft.set_provider(provider);
        }
        let error = info.get("error").filter(|error| error.is_object());
        let error = error.map(|error| {
            let data = error.get("data").unwrap_or(error);
            string(data, "message").or_else(|| string(error, "name")).unwrap_or("error").to_owned()
        });
        let content = MessageContent::read(&mut self.draft, line, parts);
        if !content.blocks.is_empty() {
            let reply = ImportedReply {
                blocks: content.blocks,
                model: string(info, "modelID").map(str::to_owned),
                usage: info.get("tokens").filter(|tokens| tokens.is_object()).map(usage),
                stop_reason: error.is_some().then_some("error"),
                error,
            };
            self.draft.add_reply(line, reply, known_ms);
        }
        for result in content.results {
            self.draft.add_result(result, known_ms);
        }
        self.cleared.extend(content.cleared);
    }

    /// Adds the compaction of a summary. One that was not finished changed nothing.
    fn add_summary(&mut self, line: u64, info: &Value, parts: Vec<Value>, known_ms: Option<i64>) {
        if info.get("error").is_some_and(Value::is_object) {
            return;
        }
        let text = block::joined_text(&Value::from(
            MessageContent::read(&mut self.draft, line, parts).blocks,
        ));
        if text.is_empty() {
            return self.draft.add_problem(line, "a summary without text");
        }
        if !self.draft.has_conversation() {
            return self.draft.add_user(line, vec![block::text(text)], known_ms);
        }
        let parent = string(info, "parentID");
        let marker = parent.and_then(|parent| self.markers.get(parent));
        let tail = marker.and_then(|marker| marker.tail.as_deref());
        let begin = tail.and_then(|tail| self.begins.get(tail).copied());
        let kept = begin.map_or(0..0, |begin| begin..self.draft.len());
        let mut items = vec![ImportedItem::Insert { is_reply: true, text }];
        ImportedItem::keep(&mut items, kept);
        let counted = info.get("tokens").unwrap_or(&Value::Null);
        let cache = counted.get("cache").unwrap_or(&Value::Null);
        let compaction = ImportedCompaction {
            items,
            trigger: marker.map_or("", |marker| marker.trigger).to_owned(),
            // The request for the summary held the whole context.
            tokens_before: tokens(counted, "input")
                .saturating_add(tokens(cache, "read"))
                .saturating_add(tokens(cache, "write")),
            ..ImportedCompaction::default()
        };
        self.draft.add_compaction(compaction, known_ms);
    }

    /// Records the results that were cleared before this time.
    fn clear_until(&mut self, now_ms: i64) {
        let (mut calls, mut cleared_ms) = (Vec::new(), None);
        while self.cleared.first().is_some_and(|(due_ms, _)| *due_ms < now_ms) {
            if let Some((due_ms, call_id)) = self.cleared.pop_first() {
                calls.push(call_id);
                cleared_ms = Some(due_ms);
            }
        }
        if !calls.is_empty() {
            self.draft.clear_results(&calls, CLEARED_RESULT, cleared_ms);
        }
    }
}

fn created_ms(info: &Value) -> Option<i64> {
    info.get("time")?.get("created")?.as_i64()
}

fn usage(written: &Value) -> Value {
    let cache = written.get("cache").unwrap_or(&Value::Null);
    let usage = ReplyUsage {
        input_tokens: tokens(written, "input"),
        output_tokens: tokens(written, "output").saturating_add(tokens(written, "reasoning")),
        cache_read_tokens: tokens(cache, "read"),
        cache_write_tokens: tokens(cache, "write"),
    };
    usage.to_value()
}

#[cfg(test)]
mod tests;
