//! thinking and compactions come back as they were sent, or not at all.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::super::Broken;
use super::super::json::{list, text};
use super::{Answer, Issued, Memory, Part, notes};

impl Memory {
    pub(super) fn issue_anthropic(&mut self, body: &Value, issued: &Issued) {
        let thinking = issued.parts.iter().filter_map(|part| match part {
            Part::Thinking { signature, .. } => Some(signature.clone()),
            _ => None,
        });
        let count = list(body, "messages").len();
        let prefix = self.binds_thinking.then(|| prefix(body, count));
        let answer = Answer { thinking: thinking.collect(), prefix };
        self.answers.insert(issued_key(&issued.parts), answer);
    }

    pub(super) fn check_anthropic(&self, body: &Value, found: &mut Vec<Broken>) {
        let messages = list(body, "messages");
        let of_model = |message: &Value| text(message, "role") == "assistant";
        let latest = messages.iter().rposition(of_model);
        for (at, message) in messages.iter().enumerate().filter(|(_, message)| of_model(message)) {
            self.a_16(at, message, found);
            self.a_20(at, message, found);
            let Some(answer) = self.answers.get(&key(message)) else { continue };
            let sent: Vec<&str> = thinking(message).map(signature).collect();
            if sent.is_empty() {
                continue;
            }
            let same = sent == answer.thinking.iter().map(String::as_str).collect::<Vec<_>>();
            if Some(at) == latest {
                a_15(at, same, found)
            } else {
                a_17(at, same, found)
            }
            if let Some(before) = answer.prefix {
                a_21(at, before == prefix(body, at), found);
            }
        }
    }

    /// A signature belongs to its thinking.
    fn a_16(&self, at: usize, message: &Value, found: &mut Vec<Broken>) {
        for block in thinking(message) {
            let hidden = text(block, "type") == "redacted_thinking";
            let reported = self.signatures.get(signature(block));
            let valid =
                reported.is_some_and(|reported| hidden || reported == text(block, "thinking"));
            let why = format!("messages.{at}.content.0: Invalid `signature` in `thinking` block");
            notes("A-16", found).demand(valid, format!("messages.{at}"), why);
        }
    }

    /// A compaction is the server's own.
    fn a_20(&self, at: usize, message: &Value, found: &mut Vec<Broken>) {
        let blocks = list(message, "content").iter();
        for block in blocks.filter(|block| text(block, "type") == "compaction") {
            let known = self.signatures.contains_key(text(block, "encrypted_content"));
            let why = format!("messages.{at}.content.0: Invalid `signature` in `compaction` block");
            notes("A-20", found).demand(known, format!("messages.{at}"), why);
        }
    }
}

/// The thinking of the latest message is whole.
fn a_15(at: usize, same: bool, found: &mut Vec<Broken>) {
    notes("A-15", found).demand(same, format!("messages.{at}"), format!("messages.{at}.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response."));
}

/// The thinking of an older message is whole or gone.
fn a_17(at: usize, same: bool, found: &mut Vec<Broken>) {
    let why = format!(
        "messages.{at}: a part of the thinking of this message was dropped; send all of it or none"
    );
    notes("A-17", found).demand(same, format!("messages.{at}"), why);
}

/// Thinking that is bound to what was before it needs that unchanged.
fn a_21(at: usize, same: bool, found: &mut Vec<Broken>) {
    notes("A-21", found).demand(same, format!("messages.{at}"), format!("messages.{at}.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."));
}

fn thinking(message: &Value) -> impl Iterator<Item = &Value> {
    let kinds = ["thinking", "redacted_thinking"];
    list(message, "content").iter().filter(move |block| kinds.contains(&text(block, "type")))
}

fn signature(block: &Value) -> &str {
    match text(block, "type") {
        "redacted_thinking" => text(block, "data"),
        _ => text(block, "signature"),
    }
}

/// By what an answer is found again: its calls, or else its text.
fn key(message: &Value) -> String {
    let blocks = list(message, "content");
    let of = |kind: &str, field: &str| -> String {
        let blocks = blocks.iter().filter(|block| text(block, "type") == kind);
        blocks.map(|block| text(block, field)).collect()
    };
    match (of("tool_use", "id"), message["content"].as_str()) {
        (ids, _) if !ids.is_empty() => ids,
        (_, Some(text)) => text.to_owned(),
        _ => of("text", "text"),
    }
}

fn issued_key(parts: &[Part]) -> String {
    let calls: String = parts
        .iter()
        .filter_map(|part| match part {
            Part::Call { call_id, .. } => Some(call_id.as_str()),
            _ => None,
        })
        .collect();
    if !calls.is_empty() {
        return calls;
    }
    parts
        .iter()
        .filter_map(|part| match part {
            Part::Text { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// A hash of everything that binds the thinking of a message: marks of the cache are no part of it.
fn prefix(body: &Value, at: usize) -> u64 {
    let mut hash = DefaultHasher::new();
    for part in
        [&body["tools"], &body["system"]].into_iter().chain(list(body, "messages").iter().take(at))
    {
        unmarked(part.clone()).to_string().hash(&mut hash);
    }
    hash.finish()
}

fn unmarked(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.remove("cache_control");
            fields.values_mut().for_each(|inner| *inner = unmarked(inner.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|inner| *inner = unmarked(inner.take())),
        _ => {}
    }
    value
}
