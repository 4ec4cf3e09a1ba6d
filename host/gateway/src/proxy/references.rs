//! Texts that stand for others name their original, so that whoever reads them can ask for it.
//!
//! The mark is `hash=` and 24 hex digits: proxies that bring originals back look for exactly that. It
//! follows from the original's bytes alone, so it never moves a prefix.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::{PlanItem, Role};

use crate::conversations::KnownItems;
use crate::originals::short_hash;
use ctxhost_dialects::ChatMessage;
use ctxhost_dialects::message::{ChatBlock, UserMessage};
use ctxhost_session::{Record, Session};

/// What is said of the texts of a projection.
#[derive(Debug, Default)]
pub(super) struct OriginalReferences {
    /// What each item says now: its text, or its JSON where that was written anew; `None` for one that
    /// stands for nothing else.
    texts: Vec<Option<String>>,
    /// The originals that they name.
    pub(super) originals: Vec<String>,
}

impl OriginalReferences {
    /// Marks the items of a projection, by what their session has of each entry.
    pub(super) fn new(
        items: &[PlanItem<'_>],
        outline: &KnownItems,
        session: &Session,
    ) -> OriginalReferences {
        let order: HashMap<&str, usize> =
            outline.entries().iter().enumerate().map(|(at, id)| (id.as_str(), at)).collect();
        let place =
            |item: &PlanItem<'_>| item.entry().and_then(|entry| order.get(entry.id()).copied());
        let gaps = OmittedEntries::new(items.iter().map(place).collect(), outline);
        let mut marks = OriginalReferences::default();
        for (number, item) in items.iter().enumerate() {
            let original = match (gaps.places.get(number).copied().flatten(), item) {
                (Some(_), PlanItem::Kept(_)) | (None, PlanItem::MissingResult { .. }) => None,
                (Some(_), item) => item.entry().and_then(|entry| text_of(session, entry.id())),
                (None, _) => gaps.text_around(number, session),
            };
            let original = original.filter(|text| !text.is_empty() && *text != item.text());
            let told = original.as_deref().and_then(|original| with_reference(item, original));
            marks.originals.extend(original.filter(|_| told.is_some()));
            marks.texts.push(told);
        }
        marks
    }

    /// No mark at any of so many items.
    pub(super) fn empty(items: usize) -> OriginalReferences {
        OriginalReferences { texts: vec![None; items], originals: Vec::new() }
    }

    /// The items with their marks.
    pub(super) fn apply<'a>(&'a self, items: &[PlanItem<'a>]) -> Vec<PlanItem<'a>> {
        let with = |(item, told): (&PlanItem<'a>, &'a Option<String>)| {
            let Some(told) = told else { return item.clone() };
            match (item, item.entry()) {
                (PlanItem::ReplacedRaw { entry, .. }, _) => {
                    PlanItem::ReplacedRaw { entry: *entry, raw: told }
                }
                (_, Some(entry)) => PlanItem::ReplacedText { entry, text: told },
                (item, None) => PlanItem::Inserted { role: item.role(), text: told },
            }
        };
        items.iter().zip(&self.texts).map(with).collect()
    }
}

/// Where the items of a projection stand in the conversation, and what stands between them that none
/// of them shows.
struct OmittedEntries<'a> {
    places: Vec<Option<usize>>,
    shown: HashSet<usize>,
    entries: &'a [String],
}

impl<'a> OmittedEntries<'a> {
    fn new(places: Vec<Option<usize>>, outline: &'a KnownItems) -> OmittedEntries<'a> {
        let shown = places.iter().flatten().copied().collect();
        OmittedEntries { places, shown, entries: outline.entries() }
    }

    /// All that an item stands for which is no entry of the client's: what is missing around it.
    fn text_around(&self, number: usize, session: &Session) -> Option<String> {
        let before = self.places.iter().take(number).rev().flatten().next();
        let behind = self.places.iter().skip(number + 1).flatten().next();
        let from = before.map_or(0, |at| at + 1);
        let to = behind.copied().unwrap_or(self.entries.len());
        let missing = (from..to).filter(|at| !self.shown.contains(at));
        let said = missing.filter_map(|at| {
            let record = session.record(self.entries.get(at)?)?;
            line_of(record)
        });
        let said: Vec<String> = said.collect();
        (!said.is_empty()).then(|| said.join("\n\n"))
    }
}

fn text_of(session: &Session, id: &str) -> Option<String> {
    session.record(id)?.to_entry().map(|entry| entry.text)
}

/// An entry as it is read in an original of several.
fn line_of(record: &Record) -> Option<String> {
    let entry = record.to_entry()?;
    let message =
        record.message_raw().and_then(|raw| serde_json::from_str::<ChatMessage>(raw).ok());
    let calls = message.iter().flat_map(ChatMessage::content).filter_map(|block| match block {
        ChatBlock::ToolCall(call) => Some((call.name.clone(), call.arguments.to_string())),
        _ => None,
    });
    Some(message_text(entry.role, &entry.text, calls))
}

/// One message, as a person reads it: who speaks, what, and the tools that are called.
pub(super) fn message_text(
    role: Role,
    text: &str,
    calls: impl Iterator<Item = (String, String)>,
) -> String {
    let speaker = match role {
        Role::Assistant => "[assistant] ",
        Role::Tool => "[result] ",
        _ => "[user] ",
    };
    let calls = calls.map(|(name, arguments)| format!("\n[calls {name} with {arguments}]"));
    format!("{speaker}{text}{}", calls.collect::<String>())
}

/// What an item says with the mark of its original.
fn with_reference(item: &PlanItem<'_>, original: &str) -> Option<String> {
    let mark = format!("[ctxhost] This stands for a longer text, hash={}", short_hash(original));
    if let PlanItem::ReplacedRaw { raw, .. } = item {
        return with_text(raw, mark);
    }
    let text = item.text();
    Some(if text.is_empty() { mark } else { format!("{text}\n\n{mark}") })
}

/// A message with one more text in it.
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
