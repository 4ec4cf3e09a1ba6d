//! The index of a session: slices to search, names, masks and file reads, updated entry by entry.
//!
//! It is derived from the transcript, so a restart or another branch costs one pass over it. An entry
//! belongs to a group, such as the entries up to a pause, whose entries are found together.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, EntryKind, Role, Transcript};

use crate::dialogue::is_hidden;
use crate::name_ledger::NameLedger;
use crate::requests::RequestList;
use ctxhost_text::hash;
use ctxhost_text::search::{TermIndex, for_each_term, split_into_slices};

use super::entry_masks::EntryMasks;
use super::file_reads::FileReads;

/// Stands for no entry or no group.
pub const NO_ENTRY: u32 = u32::MAX;

/// Size of a slice, in tokens: a paragraph.
// User messages are short and lose more when cut, so their slices are larger.
pub(super) const SLICE_TOKENS: u64 = 100;
const USER_SLICE_TOKENS: u64 = 200;
/// Bytes of a text that are indexed; a longer one is data.
const INDEXED_BYTES: usize = 200_000;
/// Bytes of the arguments of a call that are indexed; the topic is at the beginning.
const ARGUMENT_BYTES: usize = 2_000;
/// Number of newest entries that are searched for tool results.
const AGENT_ENTRIES: u64 = 40;

/// The index of one session.
#[derive(Debug, Default)]
pub struct HistoryIndex {
    pub(super) terms: TermIndex,
    pub(super) slices: Vec<TextSlice>,
    pub(super) entries: Vec<EntryRow>,
    groups: Vec<Range<u32>>,
    /// The names of all entries.
    pub names: NameLedger,
    pub(super) files: FileReads,
    pub(super) masks: EntryMasks,
    pub(super) requests: RequestList,
    /// Pinned entries and whatever else the engine never drops.
    pub must_stay: Vec<u64>,
    /// The newest message of the user.
    pub newest_user: Option<u64>,
    /// The newest entry with a plan.
    pub(super) newest_plan: Option<u64>,
    /// Fingerprints of the entries up to each position.
    fingerprints: Vec<u64>,
}

/// A part of an entry that can be found on its own.
#[derive(Clone, Copy, Debug)]
pub struct TextSlice {
    /// Position of the entry; [`NO_ENTRY`] for a text that is in no live entry.
    pub entry: u32,
    /// Number of its group.
    pub group: u32,
    /// Byte range in the entry's text; empty for calls.
    start: u32,
    bytes: u16,
    /// Size in tokens.
    pub tokens: u16,
}

impl TextSlice {
    /// Byte range in the entry's text; empty for calls.
    pub fn range(&self) -> Range<usize> {
        let start = self.start as usize;
        start..start + usize::from(self.bytes)
    }
}

/// Ranking data of an entry.
#[derive(Clone, Copy, Debug)]
pub struct EntryRow {
    first_slice: u32,
    end_slice: u32,
    /// Entries of one group belong together.
    pub group: u32,
    /// Whether the user wrote it.
    pub is_user: bool,
}

impl EntryRow {
    /// The numbers of its slices.
    pub fn slices(&self) -> Range<u32> {
        self.first_slice..self.end_slice
    }
}

impl HistoryIndex {
    /// Reads the next entry. Masks are written in the name of `layer`. An entry whose text the engine has
    /// elsewhere is in no group ([`NO_ENTRY`]).
    pub fn read_entry(
        &mut self,
        transcript: &Transcript,
        entry: &Entry<'_>,
        group: u32,
        layer: &'static str,
    ) {
        self.add_fingerprint(entry);
        self.names.read_entry(entry);
        self.requests.read_entry(transcript, entry);
        self.read_plan(entry);
        self.files.record_calls(&entry.tool_calls());
        if let Some(result) = entry.tool_result() {
            self.files.record_result(entry.seq(), &result);
        }
        self.add_slices(entry, group);
        self.masks.write_before(transcript, entry, &self.names, layer);
    }

    fn add_fingerprint(&mut self, entry: &Entry<'_>) {
        // An edited entry keeps its id but not its size.
        let own = hash::fnv1a(entry.id()) ^ entry.tokens().rotate_left(32);
        let before = self.fingerprints.last().copied().unwrap_or_default();
        self.fingerprints.push(before.rotate_left(7) ^ own);
    }

    /// Fingerprint of the entries before a position.
    pub fn fingerprint_before(&self, end: u64) -> u64 {
        let last = end.checked_sub(1).and_then(|last| self.fingerprints.get(last as usize));
        last.copied().unwrap_or_default()
    }

    /// Makes the text of the next entry searchable.
    pub fn add_slices(&mut self, entry: &Entry<'_>, group: u32) {
        let first_slice = self.slices.len() as u32;
        let is_user = entry.role() == Role::User && entry.kind() == EntryKind::Message;
        let seq = entry.seq() as u32;
        if !is_hidden(entry) && entry.kind() != EntryKind::CompactionSummary {
            let whole = entry.text();
            let text = whole.get(..whole.floor_char_boundary(INDEXED_BYTES)).unwrap_or_default();
            let most_tokens = if is_user { USER_SLICE_TOKENS } else { SLICE_TOKENS };
            for range in split_into_slices(text, most_tokens) {
                let part = text.get(range.clone()).unwrap_or_default();
                self.add_slice(seq, group, range, tokens::estimate(part), |terms| {
                    for_each_term(part, |term| terms.push(term));
                });
            }
            for call in entry.tool_calls() {
                let end = call.arguments.floor_char_boundary(ARGUMENT_BYTES);
                let arguments = call.arguments.get(..end).unwrap_or_default();
                // Calls are searchable but are never quoted as text.
                self.add_slice(seq, group, 0..0, 0, |terms| {
                    for_each_term(&call.name, |term| terms.push(term));
                    for_each_term(arguments, |term| terms.push(term));
                });
            }
        }
        self.push_row(first_slice, group, is_user);
    }

    fn push_row(&mut self, first_slice: u32, group: u32, is_user: bool) {
        let seq = self.entries.len() as u32;
        let end_slice = self.slices.len() as u32;
        self.entries.push(EntryRow { first_slice, end_slice, group, is_user });
        if group == NO_ENTRY {
            return;
        }
        self.add_groups(group as usize + 1);
        if let Some(range) = self.groups.get_mut(group as usize) {
            let start = if range.start == range.end { seq } else { range.start };
            *range = start..seq + 1;
        }
    }

    /// Makes a text searchable that is in no live entry.
    pub fn add_text(&mut self, text: &str, group: u32) {
        self.add_groups(group as usize + 1);
        self.add_slice(NO_ENTRY, group, 0..0, 0, |terms| {
            for_each_term(text, |term| terms.push(term));
        });
    }

    fn add_groups(&mut self, count: usize) {
        if self.groups.len() < count {
            self.groups.resize(count, 0..0);
        }
    }

    fn add_slice(
        &mut self,
        entry: u32,
        group: u32,
        text: Range<usize>,
        tokens: u64,
        fill: impl FnOnce(&mut Vec<u64>),
    ) {
        self.terms.add(fill);
        self.slices.push(TextSlice {
            entry,
            group,
            start: text.start as u32,
            // A slice has at most some hundred tokens, so both fit.
            bytes: u16::try_from(text.len()).unwrap_or(u16::MAX),
            tokens: u16::try_from(tokens).unwrap_or(u16::MAX),
        });
    }

    /// The positions between the first and the last entry of each group; empty for a group without live
    /// entries.
    pub fn groups(&self) -> &[Range<u32>] {
        &self.groups
    }

    /// The slices of all entries, by number.
    pub fn slices(&self) -> &[TextSlice] {
        &self.slices
    }

    /// Number of entries that were read.
    pub fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Whether no entry was read.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the newest entries use tools.
    pub fn uses_tools(&self, transcript: &Transcript) -> bool {
        let len = transcript.len() as u64;
        let newest = transcript.range(len.saturating_sub(AGENT_ENTRIES)..len);
        newest.into_iter().any(|entry| entry.role() == Role::Tool)
    }

    /// Memory use of what was derived from the transcript, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.terms.size_bytes()
            + self.slices.capacity() * size_of::<TextSlice>()
            + self.entries.capacity() * size_of::<EntryRow>()
            + self.groups.capacity() * size_of::<Range<u32>>()
            + self.fingerprints.capacity() * size_of::<u64>()
            + self.names.size_bytes()
            + self.masks.size_bytes()
            + self.requests.size_bytes()
    }
}
