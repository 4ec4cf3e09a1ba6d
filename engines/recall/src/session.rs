//! Engine state of one session: index, names, rules and files, updated entry by entry.
//!
//! It is derived from the transcript, so a restart or another branch costs one pass over it.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, EntryKind, Flags, Role, Transcript};
use ctxhost_engine_kit::cursor::TranscriptCursor;
use ctxhost_engine_kit::dialogue::{is_hidden, is_request};
use ctxhost_engine_kit::hash;
use ctxhost_engine_kit::name_ledger::NameLedger;
use ctxhost_engine_kit::search::{TermIndex, for_each_term, split_into_slices};
use ctxhost_engine_kit::summary::unwrap_summary;

use crate::entry_masks::EntryMasks;
use crate::files::FileReads;
use crate::folded::FoldedEntries;
use crate::layout::RequestLayout;
use crate::rules::UserRules;
use crate::vectors::SliceVectors;

/// Size of a slice, in tokens: a paragraph.
// User messages are short and lose more when cut, so their slices are larger.
const SLICE_TOKENS: u64 = 100;
const USER_SLICE_TOKENS: u64 = 200;
/// Bytes of a text that are indexed; a longer one is data.
const INDEXED_BYTES: usize = 200_000;
/// Bytes of the arguments of a call that are indexed; the topic is at the beginning.
const ARGUMENT_BYTES: usize = 2_000;

/// A pause that starts another conversation, in ms.
const PAUSE_MS: i64 = 30 * 60 * 1_000;
/// Maximum entries of a segment.
// Without a limit a session without pauses would be one segment, and every entry related to every
// other.
const SEGMENT_ENTRIES: u32 = 24;

/// Engine state of one session.
#[derive(Debug, Default)]
pub(crate) struct RecallSession {
    cursor: TranscriptCursor,
    pub(crate) index: TermIndex,
    /// By slice number of the index.
    pub(crate) slices: Vec<TextSlice>,
    /// By position in the transcript.
    pub(crate) entries: Vec<EntryFacts>,
    pub(crate) names: NameLedger,
    pub(crate) rules: UserRules,
    pub(crate) files: FileReads,
    /// Pinned entries, the first task and compaction summaries; never dropped.
    pub(crate) must_stay: Vec<u64>,
    /// User requests, oldest first.
    pub(crate) requests: Vec<u64>,
    pub(crate) newest_user: Option<u64>,
    /// After a summary the first user message is not the task.
    has_summary: bool,
    pub(crate) masks: EntryMasks,
    /// Fingerprints of the entries up to each position.
    fingerprints: Vec<u64>,
    newest_ms: i64,
    segment: u32,
    segment_entries: u32,
    /// The layout of the last request; `None` while everything fits.
    pub(crate) layout: Option<RequestLayout>,
    /// Whether the layout differs from the stored one.
    pub(crate) is_layout_new: bool,
    /// Entries that compactions removed; `None` until a tool needs them.
    pub(crate) folded: Option<Box<FoldedEntries>>,
    /// The vectors of slices; none without an embedder.
    pub(crate) vectors: SliceVectors,
    /// Whether the stored layout was loaded.
    pub(crate) is_restored: bool,
}

/// A part of an entry that can be found on its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextSlice {
    pub(crate) entry: u32,
    /// Byte range in the entry's text; empty for calls.
    start: u32,
    end: u32,
    /// Size in tokens.
    pub(crate) tokens: u32,
}

impl TextSlice {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Ranking data of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryFacts {
    first_slice: u32,
    end_slice: u32,
    /// Entries of one segment belong together.
    pub(crate) segment: u32,
    pub(crate) is_user: bool,
}

impl EntryFacts {
    pub(crate) fn slices(&self) -> Range<u32> {
        self.first_slice..self.end_slice
    }
}

impl RecallSession {
    /// Processes new entries and returns their positions. Starts over if the transcript does not
    /// continue the one that was read.
    pub(crate) fn follow(&mut self, transcript: &Transcript) -> Range<u64> {
        let new = self.cursor.advance(transcript);
        if new.start == 0 {
            let cursor = std::mem::take(&mut self.cursor);
            // A stored layout belongs to the transcript that was read before, unless none was.
            let is_restored = self.is_restored;
            // Vectors belong to texts, not to positions.
            let mut vectors = std::mem::take(&mut self.vectors);
            vectors.forget_slices();
            *self = RecallSession { cursor, vectors, is_restored, ..RecallSession::default() };
        }
        for entry in transcript.range(new.clone()) {
            self.read_entry(&entry);
            self.masks.write_before(transcript, &entry, &self.names);
        }
        new
    }

    /// Makes the texts of a transcript searchable, and nothing else.
    pub(crate) fn index_texts(&mut self, transcript: &Transcript) {
        for entry in transcript.iter() {
            self.update_protected(&entry);
            self.add_slices(&entry);
        }
    }

    /// Whether a compaction removed entries that were not read yet.
    pub(crate) fn misses_folded(&self, transcript: &Transcript) -> bool {
        self.folded.is_none() && (self.has_summary || transcript.epoch() > 0)
    }

    fn read_entry(&mut self, entry: &Entry<'_>) {
        self.add_fingerprint(entry);
        self.update_protected(entry);
        self.names.read_entry(entry);
        self.add_calls(entry);
        self.add_slices(entry);
        if entry.is_user_message() && !is_hidden(entry) {
            self.rules.read_message(entry.seq(), entry.text(), &self.names);
        }
        if entry.kind() == EntryKind::CompactionSummary {
            self.rules.read_summary(entry.seq(), &unwrap_summary(entry.text()), &self.names);
        }
    }

    fn add_fingerprint(&mut self, entry: &Entry<'_>) {
        // An edited entry keeps its id but not its size.
        let own = hash::fnv1a(entry.id()) ^ entry.tokens().rotate_left(32);
        let before = self.fingerprints.last().copied().unwrap_or_default();
        self.fingerprints.push(before.rotate_left(7) ^ own);
    }

    /// Fingerprint of the entries before a position.
    pub(crate) fn fingerprint_before(&self, end: u64) -> u64 {
        let last = end.checked_sub(1).and_then(|last| self.fingerprints.get(last as usize));
        last.copied().unwrap_or_default()
    }

    /// Updates the protected entries and the segment.
    fn update_protected(&mut self, entry: &Entry<'_>) {
        let is_summary = entry.kind() == EntryKind::CompactionSummary;
        self.has_summary |= is_summary;
        let is_first_task =
            entry.is_user_message() && self.newest_user.is_none() && !self.has_summary;
        if is_first_task || is_summary || entry.has(Flags::PINNED) {
            self.must_stay.push(entry.seq());
        }
        if entry.is_user_message() {
            self.newest_user = Some(entry.seq());
        }
        if is_request(entry) {
            self.requests.push(entry.seq());
        }
        // Negative differences (an imported history) are no pause.
        let is_pause = entry.timestamp_ms() - self.newest_ms > PAUSE_MS;
        if is_pause || self.segment_entries >= SEGMENT_ENTRIES {
            self.segment += 1;
            self.segment_entries = 0;
        }
        self.segment_entries += 1;
        self.newest_ms = self.newest_ms.max(entry.timestamp_ms());
    }

    fn add_calls(&mut self, entry: &Entry<'_>) {
        self.files.record_calls(&entry.tool_calls());
        if let Some(result) = entry.tool_result() {
            self.files.record_result(entry.seq(), &result);
        }
    }

    fn add_slices(&mut self, entry: &Entry<'_>) {
        let first_slice = self.slices.len() as u32;
        let is_user = entry.role() == Role::User && entry.kind() == EntryKind::Message;
        if !is_hidden(entry) && entry.kind() != EntryKind::CompactionSummary {
            let whole = entry.text();
            let text = whole.get(..whole.floor_char_boundary(INDEXED_BYTES)).unwrap_or_default();
            let most_tokens = if is_user { USER_SLICE_TOKENS } else { SLICE_TOKENS };
            for range in split_into_slices(text, most_tokens) {
                let part = text.get(range.clone()).unwrap_or_default();
                self.add_slice(entry, range, tokens::estimate(part), |pending| {
                    for_each_term(part, |term| pending.push(term));
                });
            }
            for call in entry.tool_calls() {
                let end = call.arguments.floor_char_boundary(ARGUMENT_BYTES);
                let arguments = call.arguments.get(..end).unwrap_or_default();
                // Calls are searchable but are never quoted as text.
                self.add_slice(entry, 0..0, 0, |pending| {
                    for_each_term(&call.name, |term| pending.push(term));
                    for_each_term(arguments, |term| pending.push(term));
                });
            }
        }
        let end_slice = self.slices.len() as u32;
        self.entries.push(EntryFacts { first_slice, end_slice, segment: self.segment, is_user });
    }

    fn add_slice(
        &mut self,
        entry: &Entry<'_>,
        text: Range<usize>,
        tokens: u64,
        fill: impl FnOnce(&mut Vec<u64>),
    ) {
        self.index.add(fill);
        self.slices.push(TextSlice {
            entry: entry.seq() as u32,
            start: text.start as u32,
            end: text.end as u32,
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
        });
    }

    /// Memory use of what was derived from the transcript, in bytes.
    pub(crate) fn index_bytes(&self) -> usize {
        self.index.size_bytes()
            + self.slices.capacity() * size_of::<TextSlice>()
            + self.entries.capacity() * size_of::<EntryFacts>()
            + self.fingerprints.capacity() * size_of::<u64>()
            + self.names.size_bytes()
            + self.masks.size_bytes()
            + self.vectors.size_bytes()
    }
}
