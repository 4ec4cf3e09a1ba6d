//! A conversation as one model may see it: nothing that only another model could read, and no call
//! or result that a provider would refuse.
//!
//! Done once before a dialect writes a request, so that no dialect needs to care.

use std::collections::HashSet;

use ctxhost_engine_api::Item;
use serde_json::Value;

use crate::message::{
    AssistantMessage, ChatMessage, Content, ToolCall, ToolResultMessage, UserMessage,
};

/// The longest name of a tool, as all dialects have it.
const TOOL_NAME_MAX_CHARS: usize = 64;

/// What stands for a block of a kind that nobody can send.
const UNKNOWN_BLOCK: &str = "[a block of a kind that cannot be sent]";

/// The messages for a model: foreign thinking and signatures gone, calls cleaned, ids unique, nothing
/// left empty, no result without its call and no call without its result.
pub fn for_model(
    messages: &[ChatMessage],
    api: &str,
    provider: &str,
    model: &str,
) -> Vec<ChatMessage> {
    let reader = Reader { api, provider, model };
    let mut open_calls = OpenCalls::default();
    let mut sent = Vec::with_capacity(messages.len());
    for message in messages {
        if !matches!(message, ChatMessage::ToolResult(_)) {
            sent.extend(open_calls.give_up());
        }
        sent.extend(match message {
            ChatMessage::User(message) => {
                let content = sendable(&message.content);
                let message = UserMessage { content, timestamp: message.timestamp };
                (!message.content.is_empty()).then_some(ChatMessage::User(message))
            }
            ChatMessage::Assistant(message) => {
                let mut message = reader.read(message);
                open_calls.open(&mut message);
                says_something(&message).then_some(ChatMessage::Assistant(message))
            }
            ChatMessage::ToolResult(result) => open_calls.close(result).map(|id| {
                let content = sendable(&result.content);
                let result = ToolResultMessage { tool_call_id: id, content, ..result.clone() };
                ChatMessage::ToolResult(result)
            }),
        });
    }
    sent.extend(open_calls.give_up());
    sent
}

/// The model that will read the messages.
struct Reader<'a> {
    api: &'a str,
    provider: &'a str,
    model: &'a str,
}

impl Reader<'_> {
    /// A message of a model without what this reader could not read.
    fn read(&self, message: &AssistantMessage) -> AssistantMessage {
        let is_own = message.api == self.api
            && message.provider == self.provider
            && message.model == self.model;
        let content = message.content.iter().filter_map(|block| match is_own {
            true => own(block, self.api),
            false => foreign(block),
        });
        AssistantMessage { content: content.collect(), ..message.clone() }
    }
}

/// A block that the reader itself wrote.
fn own(block: &Content, api: &str) -> Option<Content> {
    match block {
        Content::Text { text, text_signature: None } if text.trim().is_empty() => None,
        Content::Thinking { thinking, thinking_signature, redacted } => {
            let is_worth_it = !thinking.is_empty() || thinking_signature.is_some() || *redacted;
            is_worth_it.then(|| block.clone())
        }
        Content::ToolCall(call) => clean(call).map(Content::ToolCall),
        Content::ProviderItem { api: of, .. } => (of == api).then(|| block.clone()),
        Content::Other(_) => None,
        Content::Text { .. } | Content::Image { .. } => Some(block.clone()),
    }
}

/// A block of another model: what it said and did, without what it thought and signed.
fn foreign(block: &Content) -> Option<Content> {
    match block {
        Content::Text { text, .. } => (!text.trim().is_empty()).then(|| Content::text(text)),
        Content::ToolCall(call) => {
            let call = clean(call)?;
            Some(Content::ToolCall(ToolCall { thought_signature: None, ..call }))
        }
        Content::Image { .. } => Some(block.clone()),
        Content::Thinking { .. } | Content::ProviderItem { .. } | Content::Other(_) => None,
    }
}

/// A call that a provider takes, its name and id trimmed; `None` for one that no provider takes.
fn clean(call: &ToolCall) -> Option<ToolCall> {
    let (id, name) = (call.id.trim(), call.name.trim());
    let is_legal = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    let has_name = !name.is_empty() && name.len() <= TOOL_NAME_MAX_CHARS;
    let is_whole = !id.is_empty() && has_name && name.chars().all(is_legal);
    // No arguments at all, not even an empty object, is a call that broke off before they came.
    (is_whole && call.arguments != Value::Null).then(|| ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        ..call.clone()
    })
}

/// What a person or a tool said, without what is empty.
fn sendable(blocks: &[Content]) -> Vec<Content> {
    let one = |block: &Content| match block {
        Content::Text { text, .. } => (!text.trim().is_empty()).then(|| Content::text(text)),
        Content::Image { .. } => Some(block.clone()),
        Content::Other(_) => Some(Content::text(UNKNOWN_BLOCK)),
        Content::Thinking { .. } | Content::ToolCall(_) | Content::ProviderItem { .. } => None,
    };
    blocks.iter().filter_map(one).collect()
}

/// Whether more is left of a message than thinking, which no dialect takes alone.
fn says_something(message: &AssistantMessage) -> bool {
    message.content.iter().any(|block| !matches!(block, Content::Thinking { .. }))
}

/// The calls that wait for their results, and every id that was given out.
#[derive(Default)]
struct OpenCalls {
    given: HashSet<String>,
    waiting: Vec<OpenCall>,
}

/// A call that waits for its result.
struct OpenCall {
    /// The id as it was written.
    written: String,
    /// The id as it is sent.
    sent: String,
    /// The tool.
    name: String,
}

impl OpenCalls {
    /// Gives every call of a message an id that no earlier call has.
    fn open(&mut self, message: &mut AssistantMessage) {
        let calls = message.content.iter_mut().filter_map(|block| match block {
            Content::ToolCall(call) => Some(call),
            _ => None,
        });
        for call in calls {
            let written = call.id.clone();
            let fresh = (2u64..).map(|turn| format!("{written}-{turn}"));
            let mut names = std::iter::once(written.clone()).chain(fresh);
            call.id = names.find(|id| !self.given.contains(id)).unwrap_or_default();
            self.given.insert(call.id.clone());
            let (sent, name) = (call.id.clone(), call.name.clone());
            self.waiting.push(OpenCall { written, sent, name });
        }
    }

    /// The id that a result is sent with; `None` for a result of no open call.
    fn close(&mut self, result: &ToolResultMessage) -> Option<String> {
        let written = result.tool_call_id.trim();
        let at = self.waiting.iter().position(|call| call.written == written)?;
        Some(self.waiting.remove(at).sent)
    }

    /// Results for the calls that got none. The law leaves only such as share their id with another call
    /// of the same message.
    fn give_up(&mut self) -> impl Iterator<Item = ChatMessage> + use<> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        waiting.map(|call| {
            ChatMessage::ToolResult(ToolResultMessage {
                tool_call_id: call.sent,
                tool_name: call.name,
                content: vec![Content::text(Item::MISSING_RESULT)],
                is_error: true,
                timestamp: 0,
            })
        })
    }
}

#[cfg(test)]
mod tests;
