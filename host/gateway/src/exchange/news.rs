//! What a request says that its conversation does not know yet.

use super::hearing::HearError;
use crate::thread::{Outline, is_request};
use ctxhost_dialects::ChatMessage;
use ctxhost_dialects::inbound::{InboundDialect, ParseContext, ParsedEntry, Unit};
use ctxhost_session::{RecordBody, SessionError};

/// The custom type of what clients say in nobody's place.
const NOTE: &str = "client";

/// The units behind those that are known, and the records that they become.
#[derive(Debug)]
pub(super) struct News {
    pub(super) units: Vec<Unit>,
    pub(super) bodies: Vec<RecordBody>,
}

impl News {
    /// Behind what is known of a conversation, among all items of a request.
    pub(super) fn behind(
        outline: &Outline,
        speech: &dyn InboundDialect,
        items: &[&str],
    ) -> Result<News, HearError> {
        let known = outline.len();
        let before = ParseContext {
            is_begin: outline.entry_count() == 0,
            items: known,
            last: known.checked_sub(1).and_then(|at| items.get(at)).copied(),
            tool_of: &|id| outline.tool_of(id),
        };
        let units = speech.units(items.get(known..).unwrap_or_default(), before)?;
        let said = units.iter().flat_map(|unit| &unit.said);
        let bodies = said.map(body_of).collect::<Result<_, SessionError>>()?;
        Ok(News { units, bodies })
    }

    /// Which record of theirs, by its number, the person spoke first with.
    pub(super) fn first_of_person(&self) -> Option<usize> {
        let mut said = self.units.iter().flat_map(|unit| &unit.said);
        said.position(
            |said| matches!(said, ParsedEntry::Message(ChatMessage::User(user)) if is_request(user)),
        )
    }
}

fn body_of(said: &ParsedEntry) -> Result<RecordBody, SessionError> {
    match said {
        ParsedEntry::Message(message) => {
            let json = serde_json::to_string(message)
                .map_err(|error| SessionError::Body { reason: error.to_string() })?;
            RecordBody::message(&json)
        }
        ParsedEntry::Note(text) => Ok(RecordBody::custom_message(NOTE, text, true)),
    }
}
