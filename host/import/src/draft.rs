//! Builds the messages of an import.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::transcript::open_calls::OpenCalls;
use serde_json::{Map, Value, json};

use super::block;
use super::json_lines::{describe_kind, problem};
use super::transcript::{
    ImportError, ImportFormat, ImportProblem, ImportedCompaction, ImportedItem, ImportedMessage,
    ImportedTranscript,
};

/// The model of replies in a recording that names none.
pub const UNKNOWN_MODEL: &str = "unknown";

/// Time assumed between a message and a next one without a time.
const STEP_MS: i64 = 1_000;

/// The trigger of a compaction that cleared tool results only.
pub(super) const PRUNE: &str = "prune";

/// The text that agents show in place of a cleared tool result.
pub(super) const CLEARED_RESULT: &str = "[Old tool result content cleared]";

/// The messages so far, the newest time, and the names of called tools.
pub(super) struct ImportDraft {
    format: ImportFormat,
    provider: String,
    api: &'static str,
    model: Option<String>,
    imported: ImportedTranscript,
    tools: Vec<Value>,
    /// The tool of each call without a result.
    open_calls: OpenCalls<String>,
    /// The calls since the newest result. The parts of one reply are one message.
    new_calls: Vec<(String, String)>,
    /// The tool of the newest call of each id, for a second result of it.
    tool_names: HashMap<String, String>,
    /// The results of each call, by its id.
    results: HashMap<String, Vec<usize>>,
    /// The results that were cleared since the newest compaction that was no edit.
    cleared: HashSet<usize>,
    /// The index of that compaction.
    newest_whole: Option<usize>,
    newest_ms: Option<i64>,
}

/// A reply of a model, or a part of one.
#[derive(Default)]
pub(super) struct ImportedReply {
    pub(super) blocks: Vec<Value>,
    pub(super) model: Option<String>,
    pub(super) usage: Option<Value>,
    /// If unknown, it is derived from whether there are calls.
    pub(super) stop_reason: Option<&'static str>,
    pub(super) error: Option<String>,
}

/// The result of one call.
pub(super) struct ImportedResult {
    pub(super) call_id: String,
    /// Needed only if the call is not in the recording.
    pub(super) tool: Option<String>,
    pub(super) content: Vec<Value>,
    pub(super) is_error: bool,
}

impl ImportDraft {
    pub(super) fn new(format: ImportFormat, provider: &str, api: &'static str) -> ImportDraft {
        ImportDraft {
            format,
            provider: provider.into(),
            api,
            model: None,
            imported: ImportedTranscript::default(),
            tools: Vec::new(),
            open_calls: OpenCalls::default(),
            new_calls: Vec::new(),
            tool_names: HashMap::new(),
            results: HashMap::new(),
            cleared: HashSet::new(),
            newest_whole: None,
            newest_ms: None,
        }
    }

    /// The number of messages so far.
    pub(super) fn len(&self) -> usize {
        self.imported.messages.len()
    }

    /// The role of the newest message; empty before the first.
    pub(super) fn newest_role(&self) -> &str {
        let newest = self.imported.messages.last();
        newest.map_or("", |newest| role(&newest.message))
    }

    /// Whether there is a message other than system messages.
    pub(super) fn has_conversation(&self) -> bool {
        self.imported.messages.iter().any(|imported| role(&imported.message) != "system")
    }

    pub(super) fn problem_count(&self) -> usize {
        self.imported.problems.len()
    }

    pub(super) fn add_problem(&mut self, line: u64, message: impl Into<String>) {
        self.imported.problems.push(problem(line, message));
    }

    /// Returns the record, or adds the problem.
    pub(super) fn accept<T>(&mut self, record: Result<T, ImportProblem>) -> Option<T> {
        record.map_err(|problem| self.imported.problems.push(problem)).ok()
    }

    /// Sets id and working folder of the session, unless they are known.
    pub(super) fn identify(&mut self, id: Option<&str>, cwd: Option<&str>) {
        for (known, named) in [(&mut self.imported.id, id), (&mut self.imported.cwd, cwd)] {
            if let (true, Some(named)) = (known.is_empty(), named) {
                *known = named.into();
            }
        }
    }

    /// Sets the version of the agent. The newest one counts.
    pub(super) fn set_agent_version(&mut self, version: &str) {
        self.imported.agent_version = version.into();
    }

    pub(super) fn set_provider(&mut self, provider: &str) {
        self.provider = provider.into();
    }

    /// Sets the model of the following replies.
    pub(super) fn set_model(&mut self, model: &str) {
        self.model = Some(model.into());
    }

    /// Sets the tools of the request, which [`finish`](Self::finish) adds to the system message.
    pub(super) fn set_tools(&mut self, tools: Vec<Value>) {
        self.tools = tools.into_iter().map(block::tool).collect();
    }

    /// Converts the blocks of a content; values that are not blocks are skipped as problems.
    pub(super) fn convert_blocks(
        &mut self,
        line: u64,
        content: Value,
        convert: fn(Value) -> Value,
    ) -> Vec<Value> {
        let list = match content {
            Value::Null => Vec::new(),
            Value::String(text) if text.is_empty() => Vec::new(),
            Value::String(text) => return vec![block::text(text)],
            Value::Array(list) => list,
            other => vec![other],
        };
        // A damaged block costs itself, not its message.
        let (blocks, broken): (Vec<_>, Vec<_>) = list.into_iter().partition(Value::is_object);
        for value in broken {
            self.add_problem(
                line,
                format!("{} where a content block belongs", describe_kind(&value)),
            );
        }
        blocks.into_iter().map(convert).collect()
    }

    pub(super) fn add_system(&mut self, text: String, known_ms: Option<i64>) {
        self.push(json!({ "role": "system", "content": text }), known_ms);
    }

    /// Adds a user message; one without content is skipped as a problem.
    pub(super) fn add_user(&mut self, line: u64, blocks: Vec<Value>, known_ms: Option<i64>) {
        if blocks.is_empty() {
            return self.add_problem(line, "a user message without content");
        }
        self.push(json!({ "role": "user", "content": blocks }), known_ms);
    }

    /// Adds a reply and returns its index; one without content is skipped as a problem.
    pub(super) fn add_reply(
        &mut self,
        line: u64,
        reply: ImportedReply,
        known_ms: Option<i64>,
    ) -> Option<usize> {
        if reply.blocks.is_empty() {
            self.add_problem(line, "an assistant message without content");
            return None;
        }
        let place = self.len();
        self.open_new_calls();
        let message = json!({
            "role": "assistant",
            "content": [],
            "api": self.api,
            "provider": self.provider,
            "model": reply.model.as_ref().or(self.model.as_ref()).map_or(UNKNOWN_MODEL, |m| m),
        });
        self.push(message, known_ms);
        self.extend_reply(place, reply);
        Some(place)
    }

    /// Appends a later part to a reply; its usage and stop reason replace the earlier ones.
    pub(super) fn extend_reply(&mut self, place: usize, part: ImportedReply) {
        for call in part.blocks.iter().filter(|block| block::kind(block) == "toolCall") {
            if let (Some(id), Some(name)) = (block::string(call, "id"), block::string(call, "name"))
            {
                self.new_calls.push((id.into(), name.into()));
                self.tool_names.insert(id.into(), name.into());
            }
        }
        if part.model.is_some() {
            self.model = part.model;
        }
        let Some(fields) = self.fields(place) else { return };
        if let Some(content) = fields.get_mut("content").and_then(Value::as_array_mut) {
            content.extend(part.blocks);
        }
        // A reply may come in several records; the last one that states a fact is right.
        let facts = [
            ("usage", part.usage),
            ("stopReason", part.stop_reason.map(Value::from)),
            ("errorMessage", part.error.map(Value::from)),
        ];
        for (name, fact) in facts {
            if let Some(fact) = fact {
                fields.insert(name.into(), fact);
            }
        }
    }

    pub(super) fn add_result(&mut self, mut result: ImportedResult, known_ms: Option<i64>) {
        if result.content.is_empty() {
            // A result without text still answers its call; without it the call would look unanswered.
            result.content.push(block::text(""));
        }
        // The call first: some agents write a display name into the result.
        self.open_new_calls();
        let tool = self.open_calls.take(&result.call_id);
        let tool = tool.or_else(|| self.tool_names.get(&result.call_id).cloned()).or(result.tool);
        let place = self.len();
        self.results.entry(result.call_id.clone()).or_default().push(place);
        let message = json!({
            "role": "toolResult",
            "toolCallId": result.call_id,
            "toolName": tool.unwrap_or_default(),
            "content": result.content,
            "isError": result.is_error,
        });
        self.push(message, known_ms);
    }

    fn open_new_calls(&mut self) {
        if !self.new_calls.is_empty() {
            self.open_calls.open(std::mem::take(&mut self.new_calls));
        }
    }

    /// Whether a call has a result.
    pub(super) fn has_result(&self, call_id: &str) -> bool {
        self.results.contains_key(call_id)
    }

    /// Removes the messages from an index on, and the compactions after it.
    pub(super) fn truncate(&mut self, place: usize) {
        for removed in self.imported.messages.drain(place.min(self.imported.messages.len())..) {
            let call_id = block::string(&removed.message, "toolCallId").unwrap_or_default();
            if let Some(results) = self.results.get_mut(call_id) {
                results.retain(|result| *result < place);
                if results.is_empty() {
                    self.results.remove(call_id);
                }
            }
        }
        // A compaction of what the user took back is taken back as well.
        let compactions = &mut self.imported.compactions;
        let known = compactions.len();
        compactions.truncate(compactions.partition_point(|compaction| compaction.at <= place));
        if compactions.len() < known {
            self.newest_whole = compactions.iter().rposition(|compaction| !compaction.is_edit);
            let since = self.newest_whole.map_or(0, |newest| newest + 1);
            let edits = compactions.iter().skip(since).flat_map(|edit| &edit.items);
            self.cleared = edits.filter_map(ImportedItem::replaced_message).collect();
        }
    }

    /// A message by its index.
    pub(super) fn message(&self, place: usize) -> Option<&Value> {
        self.imported.messages.get(place).map(|imported| &imported.message)
    }

    /// Adds a compaction after the newest message and returns its index. Its place and its time, if
    /// unknown, are set here.
    pub(super) fn add_compaction(
        &mut self,
        compaction: ImportedCompaction,
        known_ms: Option<i64>,
    ) -> usize {
        let timestamp_ms = known_ms.or(self.newest_ms).unwrap_or_default();
        let at = self.len();
        if !compaction.is_edit {
            self.cleared.clear();
            self.newest_whole = Some(self.imported.compactions.len());
        }
        self.imported.compactions.push(ImportedCompaction { at, timestamp_ms, ..compaction });
        self.imported.compactions.len() - 1
    }

    pub(super) fn compactions(&self) -> &[ImportedCompaction] {
        &self.imported.compactions
    }

    pub(super) fn compaction_mut(&mut self, place: usize) -> Option<&mut ImportedCompaction> {
        self.imported.compactions.get_mut(place)
    }

    /// The messages in the context of the agent now: what the newest compaction left, and those since.
    pub(super) fn context(&self) -> Vec<usize> {
        let (items, since) = self.newest_context();
        let kept = items.iter().flat_map(|item| match item {
            ImportedItem::Keep(messages) => messages.clone(),
            ImportedItem::ReplaceText { message, .. } => *message..message + 1,
            ImportedItem::Insert { .. } => 0..0,
        });
        kept.chain(since..self.len()).collect()
    }

    /// The items that the newest compaction left, and the number of messages before it.
    fn newest_context(&self) -> (&[ImportedItem], usize) {
        let newest = self.newest_whole.and_then(|place| self.imported.compactions.get(place));
        newest.map_or((&[], 0), |newest| (newest.items.as_slice(), newest.at))
    }

    /// Whether the context has a message with its own text.
    fn is_in_context(&self, message: usize) -> bool {
        let (items, since) = self.newest_context();
        let keeps = |item: &ImportedItem| match item {
            ImportedItem::Keep(messages) => messages.contains(&message),
            _ => false,
        };
        !self.cleared.contains(&message) && (message >= since || items.iter().any(keeps))
    }

    /// Records that the agent cleared the results of these calls and shows `text` in their place.
    /// Clearings without a message between them are one compaction. Results that are unknown or no
    /// longer in its context are skipped.
    pub(super) fn clear_results(&mut self, call_ids: &[String], text: &str, known_ms: Option<i64>) {
        let results = call_ids.iter().filter_map(|id| self.results.get(id)).flatten().copied();
        let messages: Vec<usize> = results.filter(|result| self.is_in_context(*result)).collect();
        let mut edits = Vec::new();
        for message in messages {
            // Once, even if its call is named twice.
            if self.cleared.insert(message) {
                edits.push(ImportedItem::ReplaceText { message, text: text.to_owned() });
            }
        }
        let at = self.len();
        match self.imported.compactions.last_mut() {
            _ if edits.is_empty() => {}
            // Agents clear results one by one; that is one step of the history and not fifty.
            Some(newest) if newest.at == at && newest.is_edit => newest.items.extend(edits),
            _ => {
                let trigger = PRUNE.to_owned();
                let compaction = ImportedCompaction {
                    items: edits,
                    is_edit: true,
                    trigger,
                    ..ImportedCompaction::default()
                };
                self.add_compaction(compaction, known_ms);
            }
        }
    }

    /// Sets the context window, in provider tokens.
    pub(super) fn set_window(&mut self, tokens: u64) {
        self.imported.window_tokens = Some(tokens).filter(|tokens| *tokens > 0);
    }

    /// Completes the messages: tools, stop reasons, timestamps and model.
    pub(super) fn finish(mut self) -> Result<ImportedTranscript, ImportError> {
        // Some formats are read twice, so problems are found out of order.
        self.imported.problems.sort_by_key(|problem| problem.line);
        if !self.has_conversation() {
            let problems = self.imported.problems;
            return Err(ImportError::NoMessage { format: self.format, problems });
        }
        self.place_tools();
        for imported in &mut self.imported.messages {
            end_reply(&mut imported.message);
            if let Some(fields) = imported.message.as_object_mut() {
                fields.insert("timestamp".into(), imported.timestamp_ms.into());
            }
        }
        self.imported.model = self.model.map(|model| (self.provider, model));
        Ok(self.imported)
    }

    fn push(&mut self, message: Value, known_ms: Option<i64>) {
        let next_ms = || self.newest_ms.map_or(0, |newest_ms| newest_ms.saturating_add(STEP_MS));
        // Entries without a time keep their order, since the session sorts nothing.
        let timestamp_ms = known_ms.unwrap_or_else(next_ms);
        self.newest_ms = Some(timestamp_ms);
        self.imported.messages.push(ImportedMessage { message, timestamp_ms });
    }

    fn fields(&mut self, place: usize) -> Option<&mut Map<String, Value>> {
        self.imported.messages.get_mut(place)?.message.as_object_mut()
    }

    /// Adds the tools to the leading system message, creating it if needed.
    fn place_tools(&mut self) {
        if self.tools.is_empty() {
            return;
        }
        let first = self.imported.messages.first();
        if first.is_none_or(|first| role(&first.message) != "system") {
            let timestamp_ms = first.map_or(0, |first| first.timestamp_ms);
            let message = json!({ "role": "system", "content": "" });
            self.imported.messages.insert(0, ImportedMessage { message, timestamp_ms });
        }
        let tools = std::mem::take(&mut self.tools);
        if let Some(fields) = self.fields(0) {
            fields.insert("toolsAdded".into(), tools.into());
        }
    }
}

fn role(message: &Value) -> &str {
    block::string(message, "role").unwrap_or_default()
}

/// Sets the stop reason of a reply that has none.
fn end_reply(message: &mut Value) {
    if role(message) != "assistant" || message.get("stopReason").is_some() {
        return;
    }
    let blocks = message.get("content").and_then(Value::as_array);
    let calls = blocks.is_some_and(|blocks| blocks.iter().any(|b| block::kind(b) == "toolCall"));
    if let Some(fields) = message.as_object_mut() {
        fields.insert("stopReason".into(), if calls { "toolUse" } else { "stop" }.into());
    }
}
