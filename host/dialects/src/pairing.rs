//! Pairs calls with their results, for dialects that require strict pairs.
//!
//! The invariants have paired them already. This runs once more on what is actually sent, so that
//! no request is refused for a missing result, an orphan, or a duplicate id.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::transcript::open_calls::OpenCalls;

use crate::message::{AssistantMessage, ChatBlock, ChatMessage, ToolCallBlock, ToolResultMessage};

/// The first user message of a conversation that starts with the model; other agents use the same
/// text.
pub(super) const BOOTSTRAP: &str = "(session bootstrap)";

/// The last user message of a conversation that ends with the model.
pub(super) const CONTINUE: &str = "Continue.";

/// The result of a call without one.
pub(super) const NO_RESULT: &str = "no result was recorded for this call";

/// The longest id that every provider accepts.
const ID_MAX_CHARS: usize = 64;

/// A step of a conversation. Results are part of the calls they answer.
#[derive(Debug)]
pub(super) enum ConversationStep<'a> {
    /// A user message.
    User(&'a [ChatBlock]),
    /// An answer of the model.
    Assistant {
        /// The message.
        message: &'a AssistantMessage,
        /// Its calls, in the order of its blocks.
        calls: Vec<PairedCall<'a>>,
    },
}

/// A call and its result.
#[derive(Debug)]
pub(super) struct PairedCall<'a> {
    /// The id of both in the request; unique.
    pub id: String,
    /// The call.
    pub call: &'a ToolCallBlock,
    /// Its result, if it has one.
    pub result: Option<&'a ToolResultMessage>,
}

/// Pairs the messages of a conversation. `wire_id` maps an id to one that the provider accepts.
pub(super) fn pair_messages(
    messages: &[ChatMessage],
    written: impl Fn(&str) -> String,
) -> Vec<ConversationStep<'_>> {
    let mut results = match_results(messages);
    let mut ids = UniqueIds { wire_id: written, taken: HashSet::new(), used: HashMap::new() };
    let mut steps = Vec::new();
    for (place, message) in messages.iter().enumerate() {
        match message {
            ChatMessage::User(message) => steps.push(ConversationStep::User(&message.content)),
            ChatMessage::ToolResult(_) => {}
            ChatMessage::Assistant(message) => {
                let answered = |(nth, call): (usize, _)| PairedCall {
                    id: ids.assign(call),
                    call,
                    result: results.remove(&(place, nth)),
                };
                let calls = message.tool_calls().enumerate().map(answered).collect();
                steps.push(ConversationStep::Assistant { message, calls });
            }
        }
    }
    steps
}

/// Whether providers treat a text as empty.
pub(super) fn is_blank(text: &str) -> bool {
    text.chars().all(|char| char.is_whitespace() || char.is_control())
}

/// A call: the index of its message, and its index among the calls of the message.
type CallPosition = (usize, usize);

/// Matches results to calls. Results without an open call are dropped.
fn match_results(messages: &[ChatMessage]) -> HashMap<CallPosition, &ToolResultMessage> {
    let mut open = OpenCalls::default();
    let mut claims = HashMap::new();
    for (place, message) in messages.iter().enumerate() {
        match message {
            ChatMessage::User(_) => {}
            ChatMessage::Assistant(message) => {
                let calls = message.tool_calls().enumerate();
                open.open(calls.map(|(nth, call)| (call.id.clone(), (place, nth))));
            }
            ChatMessage::ToolResult(result) => {
                claims.extend(open.take(&result.tool_call_id).map(|call| (call, result)));
            }
        }
    }
    claims
}

/// Gives every call an unused id, even if the session repeats one.
struct UniqueIds<F> {
    wire_id: F,
    taken: HashSet<String>,
    used: HashMap<String, u64>,
}

impl<F: Fn(&str) -> String> UniqueIds<F> {
    fn assign(&mut self, call: &ToolCallBlock) -> String {
        let id = (self.wire_id)(&call.id);
        let uses = self.used.entry(id.clone()).or_default();
        loop {
            *uses += 1;
            let candidate = if *uses == 1 { id.clone() } else { numbered(&id, *uses) };
            if self.taken.insert(candidate.clone()) {
                return candidate;
            }
        }
    }
}

/// An id with a number, within the maximum length.
fn numbered(id: &str, number: u64) -> String {
    let suffix = format!("_{number}");
    let room = ID_MAX_CHARS.saturating_sub(suffix.len());
    id.chars().take(room).chain(suffix.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(ids: &[&str]) -> ChatMessage {
        let call = |id: &&str| {
            ChatBlock::ToolCall(ToolCallBlock { id: (*id).to_owned(), ..ToolCallBlock::default() })
        };
        let content = ids.iter().map(call).collect();
        ChatMessage::Assistant(AssistantMessage { content, ..AssistantMessage::default() })
    }

    fn result(id: &str, text: &str) -> ChatMessage {
        ChatMessage::ToolResult(ToolResultMessage {
            tool_call_id: id.to_owned(),
            content: vec![ChatBlock::text(text)],
            ..ToolResultMessage::default()
        })
    }

    /// Ids and results of all calls; `-` for none.
    fn check(messages: &[ChatMessage], expected: &[(&str, &str)]) {
        let mut found = Vec::new();
        for step in pair_messages(messages, str::to_owned) {
            let ConversationStep::Assistant { calls, .. } = step else { continue };
            for call in calls {
                let text = call.result.and_then(|result| result.content.first());
                let Some(ChatBlock::Text { text, .. }) = text else {
                    found.push((call.id, "-".to_owned()));
                    continue;
                };
                found.push((call.id, text.clone()));
            }
        }
        let expected: Vec<_> =
            expected.iter().map(|(id, text)| ((*id).to_owned(), (*text).to_owned())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn results_find_their_calls_in_any_order() {
        let messages = [
            calls(&["a", "b"]),
            result("b", "2"),
            ChatMessage::from_user_text("hurry"),
            result("a", "1"),
        ];
        check(&messages, &[("a", "1"), ("b", "2")]);
    }

    #[test]
    fn orphans_and_second_results_answer_nothing() {
        let messages = [result("a", "0"), calls(&["a", "b"]), result("a", "1"), result("a", "2")];
        check(&messages, &[("a", "1"), ("b", "-")]);
    }

    #[test]
    fn an_id_that_is_used_again_gets_a_number() {
        let messages = [
            calls(&["a"]),
            result("a", "1"),
            calls(&["a", "a"]),
            result("a", "2"),
            result("a", "3"),
            calls(&["a_2"]),
        ];
        check(&messages, &[("a", "1"), ("a_2", "2"), ("a_3", "3"), ("a_2_2", "-")]);
    }

    #[test]
    fn a_numbered_id_is_no_longer_than_an_id_may_be() {
        let long = "x".repeat(64);
        let messages = [calls(&[&long, &long])];
        check(&messages, &[(&long, "-"), (&format!("{}_2", "x".repeat(62)), "-")]);
    }
}
