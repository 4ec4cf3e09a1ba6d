//! The clients' side of a dialect: parses request bodies into session entries and renders a plan over
//! these entries as a request body.
//!
//! ```text
//!  body ─► items ─► groups ─► entries ─► the engine's plan
//!    │       │        │                         │
//!    └───────┴────────┴──────► render ◄─────────┘
//! ```
//!
//! An *item* is one element of the body's message list, as the client wrote it. A *group* is the
//! smallest run of items that maps to whole entries: one item with several tool results maps to
//! several entries, several items of one answer map to one entry.

mod edits;
mod entries;
mod item_json;
mod optional;
pub(crate) mod output_limit;
mod render;
mod spans;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::message::ChatMessage;

pub use edits::ItemEdit;
pub(crate) use edits::{apply_edit, edit_user_parts};
pub use entries::json_items;
pub(crate) use entries::{
    ToolNames, assistant_entry, inline_image, linked_entry, links_of, object_item, parse_content,
    result_entry, unknown_fields, user_entry,
};
pub use item_json::parse_item;
pub(crate) use optional::{is_true, optional_count, optional_text, parse_count};
pub use output_limit::LoweredBody;
pub use render::{EntryLocation, SourceBody, render_body};
pub(crate) use spans::{list_span, replace_spans, span_of};

/// Why a body cannot be parsed. The gateway forwards such a body unchanged, without an engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InboundError {
    /// The body is not a JSON request of the dialect.
    #[error("the body is not a request of this dialect: {reason}")]
    InvalidRequest {
        /// The parser's message, with line and column.
        reason: String,
    },
    /// A message is not one of the dialect.
    #[error("message {number} does not match this dialect: {reason}")]
    InvalidMessage {
        /// The message's index, from 0, after the leading instructions.
        number: usize,
        /// The parser's message.
        reason: String,
    },
}

impl InboundError {
    /// The error of a message.
    pub fn in_message(number: usize, reason: impl fmt::Display) -> InboundError {
        InboundError::InvalidMessage { number, reason: reason.to_string() }
    }

    /// The same with the message's number counted from `before` messages earlier.
    #[must_use]
    pub fn after_items(self, before: usize) -> InboundError {
        match self {
            InboundError::InvalidMessage { number, reason } => {
                InboundError::InvalidMessage { number: before + number, reason }
            }
            other => other,
        }
    }
}

/// A parsed request body. All texts borrow from it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedBody<'a> {
    /// The requested model.
    pub model: Cow<'a, str>,
    /// Whether the answer is streamed.
    pub is_stream: bool,
    /// The limit of the answer, in provider tokens; `None` without one.
    pub max_output_tokens: Option<u64>,
    /// The field by which the client identifies its session, as JSON.
    pub session_hint: Option<&'a str>,
    /// What takes space in the window beside messages, as JSON: system prompt, tools and leading
    /// instructions.
    pub prompt_parts: Vec<&'a str>,
    /// The messages after the leading instructions, as JSON.
    pub items: Vec<&'a str>,
    /// The bytes from the first message to the last.
    pub items_span: Range<usize>,
}

impl ParsedBody<'_> {
    /// The bytes of `json` before and after its messages. With `is_empty`, no message will be put
    /// between them.
    pub fn split_at_messages<'j>(&self, json: &'j str, is_empty: bool) -> (&'j str, &'j str) {
        let before = json.get(..self.items_span.start).unwrap_or_default();
        let after = json.get(self.items_span.end..).unwrap_or_default();
        if is_empty {
            // The leading instructions are followed by a comma that would make the JSON invalid.
            let ended = before.trim_end();
            return (ended.strip_suffix(',').unwrap_or(ended), after);
        }
        (before, after)
    }
}

/// The entries of a run of items.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemGroup {
    /// Number of items, at least 1.
    pub item_count: usize,
    /// The entries in order; none for items outside of the conversation.
    pub entries: Vec<ParsedEntry>,
}

impl ItemGroup {
    /// A group of one item.
    pub(crate) fn single(entries: Vec<ParsedEntry>) -> ItemGroup {
        ItemGroup { item_count: 1, entries }
    }
}

/// The content of one entry.
#[derive(Clone, Debug, PartialEq)]
// Nearly all of them are messages and are consumed at once.
#[allow(clippy::large_enum_variant)]
pub enum ParsedEntry {
    /// A message of the user, the model or a tool.
    Message(ChatMessage),
    /// Text that the client adds in mid-conversation: a reminder, an instruction.
    Note(String),
}

/// What is known of the items before the ones to parse.
#[derive(Clone, Copy)]
pub struct ParseContext<'a> {
    /// Whether none of them has entries: the next item starts the conversation.
    pub is_start: bool,
    /// Their number.
    pub item_count: usize,
    /// The last of them.
    pub last_item: Option<&'a str>,
    /// The tool name of an earlier call, by call id.
    pub tool_name_of: &'a dyn Fn(&str) -> Option<String>,
}

impl fmt::Debug for ParseContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParseContext").field("items", &self.item_count).finish_non_exhaustive()
    }
}

/// A dialect as its clients speak it. It knows bytes and messages, no socket and no session.
pub trait InboundDialect: Send + Sync + fmt::Debug {
    /// Parses a body.
    ///
    /// # Errors
    ///
    /// [`InboundError::InvalidRequest`].
    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError>;

    /// Parses the items that follow `before`; see [`json_items`].
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

    /// A result for a call without one. `call` is the item with that call, in dialects with
    /// [`item_call_id`](Self::item_call_id). `None` if the call's kind has no known result.
    fn missing_result_item(
        &self,
        call_id: &str,
        tool: &str,
        text: &str,
        call: Option<&str>,
    ) -> Option<Value>;

    /// The call id of an item that is a call; `None` in dialects that put calls inside messages.
    fn item_call_id(&self, _item: &str) -> Option<String> {
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

    /// Turns thinking off in a body.
    fn disable_thinking(&self, body: Vec<u8>) -> Vec<u8> {
        body
    }

    /// Joins `second` to `first` if the dialect requires one item; else gives `second` back.
    fn join_items(&self, _first: &mut Value, second: Value) -> Option<Value> {
        Some(second)
    }
}

/// The JSON texts of a list.
pub(crate) fn raw_items<'a>(list: &[&'a RawValue]) -> Vec<&'a str> {
    list.iter().map(|item| item.get()).collect()
}

/// The JSON texts of the fields that a body has.
pub(crate) fn raw_fields<const N: usize>(
    fields: [Option<&RawValue>; N],
) -> impl Iterator<Item = &str> {
    fields.into_iter().flatten().map(RawValue::get)
}

/// Splits a list into leading instructions and the messages after them.
pub(crate) fn split_instructions<'a>(
    list: &[&'a RawValue],
    is_instruction: impl Fn(&str) -> bool,
) -> (Vec<&'a str>, Vec<&'a str>) {
    let mut leading = raw_items(list);
    let first = leading.iter().position(|item| !is_instruction(item)).unwrap_or(leading.len());
    let items = leading.split_off(first);
    (leading, items)
}

pub(crate) fn invalid_request(error: serde_json::Error) -> InboundError {
    InboundError::InvalidRequest { reason: error.to_string() }
}
