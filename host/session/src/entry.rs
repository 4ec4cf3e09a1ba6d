//! Conversion of records to entries of the live transcript.

use std::borrow::Cow;

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{ContentBlock, EntryKind, Flags, Message, PlanItem, Role};
use ctxhost_text::injected_text::is_injected_message;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json_fields::JsonFields;
use super::record::{Record, RecordKind};
use super::{lenient, readable, render_text};

/// Texts of synthetic results that hosts insert for calls without one. They are skipped: a real result may
/// follow, and if none does the invariants insert a synthetic one with constant text.
const SYNTHETIC_RESULTS: [&str; 2] = [
    PlanItem::MISSING_RESULT,
    "[openclaw] missing tool result in session history; inserted synthetic error result for transcript repair.",
];

impl Record {
    /// Its entry; `None` for a record that is not in context.
    ///
    /// It does not know whether it is the first task: see [`Session::entry`](super::Session::entry).
    pub fn to_entry(&self) -> Option<NewEntry> {
        match self.kind() {
            RecordKind::Message => from_message(self, self.message_raw()?),
            RecordKind::CustomMessage => from_custom_message(self),
            RecordKind::BranchSummary => from_branch_summary(self),
            RecordKind::Compaction => from_compaction(self),
            RecordKind::Custom
            | RecordKind::ContextEdit
            | RecordKind::ModelChange
            | RecordKind::ThinkingLevelChange
            | RecordKind::Usage
            | RecordKind::Label
            | RecordKind::SessionInfo
            | RecordKind::Unknown(_) => None,
        }
    }

    /// Whether Pi, reading on from an earlier record, would find an entry here.
    pub(super) fn is_in_context(&self) -> bool {
        *self.kind() != RecordKind::Compaction && self.to_entry().is_some()
    }
}

/// The entry of a record whose message has the JSON `raw`.
pub(super) fn from_message(record: &Record, raw: &str) -> Option<NewEntry> {
    let message = Message::parse(raw, "");
    // Parsed a second time only for what a message does not tell: a request may have tens of thousands of them.
    let wire = match PiMessage::of_spoken(&message, raw) {
        Some(wire) => wire,
        None => serde_json::from_str(raw).ok()?,
    };
    if is_true(wire.exclude_from_context) {
        return None;
    }
    let (role, kind) = match &*wire.role {
        // Text that only a client inserted must not start a turn or be pinned as the task.
        "user" if is_injected_message(&message) => (Role::User, EntryKind::Custom),
        "user" => (Role::User, EntryKind::Message),
        "assistant" => (Role::Assistant, EntryKind::Message),
        "toolResult" => (Role::Tool, EntryKind::Message),
        "system" => (Role::System, EntryKind::Message),
        "custom" | "hookMessage" => (Role::User, EntryKind::Custom),
        "bashExecution" => return from_bash(record, raw),
        _ => return None,
    };
    let mut entry = empty_entry(record, role, kind);
    entry.flags = flags_of(role, &wire, &message);
    entry.tokens = tokens::message(&message);
    entry.text = message.text();
    if role == Role::Tool && SYNTHETIC_RESULTS.contains(&entry.text.as_str()) {
        return None;
    }
    if role == Role::System {
        add_sections(&mut entry, raw);
    }
    entry.raw = raw.to_owned();
    if role == Role::Assistant {
        entry.calls = message.tool_calls().into_iter().map(|call| call.id.into_owned()).collect();
    } else if role == Role::Tool {
        entry.answers = wire.tool_call_id.map(|id| id.0.into_owned());
    }
    Some(entry)
}

/// Whether a record is a user message with text that no client inserted.
pub(super) fn is_user_message(record: &Record) -> bool {
    let is_request = |raw: &str| {
        serde_json::from_str::<PiMessage<'_>>(raw).is_ok_and(|wire| wire.role == "user")
            && !is_injected_message(&Message::parse(raw, ""))
    };
    *record.kind() == RecordKind::Message && record.message_raw().is_some_and(is_request)
}

/// The entry of a message inserted by a compaction.
pub(super) fn from_insert(record: &Record, id: String, role: Role, text: String) -> NewEntry {
    let raw = serde_json::json!({
        "role": role.name(),
        "content": [{ "type": "text", "text": text }],
        // Of the compaction, so that every read of the file gives the same bytes.
        "timestamp": record.timestamp_ms(),
    });
    NewEntry {
        id,
        flags: Flags::SYNTHETIC,
        tokens: tokens::estimate(&text),
        text,
        raw: raw.to_string(),
        ..empty_entry(record, role, EntryKind::CompactionSummary)
    }
}

/// Replaces the text of an entry. Calls stay, thinking and images are removed.
pub fn replace_text(mut entry: NewEntry, text: &str) -> NewEntry {
    let message = Message::parse(&entry.raw, "");
    let calls = message.tool_calls();
    let call_tokens =
        calls.iter().map(|call| tokens::estimate(&call.name) + tokens::estimate(&call.arguments));
    entry.tokens = tokens::estimate(text) + call_tokens.sum::<u64>();
    entry.raw = replace_text_in_raw(&entry.raw, text);
    entry.text = text.to_owned();
    entry.flags = entry.flags.without(Flags::THINKING.with(Flags::IMAGES)).with(Flags::REPLACED);
    entry
}

/// Replaces the JSON of an entry by another message of the same role.
pub fn replace_raw(mut entry: NewEntry, raw: &str) -> NewEntry {
    // Compactions of earlier versions may have recorded any JSON.
    let readable = readable::to_readable(raw);
    let raw = readable.as_deref().unwrap_or(raw);
    let message = Message::parse(raw, "");
    let mut flags = entry.flags.without(Flags::THINKING.with(Flags::IMAGES));
    flags = flags.with(block_flags(&message)).with(Flags::REPLACED);
    entry.flags = flags;
    entry.tokens = tokens::message(&message);
    entry.text = message.text();
    entry.raw = raw.to_owned();
    if entry.role == Role::Assistant {
        entry.calls = message.tool_calls().into_iter().map(|call| call.id.into_owned()).collect();
    }
    entry
}

/// An entry without content.
fn empty_entry(record: &Record, role: Role, kind: EntryKind) -> NewEntry {
    NewEntry {
        id: record.id().to_owned(),
        parent_id: record.parent_id().unwrap_or_default().to_owned(),
        timestamp_ms: record.timestamp_ms(),
        role,
        kind,
        flags: Flags::default(),
        tokens: 0,
        text: String::new(),
        raw: String::new(),
        calls: Vec::new(),
        answers: None,
    }
}

/// The field that excludes a message, as it is found in the JSON of one.
const EXCLUDED: &str = "excludeFromContext";

// All borrowed, because a long request has tens of thousands of messages.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PiMessage<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    stop_reason: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool_call_id: Option<BorrowedText<'a>>,
    // No `bool`: another JSON type in these fields must not hide the message.
    #[serde(borrow)]
    is_error: Option<&'a RawValue>,
    #[serde(borrow)]
    exclude_from_context: Option<&'a RawValue>,
}

impl<'a> PiMessage<'a> {
    /// The fields of a message of the user or the model; `None` if its JSON may have others that matter.
    fn of_spoken(message: &'a Message<'_>, raw: &str) -> Option<PiMessage<'a>> {
        // JSON of an unknown form is parsed as one empty text.
        let is_unknown =
            matches!(message.blocks.as_slice(), [ContentBlock::Text(text)] if text.is_empty());
        let is_spoken = matches!(&*message.role, "user" | "assistant");
        // With an escape the name of the field may be written differently.
        let may_be_excluded = raw.contains(EXCLUDED) || raw.contains("\\u");
        (is_spoken && !is_unknown && !may_be_excluded).then(|| PiMessage {
            role: Cow::Borrowed(&message.role),
            stop_reason: message
                .stop_reason
                .as_deref()
                .map(|reason| BorrowedText(Cow::Borrowed(reason))),
            tool_call_id: None,
            is_error: None,
            exclude_from_context: None,
        })
    }
}

// serde borrows a `Cow` in a field, but not inside an `Option`.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

fn is_true(json: Option<&RawValue>) -> bool {
    json.is_some_and(|json| json.get() == "true")
}

fn flags_of(role: Role, wire: &PiMessage<'_>, message: &Message<'_>) -> Flags {
    let mut flags = block_flags(message);
    if role == Role::System {
        flags = flags.with(Flags::PINNED);
    }
    if role == Role::Tool && is_true(wire.is_error) {
        flags = flags.with(Flags::ERROR);
    }
    let stop_reason = wire.stop_reason.as_ref().map(|reason| &*reason.0);
    if role == Role::Assistant && matches!(stop_reason, Some("aborted" | "error")) {
        flags = flags.with(Flags::ABORTED);
    }
    flags
}

fn block_flags(message: &Message<'_>) -> Flags {
    message.blocks.iter().fold(Flags::default(), |flags, block| match block {
        ContentBlock::Image { .. } => flags.with(Flags::IMAGES),
        ContentBlock::Thinking { .. } => flags.with(Flags::THINKING),
        _ => flags,
    })
}

/// Adds the named sections of the system prompt and the tools, which Pi stores beside the content.
fn add_sections(entry: &mut NewEntry, raw: &str) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct PiSystemMessage {
        #[serde(default)]
        sections: serde_json::Map<String, Value>,
        #[serde(default)]
        tools_added: Value,
    }
    let Ok(wire) = serde_json::from_str::<PiSystemMessage>(raw) else { return };
    for section in wire.sections.values().filter_map(Value::as_str) {
        if !entry.text.is_empty() {
            entry.text.push('\n');
        }
        entry.text.push_str(section);
    }
    let tools =
        if wire.tools_added.is_null() { String::new() } else { wire.tools_added.to_string() };
    entry.tokens = tokens::estimate(&entry.text) + tokens::estimate(&tools);
}

fn from_bash(record: &Record, raw: &str) -> Option<NewEntry> {
    let text = render_text::render_bash(&serde_json::from_str(raw).ok()?);
    let mut entry = empty_entry(record, Role::User, EntryKind::Bash);
    entry.tokens = tokens::estimate(&text);
    entry.text = text;
    entry.raw = raw.to_owned();
    Some(entry)
}

fn from_custom_message(record: &Record) -> Option<NewEntry> {
    #[derive(Deserialize)]
    struct WireCustomMessage<'a> {
        #[serde(borrow)]
        content: &'a RawValue,
    }
    let wire: WireCustomMessage<'_> = record.parse_fields()?;
    // `Message` reads both forms of a content, a string and blocks.
    let as_message = format!(r#"{{"role":"custom","content":{}}}"#, wire.content.get());
    let text = Message::parse(&as_message, "").text();
    Some(with_text_of_line(record, EntryKind::Custom, Flags::default(), text))
}

fn from_branch_summary(record: &Record) -> Option<NewEntry> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WireBranchSummary {
        #[serde(default, deserialize_with = "lenient::or_default")]
        from_id: Option<String>,
        summary: String,
    }
    let wire: WireBranchSummary = record.parse_fields()?;
    let text =
        render_text::render_branch_summary(&wire.summary, record.id(), wire.from_id.as_deref());
    let has_summary = !wire.summary.is_empty();
    has_summary.then(|| with_text_of_line(record, EntryKind::BranchSummary, Flags::SYNTHETIC, text))
}

fn from_compaction(record: &Record) -> Option<NewEntry> {
    let text = render_text::render_compaction_summary(
        &compaction_summary_text(record)?,
        record.id(),
        record.timestamp_ms(),
    );
    Some(with_text_of_line(record, EntryKind::CompactionSummary, Flags::SYNTHETIC, text))
}

/// The summary of a compaction without its frame.
pub(super) fn compaction_summary_text(record: &Record) -> Option<String> {
    #[derive(Deserialize)]
    struct WireSummary {
        summary: String,
    }
    record.parse_fields::<WireSummary>().map(|wire| wire.summary)
}

fn with_text_of_line(record: &Record, kind: EntryKind, flags: Flags, text: String) -> NewEntry {
    NewEntry {
        flags,
        tokens: tokens::estimate(&text),
        text,
        raw: record.json().to_owned(),
        ..empty_entry(record, Role::User, kind)
    }
}

/// Replaces the text in the JSON of a message. Other fields and the calls keep their bytes.
pub fn replace_text_in_raw(raw: &str, text: &str) -> String {
    // Entries of other records have their whole line as JSON; they become plain user messages.
    let fields = JsonFields::parse(raw).filter(|fields| fields.get("role").is_some());
    let mut fields = fields.unwrap_or_else(|| {
        let mut message = JsonFields::default();
        message.set("role", super::json_fields::json_string("user"));
        message
    });
    let mut content = fields.get("content").map_or_else(Vec::new, call_blocks);
    // Providers reject an empty text block beside a call, and a message without any block.
    if !text.is_empty() || content.is_empty() {
        content.insert(0, serde_json::json!({ "type": "text", "text": text }).to_string());
    }
    fields.set("content", format!("[{}]", content.join(",")));
    fields.to_line()
}

fn call_blocks(content: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct PiBlock {
        #[serde(rename = "type")]
        kind: Option<String>,
    }
    let is_call = |raw: &str| {
        let block = serde_json::from_str::<PiBlock>(raw).ok().and_then(|block| block.kind);
        block.is_some_and(|kind| kind == "toolCall")
    };
    let blocks: Vec<&RawValue> = serde_json::from_str(content).unwrap_or_default();
    let calls = blocks.into_iter().map(RawValue::get).filter(|raw| is_call(raw));
    calls.map(str::to_owned).collect()
}
