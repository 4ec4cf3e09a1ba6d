//! Values that several dialects write: images, `data:` URLs and decimal numbers.

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

impl InlineImage<'_> {
    pub(super) fn url(&self) -> String {
        data_url(self.mime_type, self.data)
    }
}

/// The images that are not empty.
pub(super) fn images_of(blocks: &[ChatBlock]) -> Vec<InlineImage<'_>> {
    let images = blocks.iter().filter_map(|block| match block {
        ChatBlock::Image { data, mime_type } if !data.is_empty() => {
            Some(InlineImage { data, mime_type })
        }
        _ => None,
    });
    images.collect()
}

/// The `data:` URL of an image in base64.
pub(super) fn data_url(mime_type: &str, data: &str) -> String {
    format!("data:{mime_type};base64,{data}")
}

/// The shortest decimal of a number: 0.7, not 0.699999988 as the `f32` would print in JSON.
pub(super) fn decimal(number: f32) -> Value {
    number.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}
