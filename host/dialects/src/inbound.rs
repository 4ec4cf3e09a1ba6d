//! The clients' side of a dialect: parses request bodies into session entries and renders a plan over
//! these entries as a request body.
//!
//! ```text
//!  body ─► items ─► groups ─► entries ─► the engine's plan
//!    │       │        │                         │
//!    └───────┴────────┴──────► render ◄─────────┘
//! ```
//!
//! An *item* is one element of the body's message list, as the client wrote it. A *group* is the
//! smallest run of items that maps to whole entries: one item with several tool results maps to
//! several entries, several items of one answer map to one entry.

mod dialect;
mod edits;
mod entries;
mod error;
mod item_json;
mod loaded_tools;
mod optional;
pub(crate) mod output_limit;
mod parsed;
mod provider_edits;
mod render;
mod spans;
mod system_addition;
mod unanswered_calls;

use serde_json::value::RawValue;

pub use dialect::{CompactedItem, InboundDialect, StoredOverflow, TurnItem};
pub use edits::ItemEdit;
pub(crate) use edits::{apply_edit, edit_user_parts};
pub use entries::json_items;
pub(crate) use entries::{
    assistant_entry, inline_image, linked_entry, links_of, object_item, parse_content,
    result_entry, unknown_fields, user_entry,
};
pub(crate) use error::invalid_request;
pub use error::{InboundError, describe_json_error};
pub use item_json::parse_item;
pub(crate) use loaded_tools::{DeferredTools, loaded_tools};
pub(crate) use optional::{is_true, optional_count, optional_text};
pub use output_limit::LoweredBody;
pub use parsed::{ItemGroup, ParseContext, ParsedBody, ParsedEntry};
pub use provider_edits::ProviderEdits;
pub use render::{EntryLocation, SourceBody, render_body};
pub(crate) use spans::{list_span, replace_spans, span_of};
pub use system_addition::{SystemPlace, prepend_system};
pub(crate) use unanswered_calls::{ItemCalls, NamedCall, ParsedCalls, client_id, session_id};

/// The JSON texts of a list.
pub(crate) fn raw_items<'a>(list: &[&'a RawValue]) -> Vec<&'a str> {
    list.iter().map(|item| item.get()).collect()
}

/// The JSON texts of the fields that a body has.
pub(crate) fn raw_fields<const N: usize>(
    fields: [Option<&RawValue>; N],
) -> impl Iterator<Item = &str> {
    fields.into_iter().flatten().map(RawValue::get)
}

/// Splits a list into leading instructions and the messages after them.
pub(crate) fn split_instructions<'a>(
    list: &[&'a RawValue],
    is_instruction: impl Fn(&str) -> bool,
) -> (Vec<&'a str>, Vec<&'a str>) {
    let mut leading = raw_items(list);
    let first = leading.iter().position(|item| !is_instruction(item)).unwrap_or(leading.len());
    let items = leading.split_off(first);
    (leading, items)
}
