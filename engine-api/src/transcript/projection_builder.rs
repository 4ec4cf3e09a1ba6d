//! Builds the transcript that the next engine of a chain reads: the projection of the previous one's plan.
//!
//! Kept entries are not copied: the new transcript borrows their strings from the base transcript and holds a
//! handle to it. Valid plans keep calls and results together, so frames are carried over without parsing.

use std::sync::Arc;

use super::log::NewEntry;
use super::{Entry, Flags, Role, Transcript};
use crate::abi::view::{CHUNK_ENTRIES, EntryChunk, EntryHead, EntryTexts, TranscriptSnapshot};

/// Flags of calls and results, which do not depend on the text of an entry.
const PAIRING: Flags =
    Flags::TOOL_CALLS.with(Flags::ORPHAN).with(Flags::UNANSWERED).with(Flags::DISPLACED);

/// A replaced or inserted entry that several projections share.
#[derive(Clone, Debug)]
pub struct SharedEntry {
    timestamp_ms: i64,
    tokens: u32,
    flags: Flags,
    role: u8,
    kind: u8,
    texts: Arc<EntryTexts>,
}

impl SharedEntry {
    /// Its text.
    pub fn text(&self) -> &str {
        &self.texts.text
    }

    /// Its JSON.
    pub fn raw(&self) -> &str {
        &self.texts.raw
    }
}

impl From<NewEntry> for SharedEntry {
    fn from(entry: NewEntry) -> Self {
        SharedEntry {
            timestamp_ms: entry.timestamp_ms,
            tokens: u32::try_from(entry.tokens).unwrap_or(u32::MAX),
            flags: entry.flags,
            role: entry.role.code(),
            kind: entry.kind.code(),
            texts: Arc::new(EntryTexts {
                id: entry.id.into(),
                parent: entry.parent_id.into(),
                text: entry.text.into(),
                raw: entry.raw.into(),
            }),
        }
    }
}

/// Builds a transcript from the items of a projection, in order.
pub struct ProjectionBuilder {
    base: Transcript,
    epoch: u64,
    chunks: Vec<EntryChunk>,
    len: u64,
    tokens: u64,
    /// The frame of the last entry taken from the base: its position in the base and in the projection.
    frame: Option<(u64, u64)>,
    /// Number of entries inserted since then.
    inserted: u64,
    /// Whether entries were inserted inside that frame.
    is_broken: bool,
}

impl ProjectionBuilder {
    /// An empty projection of a transcript.
    pub fn new(base: &Transcript, epoch: u64) -> ProjectionBuilder {
        ProjectionBuilder {
            base: base.clone(),
            epoch,
            chunks: Vec::new(),
            len: 0,
            tokens: 0,
            frame: None,
            inserted: 0,
            is_broken: false,
        }
    }

    /// Appends an entry of the base. Positions must ascend; those past the end are ignored.
    pub fn keep(&mut self, seq: u64) {
        // A clone of the handle, so that the entry does not borrow `self`.
        let base = self.base.clone();
        let Some(entry) = base.get(seq) else { return };
        let tokens = u32::try_from(entry.tokens()).unwrap_or(u32::MAX);
        let head = self.head(&entry, entry.timestamp_ms(), tokens, entry.flags());
        self.push(tokens, |chunk| chunk.push_from_base(head, seq));
    }

    /// Appends an entry of the base with other text, the same role and the same calls.
    pub fn replace(&mut self, seq: u64, entry: &SharedEntry) {
        let base = self.base.clone();
        let Some(below) = base.get(seq) else { return };
        // Pairing does not depend on the text, so it is that of the base.
        let pairing = below.flags().0 & PAIRING.0;
        let flags = entry.flags.without(PAIRING).with(Flags(pairing));
        let head = self.head(&below, entry.timestamp_ms, entry.tokens, flags);
        self.push(entry.tokens, |chunk| chunk.push(head, entry.texts.clone()));
    }

    /// Appends an entry that is not in the base.
    pub fn insert(&mut self, entry: &SharedEntry) {
        let head = EntryHead {
            seq: self.len,
            ts_ms: entry.timestamp_ms,
            frame: self.len,
            tokens_before: self.tokens,
            tokens: entry.tokens,
            flags: entry.flags.0,
            role: entry.role,
            kind: entry.kind,
        };
        self.push(entry.tokens, |chunk| chunk.push(head, entry.texts.clone()));
        self.inserted += 1;
    }

    /// Returns the transcript.
    pub fn finish(self) -> Transcript {
        let chunks = self.chunks.into_iter().map(Arc::new).collect();
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        Transcript::new(TranscriptSnapshot::new(chunks, len, self.epoch).into_object())
    }

    fn head(&mut self, below: &Entry<'_>, ts_ms: i64, tokens: u32, flags: Flags) -> EntryHead {
        let (frame, more) = self.place(below);
        EntryHead {
            seq: self.len,
            ts_ms,
            frame,
            tokens_before: self.tokens,
            tokens,
            flags: flags.with(more).0,
            role: below.role().code(),
            kind: below.kind().code(),
        }
    }

    /// The frame of an entry of the base in the projection, and additional flags.
    fn place(&mut self, below: &Entry<'_>) -> (u64, Flags) {
        let is_result = below.role() == Role::Tool;
        // Insertions belong to a frame only if an entry of that frame follows them.
        let inserted = std::mem::take(&mut self.inserted);
        if let Some((_, frame)) = self.frame.filter(|(of, _)| *of == below.frame()) {
            (self.len - inserted..self.len).for_each(|seq| self.join(seq, frame));
            self.is_broken |= inserted > 0;
            let is_displaced = self.is_broken && is_result;
            return (frame, if is_displaced { Flags::DISPLACED } else { Flags::default() });
        }
        self.frame = Some((below.frame(), self.len));
        self.is_broken = false;
        // Valid plans never keep a result without its call; this marks those of an invalid one.
        let has_lost_its_call = is_result && !below.is_cut_point();
        (self.len, if has_lost_its_call { Flags::ORPHAN } else { Flags::default() })
    }

    fn join(&mut self, seq: u64, frame: u64) {
        let at = seq as usize;
        if let Some(chunk) = self.chunks.get_mut(at / CHUNK_ENTRIES) {
            chunk.set_frame(at % CHUNK_ENTRIES, frame);
        }
    }

    /// Appends an entry to the last chunk, or to a new one if it is full.
    fn push(&mut self, tokens: u32, put: impl FnOnce(&mut EntryChunk)) {
        if self.chunks.last().is_none_or(EntryChunk::is_full) {
            // Every chunk holds the base, because its entries may borrow from it after this builder
            // is gone.
            self.chunks.push(EntryChunk::with_base(self.base.clone().into_object()));
        }
        self.chunks.last_mut().map(put);
        self.len += 1;
        self.tokens += u64::from(tokens);
    }
}

impl std::fmt::Debug for ProjectionBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Projected").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
