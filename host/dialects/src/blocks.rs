//! Plain values that dialects write from blocks: texts, images and decimal numbers.

use serde_json::Value;

use crate::message::ChatBlock;

/// An image of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InlineImage<'a> {
    /// Base64.
    pub(super) data: &'a str,
    /// Such as `image/png`.
    pub(super) mime_type: &'a str,
}

/// The texts that are not empty, joined by newlines.
pub(super) fn text_of(blocks: &[ChatBlock]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        ChatBlock::Text { text, .. } if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The images that have something in them.
pub(super) fn images_of(blocks: &[ChatBlock]) -> Vec<InlineImage<'_>> {
    let images = blocks.iter().filter_map(|block| match block {
        ChatBlock::Image { data, mime_type } if !data.is_empty() => {
            Some(InlineImage { data, mime_type })
        }
        _ => None,
    });
    images.collect()
}

/// A number as it was written in the config: `0.7`, and not the 0.699999988 that a float makes of it.
pub(super) fn decimal(number: f32) -> Value {
    number.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}
