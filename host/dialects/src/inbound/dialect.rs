//! What a dialect implements for its clients.

use std::fmt;

use serde_json::Value;

use super::edits::ItemEdit;
use super::error::InboundError;
use super::output_limit::LoweredBody;
use super::parsed::{ItemGroup, ParseContext, ParsedBody};
use super::system_addition::SystemPlace;

/// What helps if a history that the provider stores is too large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredOverflow {
    /// Another body: the provider then leaves out the oldest items itself.
    Resend {
        /// The body.
        body: String,
        /// The id of the stored history; `None` if single items are stored.
        history: Option<String>,
    },
    /// This error with status 404: the client then sends its whole history.
    NotFound(Value),
}

/// An item with a compaction of the provider.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactedItem {
    /// The item with the compaction alone, which must stay in front of all that is sent after it.
    pub compaction: Value,
    /// The item without the compaction, as JSON; `None` if nothing is left.
    pub rest: Option<String>,
}

/// An item at the end of a changed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnItem {
    /// It starts the current turn, or nothing is required of the turn.
    Start,
    /// It has what is required.
    Complete,
    /// What was missing has been added.
    Changed,
}

/// A dialect as its clients speak it. It knows bytes and messages, no socket and no session.
pub trait InboundDialect: Send + Sync + fmt::Debug {
    /// Parses a body.
    ///
    /// # Errors
    ///
    /// [`InboundError::InvalidRequest`].
    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError>;

    /// The body with its prompt as a list of one user item, if it is a string and no history is stored by the provider.
    fn list_prompt(&self, _json: &str) -> Option<String> {
        None
    }

    /// Parses the items that follow `before`; see [`json_items`](super::json_items).
    ///
    /// # Errors
    ///
    /// [`InboundError::InvalidMessage`], its number counted from the first of `items`.
    fn parse_items(
        &self,
        items: &mut dyn Iterator<Item = Result<Value, InboundError>>,
        before: ParseContext<'_>,
    ) -> Result<Vec<ItemGroup>, InboundError>;

    /// The body with the limit of its answer lowered to `limit_tokens`; `None` if no limit exceeds
    /// that.
    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody>;

    /// Applies one edit to each entry of a group.
    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value>;

    /// A user message.
    fn user_item(&self, text: &str) -> Value;

    /// An answer of text.
    fn assistant_item(&self, text: &str) -> Value;

    /// A result for a call without one. `call` is the item with that call, in dialects with
    /// [`item_call_id`](Self::item_call_id). `None` if the call's kind has no known result.
    fn missing_result_item(
        &self,
        call_id: &str,
        tool: &str,
        text: &str,
        call: Option<&str>,
    ) -> Option<Value>;

    /// The call id in the session of an item at this position that is a call; `None` in dialects that put calls inside
    /// messages.
    fn item_call_id(&self, _item: &str, _position: usize) -> Option<String> {
        None
    }

    /// Whether thinking may be bound to the prefix before it.
    fn has_bound_thinking(&self) -> bool {
        false
    }

    /// Removes thinking from an item; `None` if nothing else is left.
    fn strip_thinking(&self, item: Value) -> Option<Value> {
        Some(item)
    }

    /// Splits the first item if it has the provider's newest compaction: the provider ignores what stands before that.
    fn split_compaction(&self, _item: &str) -> Option<CompactedItem> {
        None
    }

    /// Where a body has its system prompt.
    fn system_place(&self) -> SystemPlace {
        SystemPlace::FirstMessage
    }

    /// Turns thinking off in a body.
    fn disable_thinking(&self, body: Vec<u8>) -> Vec<u8> {
        body
    }

    /// What may still help if the provider refuses a request as too large whose history it stores itself; `None` if
    /// nothing does, or if the body has its whole history.
    fn stored_overflow(&self, _json: &str) -> Option<StoredOverflow> {
        None
    }

    /// Adds to an item what the provider requires in the current turn and not before it: a plan may have dropped the
    /// message that ended an older turn. Called with the items of a changed list, the last one first, until it returns
    /// [`TurnItem::Start`].
    fn complete_turn_item(&self, _model: &str, _item: &mut Value) -> TurnItem {
        TurnItem::Start
    }

    /// What is sent of an item that now follows `before`, and did not when the client sent it. A result that no call could
    /// be found for becomes a message of the user where neither a call nor another result is before it. `None` if the
    /// item can stay.
    fn detached_item(&self, _before: Option<&Value>, _item: &Value) -> Option<Value> {
        None
    }

    /// Joins `second` to `first` if the dialect requires one item; else gives `second` back.
    fn join_items(&self, _first: &mut Value, second: Value) -> Option<Value> {
        Some(second)
    }
}
