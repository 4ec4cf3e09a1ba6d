//! The requests, commands and names of one entry.

use ctxhost_engine_api::{Entry, EntryKind, Flags, Role, Transcript};

use super::items::{self, LedgerItem};
use super::requests::request_item;
use super::{COMMANDS, IDENTIFIERS, REQUESTS, names};
use crate::antecedent::Antecedent;
use crate::calls::{
    SHORT_ARGUMENT_BYTES, command_argument, failure_status, find_result, for_each_argument_text,
};
use crate::dialogue::{is_hidden, is_request};
use crate::files::FileOperation;
use crate::name_ledger::cut_text::{whole_argument_names, whole_names, without_clipped};
use crate::summary::envelope::unwrap_summary;
use ctxhost_text::injected_text::request_text;
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::{IMAGE, one_line, prefix};

/// Weighted characters read of one request.
// No window gives a request more, and redacting eight million takes seconds.
const REQUEST_READ_CHARS: u64 = 400_000;

/// Weighted characters of a text that are searched for names.
// Redaction time grows with the length of the text that is read.
const READ_CHARS: u64 = 12_000;
/// Maximum names from one output or one long argument.
// Otherwise one directory listing displaces everything else.
const PRINTED_NAMES: usize = 24;

/// What marks a message of the system among the user's requests.
pub(super) const INSTRUCTION: &str = "(system) ";

/// What the ledger takes from an entry.
#[derive(Debug, Default)]
pub(super) struct EntryItems {
    pub(super) requests: Vec<LedgerItem>,
    /// The request with what it refers to, and the position of that.
    reply: Option<(u64, LedgerItem)>,
    pub(super) commands: Vec<LedgerItem>,
    pub(super) names: Vec<NameUse>,
}

/// A name and who used it.
#[derive(Debug)]
pub(super) enum NameUse {
    /// The user, the model or a call.
    Mentioned(LedgerItem),
    /// The output of a tool.
    Printed(LedgerItem),
}

impl EntryItems {
    /// Searches an entry.
    pub(super) fn read(transcript: &Transcript, entry: &Entry<'_>) -> EntryItems {
        let mut items = EntryItems::default();
        items.add(transcript, entry);
        items
    }

    /// The request with what it refers to, if the ledger is of that as well.
    pub(super) fn reply_to(&self, is_read: impl Fn(u64) -> bool) -> Option<&LedgerItem> {
        self.reply.as_ref().filter(|(seq, _)| is_read(*seq)).map(|(_, item)| item)
    }

    fn add(&mut self, transcript: &Transcript, entry: &Entry<'_>) {
        match entry.role() {
            _ if entry.kind() == EntryKind::CompactionSummary => {
                self.add_summary(&unwrap_summary(entry.text()))
            }
            // Extensions insert reminders that look like user messages.
            _ if is_hidden(entry) => {}
            Role::User if entry.kind() == EntryKind::Bash => self.add_bash(entry),
            Role::User => self.add_message(transcript, entry),
            Role::Assistant => self.add_answer(transcript, entry),
            Role::Tool => self.add_output(&whole_names(entry)),
            _ => {}
        }
    }

    /// Adds the blocks of an earlier summary, and the names in the rest of its text.
    fn add_summary(&mut self, text: &str) {
        let rest = items::strip_block(text, IDENTIFIERS);
        let rest = without_clipped(&rest);
        self.names.extend(names::extract_names(&rest, u64::MAX).into_iter().map(NameUse::Printed));
        // A block lists its newest line first.
        self.add_mentioned(items::read_items(text, IDENTIFIERS).into_iter().rev());
        self.commands.extend(items::read_items(text, COMMANDS).into_iter().rev());
        self.requests.extend(items::read_texts(text, REQUESTS).into_iter().map(request_item));
    }

    fn add_message(&mut self, transcript: &Transcript, entry: &Entry<'_>) {
        let own = request_text(entry);
        let antecedent = Antecedent::find(transcript, entry);
        self.reply = antecedent.map(|antecedent| {
            let text = antecedent.append_to(&redact(own.trim()));
            (antecedent.seq, request_item(text))
        });
        // The word that an old request waited for is listed, whatever was read with that request.
        let earlier = self.reply.as_ref().and_then(|(seq, _)| transcript.get(*seq));
        if earlier.is_some_and(|earlier| earlier.is_user_message()) {
            self.requests.extend(self.reply.iter().map(|(_, item)| item.clone()));
            return;
        }
        let is_ask = is_request(entry) || entry.is_instruction();
        // Also where the request is read: a client names the files that are open.
        if !is_ask || own.len() < entry.text().len() {
            self.add_mentioned(names::extract_names(entry.text(), READ_CHARS));
        }
        if !is_ask {
            return;
        }
        self.add_mentioned(names::extract_facts(&own, READ_CHARS));
        let mut text = redact(prefix(own.trim(), REQUEST_READ_CHARS, 1)).into_owned();
        if entry.has(Flags::IMAGES) {
            text.push_str(if text.is_empty() { IMAGE } else { " [with an image]" });
        }
        if !text.is_empty() {
            let text = if entry.is_instruction() { format!("{INSTRUCTION}{text}") } else { text };
            self.requests.push(request_item(text));
        }
    }

    fn add_bash(&mut self, entry: &Entry<'_>) {
        let raw: serde_json::Value = serde_json::from_str(entry.raw()).unwrap_or_default();
        let command = raw.get("command").and_then(serde_json::Value::as_str);
        if let Some(command) = command.filter(|command| !command.trim().is_empty()) {
            let label = failure_status(entry).unwrap_or_default();
            self.commands.push(LedgerItem::new(one_line(&redact(command))).with_label(label));
        }
        self.add_output(entry.text());
    }

    fn add_output(&mut self, text: &str) {
        let names = names::extract_output_names(text, READ_CHARS).into_iter();
        self.names.extend(names.take(PRINTED_NAMES).map(NameUse::Printed));
    }

    fn add_answer(&mut self, transcript: &Transcript, entry: &Entry<'_>) {
        self.add_mentioned(names::extract_statements(entry.text(), READ_CHARS));
        for call in entry.tool_calls() {
            let operation = FileOperation::of_tool(&call.name);
            for_each_argument_text(&call, |text| {
                let text = &*whole_argument_names(entry, text);
                if text.len() > SHORT_ARGUMENT_BYTES {
                    return self.add_output(text);
                }
                // The operation is known only for an argument that is the name itself, not for one
                // that contains it.
                let is_whole = |item: &LedgerItem| item.text == text.trim();
                let found = names::extract_names(text, READ_CHARS).into_iter();
                self.add_mentioned(found.map(|item| match operation {
                    Some(operation) if is_whole(&item) => item.with_label(operation.word().into()),
                    _ => item,
                }));
            });
            let Some(command) = command_argument(&call) else { continue };
            if !command.trim().is_empty() {
                let result = find_result(transcript, entry, &call);
                let label = result.map_or_else(|| Some("no result".into()), |r| failure_status(&r));
                let item = LedgerItem::new(one_line(&redact(&command)));
                self.commands.push(item.with_label(label.unwrap_or_default()));
            }
        }
    }

    fn add_mentioned(&mut self, items: impl IntoIterator<Item = LedgerItem>) {
        self.names.extend(items.into_iter().map(NameUse::Mentioned));
    }
}
