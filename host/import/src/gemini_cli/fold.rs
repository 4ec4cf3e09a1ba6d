//! Folds the lines of a chat into its messages and what the model saw of them.

use std::collections::{HashMap, HashSet};

use super::super::block::joined_text;
use super::super::draft::{ImportDraft, PRUNE};
use super::super::json_lines::JsonRecord;
use super::super::transcript::{ImportedCompaction, ImportedItem};
use super::message;

/// The beginning of a result that Gemini CLI moved to a file.
const MASKED_RESULT: &str = "<tool_output_masked>";

/// The messages of a chat, each with its newest content.
#[derive(Default)]
pub(super) struct ChatHistory {
    messages: Vec<JsonRecord>,
    /// The place of each message, by its id and by the ids of its copies.
    places: HashMap<String, usize>,
    /// What the model sees.
    context: Vec<ContextItem>,
    changes: Vec<ContextChange>,
}

/// A message that the model sees: one of the chat, or one of which the chat has no message.
#[derive(Clone, Debug, PartialEq)]
enum ContextItem {
    Message(usize),
    Text { is_reply: bool, text: String },
}

/// A change of the context other than a new message.
struct ContextChange {
    /// The number of messages before it.
    at: usize,
    trigger: &'static str,
    /// Empty if only results were masked.
    context: Vec<ContextItem>,
    /// The new text of results, by the id of their call.
    masked: Vec<(String, String)>,
    known_ms: Option<i64>,
}

impl ChatHistory {
    /// Adds a message, or the newer content of one.
    pub(super) fn add_message(&mut self, record: JsonRecord) {
        let Some(id) = record.text("id").map(str::to_owned) else { return };
        if let Some(place) = self.places.get(&id).copied() {
            return self.update(place, record);
        }
        let place = self.messages.len();
        self.places.insert(id, place);
        if is_in_context(&record) {
            self.context.push(ContextItem::Message(place));
        }
        self.messages.push(record);
    }

    /// Takes a message and everything after it back. Returns whether it is in the chat.
    pub(super) fn rewind_to(&mut self, id: &str) -> bool {
        let Some(place) = self.places.get(id).copied() else { return false };
        self.messages.truncate(place);
        self.places.retain(|_, known| *known < place);
        let known = self.changes.len();
        self.changes.retain(|change| change.at <= place);
        if self.changes.len() < known {
            self.restore_context();
        } else {
            self.context.retain(|item| !matches!(item, ContextItem::Message(at) if *at >= place));
        }
        true
    }

    /// The context of the newest change, and the messages since.
    fn restore_context(&mut self) {
        let newest = self.changes.iter().rfind(|change| change.trigger != PRUNE);
        let (mut context, since) =
            newest.map_or((Vec::new(), 0), |newest| (newest.context.clone(), newest.at));
        let messages = self.messages.iter().enumerate().skip(since);
        let seen = messages.filter(|(_, message)| is_in_context(message));
        context.extend(seen.map(|(place, _)| ContextItem::Message(place)));
        self.context = context;
    }

    /// Replaces what the model sees.
    pub(super) fn set_context(&mut self, messages: Vec<JsonRecord>, known_ms: Option<i64>) {
        let before = self.context.clone();
        let mut context = Vec::new();
        // At the start, the messages of the list are the chat's own: nothing was replaced by them.
        let is_start = before.is_empty() && self.changes.is_empty();
        let mut next = 0;
        let mut contents = None;
        for record in messages {
            let id = record.text("id").unwrap_or_default().to_owned();
            let known = self.places.get(&id).copied().or_else(|| {
                // Copies have new ids.
                let contents = contents.get_or_insert_with(|| self.places_by_content());
                let same = contents.get(&content_of(&record))?;
                same.get(same.partition_point(|place| *place < next)).copied()
            });
            match known {
                Some(place) => {
                    self.places.insert(id, place);
                    next = next.max(place + 1);
                    self.compare_results(place, record);
                    context.push(ContextItem::Message(place));
                }
                None if is_start => {
                    let known = self.context.len();
                    self.add_message(record);
                    context.extend(self.context.get(known..).unwrap_or_default().iter().cloned());
                    next = self.messages.len();
                }
                None => context.extend(text_item(&record)),
            }
        }
        self.replace_context(&before, context, known_ms);
    }

    /// The places of the messages with each content, in their order.
    fn places_by_content(&self) -> HashMap<CopiedContent, Vec<usize>> {
        let mut places: HashMap<CopiedContent, Vec<usize>> = HashMap::new();
        for (place, message) in self.messages.iter().enumerate() {
            places.entry(content_of(message)).or_default().push(place);
        }
        places
    }

    fn replace_context(
        &mut self,
        before: &[ContextItem],
        context: Vec<ContextItem>,
        known_ms: Option<i64>,
    ) {
        let place = |item: &ContextItem| match item {
            ContextItem::Message(place) => Some(*place),
            ContextItem::Text { .. } => None,
        };
        let texts = |items: &[ContextItem]| -> Vec<ContextItem> {
            items.iter().filter(|item| place(item).is_none()).cloned().collect()
        };
        let kept: HashSet<usize> = context.iter().filter_map(place).collect();
        let has_lost = before.iter().filter_map(place).any(|place| !kept.contains(&place));
        let has_new_text = texts(before) != texts(&context);
        self.context.clone_from(&context);
        if !has_lost && !has_new_text {
            return;
        }
        // A cancelled request is taken back without a text in its place.
        let trigger = if has_new_text { "" } else { "rollback" };
        let at = self.messages.len();
        self.changes.push(ContextChange { at, trigger, context, masked: Vec::new(), known_ms });
    }

    /// Takes over the newer content of a message. A result that is masked now keeps its text.
    fn update(&mut self, place: usize, mut newer: JsonRecord) {
        let Some(known) = self.messages.get_mut(place) else { return };
        let masked = message::restore_results(&known.fields, &mut newer.fields, MASKED_RESULT);
        let known_ms = newer.timestamp_ms();
        known.fields = newer.fields;
        self.add_masked(masked, known_ms);
    }

    /// Compares the results of a message with those that the model sees from now on.
    fn compare_results(&mut self, place: usize, mut copy: JsonRecord) {
        let Some(known) = self.messages.get(place) else { return };
        let masked = message::restore_results(&known.fields, &mut copy.fields, "");
        self.add_masked(masked, copy.timestamp_ms());
    }

    fn add_masked(&mut self, masked: Vec<(String, String)>, known_ms: Option<i64>) {
        if masked.is_empty() {
            return;
        }
        let at = self.messages.len();
        match self.changes.last_mut() {
            Some(newest) if newest.at == at && newest.trigger == PRUNE => {
                newest.masked.extend(masked)
            }
            _ => {
                let context = Vec::new();
                self.changes.push(ContextChange { at, trigger: PRUNE, context, masked, known_ms });
            }
        }
    }

    /// Writes messages and compactions to a draft.
    pub(super) fn write_to(self, draft: &mut ImportDraft) {
        let mut changes = self.changes.into_iter().peekable();
        // The messages of the draft that each message of the chat became.
        let mut written = Vec::new();
        for (place, record) in self.messages.into_iter().enumerate() {
            while let Some(change) = changes.next_if(|change| change.at <= place) {
                change.write_to(draft, &written);
            }
            let begin = draft.len();
            message::write_message(draft, record);
            written.push(begin..draft.len());
        }
        changes.for_each(|change| change.write_to(draft, &written));
    }
}

impl ContextChange {
    fn write_to(self, draft: &mut ImportDraft, written: &[std::ops::Range<usize>]) {
        if self.trigger == PRUNE {
            for (call_id, text) in &self.masked {
                draft.clear_results(std::slice::from_ref(call_id), text, self.known_ms);
            }
            return;
        }
        let mut items = Vec::new();
        for item in self.context {
            match item {
                ContextItem::Message(place) => {
                    ImportedItem::keep(&mut items, written.get(place).cloned().unwrap_or_default());
                }
                ContextItem::Text { is_reply, text } => {
                    items.push(ImportedItem::Insert { is_reply, text });
                }
            }
        }
        let trigger = self.trigger.to_owned();
        let compaction = ImportedCompaction { items, trigger, ..ImportedCompaction::default() };
        draft.add_compaction(compaction, self.known_ms);
    }
}

/// Whether the model sees a message: it sees no notes of the program.
fn is_in_context(record: &JsonRecord) -> bool {
    record.text("type") == Some("user") || message::is_reply(record)
}

/// What a message and its copies under other ids have in common: type, text and calls.
type CopiedContent = (String, String, Vec<String>);

fn content_of(record: &JsonRecord) -> CopiedContent {
    let kind = record.text("type").unwrap_or_default().to_owned();
    let calls = message::call_ids(&record.fields);
    (kind, text_of(record), calls.into_iter().map(str::to_owned).collect())
}

fn text_of(record: &JsonRecord) -> String {
    record.fields.get("content").map(joined_text).unwrap_or_default()
}

fn text_item(record: &JsonRecord) -> Option<ContextItem> {
    let text = text_of(record);
    let is_reply = message::is_reply(record);
    (!text.is_empty()).then_some(ContextItem::Text { is_reply, text })
}
