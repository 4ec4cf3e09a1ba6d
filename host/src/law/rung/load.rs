//! Loads: what an entry costs as it is, and what it costs with its texts cut to a length.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Action, Entry, Item, Note, Op, Transcript};
use serde_json::{Value, json};

use super::shorten::{shorten, shorten_arguments};
use crate::law::pairing;

/// Stands where an entry held nothing but pictures.
const NO_TEXT: &str = "[ctxhost: content left out to fit]";

/// The cost of one item, as it is and in pieces.
#[derive(Debug)]
pub(super) struct Load {
    whole_tokens: u64,
    /// `None` where there is nothing to shorten.
    pieces: Option<Pieces>,
}

#[derive(Debug)]
struct Pieces {
    text_tokens: u64,
    names_tokens: u64,
    arguments_tokens: Vec<u64>,
}

impl Load {
    /// What it costs when no text of it may be longer than a level, never more than as it is.
    pub(super) fn tokens_at(&self, level_tokens: u64) -> u64 {
        match &self.pieces {
            Some(pieces) if self.whole_tokens > level_tokens => {
                self.whole_tokens.min(pieces.tokens_at(level_tokens))
            }
            _ => self.whole_tokens,
        }
    }
}

impl Pieces {
    fn of(entry: &Entry<'_>) -> Pieces {
        let calls = entry.tool_calls();
        let text = text_to_shorten(entry, calls.is_empty());
        Pieces {
            text_tokens: tokens::estimate(text),
            names_tokens: calls.iter().map(|call| tokens::estimate(&call.name)).sum(),
            arguments_tokens: calls.iter().map(|call| tokens::estimate(&call.arguments)).collect(),
        }
    }

    fn tokens_at(&self, level_tokens: u64) -> u64 {
        let arguments = self.arguments_tokens.iter().map(|tokens| *tokens.min(&level_tokens));
        self.text_tokens.min(level_tokens) + self.names_tokens + arguments.sum::<u64>()
    }
}

/// The loads of what is really sent of a range of whole frames.
pub(super) fn of(view: &Transcript, range: Range<u64>) -> Vec<Load> {
    let items = pairing::settle(view.range(range).map(Item::Kept).collect()).items;
    let load = |item: &Item<'_>| Load {
        whole_tokens: item.tokens(),
        pieces: item.entry().map(|entry| Pieces::of(&entry)),
    };
    items.iter().map(load).collect()
}

/// The operation that sends an entry with no text longer than a level; `None` where it can be sent
/// as it is, or would not get smaller.
pub(super) fn shorter(entry: &Entry<'_>, level_tokens: u64) -> Option<Op> {
    if entry.tokens() <= level_tokens {
        return None;
    }
    let pieces = Pieces::of(entry);
    let tokens = pieces.tokens_at(level_tokens);
    if tokens >= entry.tokens() {
        return None;
    }
    let text = shorten(text_to_shorten(entry, pieces.arguments_tokens.is_empty()), level_tokens);
    let seq = entry.seq();
    let action = if pieces.arguments_tokens.iter().all(|tokens| *tokens <= level_tokens) {
        Action::ReplaceText { seq, text }
    } else {
        Action::ReplaceRaw { seq, raw: with_shorter_arguments(entry.raw(), text, level_tokens)? }
    };
    let note = Note::new("last rung", format!("{} → {tokens} tokens", entry.tokens()));
    Some(Op { action, note: Some(note) })
}

/// The entry's text; a stand-in for one that has none and calls nothing, for it may not be empty.
fn text_to_shorten<'a>(entry: &Entry<'a>, calls_nothing: bool) -> &'a str {
    let is_blank = entry.text().trim().is_empty();
    if is_blank && calls_nothing { NO_TEXT } else { entry.text() }
}

/// The message with one text block, its calls with shorter arguments, and no thinking.
fn with_shorter_arguments(raw: &str, text: String, level_tokens: u64) -> Option<String> {
    let mut message: Value = serde_json::from_str(raw).ok()?;
    let blocks = message.get_mut("content")?.as_array_mut()?;
    blocks.retain(|block| block.get("type").is_some_and(|kind| kind == "toolCall"));
    for arguments in blocks.iter_mut().filter_map(|block| block.get_mut("arguments")) {
        *arguments = shorten_arguments(arguments, level_tokens);
    }
    if !text.is_empty() {
        blocks.insert(0, json!({"type": "text", "text": text}));
    }
    Some(message.to_string())
}
