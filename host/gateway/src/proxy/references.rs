//! Adds references to the originals of replaced texts, so that a client can retrieve them.

use std::collections::{HashMap, HashSet};

use ctxhost_conversations::KnownItems;
use ctxhost_engine_api::{PlanItem, Role};

use crate::originals::short_hash;
use ctxhost_dialects::ChatMessage;
use ctxhost_dialects::message::{ChatBlock, UserMessage};
use ctxhost_session::{Record, Session};

/// The references for the items of a rendered plan.
#[derive(Debug, Default)]
pub(super) struct OriginalReferences {
    /// Per item: its text with the reference, or its JSON if its message was replaced; `None` if it repositions nothing.
    texts: Vec<Option<String>>,
    /// The referenced originals.
    pub(super) originals: Vec<String>,
}

impl OriginalReferences {
    /// References for items whose entry has another text in the session.
    pub(super) fn new(
        items: &[PlanItem<'_>],
        known_items: &KnownItems,
        session: &Session,
    ) -> OriginalReferences {
        let order: HashMap<&str, usize> =
            known_items.entries().iter().enumerate().map(|(at, id)| (id.as_str(), at)).collect();
        let position =
            |item: &PlanItem<'_>| item.entry().and_then(|entry| order.get(entry.id()).copied());
        let omitted = OmittedEntries::new(items.iter().map(position).collect(), known_items);
        let mut references = OriginalReferences::default();
        for (number, item) in items.iter().enumerate() {
            let original = match (omitted.positions.get(number).copied().flatten(), item) {
                // Kept items are the originals themselves, and a missing result replaces nothing.
                (Some(_), PlanItem::Kept(_)) | (None, PlanItem::MissingResult { .. }) => None,
                (Some(_), item) => item.entry().and_then(|entry| text_of(session, entry.id())),
                (None, _) => omitted.text_around(number, session),
            };
            let original = original.filter(|text| !text.is_empty() && *text != item.text());
            let text = original.as_deref().and_then(|original| with_reference(item, original));
            references.originals.extend(original.filter(|_| text.is_some()));
            references.texts.push(text);
        }
        references
    }

    /// No references.
    pub(super) fn empty(items: usize) -> OriginalReferences {
        OriginalReferences { texts: vec![None; items], originals: Vec::new() }
    }

    /// The items with their references.
    pub(super) fn apply<'a>(&'a self, items: &[PlanItem<'a>]) -> Vec<PlanItem<'a>> {
        let with = |(item, text): (&PlanItem<'a>, &'a Option<String>)| {
            let Some(text) = text else { return item.clone() };
            match (item, item.entry()) {
                (PlanItem::ReplacedRaw { entry, .. }, _) => {
                    PlanItem::ReplacedRaw { entry: *entry, raw: text }
                }
                (_, Some(entry)) => PlanItem::ReplacedText { entry, text },
                (item, None) => PlanItem::Inserted { role: item.role(), text },
            }
        };
        items.iter().zip(&self.texts).map(with).collect()
    }
}

/// The positions of items in the conversation, and the entries that no item shows.
struct OmittedEntries<'a> {
    positions: Vec<Option<usize>>,
    shown: HashSet<usize>,
    entries: &'a [String],
}

impl<'a> OmittedEntries<'a> {
    fn new(positions: Vec<Option<usize>>, known_items: &'a KnownItems) -> OmittedEntries<'a> {
        let shown = positions.iter().flatten().copied().collect();
        OmittedEntries { positions, shown, entries: known_items.entries() }
    }

    /// The text that an inserted item replaces: all entries between its neighbours that no item shows.
    fn text_around(&self, number: usize, session: &Session) -> Option<String> {
        let before = self.positions.iter().take(number).rev().flatten().next();
        let after = self.positions.iter().skip(number + 1).flatten().next();
        let from = before.map_or(0, |at| at + 1);
        let to = after.copied().unwrap_or(self.entries.len());
        let missing = (from..to).filter(|at| !self.shown.contains(at));
        let texts = missing.filter_map(|at| {
            let record = session.record(self.entries.get(at)?)?;
            entry_line(record)
        });
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }
}

fn text_of(session: &Session, id: &str) -> Option<String> {
    session.record(id)?.to_entry().map(|entry| entry.text)
}

/// One entry of an original that spans several.
fn entry_line(record: &Record) -> Option<String> {
    let entry = record.to_entry()?;
    let message =
        record.message_raw().and_then(|raw| serde_json::from_str::<ChatMessage>(raw).ok());
    let calls = message.iter().flat_map(ChatMessage::content).filter_map(|block| match block {
        ChatBlock::ToolCall(call) => Some((call.name.clone(), call.arguments.to_string())),
        _ => None,
    });
    Some(message_text(entry.role, &entry.text, calls))
}

/// A message as readable text: role, text and tool calls.
pub(super) fn message_text(
    role: Role,
    text: &str,
    calls: impl Iterator<Item = (String, String)>,
) -> String {
    let role = match role {
        Role::Assistant => "[assistant] ",
        Role::Tool => "[result] ",
        _ => "[user] ",
    };
    let calls = calls.map(|(name, arguments)| format!("\n[calls {name} with {arguments}]"));
    format!("{role}{text}{}", calls.collect::<String>())
}

/// The text of an item with the reference to its original.
fn with_reference(item: &PlanItem<'_>, original: &str) -> Option<String> {
    // LiteLLM and headroom look for exactly `hash=` and 24 hex digits. The hash depends on the original's bytes only, so a
    // reference never changes between requests, which would invalidate the prompt cache.
    let reference =
        format!("[ctxhost] This stands for a longer text, hash={}", short_hash(original));
    if let PlanItem::ReplacedRaw { raw, .. } = item {
        return with_text(raw, reference);
    }
    let text = item.text();
    Some(if text.is_empty() { reference } else { format!("{text}\n\n{reference}") })
}

/// A message with an additional text block.
fn with_text(raw: &str, text: String) -> Option<String> {
    let mut message: ChatMessage = serde_json::from_str(raw).ok()?;
    let content = match &mut message {
        ChatMessage::User(UserMessage { content, .. }) => content,
        ChatMessage::Assistant(answer) => &mut answer.content,
        ChatMessage::ToolResult(result) => &mut result.content,
    };
    content.push(ChatBlock::text(text));
    serde_json::to_string(&message).ok()
}
