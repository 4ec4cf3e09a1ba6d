//! Slots of the live transcript: the origin of each entry and the changes that compactions made to it.

use super::projection_items::{InsertRole, StoredItem};

/// The live transcript directly after a compaction.
#[derive(Clone, Debug)]
pub(super) struct LiveBase {
    /// Position of the compaction.
    pub(super) at: usize,
    pub(super) slots: Vec<LiveSlot>,
}

/// One entry before it is built: its origin and the changes to apply.
#[derive(Clone, Debug)]
pub(super) struct LiveSlot {
    pub(super) source: SlotSource,
    pub(super) changes: Vec<SlotChange>,
}

/// The origin of an entry.
#[derive(Clone, Debug)]
pub(super) enum SlotSource {
    /// The record at this position.
    Record(usize),
    /// The system message carried by the compaction at this position.
    Checkpoint(usize),
    /// A message inserted by the compaction at this position: its item index, and its number among the
    /// inserted messages, both from 0.
    Inserted { compaction: usize, item: usize, number: usize, role: InsertRole, text: String },
}

/// An edit of an entry by one item of a compaction.
#[derive(Clone, Debug)]
pub(super) struct SlotChange {
    pub(super) compaction: usize,
    /// Index of the item, from 0.
    pub(super) item: usize,
    pub(super) content: NewContent,
}

#[derive(Clone, Debug)]
pub(super) enum NewContent {
    Text(String),
    Raw(String),
}

impl LiveSlot {
    pub(super) fn new(source: SlotSource) -> LiveSlot {
        LiveSlot { source, changes: Vec::new() }
    }

    pub(super) fn with_change(&self, change: Option<&SlotChange>) -> LiveSlot {
        let mut slot = self.clone();
        slot.changes.extend(change.cloned());
        slot
    }
}

impl SlotSource {
    /// The source of an inserted message; `None` if the item is no insert.
    pub(super) fn from_insert(
        compaction: usize,
        items: &[StoredItem],
        item: usize,
    ) -> Option<SlotSource> {
        let StoredItem::Insert { insert: role, text } = items.get(item)? else { return None };
        let is_insert = |item: &&StoredItem| matches!(item, StoredItem::Insert { .. });
        let number = items.iter().take(item).filter(is_insert).count();
        let (role, text) = (*role, text.clone());
        Some(SlotSource::Inserted { compaction, item, number, role, text })
    }
}

impl SlotChange {
    /// The change that an item makes to the entries it names; `None` if it keeps them unchanged.
    pub(super) fn from_item(
        compaction: usize,
        items: &[StoredItem],
        item: usize,
    ) -> Option<SlotChange> {
        let content = match items.get(item)? {
            StoredItem::ReplaceText { text, .. } => NewContent::Text(text.clone()),
            StoredItem::ReplaceRaw { raw, .. } => NewContent::Raw(raw.clone()),
            StoredItem::Keep { .. } | StoredItem::KeepRange { .. } | StoredItem::Insert { .. } => {
                return None;
            }
        };
        Some(SlotChange { compaction, item, content })
    }
}
