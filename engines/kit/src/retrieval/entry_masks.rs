//! The masks of a session, each written once: when an entry other than a result follows.
//!
//! A mask then depends on nothing that comes later, so a restart writes the same, and an assembly
//! only looks it up. The names that the model uses right after a result count for its line.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::masks::mask_entry;
use crate::name_ledger::NameLedger;
use crate::replacement::{Replacement, ReplacementBody, keep_with_replacements};
use ctxhost_engine_api::{Entry, Plan, Role, Transcript};

/// Names kept in the line of a result, in weighted characters: about five paths.
const NAME_CHARS: u64 = 160;

/// The masks of one session, by position.
#[derive(Debug, Default)]
pub(super) struct EntryMasks {
    by_entry: Vec<Option<Box<EntryMask>>>,
    text_bytes: usize,
}

#[derive(Debug)]
struct EntryMask {
    shown: Replacement,
    saved_tokens: u64,
}

/// Masked positions with the tokens that each saves.
pub(super) type MaskedPositions = BTreeMap<u64, u64>;

impl EntryMasks {
    /// Writes the masks of the entries before the first that is not a result, in the name of `layer`.
    pub(super) fn write_before(
        &mut self,
        transcript: &Transcript,
        entry: &Entry<'_>,
        names: &NameLedger,
        layer: &'static str,
    ) {
        // Not the frame: a late result changes the frames of the entries before it.
        if entry.role() == Role::Tool {
            return;
        }
        for old in transcript.range(self.by_entry.len() as u64..entry.seq()) {
            let shown = mask_entry(transcript, &old, names, NAME_CHARS, layer);
            let mask = shown.map(|shown| {
                let saved_tokens = old.tokens().saturating_sub(shown.tokens());
                Box::new(EntryMask { shown, saved_tokens })
            });
            self.text_bytes += mask.as_ref().map_or(0, |mask| mask.size_bytes());
            self.by_entry.push(mask);
        }
    }

    /// Tokens that the mask of an entry saves; `None` without one.
    pub(super) fn saved_tokens(&self, seq: u64) -> Option<u64> {
        self.get(seq).map(|mask| mask.saved_tokens)
    }

    /// Keeps a range with the masks of `masked`.
    pub(super) fn keep_range(&self, plan: &mut Plan, range: Range<u64>, masked: &MaskedPositions) {
        let shown = masked.range(range.clone());
        let shown = shown.filter_map(|(seq, _)| Some((*seq, &self.get(*seq)?.shown)));
        keep_with_replacements(plan, range, shown);
    }

    fn get(&self, seq: u64) -> Option<&EntryMask> {
        self.by_entry.get(seq as usize)?.as_deref()
    }

    /// Memory use in bytes, including allocations.
    pub(super) fn size_bytes(&self) -> usize {
        self.by_entry.capacity() * size_of::<Option<Box<EntryMask>>>() + self.text_bytes
    }
}

impl EntryMask {
    fn size_bytes(&self) -> usize {
        let (ReplacementBody::Text(body) | ReplacementBody::Raw(body)) = &self.shown.body;
        size_of::<EntryMask>() + body.capacity() + self.shown.detail.capacity()
    }
}
