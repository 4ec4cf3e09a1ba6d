//! Records the compactions of an import as compaction records of the session.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

use serde_json::Value;

use super::block::{self, joined_text};
use super::transcript::{ImportedCompaction, ImportedItem};
use crate::json_fields::json_string;
use crate::projection_items::{
    CompactionDetails, DETAILS_VERSION, InsertRole, RecordedProjection, StoredItem, insert_id,
};
use crate::record::RecordKind;
use crate::{RecordBody, Session, SessionError};

/// Writes compactions that follow the imported messages.
pub(super) struct CompactionWriter {
    /// The agent.
    engine: &'static str,
    /// Its version.
    engine_version: String,
    /// The record of each message so far.
    records: Vec<String>,
    /// The entries in context, in order.
    live: Vec<LiveMessage>,
}

/// An entry in context.
#[derive(Clone)]
struct LiveMessage {
    id: String,
    /// The index of the message; `None` if a compaction inserted it.
    message: Option<usize>,
    /// The text that a compaction inserted or put in place of the message's own.
    text: Option<String>,
}

impl CompactionWriter {
    pub(super) fn new(engine: &'static str, engine_version: String) -> CompactionWriter {
        CompactionWriter { engine, engine_version, records: Vec::new(), live: Vec::new() }
    }

    /// Adds the record of the next message.
    pub(super) fn add_message(&mut self, id: String) {
        let message = Some(self.records.len());
        self.live.push(LiveMessage { id: id.clone(), message, text: None });
        self.records.push(id);
    }

    /// Appends a compaction to the session. `messages` are those of the import.
    pub(super) fn append(
        &mut self,
        session: &mut Session,
        compaction: ImportedCompaction,
        messages: &[Value],
    ) -> Result<(), SessionError> {
        let items = if compaction.is_edit {
            self.resolve_edit(compaction.items)
        } else {
            self.resolve(compaction.items, messages)
        };
        let texts = items.iter().filter_map(|item| match &item.stored {
            StoredItem::Insert { text, .. } => Some(text.as_str()),
            _ => None,
        });
        let summary = texts.collect::<Vec<_>>().join("\n\n");
        let first_kept = self.tail_start(&items).map(str::to_owned);
        let stored = items.iter().map(|item| item.stored.clone()).collect();
        let details = CompactionDetails {
            ctxhost: RecordedProjection {
                version: DETAILS_VERSION,
                engine: self.engine.to_owned(),
                engine_version: self.engine_version.clone(),
                trigger: compaction.trigger,
                tokens_after: compaction.tokens_after,
                items: stored,
                engine_details: Value::Null,
                host_details: Value::Null,
            },
            read_files: Value::Null,
            modified_files: Value::Null,
        };
        let details = serde_json::to_string(&details)
            .map_err(|error| SessionError::Plan { reason: error.to_string() })?;
        let body = RecordBody::new(RecordKind::Compaction)
            .with_field("summary", json_string(&summary))
            .with_field("tokensBefore", compaction.tokens_before.to_string())
            .with_field("details", details);
        let id = session.next_id(&body.id_seed(), compaction.timestamp_ms);
        // Its own id keeps no tail, as Pi defines it.
        let first_kept = json_string(first_kept.as_deref().unwrap_or(&id));
        let body = body.with_field("firstKeptEntryId", first_kept);
        session.append_as(id.clone(), body, compaction.timestamp_ms)?;
        if compaction.is_edit {
            self.apply_edit(items);
        } else {
            self.live = live_after(&id, items, &self.live);
        }
        Ok(())
    }

    /// The items of the record of an edit: all entries in context, some with another text.
    fn resolve_edit(&self, mut edits: Vec<ImportedItem>) -> Vec<ResolvedItem> {
        let message_of = |edit: &ImportedItem| match edit {
            ImportedItem::ReplaceText { message, .. } | ImportedItem::Keep(message) => {
                Some(*message)
            }
            ImportedItem::Insert { .. } => None,
        };
        edits.sort_by_key(message_of);
        // The context has its messages in their order, too.
        let mut edits = edits.into_iter().peekable();
        let mut resolved = Vec::new();
        let mut begin = 0;
        for (place, live) in self.live.iter().enumerate() {
            let Some(message) = live.message else { continue };
            while edits.next_if(|edit| message_of(edit) < Some(message)).is_some() {}
            let edit = edits.next_if(|edit| message_of(edit) == Some(message));
            if let Some(ImportedItem::ReplaceText { text, .. }) = edit
                && live.text.as_ref() != Some(&text)
            {
                resolved.extend(self.keep_range(begin..place));
                let stored = StoredItem::ReplaceText { retell: live.id.clone(), text };
                resolved.push(ResolvedItem { stored, places: Some(place..=place) });
                begin = place + 1;
            }
        }
        resolved.extend(self.keep_range(begin..self.live.len()));
        resolved
    }

    /// Unchanged entries; `None` without any.
    fn keep_range(&self, places: Range<usize>) -> Option<ResolvedItem> {
        let [first, .., last] = self.live.get(places.clone())? else {
            let keep = self.live.get(places.clone())?.first()?.id.clone();
            let places = places.start..=places.start;
            return Some(ResolvedItem { stored: StoredItem::Keep { keep }, places: Some(places) });
        };
        let keep_range = (first.id.clone(), last.id.clone());
        let places = places.start..=places.end - 1;
        Some(ResolvedItem { stored: StoredItem::KeepRange { keep_range }, places: Some(places) })
    }

    fn apply_edit(&mut self, items: Vec<ResolvedItem>) {
        for item in items {
            if let (StoredItem::ReplaceText { text, .. }, Some(places)) = (item.stored, item.places)
                && let Some(live) = self.live.get_mut(*places.start())
            {
                live.text = Some(text);
            }
        }
    }

    /// The items of the record. A message that is not in context, or out of order, is inserted as text.
    fn resolve(&self, items: Vec<ImportedItem>, messages: &[Value]) -> Vec<ResolvedItem> {
        let places = self.live.iter().enumerate();
        let places: HashMap<usize, usize> =
            places.filter_map(|(place, live)| Some((live.message?, place))).collect();
        let mut next = 0;
        let mut resolved: Vec<ResolvedItem> = Vec::new();
        for item in items {
            let (message, new_text) = match item {
                ImportedItem::Insert { is_reply, text } => {
                    let is_it = |live: &LiveMessage| {
                        live.message.is_none() && live.text.as_ref() == Some(&text)
                    };
                    // The summary of an earlier compaction stays the entry that it is.
                    match self.live.iter().skip(next).position(is_it) {
                        Some(place) => {
                            next += place + 1;
                            self.keep(&mut resolved, next - 1, None);
                        }
                        None => resolved.push(ResolvedItem::insert(is_reply, text)),
                    }
                    continue;
                }
                ImportedItem::Keep(message) => (message, None),
                ImportedItem::ReplaceText { message, text } => (message, Some(text)),
            };
            match places.get(&message).filter(|place| **place >= next) {
                Some(&place) => {
                    next = place + 1;
                    self.keep(&mut resolved, place, new_text);
                }
                None => resolved.extend(copy_of(messages.get(message), new_text)),
            }
        }
        resolved
    }

    /// Adds a kept entry, joined with the one before it where both are unchanged and adjacent.
    fn keep(&self, resolved: &mut Vec<ResolvedItem>, place: usize, new_text: Option<String>) {
        let Some(live) = self.live.get(place) else { return };
        let id = live.id.clone();
        // An earlier compaction may have replaced the text already.
        if let Some(text) = new_text.filter(|text| live.text.as_ref() != Some(text)) {
            let stored = StoredItem::ReplaceText { retell: id, text };
            return resolved.push(ResolvedItem { stored, places: Some(place..=place) });
        }
        if let Some(ResolvedItem { stored, places: Some(kept) }) = resolved.last_mut()
            && *kept.end() + 1 == place
        {
            let first = match stored {
                StoredItem::Keep { keep: first }
                | StoredItem::KeepRange { keep_range: (first, _) } => Some(std::mem::take(first)),
                _ => None,
            };
            if let Some(first) = first {
                *stored = StoredItem::KeepRange { keep_range: (first, id) };
                *kept = *kept.start()..=place;
                return;
            }
        }
        let stored = StoredItem::Keep { keep: id };
        resolved.push(ResolvedItem { stored, places: Some(place..=place) });
    }

    /// The first record of a kept tail, for Pi: it must be unchanged and reach to the end of the context.
    fn tail_start(&self, items: &[ResolvedItem]) -> Option<&str> {
        let last = items.last()?;
        let is_whole =
            matches!(last.stored, StoredItem::Keep { .. } | StoredItem::KeepRange { .. });
        let places = last.places.as_ref().filter(|_| is_whole)?;
        if *places.end() + 1 != self.live.len() {
            return None;
        }
        let mut tail = self.live.get(places.clone())?.iter().rev();
        // Pi names records; a message that a compaction inserted is none.
        let start = tail.by_ref().take_while(|live| live.message.is_some()).last()?;
        Some(&start.id)
    }
}

/// An item, and the positions in context that it covers; `None` for an inserted message.
struct ResolvedItem {
    stored: StoredItem,
    places: Option<RangeInclusive<usize>>,
}

impl ResolvedItem {
    fn insert(is_reply: bool, text: String) -> ResolvedItem {
        let insert = if is_reply { InsertRole::Assistant } else { InsertRole::User };
        ResolvedItem { stored: StoredItem::Insert { insert, text }, places: None }
    }
}

/// The text of a message that the agent kept although it was not in its context any more.
fn copy_of(message: Option<&Value>, new_text: Option<String>) -> Option<ResolvedItem> {
    let message = message?;
    let text =
        new_text.unwrap_or_else(|| joined_text(message.get("content").unwrap_or(&Value::Null)));
    let is_reply = block::string(message, "role") == Some("assistant");
    (!text.is_empty()).then(|| ResolvedItem::insert(is_reply, text))
}

/// The entries in context after a compaction.
fn live_after(id: &str, items: Vec<ResolvedItem>, live: &[LiveMessage]) -> Vec<LiveMessage> {
    let mut after = Vec::new();
    let mut inserted = 0;
    for item in items {
        match item.places {
            None => {
                let StoredItem::Insert { text, .. } = item.stored else { continue };
                let id = insert_id(id, inserted);
                after.push(LiveMessage { id, message: None, text: Some(text) });
                inserted += 1;
            }
            Some(places) => {
                let kept = live.get(places).unwrap_or_default().iter().cloned();
                let text = match item.stored {
                    StoredItem::ReplaceText { text, .. } => Some(text),
                    _ => None,
                };
                after.extend(
                    kept.map(|live| LiveMessage { text: text.clone().or(live.text), ..live }),
                );
            }
        }
    }
    after
}
