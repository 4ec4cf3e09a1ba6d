//! The cost of an entry whole and with shortened texts, and the operation that shortens it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{
    Action, ContentBlock, Entry, Message, Op, PlanItem, PlanNote, Transcript,
};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::shorten::{shorten, shorten_arguments};
use crate::pairing;

/// The name of this layer in notes of a plan.
pub(super) const LAYER: &str = "emergency trim";

/// What stands for the images and files of a shortened entry. Providers reject a message without text and calls.
const NO_FILES: &str = "[ctxhost: images or files left out to fit]";

/// The cost of one item, whole and by its parts.
#[derive(Debug)]
pub(super) struct EntryCost {
    /// The entry; `None` for a synthetic result.
    pub(super) seq: Option<u64>,
    whole_tokens: u64,
    /// `None` where nothing can be shortened.
    parts: Option<TextCosts>,
}

#[derive(Debug)]
struct TextCosts {
    text_tokens: u64,
    names_tokens: u64,
    arguments_tokens: Vec<u64>,
}

impl EntryCost {
    /// The cost with texts of at most `level_tokens`, at most the whole cost.
    pub(super) fn tokens_at(&self, level_tokens: u64) -> u64 {
        match &self.parts {
            Some(parts) if self.whole_tokens > level_tokens => {
                self.whole_tokens.min(parts.tokens_at(level_tokens))
            }
            _ => self.whole_tokens,
        }
    }
}

impl TextCosts {
    fn new(entry: &Entry<'_>) -> TextCosts {
        let calls = entry.tool_calls();
        let text = text_to_shorten(entry, calls.is_empty());
        TextCosts {
            text_tokens: tokens::estimate(&text),
            names_tokens: calls.iter().map(|call| tokens::estimate(&call.name)).sum(),
            arguments_tokens: calls.iter().map(|call| tokens::estimate(&call.arguments)).collect(),
        }
    }

    fn tokens_at(&self, level_tokens: u64) -> u64 {
        let arguments = self.arguments_tokens.iter().map(|tokens| *tokens.min(&level_tokens));
        self.text_tokens.min(level_tokens) + self.names_tokens + arguments.sum::<u64>()
    }
}

/// The costs of the items that are sent of a range of whole frames.
pub(super) fn costs_of(view: &Transcript, range: Range<u64>) -> Vec<EntryCost> {
    // After the pairing, which adds and drops items.
    let items = pairing::pair_results(view.range(range).map(PlanItem::Kept).collect()).items;
    let cost = |item: &PlanItem<'_>| EntryCost {
        seq: item.entry().map(|entry| entry.seq()),
        whole_tokens: item.tokens(),
        parts: item.entry().map(|entry| TextCosts::new(&entry)),
    };
    items.iter().map(cost).collect()
}

/// The operation that shortens the texts of an entry to a level; `None` where the entry is within it, or
/// would not get smaller.
pub(crate) fn shorten_entry(entry: &Entry<'_>, level_tokens: u64) -> Option<Op> {
    if entry.tokens() <= level_tokens {
        return None;
    }
    let parts = TextCosts::new(entry);
    let tokens = parts.tokens_at(level_tokens);
    if tokens >= entry.tokens() {
        return None;
    }
    let text = shorten(&text_to_shorten(entry, parts.arguments_tokens.is_empty()), level_tokens);
    let seq = entry.seq();
    // A text replacement keeps calls unchanged; only long arguments need a rewrite.
    let action = if parts.arguments_tokens.iter().all(|tokens| *tokens <= level_tokens) {
        Action::ReplaceText { seq, text }
    } else {
        Action::ReplaceRaw {
            seq,
            raw: with_shorter_arguments(entry.raw(), &text, level_tokens).ok()?,
        }
    };
    let note = PlanNote::new(LAYER, format!("{} → {tokens} tokens", entry.tokens()));
    Some(Op { action, note: Some(note) })
}

/// The entry's text, with a notice at its end if images or files are left out.
pub(crate) fn text_to_shorten<'a>(entry: &Entry<'a>, calls_nothing: bool) -> Cow<'a, str> {
    let is_blank = entry.text().trim().is_empty();
    if is_blank && calls_nothing {
        return Cow::Borrowed(NO_FILES);
    }
    if calls_nothing && has_files(entry) {
        return Cow::Owned(format!("{}\n{NO_FILES}", entry.text()));
    }
    Cow::Borrowed(entry.text())
}

/// Whether an entry has images or files.
pub(crate) fn has_files(entry: &Entry<'_>) -> bool {
    let is_file = |block: &ContentBlock<'_>| {
        matches!(block, ContentBlock::Image { .. } | ContentBlock::Other(_))
    };
    Message::parse(entry.raw(), "").blocks.iter().any(is_file)
}

type JsonMembers = BTreeMap<String, Box<RawValue>>;

/// The message with one text block, its calls with shorter arguments, and no thinking. All other members
/// are copied unparsed.
fn with_shorter_arguments(raw: &str, text: &str, level_tokens: u64) -> serde_json::Result<String> {
    let mut message: JsonMembers = serde_json::from_str(raw)?;
    let content = message.get("content").map_or("[]", |content| content.get());
    let blocks: Vec<&RawValue> = serde_json::from_str(content)?;
    let mut shorter = Vec::new();
    if !text.is_empty() {
        shorter.push(to_raw_value(&json!({"type": "text", "text": text}))?);
    }
    for block in blocks {
        let Ok(mut call) = serde_json::from_str::<JsonMembers>(block.get()) else { continue };
        // Drops thinking, whose signature is invalid in a changed message, and texts, which are
        // replaced above.
        if call.get("type").is_none_or(|kind| kind.get() != r#""toolCall""#) {
            continue;
        }
        if let Some(arguments) = call.get_mut("arguments") {
            // Invalid arguments become `{}`: providers require an object.
            let parsed: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
            *arguments = to_raw_value(&shorten_arguments(&parsed, level_tokens))?;
        }
        shorter.push(to_raw_value(&call)?);
    }
    message.insert("content".to_owned(), to_raw_value(&shorter)?);
    serde_json::to_string(&message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_arguments_are_dropped() {
        let raw = r#"{"role":"assistant","x":1e999,"content":["?",{"type":"thinking","thinking":"hm"},
            {"type":"toolCall","id":"a","name":"n","arguments":{"big":1e999}}]}"#;
        let expected = r#"{"content":[{"type":"text","text":"t"},"#.to_owned()
            + r#"{"arguments":{},"id":"a","name":"n","type":"toolCall"}],"role":"assistant","x":1e999}"#;
        assert_eq!(with_shorter_arguments(raw, "t", 12).unwrap(), expected);
    }
}
