//! The provider's own compactions: items, of which the newest replaces the answers before it.
//!
//! ```text
//!  q1 a1 q2 a2 C a3 q4    C of an answer: the provider ignores q1 a1 q2 a2
//!  q1 q2 C q3             C of `/responses/compact`: the provider has kept q1 q2
//! ```

use memchr::memmem;
use serde_json::Value;

use super::{ItemKind, kind_of};
use crate::inbound::CompactedItem;
use crate::json::{parse_object, text};

/// The beginning of `encrypted_content` where it is a summary of the host instead of a compaction of the provider.
pub const SUMMARY_MARK: &str = "ctxhost-summary-1.";

/// Whether an item is a compaction or the request for one.
pub(super) fn is_compaction_kind(item: &str) -> bool {
    memmem::find(item.as_bytes(), b"\"compaction").is_some()
        && parse_object(item).is_ok_and(|item| kind_of(&item) == ItemKind::Compaction)
}

/// Whether an item is a compaction that the provider has made.
fn is_compaction(item: &str) -> bool {
    memmem::find(item.as_bytes(), b"\"compaction").is_some()
        && parse_object(item).is_ok_and(|item| is_made(&item))
}

/// An item that the host has signed is opened before the provider sees it, with the items around it.
fn is_made(item: &Value) -> bool {
    let content = text(item, "encrypted_content");
    let is_own = content.starts_with(SUMMARY_MARK);
    kind_of(item) == ItemKind::Compaction && !content.is_empty() && !is_own
}

/// The newest compaction of a list, if the provider ignores what stands before it.
pub(super) fn find_newest(items: &[&str]) -> Option<usize> {
    let newest = items.iter().rposition(|item| is_compaction(item))?;
    let kind = |item: &&str| parse_object(item).map_or(ItemKind::Answer, |item| kind_of(&item));
    let is_kept = |item: &&str| matches!(kind(item), ItemKind::User | ItemKind::Instruction);
    let are_kept = items.iter().take(newest).all(is_kept);
    (newest == 0 || !are_kept).then_some(newest)
}

/// A compaction, which has no other part.
pub(super) fn split_item(item: &str) -> Option<CompactedItem> {
    let compaction = is_compaction(item).then(|| parse_object(item).ok())??;
    Some(CompactedItem { compaction, rest: None })
}
