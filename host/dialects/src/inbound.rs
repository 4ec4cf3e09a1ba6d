//! What clients write: the messages of a request body become entries of a session, and a plan over
//! those becomes a request body again.
//!
//! ```text
//!  body ─► items ─► units ─► entries ─► the engine's plan
//!    │       │        │                        │
//!    └───────┴────────┴──────► render ◄────────┘
//! ```
//!
//! An *item* is one element of the body's list of messages, kept as the client wrote it. A *unit* is
//! the smallest run of items that becomes whole entries: one item that holds several tool results
//! becomes several entries, and several items of one answer become one. What a plan keeps is copied
//! byte for byte; only units that it changes are written anew, and of those only what it changes.

pub(crate) mod output_limit;
mod render;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::message::ChatMessage;

pub use output_limit::LoweredBody;
pub use render::{EntryLocation, SourceBody, render_body};

/// Why a body cannot be read. It is forwarded as it is, and no engine sees it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InboundError {
    /// It is not the JSON that the dialect asks for.
    #[error("the body is no request: {reason}")]
    InvalidRequest {
        /// What the parser said, with line and column.
        reason: String,
    },
    /// One of its messages is not what the dialect says.
    #[error("message {number} is not of this dialect: {reason}")]
    InvalidMessage {
        /// Which one, from 0.
        number: usize,
        /// What is wrong.
        reason: String,
    },
}

/// A request body, cut into what matters here. All texts borrow from it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedBody<'a> {
    /// The model that is asked.
    pub model: Cow<'a, str>,
    /// Whether the answer is to be streamed.
    pub is_stream: bool,
    /// The most that the answer may have, in provider tokens; `None` where the client does not say.
    pub max_output_tokens: Option<u64>,
    /// What the client says of its session in the body, as JSON.
    pub session_hint: Option<&'a str>,
    /// What takes room in the window and is no message: system prompt, tools, and the instructions that
    /// stand before all messages, which may have another clock in them each time. JSON, as it is sent.
    pub prompt_parts: Vec<&'a str>,
    /// The messages behind those, each as JSON.
    pub items: Vec<&'a str>,
    /// The bytes from the first message to the last; empty, behind the bracket, where there are none.
    pub items_span: Range<usize>,
}

impl ParsedBody<'_> {
    /// What stands before and behind the messages of `json`, whose body it is, for others in their place.
    /// Where there are none any more, the instructions before them end without a comma.
    pub fn split_at_messages<'j>(&self, json: &'j str, is_empty: bool) -> (&'j str, &'j str) {
        let before = json.get(..self.items_span.start).unwrap_or_default();
        let after = json.get(self.items_span.end..).unwrap_or_default();
        let ended = before.trim_end();
        match is_empty {
            true => (ended.strip_suffix(',').unwrap_or(ended), after),
            false => (before, after),
        }
    }
}

/// The entries that a run of items becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemGroup {
    /// How many items it is made of; at least 1.
    pub item_count: usize,
    /// What they say, in order; empty for items that are no part of the conversation.
    pub entries: Vec<ParsedEntry>,
}

/// What one entry says.
#[derive(Clone, Debug, PartialEq)]
// Nearly all of them are messages, and none is kept.
#[allow(clippy::large_enum_variant)]
pub enum ParsedEntry {
    /// A message of the person, the model or a tool.
    Message(ChatMessage),
    /// Text of the client's own in the middle of the conversation: a reminder, an instruction.
    Note(String),
}

/// What becomes of one entry of a unit.
#[derive(Clone, Debug, PartialEq)]
// There are a few at a time, each used at once.
#[allow(clippy::large_enum_variant)]
pub enum ItemEdit<'a> {
    /// It stays.
    Keep,
    /// It has another text: calls stay, images and thinking go.
    ReplaceText(Cow<'a, str>),
    /// It is another message.
    ReplaceMessage(ChatMessage),
    /// It is left out.
    Drop,
}

/// What is known of the items before some others.
#[derive(Clone, Copy)]
pub struct ParseContext<'a> {
    /// Whether there are none that say anything: the next ones begin the conversation.
    pub is_start: bool,
    /// How many there are.
    pub item_count: usize,
    /// The last of them.
    pub last_item: Option<&'a str>,
    /// The tool that a call before them asked for, by the call's id.
    pub tool_name_of: &'a dyn Fn(&str) -> Option<String>,
}

impl fmt::Debug for ParseContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParseContext").field("items", &self.item_count).finish_non_exhaustive()
    }
}

/// One family of clients. Pure: it knows bytes and messages, no socket and no session.
pub trait InboundDialect: Send + Sync + fmt::Debug {
    /// Cuts a body.
    ///
    /// # Errors
    ///
    /// [`InboundError::InvalidRequest`].
    fn parse_body<'a>(&self, json: &'a str) -> Result<ParsedBody<'a>, InboundError>;

    /// What items say that stand behind `before`.
    ///
    /// # Errors
    ///
    /// [`InboundError::InvalidMessage`], its number counted from the first of `item_count`.
    fn parse_items(
        &self,
        items: &[&str],
        before: ParseContext<'_>,
    ) -> Result<Vec<ItemGroup>, InboundError>;

    /// A body that asks for an answer of at most `limit_tokens`, with every other byte as it was; `None`
    /// where it asks for no longer one.
    fn lower_output_limit(&self, json: &str, limit_tokens: u64) -> Option<LoweredBody>;

    /// A unit, written anew: one edit for each of its entries.
    fn edit_items(&self, items: &[&str], edits: &[ItemEdit<'_>]) -> Vec<Value>;

    /// A text in the person's place.
    fn user_item(&self, text: &str) -> Value;

    /// The result of a call that never got one; `call` is the item that asks for it, where items of the dialect are
    /// [calls](Self::call_of). `None` where nobody knows what answers a call of its kind.
    fn missing_result_item(
        &self,
        call_id: &str,
        tool: &str,
        text: &str,
        call: Option<&str>,
    ) -> Option<Value>;

    /// The id of the call that an item is; `None` in dialects whose items hold calls beside other things.
    fn item_call_id(&self, _item: &str) -> Option<String> {
        None
    }

    /// Whether the thinking of its models may be bound to all that stands before it.
    fn has_bound_thinking(&self) -> bool {
        false
    }

    /// An item without the model's thinking; `None` where it holds nothing else.
    fn strip_thinking(&self, item: Value) -> Option<Value> {
        Some(item)
    }

    /// A body whose model is not asked to think before it answers.
    fn disable_thinking(&self, body: Vec<u8>) -> Vec<u8> {
        body
    }

    /// Joins two items that the dialect wants to be one; gives the second one back where it does not.
    fn join_items(&self, first: &mut Value, second: Value) -> Option<Value>;
}

/// Where `part` stands in `whole`, of which it is a part.
pub(crate) fn byte_offset(whole: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize).min(whole.len())
}

/// The items of a list and the bytes they take in `whole`.
pub(crate) fn list_items<'a>(
    whole: &'a str,
    list: &[&'a RawValue],
) -> (Vec<&'a str>, Range<usize>) {
    let items: Vec<&str> = list.iter().map(|item| item.get()).collect();
    let span = span_of(whole, &items);
    (items, span)
}

/// The items of a list that begins with instructions: those, the messages behind them, and the bytes
/// that the messages take in `whole`.
pub(crate) fn split_instructions<'a>(
    whole: &'a str,
    list: &[&'a RawValue],
    is_instruction: impl Fn(&str) -> bool,
) -> (Vec<&'a str>, Vec<&'a str>, Range<usize>) {
    let (mut leading, _) = list_items(whole, list);
    let first = leading.iter().position(|item| !is_instruction(item)).unwrap_or(leading.len());
    let items = leading.split_off(first);
    let span = span_of(whole, &items);
    (leading, items, span)
}

fn span_of(whole: &str, items: &[&str]) -> Range<usize> {
    match (items.first(), items.last()) {
        (Some(first), Some(last)) => {
            byte_offset(whole, first)..byte_offset(whole, last) + last.len()
        }
        _ => 0..0,
    }
}

pub(crate) fn invalid_request(error: &serde_json::Error) -> InboundError {
    InboundError::InvalidRequest { reason: error.to_string() }
}
