//! Cuts a result of several blocks: images from the front while they fit, texts in proportion, and
//! a line for the omitted blocks.

use ctxhost_engine_api::transcript::tokens::{IMAGE_TOKENS, weighted_chars};
use ctxhost_text::truncate::{TextLimit, truncate, truncate_blocks};
use serde_json::{Value, json};

use super::OriginalLocation;
use crate::settings::CHARS_PER_TOKEN;

/// Cost of one image, in weighted characters.
const IMAGE_CHARS: u64 = IMAGE_TOKENS * CHARS_PER_TOKEN;
/// Reserved for the line about omitted blocks, in weighted characters.
const MISSING_LINE_CHARS: u64 = 160;

/// Part of the room that the notices of cut blocks may take.
const NOTICE_PART: u64 = 4;

/// Limits of a cut.
pub(super) struct BlockBudget<'a> {
    /// Size of the whole result, in weighted characters.
    pub(super) cap_chars: u64,
    /// Text that is kept before an image gets room, in weighted characters.
    pub(super) min_keep_chars: u64,
    /// Location of the original, for the line about omitted blocks.
    pub(super) original: &'a OriginalLocation<'a>,
}

/// Cost of a message by kind of block, in weighted characters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockWeights {
    texts: u64,
    images: u64,
    others: u64,
    text_blocks: usize,
}

impl BlockWeights {
    /// Sums up the blocks of a message.
    pub(super) fn from_content(content: &[Value]) -> BlockWeights {
        let mut weight = BlockWeights::default();
        for block in content {
            match BlockKind::from_block(block) {
                BlockKind::Text(text) => {
                    weight.texts += weighted_chars(text);
                    weight.text_blocks += 1;
                }
                BlockKind::Image => weight.images += IMAGE_CHARS,
                BlockKind::Other(chars) => weight.others += chars,
            }
        }
        weight
    }

    /// Total cost.
    pub(super) fn total(self) -> u64 {
        self.texts + self.images + self.others
    }

    /// Whether the message has at most one text and nothing else.
    pub(super) fn is_one_text(self) -> bool {
        self.images == 0 && self.others == 0 && self.text_blocks <= 1
    }
}

enum BlockKind<'v> {
    Text(&'v str),
    Image,
    Other(u64),
}

impl BlockKind<'_> {
    fn from_block(block: &Value) -> BlockKind<'_> {
        let text = block.get("text").and_then(Value::as_str);
        match (block.get("type").and_then(Value::as_str), text) {
            (Some("text"), Some(text)) => BlockKind::Text(text),
            (Some("image"), _) => BlockKind::Image,
            // An unknown block cannot be cut, only kept or omitted.
            _ => BlockKind::Other(weighted_chars(&block.to_string())),
        }
    }
}

/// Rewrites the content of a message to fit `room`.
pub(super) fn fit_content(
    content: &mut Vec<Value>,
    room: &BlockBudget<'_>,
    notice: impl Fn(u64) -> String,
) {
    let texts = BlockWeights::from_content(content).texts;
    // Text is usually what the model needs, so images get only the rest.
    let reserved = texts.min(room.min_keep_chars) + MISSING_LINE_CHARS;
    let mut left = room.cap_chars.saturating_sub(reserved);
    let mut missing = OmittedBlocks::default();
    content.retain(|block| {
        let (cost, count) = match BlockKind::from_block(block) {
            BlockKind::Text(_) => return true,
            BlockKind::Image => (IMAGE_CHARS, &mut missing.images),
            BlockKind::Other(chars) => (chars, &mut missing.others),
        };
        let fits = cost <= left;
        if fits {
            left -= cost;
        } else {
            *count += 1;
        }
        fits
    });
    let line = missing.line(room.original);
    let kept = BlockWeights::from_content(content);
    let spent = kept.images + kept.others + line.as_deref().map_or(0, weighted_chars);
    cut_texts(content, room, room.cap_chars.saturating_sub(spent), notice);
    content.extend(line.map(|text| json!({"type": "text", "text": text})));
}

fn cut_texts(
    content: &mut Vec<Value>,
    room: &BlockBudget<'_>,
    max_chars: u64,
    notice: impl Fn(u64) -> String,
) {
    let texts: Vec<&str> = content.iter().filter_map(text_of).collect();
    let limit = TextLimit::with_max_chars(max_chars).keeping(room.min_keep_chars);
    let sizes: Vec<u64> = texts.iter().map(|text| weighted_chars(text)).collect();
    let notices: u64 = sizes.iter().map(|size| weighted_chars(&notice(*size))).sum();
    if sizes.iter().sum::<u64>() > max_chars && notices > max_chars / NOTICE_PART {
        // A notice in each of many small blocks would leave little text, or none.
        let joined = truncate(&texts.join("\n"), limit, notice).into_owned();
        let first = content.iter().position(|block| text_of(block).is_some()).unwrap_or_default();
        content.retain(|block| text_of(block).is_none());
        content.insert(first, json!({"type": "text", "text": joined}));
        return;
    }
    let cut: Vec<String> =
        truncate_blocks(&texts, limit, notice).into_iter().map(|text| text.into_owned()).collect();
    let blocks = content.iter_mut().filter(|block| text_of(block).is_some());
    for (block, text) in blocks.zip(cut) {
        *block = json!({"type": "text", "text": text});
    }
}

fn text_of(block: &Value) -> Option<&str> {
    match BlockKind::from_block(block) {
        BlockKind::Text(text) => Some(text),
        _ => None,
    }
}

#[derive(Default)]
struct OmittedBlocks {
    images: usize,
    others: usize,
}

impl OmittedBlocks {
    fn line(&self, original: &OriginalLocation<'_>) -> Option<String> {
        let count = |count: usize, word: &str| match count {
            0 => None,
            1 => Some(format!("1 {word}")),
            _ => Some(format!("{count} {word}s")),
        };
        let parts = [count(self.images, "image"), count(self.others, "block")];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty())
            .then(|| format!("[{} omitted from context; {original}]", parts.join(" and ")))
    }
}
