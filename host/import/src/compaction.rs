//! Records the compactions of an import as compaction records of the session.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use ctxhost_session::projection_items::{InsertRole, StoredItem, insert_id};
use ctxhost_session::{ForeignCompaction, Session, SessionError};
use serde_json::Value;

use super::block::{self, joined_text};
use super::transcript::{ImportedCompaction, ImportedItem};

/// Writes compactions that follow the imported messages.
pub(super) struct CompactionWriter {
    /// The agent.
    agent: &'static str,
    /// Its version.
    agent_version: String,
    /// The number of messages so far.
    messages: usize,
    /// The entries in context, in order.
    live: Vec<LiveMessage>,
}

/// An entry in context.
#[derive(Clone)]
struct LiveMessage {
    id: Rc<str>,
    /// The index of the message; `None` if a compaction inserted it.
    message: Option<usize>,
    /// The text that a compaction inserted or put in place of the message's own.
    text: Option<Rc<str>>,
}

impl LiveMessage {
    /// Whether a compaction gave it this text.
    fn has_text(&self, text: &str) -> bool {
        self.text.as_deref() == Some(text)
    }
}

impl CompactionWriter {
    pub(super) fn new(agent: &'static str, agent_version: String) -> CompactionWriter {
        CompactionWriter { agent, agent_version, messages: 0, live: Vec::new() }
    }

    /// Adds the record of the next message.
    pub(super) fn add_message(&mut self, id: String) {
        let message = Some(self.messages);
        self.live.push(LiveMessage { id: id.into(), message, text: None });
        self.messages += 1;
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
            let mut resolver = ContextResolver::new(&self.live);
            compaction.items.into_iter().for_each(|item| resolver.add(item, messages));
            resolver.resolved
        };
        let texts = items.iter().filter_map(|item| match item {
            ResolvedItem::Insert { text, .. } => Some(&**text),
            ResolvedItem::Keep(_) | ResolvedItem::ReplaceText { .. } => None,
        });
        let summary = texts.collect::<Vec<_>>().join("\n\n");
        let first_kept_id = self.tail_start(&items).map(str::to_owned);
        let stored = items.iter().filter_map(|item| self.stored(item)).collect();
        let id = session.append_foreign_compaction(ForeignCompaction {
            summary,
            first_kept_id,
            items: stored,
            tokens_before: compaction.tokens_before,
            tokens_after: compaction.tokens_after,
            agent: self.agent.to_owned(),
            agent_version: self.agent_version.clone(),
            trigger: compaction.trigger,
            timestamp_ms: compaction.timestamp_ms,
        })?;
        if compaction.is_edit {
            self.apply_edit(items);
        } else {
            self.live = self.live_after(&id, items);
        }
        Ok(())
    }

    /// The items of an edit: all entries in context, some with another text.
    fn resolve_edit(&self, mut edits: Vec<ImportedItem>) -> Vec<ResolvedItem> {
        edits.sort_by_key(ImportedItem::replaced_message);
        // The context has its messages in their order, too.
        let mut edits = edits.into_iter().peekable();
        let mut resolved = Vec::new();
        let mut begin = 0;
        for (place, live) in self.live.iter().enumerate() {
            let Some(message) = live.message else { continue };
            while edits.next_if(|edit| edit.replaced_message() < Some(message)).is_some() {}
            let edit = edits.next_if(|edit| edit.replaced_message() == Some(message));
            if let Some(ImportedItem::ReplaceText { text, .. }) = edit
                && !live.has_text(&text)
            {
                resolved.push(ResolvedItem::Keep(begin..place));
                resolved.push(ResolvedItem::ReplaceText { place, text: text.into() });
                begin = place + 1;
            }
        }
        resolved.push(ResolvedItem::Keep(begin..self.live.len()));
        resolved.retain(|item| !matches!(item, ResolvedItem::Keep(places) if places.is_empty()));
        resolved
    }

    fn apply_edit(&mut self, items: Vec<ResolvedItem>) {
        for item in items {
            if let ResolvedItem::ReplaceText { place, text } = item
                && let Some(live) = self.live.get_mut(place)
            {
                live.text = Some(text);
            }
        }
    }

    /// An item as it is recorded.
    fn stored(&self, item: &ResolvedItem) -> Option<StoredItem> {
        let id = |place: usize| Some(self.live.get(place)?.id.to_string());
        Some(match item {
            ResolvedItem::Keep(places) => match (id(places.start)?, id(places.end - 1)?) {
                (first, last) if first == last => StoredItem::Keep { keep: first },
                keep_range => StoredItem::KeepRange { keep_range },
            },
            ResolvedItem::ReplaceText { place, text } => {
                StoredItem::ReplaceText { retell: id(*place)?, text: text.to_string() }
            }
            ResolvedItem::Insert { role, text } => {
                StoredItem::Insert { insert: *role, text: text.to_string() }
            }
        })
    }

    /// The first record of a kept tail, for Pi: it must be unchanged and reach to the end of the context.
    fn tail_start(&self, items: &[ResolvedItem]) -> Option<&str> {
        let Some(ResolvedItem::Keep(places)) = items.last() else { return None };
        if places.end != self.live.len() {
            return None;
        }
        let mut tail = self.live.get(places.clone())?.iter().rev();
        // Pi names records; a message that a compaction inserted is none.
        let start = tail.by_ref().take_while(|live| live.message.is_some()).last()?;
        Some(&start.id)
    }

    /// The entries in context after the compaction with this id.
    fn live_after(&self, id: &str, items: Vec<ResolvedItem>) -> Vec<LiveMessage> {
        let mut after = Vec::new();
        let mut inserted = 0;
        for item in items {
            match item {
                ResolvedItem::Insert { text, .. } => {
                    let id = insert_id(id, inserted).into();
                    after.push(LiveMessage { id, message: None, text: Some(text) });
                    inserted += 1;
                }
                ResolvedItem::Keep(places) => {
                    after.extend_from_slice(self.live.get(places).unwrap_or_default());
                }
                ResolvedItem::ReplaceText { place, text } => {
                    let kept = self.live.get(place).cloned();
                    after.extend(kept.map(|kept| LiveMessage { text: Some(text), ..kept }));
                }
            }
        }
        after
    }
}

/// An item of a compaction; places are those in the context before it.
enum ResolvedItem {
    Keep(Range<usize>),
    ReplaceText { place: usize, text: Rc<str> },
    Insert { role: InsertRole, text: Rc<str> },
}

/// Finds what an agent kept among the entries in context.
struct ContextResolver<'a> {
    live: &'a [LiveMessage],
    /// Each message in context with its place, both ascending.
    places: Vec<(usize, usize)>,
    /// The places of the inserted messages with each text.
    inserted: HashMap<&'a str, Vec<usize>>,
    /// The first place that an item may still name.
    next: usize,
    resolved: Vec<ResolvedItem>,
}

impl<'a> ContextResolver<'a> {
    fn new(live: &'a [LiveMessage]) -> ContextResolver<'a> {
        let mut places = Vec::new();
        let mut inserted: HashMap<&str, Vec<usize>> = HashMap::new();
        for (place, live) in live.iter().enumerate() {
            match (live.message, &live.text) {
                (Some(message), _) => places.push((message, place)),
                (None, Some(text)) => inserted.entry(text).or_default().push(place),
                (None, None) => {}
            }
        }
        ContextResolver { live, places, inserted, next: 0, resolved: Vec::new() }
    }

    fn add(&mut self, item: ImportedItem, messages: &[Value]) {
        match item {
            ImportedItem::Keep(kept) => {
                let mut at = self.places.partition_point(|(message, _)| *message < kept.start);
                for message in kept {
                    let known = self.places.get(at).filter(|(known, _)| *known == message);
                    let place = known.map(|(_, place)| *place);
                    at += usize::from(place.is_some());
                    self.add_message(place, messages.get(message), None);
                }
            }
            ImportedItem::ReplaceText { message, text } => {
                let at = self.places.partition_point(|(known, _)| *known < message);
                let known = self.places.get(at).filter(|(known, _)| *known == message);
                let place = known.map(|(_, place)| *place);
                self.add_message(place, messages.get(message), Some(text));
            }
            ImportedItem::Insert { is_reply, text } => self.insert(is_reply, text),
        }
    }

    /// Adds a message of the history. One that is not in context, or out of order, is inserted as text.
    fn add_message(
        &mut self,
        place: Option<usize>,
        message: Option<&Value>,
        new_text: Option<String>,
    ) {
        let Some(place) = place.filter(|place| *place >= self.next) else {
            if let Some((is_reply, text)) = copy_of(message, new_text) {
                self.insert(is_reply, text);
            }
            return;
        };
        self.next = place + 1;
        // An earlier compaction may have replaced the text already.
        let changed = |text: &String| !self.live.get(place).is_some_and(|live| live.has_text(text));
        match new_text.filter(changed) {
            Some(text) => {
                self.resolved.push(ResolvedItem::ReplaceText { place, text: text.into() });
            }
            None => self.keep(place),
        }
    }

    /// Adds a message of the agent. The summary of an earlier compaction stays the entry that it is.
    fn insert(&mut self, is_reply: bool, text: String) {
        let known = self.inserted.get(text.as_str());
        let ahead = known.and_then(|places| {
            places.get(places.partition_point(|place| *place < self.next)).copied()
        });
        match ahead {
            Some(place) => {
                self.next = place + 1;
                self.keep(place);
            }
            None => {
                let role = if is_reply { InsertRole::Assistant } else { InsertRole::User };
                self.resolved.push(ResolvedItem::Insert { role, text: text.into() });
            }
        }
    }

    fn keep(&mut self, place: usize) {
        match self.resolved.last_mut() {
            Some(ResolvedItem::Keep(kept)) if kept.end == place => kept.end = place + 1,
            _ => self.resolved.push(ResolvedItem::Keep(place..place + 1)),
        }
    }
}

/// The text of a message that the agent kept although it was not in its context any more, and whether the
/// model sees it as its own.
fn copy_of(message: Option<&Value>, new_text: Option<String>) -> Option<(bool, String)> {
    let message = message?;
    let text =
        new_text.unwrap_or_else(|| joined_text(message.get("content").unwrap_or(&Value::Null)));
    let is_reply = block::string(message, "role") == Some("assistant");
    (!text.is_empty()).then_some((is_reply, text))
}
