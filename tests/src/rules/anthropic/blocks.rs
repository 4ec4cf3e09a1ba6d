//! Texts, images, marks of the cache.

use serde_json::Value;

use super::super::json::{list, objects, text};
use super::{Notes, Request, beta, each, has, messages};

const MAX_CACHE_MARKS: usize = 4;
const MAX_IMAGES: usize = 100;
/// Five megabytes, as Base64.
const MAX_IMAGE_CHARS: usize = 5 * 1024 * 1024 / 3 * 4;

/// Nothing is empty, except perhaps a last message of the assistant.
pub(super) fn a_3(request: &Request<'_>, notes: &mut Notes<'_>) {
    let count = messages(request).len();
    for (at, message) in each(request) {
        let place = format!("messages.{at}");
        let is_empty = match &message["content"] {
            Value::String(text) => text.is_empty(),
            Value::Array(blocks) => blocks.is_empty(),
            _ => true,
        };
        let prefill = at + 1 == count && text(message, "role") == "assistant";
        notes.demand(!is_empty || prefill, place.clone(), format!("messages.{at}: all messages must have non-empty content except for the optional final assistant message"));
        let mut inner = Vec::new();
        objects(&message["content"], &mut inner);
        for block in inner.into_iter().filter(|block| text(block, "type") == "text") {
            let blank = text(block, "text").trim().is_empty();
            notes.demand(
                !blank,
                place.clone(),
                "messages: text content blocks must contain non-whitespace text",
            );
        }
    }
}

/// The person, or a result, has the last word.
pub(super) fn a_4(request: &Request<'_>, notes: &mut Notes<'_>) {
    let prefill = messages(request).last().is_some_and(|last| text(last, "role") == "assistant");
    notes.demand(!prefill, "messages", "This model does not support assistant message prefill. The conversation must end with a user message.");
}

/// Four marks of the cache at most, on blocks that can bear one, the long-lived before the short.
pub(super) fn a_12(request: &Request<'_>, notes: &mut Notes<'_>) {
    let mut all = Vec::new();
    ["tools", "system", "messages"].iter().for_each(|part| objects(&request.body[*part], &mut all));
    let marked: Vec<_> = all.into_iter().filter(|value| has(value, "cache_control")).collect();
    let count = marked.len();
    notes.demand(
        count <= MAX_CACHE_MARKS,
        "cache_control",
        format!("A maximum of 4 blocks with cache_control may be provided. Found {count}."),
    );
    for block in &marked {
        let kind = text(block, "type");
        let thinks = ["thinking", "redacted_thinking"].contains(&kind);
        let empty = kind == "text" && text(block, "text").is_empty();
        notes.demand(
            !thinks && !empty,
            "cache_control",
            format!(
                "cache_control cannot be set for {} blocks",
                if empty { "empty text" } else { kind }
            ),
        );
        notes.demand(
            !has(block, "role"),
            "cache_control",
            "messages.cache_control: Extra inputs are not permitted",
        );
    }
    let hours = marked.iter().map(|block| text(&block["cache_control"], "ttl") == "1h");
    let short_before_long = hours.skip_while(|long| *long).any(|long| long);
    notes.demand(
        !short_before_long,
        "cache_control",
        "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block.",
    );
}

/// Images are few and small.
pub(super) fn a_19(request: &Request<'_>, notes: &mut Notes<'_>) {
    let mut all = Vec::new();
    objects(&request.body["messages"], &mut all);
    let images = all.into_iter().filter(|block| text(block, "type") == "image");
    let sizes: Vec<usize> = images.map(|image| text(&image["source"], "data").len()).collect();
    notes.demand(
        sizes.len() <= MAX_IMAGES,
        "messages",
        "messages: too many images, at most 100 are allowed",
    );
    let fits = sizes.iter().all(|chars| *chars <= MAX_IMAGE_CHARS);
    notes.demand(fits, "messages", "messages: image exceeds 5 MB maximum");
}

/// Context editing needs its beta; a compaction stands before what it is followed by.
pub(super) fn a_20(request: &Request<'_>, notes: &mut Notes<'_>) {
    let edits = has(request.body, "context_management");
    notes.demand(
        !edits || beta(request, "context-management") || beta(request, "compact"),
        "context_management",
        "context_management: Extra inputs are not permitted",
    );
    for (at, message) in each(request) {
        let blocks = list(message, "content");
        let place = blocks.iter().position(|block| text(block, "type") == "compaction");
        let first = place.is_none_or(|place| place == 0);
        notes.demand(
            first,
            format!("messages.{at}"),
            format!("messages.{at}: a compaction block must be the first content"),
        );
    }
}
