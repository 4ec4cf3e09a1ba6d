//! A conversation as one model may see it: nothing that only another model could read, and no call
//! or result that a provider would refuse.
//!
//! Done once before a dialect writes a request, so that no dialect needs to care.

use std::collections::HashSet;

use ctxhost_engine_api::PlanItem;
use serde_json::Value;

use crate::message::{
    AssistantMessage, ChatBlock, ChatMessage, ToolCallBlock, ToolResultMessage, UserMessage,
};

/// The longest name of a tool, as all dialects have it.
const TOOL_NAME_MAX_CHARS: usize = 64;

/// What stands for a block of a kind that nobody can send.
const UNKNOWN_BLOCK: &str = "[a block of a kind that cannot be sent]";

/// The messages for a model: foreign thinking and signatures gone, calls cleaned, ids unique, nothing
/// left empty, no result without its call and no call without its result.
pub fn adapt_messages(
    messages: &[ChatMessage],
    api: &str,
    provider: &str,
    model: &str,
) -> Vec<ChatMessage> {
    let reader = TargetModel { api, provider, model };
    let mut open_calls = OpenToolCalls::default();
    let mut sent = Vec::with_capacity(messages.len());
    for message in messages {
        if !matches!(message, ChatMessage::ToolResult(_)) {
            sent.extend(open_calls.close_unanswered());
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
                has_content(&message).then_some(ChatMessage::Assistant(message))
            }
            ChatMessage::ToolResult(result) => open_calls.close(result).map(|id| {
                let content = sendable(&result.content);
                let result = ToolResultMessage { tool_call_id: id, content, ..result.clone() };
                ChatMessage::ToolResult(result)
            }),
        });
    }
    sent.extend(open_calls.close_unanswered());
    sent
}

/// The model that will read the messages.
struct TargetModel<'a> {
    api: &'a str,
    provider: &'a str,
    model: &'a str,
}

impl TargetModel<'_> {
    /// A message of a model without what this reader could not read.
    fn read(&self, message: &AssistantMessage) -> AssistantMessage {
        let is_own = message.api == self.api
            && message.provider == self.provider
            && message.model == self.model;
        let content = message.content.iter().filter_map(|block| match is_own {
            true => keep_own_block(block, self.api),
            false => adapt_foreign_block(block),
        });
        AssistantMessage { content: content.collect(), ..message.clone() }
    }
}

/// A block that the reader itself wrote.
fn keep_own_block(block: &ChatBlock, api: &str) -> Option<ChatBlock> {
    match block {
        ChatBlock::Text { text, text_signature: None } if text.trim().is_empty() => None,
        ChatBlock::Thinking { thinking, thinking_signature, redacted } => {
            let is_worth_it = !thinking.is_empty() || thinking_signature.is_some() || *redacted;
            is_worth_it.then(|| block.clone())
        }
        ChatBlock::ToolCall(call) => clean_call(call).map(ChatBlock::ToolCall),
        ChatBlock::ProviderItem { api: of, .. } => (of == api).then(|| block.clone()),
        ChatBlock::Other(_) => None,
        ChatBlock::Text { .. } | ChatBlock::Image { .. } => Some(block.clone()),
    }
}

/// A block of another model: what it said and did, without what it thought and signed.
fn adapt_foreign_block(block: &ChatBlock) -> Option<ChatBlock> {
    match block {
        ChatBlock::Text { text, .. } => (!text.trim().is_empty()).then(|| ChatBlock::text(text)),
        ChatBlock::ToolCall(call) => {
            let call = clean_call(call)?;
            Some(ChatBlock::ToolCall(ToolCallBlock { thought_signature: None, ..call }))
        }
        ChatBlock::Image { .. } => Some(block.clone()),
        ChatBlock::Thinking { .. } | ChatBlock::ProviderItem { .. } | ChatBlock::Other(_) => None,
    }
}

/// A call that a provider takes, its name and id trimmed; `None` for one that no provider takes.
fn clean_call(call: &ToolCallBlock) -> Option<ToolCallBlock> {
    let (id, name) = (call.id.trim(), call.name.trim());
    let is_legal = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    let has_name = !name.is_empty() && name.len() <= TOOL_NAME_MAX_CHARS;
    let is_whole = !id.is_empty() && has_name && name.chars().all(is_legal);
    // No arguments at all, not even an empty object, is a call that broke off before they came.
    (is_whole && call.arguments != Value::Null).then(|| ToolCallBlock {
        id: id.to_owned(),
        name: name.to_owned(),
        ..call.clone()
    })
}

/// What a person or a tool said, without what is empty.
fn sendable(blocks: &[ChatBlock]) -> Vec<ChatBlock> {
    let one = |block: &ChatBlock| match block {
        ChatBlock::Text { text, .. } => (!text.trim().is_empty()).then(|| ChatBlock::text(text)),
        ChatBlock::Image { .. } => Some(block.clone()),
        ChatBlock::Other(_) => Some(ChatBlock::text(UNKNOWN_BLOCK)),
        ChatBlock::Thinking { .. } | ChatBlock::ToolCall(_) | ChatBlock::ProviderItem { .. } => {
            None
        }
    };
    blocks.iter().filter_map(one).collect()
}

/// Whether more is left of a message than thinking, which no dialect takes alone.
fn has_content(message: &AssistantMessage) -> bool {
    message.content.iter().any(|block| !matches!(block, ChatBlock::Thinking { .. }))
}

/// The calls that wait for their results, and every id that was given out.
#[derive(Default)]
struct OpenToolCalls {
    used_ids: HashSet<String>,
    open: Vec<OpenToolCall>,
}

/// A call that waits for its result.
struct OpenToolCall {
    /// The id as it was written.
    original_id: String,
    /// The id as it is sent.
    sent_id: String,
    /// The tool.
    name: String,
}

impl OpenToolCalls {
    /// Gives every call of a message an id that no earlier call has.
    fn open(&mut self, message: &mut AssistantMessage) {
        let calls = message.content.iter_mut().filter_map(|block| match block {
            ChatBlock::ToolCall(call) => Some(call),
            _ => None,
        });
        for call in calls {
            let written = call.id.clone();
            let fresh = (2u64..).map(|turn| format!("{written}-{turn}"));
            let mut names = std::iter::once(written.clone()).chain(fresh);
            call.id = names.find(|id| !self.used_ids.contains(id)).unwrap_or_default();
            self.used_ids.insert(call.id.clone());
            let (sent, name) = (call.id.clone(), call.name.clone());
            self.open.push(OpenToolCall { original_id: written, sent_id: sent, name });
        }
    }

    /// The id that a result is sent with; `None` for a result of no open call.
    fn close(&mut self, result: &ToolResultMessage) -> Option<String> {
        let written = result.tool_call_id.trim();
        let at = self.open.iter().position(|call| call.original_id == written)?;
        Some(self.open.remove(at).sent_id)
    }

    /// Results for the calls that got none. The law leaves only such as share their id with another call
    /// of the same message.
    fn close_unanswered(&mut self) -> impl Iterator<Item = ChatMessage> + use<> {
        let waiting = std::mem::take(&mut self.open).into_iter();
        waiting.map(|call| {
            ChatMessage::ToolResult(ToolResultMessage {
                tool_call_id: call.sent_id,
                tool_name: call.name,
                content: vec![ChatBlock::text(PlanItem::MISSING_RESULT)],
                is_error: true,
                timestamp: 0,
            })
        })
    }
}

#[cfg(test)]
mod tests;
