//! Moves images of messages to blobs when a message is stored, and back when a model reads it.
//!
//! ```text
//!  inline  {"type":"image","data":"iVBORw0KGgo…","mimeType":"image/png"}
//!  stored  {"type":"image","data":"","ctxhostBlob":"3f7a…","mimeType":"image/png"}
//! ```
//!
//! The rest of the message keeps its bytes, so that loading exactly reverts storing.

use std::borrow::Cow;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{HANDLE_CHARS, SessionBlobs, is_handle};

/// The field of an image block with the handle of its blob.
pub const BLOB_FIELD: &str = "ctxhostBlob";

/// The images of one session.
#[derive(Clone, Debug, Default)]
pub struct ImageStore {
    blobs: Option<SessionBlobs>,
    max_inline_bytes: Option<u64>,
}

impl ImageStore {
    /// Keeps images in messages, and loads those that were stored before.
    pub fn new_inline(blobs: SessionBlobs) -> ImageStore {
        ImageStore { blobs: Some(blobs), max_inline_bytes: None }
    }

    /// Stores images whose data is longer than this.
    pub fn new_stored(blobs: SessionBlobs, most_inline_bytes: u64) -> ImageStore {
        ImageStore { blobs: Some(blobs), max_inline_bytes: Some(most_inline_bytes) }
    }

    /// Stores the large images of a message; `None` if it is unchanged. If storing fails, the image stays and a
    /// warning is logged.
    pub fn store_images(&self, message: &str) -> Option<String> {
        let (blobs, max_bytes) = (self.blobs.as_ref()?, self.max_inline_bytes?);
        // A message holds no image that is larger than itself, and most messages are small.
        if message.len() as u64 <= max_bytes {
            return None;
        }
        // Without the quotes of the JSON string.
        let is_large = |data: &str| data.trim_matches('"').len() as u64 > max_bytes;
        let edit = |block: ImageBlock<'_>| {
            let data = block.data.filter(|data| is_large(data.get()) && block.blob.is_none())?;
            let handle = blobs.put(&decoded(data)?);
            let handle = handle.inspect_err(
                |error| tracing::warn!(%error, "cannot store an image; it stays in the message"),
            );
            Some((range_in(message, data.get())?, reference(&handle.ok()?)))
        };
        edit_images(message, edit)
    }

    /// Loads the images of a message. A missing one becomes a text that names it.
    pub fn load_images<'a>(&self, message: &'a str) -> Cow<'a, str> {
        if !message.contains(BLOB_FIELD) {
            return Cow::Borrowed(message);
        }
        let edit = |block: ImageBlock<'_>| {
            let handle = block.blob.as_deref().filter(|_| block.is_stored())?;
            // A prompt without the image is of more use than no prompt.
            let Some(bytes) = self.bytes(handle) else {
                return Some((range_in(message, block.raw)?, missing_image(&block, handle)));
            };
            let data = STANDARD.encode(bytes);
            let data_range = block.data.and_then(|data| range_in(message, data.get()));
            let data_range =
                data_range.filter(|range| starts_at(message, range.start, &reference(handle)));
            Some(match data_range {
                Some(range) => {
                    (range.start..range.start + reference(handle).len(), format!("\"{data}\""))
                }
                None => (range_in(message, block.raw)?, rebuild_block(&block, &data)),
            })
        };
        edit_images(message, edit).map_or(Cow::Borrowed(message), Cow::Owned)
    }

    /// Loads the images of the message in a session line.
    pub fn load_line_images<'a>(&self, line: &'a str) -> Cow<'a, str> {
        let message =
            serde_json::from_str::<WireImageRecord<'_>>(line).ok().map(|record| record.message);
        let range = message.and_then(|message| range_in(line, message.get()));
        match message.zip(range).map(|(message, range)| (self.load_images(message.get()), range)) {
            Some((Cow::Owned(message), range)) => {
                let (head, tail) = (line.get(..range.start), line.get(range.end..));
                Cow::Owned([head.unwrap_or_default(), &message, tail.unwrap_or_default()].concat())
            }
            _ => Cow::Borrowed(line),
        }
    }

    fn bytes(&self, handle: &str) -> Option<Vec<u8>> {
        let found = self.blobs.as_ref().map_or(Ok(None), |blobs| blobs.get(handle));
        found.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the blob of an image");
            None
        })
    }
}

/// An image block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImageBlock<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    mime_type: Option<String>,
    #[serde(rename = "ctxhostBlob")]
    blob: Option<String>,
    #[serde(skip)]
    raw: &'a str,
}

impl ImageBlock<'_> {
    fn is_stored(&self) -> bool {
        let is_empty = self.data.is_none_or(|data| matches!(data.get(), "\"\"" | "null"));
        is_empty && self.blob.as_deref().is_some_and(is_handle)
    }
}

#[derive(Deserialize)]
struct WireImageRecord<'a> {
    #[serde(borrow)]
    message: &'a RawValue,
}

#[derive(Deserialize)]
struct WireImageMessage<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

/// Edits the image blocks of a message; `None` without edits.
fn edit_images(
    message: &str,
    edit: impl FnMut(ImageBlock<'_>) -> Option<(Range<usize>, String)>,
) -> Option<String> {
    let content = serde_json::from_str::<WireImageMessage<'_>>(message).ok()?.content;
    let blocks: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    let edits: Vec<_> = blocks.into_iter().filter_map(image).filter_map(edit).collect();
    if edits.is_empty() {
        return None;
    }
    let (mut text, mut after) = (String::with_capacity(message.len()), 0);
    for (range, replacement) in edits {
        text.push_str(message.get(after..range.start)?);
        text.push_str(&replacement);
        after = range.end;
    }
    text.push_str(message.get(after..)?);
    Some(text)
}

fn image(block: &RawValue) -> Option<ImageBlock<'_>> {
    let parsed: ImageBlock<'_> = serde_json::from_str(block.get()).ok()?;
    (parsed.kind == "image").then_some(ImageBlock { raw: block.get(), ..parsed })
}

/// The range of a slice of a text.
fn range_in(text: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    // A borrowed part is inside the text; the comparison rejects any other.
    (text.get(start..start + part.len())? == part).then_some(start..start + part.len())
}

fn starts_at(text: &str, at: usize, expected: &str) -> bool {
    text.get(at..).is_some_and(|rest| rest.starts_with(expected))
}

/// Decodes base64 if encoding gives the same text, so that loading restores the exact bytes.
fn decoded(data: &RawValue) -> Option<Vec<u8>> {
    let text = data.get().strip_prefix('"')?.strip_suffix('"')?;
    let bytes = STANDARD.decode(text).ok()?;
    // Only data that comes back letter for letter is moved: prompts must stay the same bytes, and encoders differ in padding.
    (STANDARD.encode(&bytes) == text).then_some(bytes)
}

/// The JSON that replaces the data.
fn reference(handle: &str) -> String {
    format!("\"\",\"{BLOB_FIELD}\":\"{handle}\"")
}

/// Builds the block again, for one whose fields another program reordered.
fn rebuild_block(block: &ImageBlock<'_>, data: &str) -> String {
    serde_json::json!({ "type": "image", "data": data, "mimeType": block.mime_type }).to_string()
}

/// Length of a reference.
pub(super) fn reference_bytes() -> u64 {
    (reference("").len() + HANDLE_CHARS) as u64
}

fn missing_image(block: &ImageBlock<'_>, handle: &str) -> String {
    let mime_type = block.mime_type.as_deref().unwrap_or("of an unknown type");
    let text = format!(
        "[image {mime_type} is missing: its bytes were put away as {handle}, and they are not there any more]"
    );
    serde_json::json!({ "type": "text", "text": text }).to_string()
}
