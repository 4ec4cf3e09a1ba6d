//! Reads what the context of Codex held after a compaction.

use std::collections::HashMap;

use serde_json::Value;

use super::super::block::{joined_text, string};
use super::super::draft::ImportDraft;
use super::super::response_item::{ResponseItem, read_item};
use super::super::transcript::{ImportedCompaction, ImportedItem};

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
    let history: Vec<ResponseItem> =
        history.into_iter().map(|written| read_item(draft, line, written)).collect();
    let context = draft.context();
    let mut next = instruction_count(draft, &context);
    let mut items = Vec::new();
    context.iter().take(next).for_each(|place| keep(&mut items, Some(place)));
    let places = places_by_content(draft, &context);
    for item in history {
        let (role, content) = match item {
            ResponseItem::System(text) => ("system", Value::from(text)),
            ResponseItem::User(blocks) => ("user", Value::from(blocks)),
            ResponseItem::Reply(blocks) => ("assistant", Value::from(blocks)),
            ResponseItem::Result(result) => ("toolResult", Value::from(result.content)),
            ResponseItem::Nothing => continue,
        };
        let ahead = places.get(&(role, content.to_string())).and_then(|same| {
            // In order, and a context may have any number of equal messages.
            same.get(same.partition_point(|place| *place < next)).copied()
        });
        match ahead {
            Some(place) => {
                keep(&mut items, context.get(place));
                next = place + 1;
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
    let context = draft.context();
    let instructions = instruction_count(draft, &context);
    let mut items = Vec::new();
    context.iter().take(instructions).for_each(|place| keep(&mut items, Some(place)));
    let mut room = KEPT_USER_CHARS;
    let mut kept = Vec::new();
    for place in context.iter().skip(instructions).rev() {
        let Some(message) = draft.message(*place) else { continue };
        if string(message, "role") != Some("user") || room == 0 {
            continue;
        }
        let text = joined_text(message.get("content").unwrap_or(&Value::Null));
        let chars = text.chars().count();
        kept.push((*place, (chars > room).then(|| cut_middle(&text, chars, room))));
        room = room.saturating_sub(chars);
    }
    for (message, cut) in kept.into_iter().rev() {
        match cut {
            Some(text) => items.push(ImportedItem::ReplaceText { message, text }),
            None => keep(&mut items, Some(&message)),
        }
    }
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

/// The places in a context of each role and content, so that a long history is not searched for each of its
/// items.
fn places_by_content<'a>(
    draft: &'a ImportDraft,
    context: &[usize],
) -> HashMap<(&'a str, String), Vec<usize>> {
    let mut places: HashMap<_, Vec<usize>> = HashMap::new();
    for (place, message) in context.iter().enumerate() {
        let Some(message) = draft.message(*message) else { continue };
        if let (Some(role), Some(content)) = (string(message, "role"), message.get("content")) {
            places.entry((role, content.to_string())).or_default().push(place);
        }
    }
    places
}

fn keep(items: &mut Vec<ImportedItem>, message: Option<&usize>) {
    if let Some(message) = message {
        ImportedItem::keep(items, *message..message + 1);
    }
}

/// The number of instructions at the beginning, which every request has.
fn instruction_count(draft: &ImportDraft, context: &[usize]) -> usize {
    let is_system = |place: &&usize| {
        draft.message(**place).is_some_and(|m| string(m, "role") == Some("system"))
    };
    context.iter().take_while(is_system).count()
}
