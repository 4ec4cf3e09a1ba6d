//! Engine state of one session: index and rules, updated entry by entry.
//!
//! It is derived from the transcript, so a restart or another branch costs one pass over it.

use std::ops::Range;

use ctxhost_engine_api::{Entry, EntryKind, Flags, Transcript};
use ctxhost_engine_kit::cursor::TranscriptCursor;
use ctxhost_engine_kit::dialogue::is_hidden;
use ctxhost_engine_kit::retrieval::{HistoryIndex, RequestLayout};
use ctxhost_engine_kit::rules::UserRules;
use ctxhost_engine_kit::summary::unwrap_summary;
use ctxhost_text::injected_text::request_text;

use crate::LAYER;
use crate::folded::FoldedEntries;
use crate::vectors::SliceVectors;

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
    /// Its groups are segments. Pinned entries, the first task and compaction summaries must stay.
    pub(crate) index: HistoryIndex,
    pub(crate) rules: UserRules,
    /// After a summary the first user message is not the task.
    has_summary: bool,
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
            self.read_entry(transcript, &entry);
        }
        new
    }

    /// Makes the texts of a transcript searchable, and nothing else.
    pub(crate) fn index_texts(&mut self, transcript: &Transcript) {
        for entry in transcript.iter() {
            self.update_protected(&entry);
            self.index.add_slices(&entry, self.segment);
        }
    }

    /// Whether a compaction removed entries that were not read yet.
    pub(crate) fn misses_folded(&self, transcript: &Transcript) -> bool {
        self.folded.is_none() && (self.has_summary || transcript.epoch() > 0)
    }

    fn read_entry(&mut self, transcript: &Transcript, entry: &Entry<'_>) {
        self.update_protected(entry);
        self.index.read_entry(transcript, entry, self.segment, LAYER);
        let names = &self.index.names;
        if entry.is_user_message() && !is_hidden(entry) {
            self.rules.read_message(entry.seq(), &request_text(entry), names);
        }
        if entry.kind() == EntryKind::CompactionSummary {
            self.rules.read_summary(entry.seq(), &unwrap_summary(entry.text()), names);
        }
    }

    /// Updates the protected entries and the segment.
    fn update_protected(&mut self, entry: &Entry<'_>) {
        let is_summary = entry.kind() == EntryKind::CompactionSummary;
        self.has_summary |= is_summary;
        let is_first_task =
            entry.is_user_message() && self.index.newest_user.is_none() && !self.has_summary;
        if is_first_task || is_summary || entry.has(Flags::PINNED) {
            self.index.must_stay.push(entry.seq());
        }
        if entry.is_user_message() {
            self.index.newest_user = Some(entry.seq());
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

    /// Memory use of what was derived from the transcript, in bytes.
    pub(crate) fn index_bytes(&self) -> usize {
        self.index.size_bytes() + self.vectors.size_bytes()
    }
}
