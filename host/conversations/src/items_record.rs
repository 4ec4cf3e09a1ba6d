//! The record by which a session stores the known items of its conversation.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::known_items::RECORD;
use super::seeded_hash::CanonicalItem;
use super::splice::{ItemSplice, WireSplice};
use super::traits::ItemTraits;
use ctxhost_session::RecordBody;

/// What a client has changed of known items.
#[derive(Debug, Default)]
pub struct ItemEdits {
    /// Items that it has left out. The other fields count without them.
    pub removed: Vec<Range<usize>>,
    /// Items in whose place it sends others.
    pub spliced: Vec<ItemSplice>,
    /// Items with a changed text, counted with the spliced ones.
    pub replaced: Vec<usize>,
}

#[derive(Deserialize, Serialize)]
pub(super) struct WireKnownItems {
    /// Ranges of items that the client has left out; the other fields count without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) removed: Vec<(usize, usize)>,
    /// Items in whose place the client sends others; the fields below count with the new ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) spliced: Vec<WireSplice>,
    /// The number of items known before.
    pub(super) from: usize,
    /// The canonical hashes of the new items.
    pub(super) items: Vec<String>,
    /// Their traits as words; missing in records from before December 2026.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) traits: Vec<String>,
    /// Replaced items: index, new canonical hash, new traits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) replaced: Vec<(usize, String, String)>,
    /// Per group: the number of items and of entries.
    #[serde(rename = "units")]
    pub(super) groups: Vec<(usize, usize)>,
    /// The item that is the client's own summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<usize>,
}

/// The edits in a record.
#[derive(Default)]
pub(super) struct RecordedEdits {
    pub(super) replaced: Vec<(usize, String, String)>,
    pub(super) removed: Vec<(usize, usize)>,
    pub(super) spliced: Vec<WireSplice>,
}

/// The record of items from a number on, after edits of the ones before.
pub(super) fn record(
    from: usize,
    canonicals: impl IntoIterator<Item = CanonicalItem>,
    groups: impl Iterator<Item = (usize, usize)>,
    summary: Option<usize>,
    edits: RecordedEdits,
) -> RecordBody {
    let RecordedEdits { replaced, removed, spliced } = edits;
    let canonicals: Vec<CanonicalItem> = canonicals.into_iter().collect();
    let items = canonicals.iter().map(|canonical| canonical.hash.to_hex()).collect();
    // All or none: words are matched to items by position.
    let traits = canonicals.iter().map(|canonical| canonical.traits.map(ItemTraits::to_word));
    let traits = traits.collect::<Option<Vec<_>>>().unwrap_or_default();
    let groups = groups.collect();
    let wire = WireKnownItems { removed, spliced, from, items, traits, replaced, groups, summary };
    RecordBody::custom(RECORD, &wire)
}
