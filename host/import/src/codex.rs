//! Import of OpenAI Codex rollouts: JSON lines with a `payload` that is an API item or an event.
//!
//! Events mostly repeat items for the screen. Three things come from them only: which user items start a
//! turn of the user, how many turns were rolled back, and usage.
//!
//! A `compacted` record holds the history that replaced the one before it, or only a summary.

mod replacement;

use serde_json::Value;

use super::block::{ReplyUsage, kind, string, text, tokens};
use super::draft::{ImportDraft, ImportedReply};
use super::json_lines::{JsonRecord, records};
use super::openai::PROVIDER;
use super::response_item::{ResponseItem, read_item};
use super::transcript::{ImportError, ImportFormat, ImportedTranscript};

const API: &str = "openai-responses";

/// Imports a rollout.
pub(super) fn import(bytes: &[u8]) -> Result<ImportedTranscript, ImportError> {
    let mut reader = RolloutReader::new();
    for record in records(bytes) {
        if let Some(record) = reader.draft.accept(record) {
            reader.add(record);
        }
    }
    reader.report_announced();
    reader.draft.finish()
}

struct RolloutReader {
    draft: ImportDraft,
    /// Whether the head was read: a fork also has the head of its parent, of which only the first counts.
    has_head: bool,
    /// Index of the reply that the next usage belongs to.
    answering: Option<usize>,
    /// The number of messages before the newest compaction, to which no later text is joined.
    compacted: usize,
    turns: RolloutTurns,
    /// The size of the newest request with its answer.
    context_tokens: u64,
    /// The line of an event about a compaction that has no record yet.
    announced: Option<u64>,
}

impl RolloutReader {
    fn new() -> RolloutReader {
        let draft = ImportDraft::new(ImportFormat::Codex, PROVIDER, API);
        RolloutReader {
            draft,
            has_head: false,
            answering: None,
            compacted: 0,
            turns: RolloutTurns::default(),
            context_tokens: 0,
            announced: None,
        }
    }

    fn add(&mut self, mut record: JsonRecord) {
        let payload = record.take("payload");
        let known_ms = record.timestamp_ms();
        let line = record.line;
        match record.text("type") {
            None => self.draft.add_problem(line, "a record without a type"),
            Some(_) if !payload.is_object() => {
                self.draft.add_problem(line, "a record without a payload");
            }
            Some("session_meta") => self.add_head(&payload, known_ms),
            Some("turn_context") => self.add_context(&payload),
            Some("response_item") => self.add_item(line, payload, known_ms),
            Some("compacted") => self.add_compacted(line, payload, known_ms),
            Some("event_msg") => self.add_event(line, &payload),
            // Environment snapshots, usage totals, and records of newer versions.
            Some(_) => {}
        }
    }

    fn add_head(&mut self, head: &Value, known_ms: Option<i64>) {
        if std::mem::replace(&mut self.has_head, true) {
            return;
        }
        let id = string(head, "id").or_else(|| string(head, "session_id"));
        self.draft.identify(id, string(head, "cwd"));
        if let Some(version) = string(head, "cli_version") {
            self.draft.set_agent_version(version);
        }
        if let Some(provider) = string(head, "model_provider") {
            self.draft.set_provider(provider);
        }
        let instructions = head.get("base_instructions").and_then(|base| string(base, "text"));
        if let Some(instructions) = instructions.or_else(|| string(head, "instructions")) {
            self.draft.add_system(instructions.into(), known_ms);
        }
    }

    fn add_context(&mut self, context: &Value) {
        self.draft.identify(None, string(context, "cwd"));
        self.add_window(Some(context));
        if let Some(model) = string(context, "model") {
            self.draft.set_model(model);
        }
    }

    fn add_item(&mut self, line: u64, written: Value, known_ms: Option<i64>) {
        // The record of a compaction comes right after its event or before it.
        self.report_announced();
        match read_item(&mut self.draft, line, written) {
            ResponseItem::System(text) => self.draft.add_system(text, known_ms),
            ResponseItem::User(blocks) => {
                self.answering = None;
                self.turns.add_user_message(self.draft.len());
                self.draft.add_user(line, blocks, known_ms);
            }
            ResponseItem::Reply(blocks) => self.add_reply(line, blocks, known_ms),
            ResponseItem::Result(result) => self.draft.add_result(result, known_ms),
            ResponseItem::Nothing => {}
        }
    }

    /// Joins consecutive items of one reply.
    fn add_reply(&mut self, line: u64, blocks: Vec<Value>, known_ms: Option<i64>) {
        let part = ImportedReply { blocks, ..ImportedReply::default() };
        // A reply before a compaction was of another request.
        if self.draft.newest_role() == "assistant" && self.draft.len() > self.compacted {
            return self.draft.extend_reply(self.draft.len() - 1, part);
        }
        self.answering = self.draft.add_reply(line, part, known_ms).or(self.answering);
    }

    /// Adds a compaction, or the messages that it left where the file starts with it.
    fn add_compacted(&mut self, line: u64, mut compacted: Value, known_ms: Option<i64>) {
        self.answering = None;
        self.announced = None;
        if self.draft.has_conversation() {
            match replacement::read_compaction(&mut self.draft, line, compacted) {
                Some(mut compaction) => {
                    compaction.tokens_before = self.context_tokens;
                    self.draft.add_compaction(compaction, known_ms);
                    self.compacted = self.draft.len();
                }
                None => self.draft.add_problem(line, "a compaction without history or message"),
            }
            return;
        }
        let items = compacted.get_mut("replacement_history").map(Value::take);
        match (items, string(&compacted, "message")) {
            (Some(Value::Array(items)), _) => {
                items.into_iter().for_each(|item| self.add_item(line, item, known_ms));
                self.compacted = self.draft.len();
            }
            (_, Some(summary)) => self.draft.add_user(line, vec![text(summary)], known_ms),
            _ => self.draft.add_problem(line, "a compaction without history or message"),
        }
    }

    fn add_event(&mut self, line: u64, event: &Value) {
        match kind(event) {
            "user_message" => self.turns.add_event(),
            "token_count" => {
                self.add_usage(event);
                self.add_window(event.get("info"));
            }
            "task_started" => self.add_window(Some(event)),
            "thread_rolled_back" => self.roll_back(line, event),
            "context_compacted" => {
                let newest = self.draft.compactions().last();
                if newest.is_none_or(|newest| newest.at != self.draft.len()) {
                    self.report_announced();
                    self.announced = Some(line);
                }
            }
            _ => {}
        }
    }

    /// Reports an event about a compaction whose record is missing.
    fn report_announced(&mut self) {
        if let Some(line) = self.announced.take() {
            self.draft.add_problem(line, "a compaction without its record");
        }
    }

    /// The context window, which Codex takes from its own list of models.
    fn add_window(&mut self, from: Option<&Value>) {
        let window = from.and_then(|from| from.get("model_context_window")?.as_u64());
        if let Some(tokens) = window {
            self.draft.set_window(tokens);
        }
    }

    fn add_usage(&mut self, event: &Value) {
        // Usage of the newest request; `total_token_usage` is the sum over the session.
        let newest = event.get("info").and_then(|info| info.get("last_token_usage"));
        if let Some(newest) = newest {
            self.context_tokens =
                tokens(newest, "input_tokens").saturating_add(tokens(newest, "output_tokens"));
        }
        let usage = newest.map(usage);
        if let Some(place) = self.answering {
            self.draft.extend_reply(place, ImportedReply { usage, ..ImportedReply::default() });
        }
    }

    fn roll_back(&mut self, line: u64, event: &Value) {
        let count = usize::try_from(tokens(event, "num_turns")).unwrap_or(usize::MAX);
        match self.turns.roll_back(count) {
            Some(place) => {
                self.answering = None;
                self.draft.truncate(place);
                self.compacted = self.compacted.min(self.draft.len());
            }
            None if count == 0 => {}
            None => self.draft.add_problem(line, "a rollback of turns that are not in the file"),
        }
    }
}

/// Indexes at which turns of the user start: user items that an event announces or confirms.
#[derive(Default)]
struct RolloutTurns {
    begins: Vec<usize>,
    /// The newest user message without an event.
    unconfirmed: Option<usize>,
    /// Whether an event came before its user message.
    is_announced: bool,
}

impl RolloutTurns {
    fn add_user_message(&mut self, place: usize) {
        if std::mem::take(&mut self.is_announced) {
            self.begins.push(place);
        } else {
            self.unconfirmed = Some(place);
        }
    }

    fn add_event(&mut self) {
        match self.unconfirmed.take() {
            Some(place) => self.begins.push(place),
            None => self.is_announced = true,
        }
    }

    /// Removes the newest turns and returns the index at which the oldest of them started.
    fn roll_back(&mut self, count: usize) -> Option<usize> {
        let kept = self.begins.len().saturating_sub(count);
        let place = self.begins.get(kept).copied();
        self.begins.truncate(kept);
        self.unconfirmed = None;
        place
    }
}

fn usage(last: &Value) -> Value {
    let cache_read_tokens = tokens(last, "cached_input_tokens");
    let usage = ReplyUsage {
        input_tokens: tokens(last, "input_tokens").saturating_sub(cache_read_tokens),
        output_tokens: tokens(last, "output_tokens"),
        cache_read_tokens,
        cache_write_tokens: 0,
    };
    usage.to_value()
}

#[cfg(test)]
mod tests;
