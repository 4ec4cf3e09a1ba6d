//! Adapts a conversation to one model: drops what only another model can read, and repairs what a
//! provider would refuse.
//!
//! Runs once before a dialect encodes a request, so no dialect has to handle foreign content.

use std::collections::HashSet;

use ctxhost_engine_api::PlanItem;
use serde_json::Value;

use crate::message::{
    AssistantMessage, ChatBlock, ChatMessage, ToolCallBlock, ToolResultMessage, UserMessage,
};
use crate::tool_name::legalize_tool_name;

/// The id of a call without one; made unique like any other.
const NO_ID: &str = "call";

/// The replacement for a block of an unknown kind.
const UNKNOWN_BLOCK: &str = "[a block of a kind that cannot be sent]";

/// Adapts messages to a model: no foreign thinking and signatures, clean calls with unique ids, no
/// empty messages, and every call has its result.
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
        // Results follow their calls directly; any other message ends the open calls.
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
            ChatMessage::ToolResult(result) => open_calls.close(result).map(|call| {
                ChatMessage::ToolResult(ToolResultMessage {
                    tool_call_id: call.sent_id,
                    tool_name: call.name,
                    content: sendable(&result.content),
                    ..*result
                })
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
    /// An answer without content that the model cannot read.
    fn read(&self, message: &AssistantMessage) -> AssistantMessage {
        let is_own = message.api == self.api
            && message.provider == self.provider
            && message.model == self.model;
        let content = message.content.iter().filter_map(|block| {
            if is_own { keep_own_block(block, self.api) } else { adapt_foreign_block(block) }
        });
        AssistantMessage { content: content.collect(), ..message.clone() }
    }
}

/// A block of an answer by the same model.
fn keep_own_block(block: &ChatBlock, api: &str) -> Option<ChatBlock> {
    match block {
        ChatBlock::Text { text, text_signature: None } if text.trim().is_empty() => None,
        ChatBlock::Thinking { thinking, thinking_signature, redacted } => {
            let has_content = !thinking.is_empty() || thinking_signature.is_some() || *redacted;
            has_content.then(|| block.clone())
        }
        ChatBlock::ToolCall(call) => clean_call(call).map(ChatBlock::ToolCall),
        ChatBlock::ProviderItem { api: of, .. } => (of == api).then(|| block.clone()),
        ChatBlock::Other(_) => None,
        ChatBlock::Text { .. } | ChatBlock::Image { .. } => Some(block.clone()),
    }
}

/// A block of an answer by another model: its text and calls, without thinking and signatures.
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

/// A call with an id, and with a name that every provider accepts: a model that does not see its failed call again
/// repeats it. `None` if it was interrupted.
fn clean_call(call: &ToolCallBlock) -> Option<ToolCallBlock> {
    // Missing arguments, unlike an empty object, mark a call that was interrupted before them.
    if call.arguments == Value::Null {
        return None;
    }
    let name = legalize_tool_name(&call.name);
    // A signature holds for the name that the model wrote.
    let is_signed = name == call.name.trim();
    let thought_signature = call.thought_signature.clone().filter(|_| is_signed);
    Some(ToolCallBlock {
        id: clean_id(&call.id).to_owned(),
        name,
        thought_signature,
        ..call.clone()
    })
}

/// A trimmed id of a call or its result.
fn clean_id(id: &str) -> &str {
    match id.trim() {
        "" => NO_ID,
        id => id,
    }
}

/// The blocks of a user message or a result, without empty ones.
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

/// Whether a message has more than thinking, which no dialect accepts alone.
fn has_content(message: &AssistantMessage) -> bool {
    message.content.iter().any(|block| !matches!(block, ChatBlock::Thinking { .. }))
}

/// The calls without results so far, and all ids in use.
#[derive(Default)]
struct OpenToolCalls {
    used_ids: HashSet<String>,
    open: Vec<OpenToolCall>,
}

/// A call without a result so far.
struct OpenToolCall {
    /// Its id in the session.
    original_id: String,
    /// Its id in the request.
    sent_id: String,
    /// The tool, as the request names it.
    name: String,
}

impl OpenToolCalls {
    /// Gives every call of a message an unused id.
    fn open(&mut self, message: &mut AssistantMessage) {
        let calls = message.content.iter_mut().filter_map(|block| match block {
            ChatBlock::ToolCall(call) => Some(call),
            _ => None,
        });
        for call in calls {
            let written = call.id.clone();
            // Some models repeat ids of earlier turns.
            let fresh = (2u64..).map(|turn| format!("{written}-{turn}"));
            let mut names = std::iter::once(written.clone()).chain(fresh);
            call.id = names.find(|id| !self.used_ids.contains(id)).unwrap_or_default();
            self.used_ids.insert(call.id.clone());
            let (sent, name) = (call.id.clone(), call.name.clone());
            self.open.push(OpenToolCall { original_id: written, sent_id: sent, name });
        }
    }

    /// The call of a result; `None` if no open call matches.
    fn close(&mut self, result: &ToolResultMessage) -> Option<OpenToolCall> {
        let written = clean_id(&result.tool_call_id);
        let at = self.open.iter().position(|call| call.original_id == written)?;
        Some(self.open.remove(at))
    }

    /// Results for the calls without one. After the invariants these are only calls that share
    /// their id with another call of the same message.
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
