//! Parses the items of a request that its conversation does not have yet.

use super::ingest::IngestError;
use ctxhost_conversations::{EntryTraits, KnownItems, NewGroup, RequestItems};
use ctxhost_dialects::inbound::{InboundDialect, InboundError, ParseContext, ParsedEntry};
use ctxhost_engine_api::Entry;
use ctxhost_session::{RecordBody, SessionError};

/// The custom type of records for other text that a client adds in the middle of a conversation.
const NOTE: &str = "client";

/// New item groups and the records that they become.
#[derive(Debug)]
pub(super) struct NewItems {
    pub(super) groups: Vec<NewGroup>,
    pub(super) bodies: Vec<RecordBody>,
}

impl NewItems {
    /// Parses the items after the known ones.
    pub(super) fn parse(
        known_items: &KnownItems,
        inbound: &dyn InboundDialect,
        request_items: &mut RequestItems<'_>,
    ) -> Result<NewItems, IngestError> {
        let (known, items) = (known_items.len(), request_items.items());
        let context = ParseContext {
            is_start: known_items.entry_count() == 0,
            items: items.get(..known).unwrap_or_default(),
            tool_name_of: &|id| known_items.tool_of(id),
        };
        let mut items_after = (known..items.len()).map(|at| {
            request_items
                .parse(at)
                .map_err(|error| InboundError::in_message_json(at - known, &error))
        });
        let groups = inbound.parse_items(&mut items_after, context);
        let parsed = groups.map_err(|error| error.after_items(known))?;
        let mut new = NewItems { groups: Vec::with_capacity(parsed.len()), bodies: Vec::new() };
        for group in parsed {
            let mut entries = Vec::with_capacity(group.entries.len());
            for entry in group.entries {
                new.bodies.push(record_body(&entry)?);
                entries.push(EntryTraits::of_entry(entry));
            }
            new.groups.push(NewGroup { item_count: group.item_count, entries });
        }
        if let Some(summary) = request_items.returned_summary().filter(|_| known_items.is_empty()) {
            new.set_summary(&summary.text);
        }
        Ok(new)
    }

    /// Makes the first entry a summary, which engines may fold into the next one.
    fn set_summary(&mut self, text: &str) {
        if let Some(body) = self.bodies.first_mut() {
            *body = RecordBody::returned_summary(text);
        }
        if let Some(entry) = self.groups.first_mut().and_then(|group| group.entries.first_mut()) {
            *entry = EntryTraits::default();
        }
    }

    /// The index of the first record that is a user's request.
    pub(super) fn first_user_entry(&self) -> Option<usize> {
        let mut entries = self.groups.iter().flat_map(|group| &group.entries);
        entries.position(|entry| entry.is_user_request)
    }
}

fn record_body(entry: &ParsedEntry) -> Result<RecordBody, SessionError> {
    match entry {
        ParsedEntry::Message(message) => RecordBody::from_message(message),
        ParsedEntry::Instruction(text) => {
            Ok(RecordBody::custom_message(Entry::INSTRUCTION_TYPE, text, true))
        }
        ParsedEntry::Note(text) => Ok(RecordBody::custom_message(NOTE, text, true)),
    }
}
