//! A parsed request body: its fields, and the entries of its items.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use super::provider_edits::ProviderEdits;
use crate::message::ChatMessage;

/// A parsed request body. All texts borrow from it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedBody<'a> {
    /// The requested model.
    pub model: Cow<'a, str>,
    /// Whether the answer is streamed.
    pub is_stream: bool,
    /// The limit of the answer, in provider tokens; `None` without one.
    pub max_output_tokens: Option<u64>,
    /// The context window that the client requests, in provider tokens; only Ollama's clients do.
    pub window_tokens: Option<u64>,
    /// The field by which the client identifies its session, as JSON.
    pub session_hint: Option<&'a str>,
    /// What takes space in the window beside messages, as JSON: system prompt, tools that are not loaded later, leading
    /// instructions, and the provider's newest compaction.
    pub prompt_parts: Vec<&'a str>,
    /// What the provider may do to the prompt.
    pub provider_edits: ProviderEdits,
    /// The messages before the provider's newest compaction, which it ignores, from the compaction before that one on, as
    /// JSON. They take no space in the window and are sent as they are.
    pub ignored_items: Vec<&'a str>,
    /// The messages after the leading instructions and the ignored ones, as JSON. The provider's newest compaction is in
    /// the first.
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
    /// A message of the system within the conversation: what the client's program wants of the model.
    Instruction(String),
    /// Other text that the client adds: a reminder, a result without a call.
    Note(String),
}

/// What is known of the items before the ones to parse.
#[derive(Clone, Copy)]
pub struct ParseContext<'a> {
    /// Whether none of them has entries: the next item starts the conversation.
    pub is_start: bool,
    /// The items, as JSON.
    pub items: &'a [&'a str],
    /// The tool name of an earlier call, by call id.
    pub tool_name_of: &'a dyn Fn(&str) -> Option<String>,
}

impl fmt::Debug for ParseContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParseContext").field("items", &self.items.len()).finish_non_exhaustive()
    }
}
