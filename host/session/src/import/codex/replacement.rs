//! Reads what the context of Codex held after a compaction.

use serde_json::Value;

use super::super::block::{joined_text, string};
use super::super::draft::ImportDraft;
use super::super::transcript::{ImportedCompaction, ImportedItem};
use super::item::{self, RolloutItem};

/// Characters of user messages that stay where a record holds no history: 20,000 tokens of four.
const KEPT_USER_CHARS: usize = 80_000;

/// The compaction of a `compacted` record; `None` if it has neither history nor summary.
pub(super) fn read_compaction(
    draft: &mut ImportDraft,
    line: u64,
    mut compacted: Value,
) -> Option<ImportedCompaction> {
    let summary = string(&compacted, "message").unwrap_or_default().to_owned();
    let items = match compacted.get_mut("replacement_history").map(Value::take) {
        Some(Value::Array(history)) => replaced_context(draft, line, history),
        _ if summary.is_empty() => return None,
        _ => summarized_context(draft, summary),
    };
    Some(ImportedCompaction { items, ..ImportedCompaction::default() })
}

/// The items of a replacement history: messages of the context so far, and new ones as text.
fn replaced_context(draft: &mut ImportDraft, line: u64, history: Vec<Value>) -> Vec<ImportedItem> {
    let context = kept_messages(draft);
    let mut items = leading_instructions(draft, &context);
    let mut next = items.len();
    for written in history {
        let (role, content) = match item::read_item(draft, line, written) {
            RolloutItem::System(text) => ("system", Value::from(text)),
            RolloutItem::User(blocks) => ("user", Value::from(blocks)),
            RolloutItem::Reply(blocks) => ("assistant", Value::from(blocks)),
            RolloutItem::Result(result) => ("toolResult", Value::from(result.content)),
            RolloutItem::Nothing => continue,
        };
        let is_it = |place: &usize| {
            draft.message(*place).is_some_and(|message| {
                string(message, "role") == Some(role) && message.get("content") == Some(&content)
            })
        };
        let rest = context.get(next..).unwrap_or_default();
        match rest.iter().position(is_it) {
            Some(ahead) => {
                items.extend(rest.get(ahead).copied().map(ImportedItem::Keep));
                next += ahead + 1;
            }
            // Instructions that stay are in the items already.
            None if role == "system" => {}
            None => items.push(ImportedItem::Insert {
                is_reply: role == "assistant",
                text: text_of(&content),
            }),
        }
    }
    items
}

/// The text of a content; for a summary that the provider encrypted, a note about it.
fn text_of(content: &Value) -> String {
    let text = joined_text(content);
    if !text.is_empty() {
        return text;
    }
    let blocks = content.as_array().into_iter().flatten();
    let encrypted = blocks.filter_map(|block| {
        string(block, "encrypted_content").or_else(|| string(block, "thinkingSignature"))
    });
    match encrypted.map(str::len).sum::<usize>() {
        0 => content.to_string(),
        bytes => format!("[a summary of {bytes} bytes that only the provider can read]"),
    }
}

/// The context by the rule of versions that recorded the summary only: instructions, the newest user messages
/// up to a limit, the summary.
fn summarized_context(draft: &ImportDraft, summary: String) -> Vec<ImportedItem> {
    let context = kept_messages(draft);
    let mut items = leading_instructions(draft, &context);
    let mut room = KEPT_USER_CHARS;
    let mut kept = Vec::new();
    for place in context.iter().skip(items.len()).rev() {
        let Some(message) = draft.message(*place) else { continue };
        if string(message, "role") != Some("user") || room == 0 {
            continue;
        }
        let text = joined_text(message.get("content").unwrap_or(&Value::Null));
        let chars = text.chars().count();
        kept.push(if chars <= room {
            ImportedItem::Keep(*place)
        } else {
            ImportedItem::ReplaceText { message: *place, text: cut_middle(&text, chars, room) }
        });
        room = room.saturating_sub(chars);
    }
    kept.reverse();
    items.extend(kept);
    items.push(ImportedItem::Insert { is_reply: false, text: summary });
    items
}

/// The beginning and the end of a text of `chars` characters, together `room` of them.
fn cut_middle(text: &str, chars: usize, room: usize) -> String {
    let (head, tail) = (room / 2, room - room / 2);
    let begin: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(chars - tail).collect();
    format!("{begin}… {} characters truncated …{end}", chars - room)
}

/// The messages in context that are part of the history.
fn kept_messages(draft: &ImportDraft) -> Vec<usize> {
    let items = draft.context().into_iter();
    let kept = items.filter_map(|item| match item {
        ImportedItem::Keep(message) | ImportedItem::ReplaceText { message, .. } => Some(message),
        ImportedItem::Insert { .. } => None,
    });
    kept.collect()
}

/// The instructions at the beginning, which every request has.
fn leading_instructions(draft: &ImportDraft, context: &[usize]) -> Vec<ImportedItem> {
    let is_system = |place: &&usize| {
        draft.message(**place).is_some_and(|m| string(m, "role") == Some("system"))
    };
    context.iter().take_while(is_system).copied().map(ImportedItem::Keep).collect()
}
