//! What all dialects share in parsing items into entries.

use std::collections::{HashMap, HashSet};
use std::fmt;

use ctxhost_engine_api::transcript::links::AnswerLinks;
use serde_json::Value;

use super::error::InboundError;
use super::item_json::parse_item;
use super::parsed::{ParseContext, ParsedEntry};
use crate::message::{
    AssistantMessage, ChatBlock, ChatMessage, ToolResultMessage, UserMessage, tool_calls,
};

/// Parses items, each when it is needed.
pub fn json_items(items: &[&str]) -> impl Iterator<Item = Result<Value, InboundError>> {
    items.iter().enumerate().map(|(number, item)| {
        parse_item(item).map_err(|error| InboundError::in_message_json(number, &error))
    })
}

/// An item that is a JSON object; `number` is its index.
pub(crate) fn object_item(
    number: usize,
    item: Result<Value, InboundError>,
) -> Result<Value, InboundError> {
    item.and_then(|item| {
        if item.is_object() {
            Ok(item)
        } else {
            Err(InboundError::in_message(number, "not an object"))
        }
    })
}

/// The tool names of the calls so far, by call id: those of the items being parsed and those before.
pub(crate) struct ToolNames<'a> {
    parsed: HashMap<String, String>,
    before: &'a dyn Fn(&str) -> Option<String>,
}

impl fmt::Debug for ToolNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolNames").field("parsed", &self.parsed).finish_non_exhaustive()
    }
}

impl<'a> ToolNames<'a> {
    pub(crate) fn new(before: ParseContext<'a>) -> ToolNames<'a> {
        ToolNames { parsed: HashMap::new(), before: before.tool_name_of }
    }

    /// Adds the calls of an answer.
    pub(crate) fn record(&mut self, answer: &[ChatBlock]) {
        let calls = tool_calls(answer);
        self.parsed.reserve(tool_calls(answer).count());
        self.parsed.extend(calls.map(|call| (call.id.clone(), call.name.clone())));
    }

    pub(crate) fn find(&self, call_id: &str) -> Option<String> {
        // The request's own calls come first: clients reuse ids, and its calls are the newer ones.
        self.parsed.get(call_id).cloned().or_else(|| (self.before)(call_id))
    }
}

/// Blocks of a message's content: a string, a list of parts, or one part.
pub(crate) fn parse_content(
    content: Value,
    parse_part: impl Fn(Value) -> ChatBlock,
) -> Vec<ChatBlock> {
    match content {
        Value::Array(parts) => parts.into_iter().map(parse_part).collect(),
        Value::String(text) => vec![ChatBlock::text(text)],
        part @ Value::Object(_) => vec![parse_part(part)],
        _ => Vec::new(),
    }
}

/// The image of a `data:` URL; `None` for any other address.
pub(crate) fn inline_image(url: &str) -> Option<ChatBlock> {
    let (mime_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    Some(ChatBlock::Image { data: data.to_owned(), mime_type: mime_type.to_owned() })
}

/// What is left of an answer beside its known fields: it takes space, and summaries and searches read it.
pub(crate) fn unknown_fields(api: &str, item: Value, known: &[&str]) -> Option<ChatBlock> {
    let Value::Object(mut fields) = item else { return None };
    fields.retain(|name, value| !known.contains(&name.as_str()) && !is_blank(value));
    let item = Value::Object(fields);
    (!is_blank(&item)).then(|| ChatBlock::ProviderItem { api: api.to_owned(), item })
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

pub(crate) fn user_entry(content: Vec<ChatBlock>) -> ParsedEntry {
    ParsedEntry::Message(ChatMessage::User(UserMessage { content, timestamp: 0 }))
}

pub(crate) fn assistant_entry(api: &str, content: Vec<ChatBlock>) -> ParsedEntry {
    ParsedEntry::Message(ChatMessage::Assistant(AssistantMessage::new(api, content)))
}

/// An answer with links.
pub(crate) fn linked_entry(api: &str, content: Vec<ChatBlock>, links: AnswerLinks) -> ParsedEntry {
    let answer = AssistantMessage { links, ..AssistantMessage::new(api, content) };
    ParsedEntry::Message(ChatMessage::Assistant(answer))
}

/// The links of an answer, each part given as its id and the id that it refers to. References within the answer are
/// left out.
pub(crate) fn links_of<'a>(
    parts: impl Iterator<Item = (Option<&'a str>, Option<&'a str>)>,
) -> AnswerLinks {
    let (mut links, mut own, mut others) = (AnswerLinks::default(), HashSet::new(), HashSet::new());
    for (id, refers_to) in parts {
        let other = refers_to.filter(|id| !own.contains(id) && others.insert(*id));
        links.refers_to.extend(other.map(str::to_owned));
        links.ids.extend(id.map(str::to_owned));
        own.extend(id);
    }
    links
}

pub(crate) fn result_entry(
    tool_call_id: String,
    tool_name: String,
    content: Vec<ChatBlock>,
    is_error: bool,
) -> ParsedEntry {
    let result = ToolResultMessage { tool_call_id, tool_name, content, is_error, timestamp: 0 };
    ParsedEntry::Message(ChatMessage::ToolResult(result))
}
