//! What a request says that its conversation does not know yet.

use super::ingest::IngestError;
use crate::conversations::{KnownItems, is_user_request};
use ctxhost_dialects::ChatMessage;
use ctxhost_dialects::inbound::{InboundDialect, ItemGroup, ParseContext, ParsedEntry};
use ctxhost_session::{RecordBody, SessionError};

/// The custom type of what clients say in nobody's place.
const NOTE: &str = "client";

/// The units behind those that are known, and the records that they become.
#[derive(Debug)]
pub(super) struct NewItems {
    pub(super) groups: Vec<ItemGroup>,
    pub(super) bodies: Vec<RecordBody>,
}

impl NewItems {
    /// Behind what is known of a conversation, among all items of a request.
    pub(super) fn parse(
        outline: &KnownItems,
        speech: &dyn InboundDialect,
        items: &[&str],
    ) -> Result<NewItems, IngestError> {
        let known = outline.len();
        let before = ParseContext {
            is_start: outline.entry_count() == 0,
            item_count: known,
            last_item: known.checked_sub(1).and_then(|at| items.get(at)).copied(),
            tool_name_of: &|id| outline.tool_of(id),
        };
        let units = speech.parse_items(items.get(known..).unwrap_or_default(), before)?;
        let said = units.iter().flat_map(|unit| &unit.entries);
        let bodies = said.map(record_body).collect::<Result<_, SessionError>>()?;
        Ok(NewItems { groups: units, bodies })
    }

    /// Which record of theirs, by its number, the person spoke first with.
    pub(super) fn first_user_entry(&self) -> Option<usize> {
        let mut said = self.groups.iter().flat_map(|unit| &unit.entries);
        said.position(
            |said| matches!(said, ParsedEntry::Message(ChatMessage::User(user)) if is_user_request(user)),
        )
    }
}

fn record_body(said: &ParsedEntry) -> Result<RecordBody, SessionError> {
    match said {
        ParsedEntry::Message(message) => {
            let json = serde_json::to_string(message)
                .map_err(|error| SessionError::Body { reason: error.to_string() })?;
            RecordBody::message(&json)
        }
        ParsedEntry::Note(text) => Ok(RecordBody::custom_message(NOTE, text, true)),
    }
}
