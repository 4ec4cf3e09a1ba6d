//! Known items in whose place a client sends others.

use std::collections::HashSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::alignment::ChangedRun;
use super::known_items::{KnownItem, KnownItems};
use super::seeded_hash::{CanonicalItem, RequestItems, SeededHash};
use super::traits::ItemTraits;
use ctxhost_session::Session;

/// Known items, which are whole groups, and what takes their place.
#[derive(Clone, Debug)]
pub struct ItemSplice {
    /// The known items.
    pub known: Range<usize>,
    /// The new ones.
    pub(super) items: Vec<CanonicalItem>,
    /// Per new group: the number of items and of entries.
    pub(super) groups: Vec<(usize, usize)>,
}

/// A splice in a record.
#[derive(Deserialize, Serialize)]
pub(super) struct WireSplice {
    /// The known items, as they were before all splices of the record.
    known: (usize, usize),
    /// The canonical hashes of the new ones.
    items: Vec<String>,
    /// Their traits as words; none if one has no traits.
    traits: Vec<String>,
    /// Per group: the number of items and of entries.
    units: Vec<(usize, usize)>,
}

impl ItemSplice {
    /// The items of a changed run as groups of their entries.
    pub fn new(
        run: &ChangedRun,
        groups: Vec<(usize, usize)>,
        request: &mut RequestItems<'_>,
    ) -> Option<ItemSplice> {
        let items = run.now.clone().map(|at| request.canonical(at)).collect::<Option<_>>()?;
        Some(ItemSplice { known: run.known.clone(), items, groups })
    }

    /// The same before the items are parsed: one group.
    pub(super) fn unparsed(run: &ChangedRun, request: &mut RequestItems<'_>) -> Option<ItemSplice> {
        let groups = if run.now.is_empty() { Vec::new() } else { vec![(run.now.len(), 1)] };
        ItemSplice::new(run, groups, request)
    }

    pub(super) fn to_wire(&self) -> WireSplice {
        let words = self.items.iter().map(|item| item.traits.map(ItemTraits::to_word));
        WireSplice {
            known: (self.known.start, self.known.end),
            items: self.items.iter().map(|item| item.hash.to_hex()).collect(),
            traits: words.collect::<Option<_>>().unwrap_or_default(),
            units: self.groups.clone(),
        }
    }

    pub(super) fn from_wire(wire: WireSplice) -> Option<ItemSplice> {
        let item = |(at, hex): (usize, &String)| {
            let traits = wire.traits.get(at).and_then(|word| ItemTraits::from_word(word));
            Some(CanonicalItem { hash: SeededHash::from_hex(hex)?, traits })
        };
        let items = wire.items.iter().enumerate().map(item).collect::<Option<_>>()?;
        let (from, to) = wire.known;
        Some(ItemSplice { known: from..to, items, groups: wire.units })
    }
}

impl KnownItems {
    /// Replaces items, of whose entries some are gone. `None` if the splices do not fit.
    pub fn splice(
        &mut self,
        splices: &[ItemSplice],
        gone: &HashSet<String>,
        session: &Session,
    ) -> Option<()> {
        self.splice_items(splices)?;
        self.entries.retain(|id| !gone.contains(id));
        self.locate_entries(gone.iter(), session);
        (self.entries_of(self.groups.len()) == self.entries.len()).then_some(())
    }

    /// Replaces items and their groups. `None` if the splices are not in order or do not fit.
    pub(super) fn splice_items(&mut self, splices: &[ItemSplice]) -> Option<()> {
        if splices.is_empty() {
            return Some(());
        }
        let (mut items, mut groups) = (Vec::with_capacity(self.items.len()), Vec::new());
        let mut old_groups = std::mem::take(&mut self.groups).into_iter().peekable();
        let mut summary = None;
        let mut from = 0;
        let end = ItemSplice {
            known: self.items.len()..self.items.len(),
            items: Vec::new(),
            groups: Vec::new(),
        };
        for splice in splices.iter().chain([&end]) {
            let ItemSplice { known, items: new, groups: new_groups } = splice;
            if known.start < from || known.end < known.start {
                return None;
            }
            let shift = items.len();
            summary = summary.or(self
                .summary
                .filter(|at| (from..known.start).contains(at))
                .map(|at| shift + at - from));
            while let Some((group, entries)) =
                old_groups.next_if(|(group, _)| group.end <= known.start)
            {
                groups.push((group.len(), entries));
            }
            while old_groups.next_if(|(group, _)| group.end <= known.end).is_some() {}
            items.extend_from_slice(self.items.get(from..known.start)?);
            let new_item = |canonical: &CanonicalItem| KnownItem {
                raw: None,
                canonical: *canonical,
                original: None,
            };
            items.extend(new.iter().map(new_item));
            groups.extend_from_slice(new_groups);
            from = known.end;
        }
        let mut at = 0;
        self.groups = groups
            .into_iter()
            .map(|(count, entries)| {
                at += count;
                (at - count..at, entries)
            })
            .collect();
        (self.items, self.summary) = (items, summary);
        (at == self.items.len()).then_some(())
    }
}
