//! Parses the items of a request that its conversation does not have yet.

use super::ingest::IngestError;
use crate::conversations::{KnownItems, RequestItems, is_user_request};
use ctxhost_dialects::ChatMessage;
use ctxhost_dialects::inbound::{
    InboundDialect, InboundError, ItemGroup, ParseContext, ParsedEntry,
};
use ctxhost_session::{RecordBody, SessionError};

/// The custom type of records for text that a client injects in the middle of a conversation.
const NOTE: &str = "client";

/// New item groups and the records that they become.
#[derive(Debug)]
pub(super) struct NewItems {
    pub(super) groups: Vec<ItemGroup>,
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
            item_count: known,
            last_item: known.checked_sub(1).and_then(|at| items.get(at)).copied(),
            tool_name_of: &|id| known_items.tool_of(id),
        };
        let mut new = (known..items.len()).map(|at| {
            request_items.parse(at).map_err(|error| InboundError::in_message(at - known, error))
        });
        let groups = inbound.parse_items(&mut new, context);
        let groups = groups.map_err(|error| error.after_items(known))?;
        let entries = groups.iter().flat_map(|group| &group.entries);
        let bodies = entries.map(record_body).collect::<Result<_, SessionError>>()?;
        Ok(NewItems { groups, bodies })
    }

    /// The index of the first record that is a user's request.
    pub(super) fn first_user_entry(&self) -> Option<usize> {
        let mut entries = self.groups.iter().flat_map(|group| &group.entries);
        entries.position(|entry| {
            matches!(entry, ParsedEntry::Message(ChatMessage::User(user)) if is_user_request(user))
        })
    }
}

fn record_body(entry: &ParsedEntry) -> Result<RecordBody, SessionError> {
    match entry {
        ParsedEntry::Message(message) => RecordBody::from_message(message),
        ParsedEntry::Note(text) => Ok(RecordBody::custom_message(NOTE, text, true)),
    }
}
