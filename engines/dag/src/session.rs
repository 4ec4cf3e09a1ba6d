//! Engine state of one session: the tree of nodes and an index of the live entries.
//!
//! The tree covers the whole session. A compaction only changes which entries are live: its summary
//! names the leaves that it folds, and these leaves stay in the tree.

use std::collections::HashMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, EntryKind, Flags, Role, Transcript};
use ctxhost_engine_kit::circuit_breaker::CircuitBreaker;
use ctxhost_engine_kit::cursor::TranscriptCursor;
use ctxhost_engine_kit::dialogue::is_hidden;
use ctxhost_engine_kit::search::{TermIndex, for_each_term, split_into_slices};

use crate::compaction::folded_leaves;
use crate::leaf::LeafDraft;
use crate::node::{DagNode, NodeId};
use crate::settings::Settings;
use crate::tree::NodeTree;
use crate::view::RequestView;

/// Size of a slice, in tokens: a paragraph.
// User messages are short and lose more when cut, so their slices are larger.
const SLICE_TOKENS: u64 = 100;
const USER_SLICE_TOKENS: u64 = 200;
/// Bytes of a text that are indexed; a longer one is data.
const INDEXED_BYTES: usize = 200_000;
/// Bytes of the arguments of a call that are indexed; the topic is at the beginning.
const ARGUMENT_BYTES: usize = 2_000;

/// Stands for no entry or no leaf.
pub(crate) const NONE: u32 = u32::MAX;

/// Engine state of one session.
#[derive(Debug, Default)]
pub(crate) struct DagSession {
    cursor: TranscriptCursor,
    /// Epoch of the transcript that was read.
    epoch: Option<u64>,
    pub(crate) tree: NodeTree,
    /// Nodes of the time before the last reset, and stored ones.
    known: NodeTree,
    /// The newest leaf, which still grows; its number is that of the finished leaves.
    pub(crate) draft: LeafDraft,
    /// The draft that the last compaction folded; it becomes a leaf if the compaction is applied.
    pub(crate) folded_draft: Option<(usize, DagNode)>,
    /// Leaves that compactions folded.
    pub(crate) folded: usize,
    /// Leaves restored from the history for the next reset.
    restored: Option<usize>,
    /// End of the newest summary of this engine.
    pub(crate) live_start: u64,
    pub(crate) index: TermIndex,
    /// By slice number of the index.
    pub(crate) slices: Vec<EntrySlice>,
    /// By position.
    pub(crate) entries: Vec<EntryRow>,
    /// Positions of the live entries of each leaf and of the draft.
    pub(crate) leaf_entries: Vec<Range<u32>>,
    /// Pinned entries and summaries of other engines.
    pub(crate) must_stay: Vec<u64>,
    pub(crate) newest_user: Option<u64>,
    /// The view of the last request; `None` while everything fits.
    pub(crate) view: Option<RequestView>,
    /// Whether the view differs from the stored one.
    pub(crate) is_view_new: bool,
    /// Whether stored state was loaded.
    pub(crate) is_loaded: bool,
    /// Number of stored nodes by depth.
    pub(crate) stored: Vec<usize>,
    pub(crate) model_failures: CircuitBreaker,
}

/// A part of an entry, or a folded leaf, that can be found on its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntrySlice {
    /// Position of the entry; [`NONE`] for a folded leaf.
    pub(crate) entry: u32,
    pub(crate) leaf: u32,
    /// Byte range in the entry's text; empty for calls and leaves.
    start: u32,
    end: u32,
    /// Size in tokens.
    pub(crate) tokens: u32,
}

impl EntrySlice {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Ranking data of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryRow {
    first_slice: u32,
    end_slice: u32,
    pub(crate) leaf: u32,
    pub(crate) is_user: bool,
}

impl EntryRow {
    pub(crate) fn slices(&self) -> Range<u32> {
        self.first_slice..self.end_slice
    }
}

impl DagSession {
    /// Processes new entries and returns their positions. Starts over if the transcript does not
    /// continue the one that was read.
    pub(crate) fn follow(&mut self, transcript: &Transcript, settings: &Settings) -> Range<u64> {
        let new = self.cursor.advance(transcript);
        let mut folded_ids = HashMap::new();
        if new.start == 0 {
            folded_ids = self.reset(transcript, settings);
        }
        for entry in transcript.range(new.clone()) {
            let folded = folded_ids.get(entry.id()).copied();
            self.read_entry(transcript, &entry, folded, settings);
        }
        new
    }

    /// Adds stored nodes to those that are used again.
    pub(crate) fn add_known(&mut self, nodes: NodeTree) {
        self.stored = nodes.levels().iter().map(Vec::len).collect();
        self.known = nodes;
    }

    /// Uses leaves from the history in place of the folded ones, which were lost.
    pub(crate) fn restore_folded(&mut self, leaves: Vec<DagNode>, settings: &Settings) {
        self.restored = Some(leaves.len());
        self.tree = NodeTree::default();
        self.stored.clear();
        let mut known = NodeTree::default();
        leaves.into_iter().for_each(|leaf| known.push_leaf(leaf, &NodeTree::default(), settings));
        self.known = known;
        self.cursor = TranscriptCursor::default();
    }

    /// Whether a transcript folds more leaves than are known.
    pub(crate) fn has_lost_leaves(&self, transcript: &Transcript, settings: &Settings) -> bool {
        let folded = newest_fold(transcript, settings).map_or(0, |(_, folded)| folded);
        let draft = self.folded_draft.as_ref().map_or(0, |(index, _)| index + 1);
        folded > self.tree.leaves().max(self.known.leaves()).max(draft)
    }

    /// Whether this is the first transcript, or one after a compaction or undo.
    pub(crate) fn is_epoch_new(&self, transcript: &Transcript) -> bool {
        self.epoch != Some(transcript.epoch())
    }

    /// Starts over with the folded leaves, and returns the leaf of each of their entries.
    fn reset(&mut self, transcript: &Transcript, settings: &Settings) -> HashMap<String, u32> {
        let before = std::mem::take(self);
        let mut known = if before.tree.leaves() > 0 { before.tree } else { before.known };
        if let Some((index, leaf)) = before.folded_draft
            && index <= known.leaves()
        {
            known.truncate(index, settings);
            known.push_leaf(leaf, &NodeTree::default(), settings);
        }
        *self = DagSession {
            cursor: before.cursor,
            known,
            view: before.view.filter(|_| before.epoch.is_none()),
            is_loaded: before.is_loaded,
            epoch: Some(transcript.epoch()),
            stored: before.stored,
            model_failures: before.model_failures,
            ..DagSession::default()
        };
        let fold = newest_fold(transcript, settings);
        let folded = before.restored.filter(|_| fold.is_some()).or(fold.map(|(_, folded)| folded));
        let folded = folded.filter(|folded| *folded <= self.known.leaves()).unwrap_or(0);
        if folded > 0 {
            self.folded = folded;
            self.live_start = fold.map_or(0, |(seq, _)| seq + 1);
        }
        let mut leaf_of = HashMap::new();
        let known = std::mem::take(&mut self.known);
        for index in 0..folded {
            let Some(leaf) = known.get(NodeId::leaf(index)) else { break };
            leaf_of.extend(leaf.sources.iter().map(|id| (id.clone(), index as u32)));
            self.add_slice(NONE, index as u32, 0..0, 0, |terms| {
                for_each_term(&leaf.text, |term| terms.push(term));
            });
            self.leaf_entries.push(0..0);
            self.tree.push_leaf(leaf.clone(), &known, settings);
        }
        self.known = known;
        self.leaf_entries.push(0..0);
        leaf_of
    }

    fn read_entry(
        &mut self,
        transcript: &Transcript,
        entry: &Entry<'_>,
        folded: Option<u32>,
        settings: &Settings,
    ) {
        let is_summary = entry.kind() == EntryKind::CompactionSummary;
        let is_folded_here =
            is_summary && entry.seq() < self.live_start && is_own_summary(entry, settings);
        if is_folded_here {
            // The tree has its contents.
            let slices = self.slices.len() as u32;
            self.entries.push(EntryRow {
                first_slice: slices,
                end_slice: slices,
                leaf: NONE,
                is_user: false,
            });
            return;
        }
        if is_summary || entry.has(Flags::PINNED) {
            self.must_stay.push(entry.seq());
        }
        if entry.is_user_message() {
            self.newest_user = Some(entry.seq());
        }
        let leaf = folded.unwrap_or_else(|| self.add_to_draft(transcript, entry, settings));
        // Also for a folded leaf: a part of it may still be live.
        if let Some(range) = self.leaf_entries.get_mut(leaf as usize) {
            let seq = entry.seq() as u32;
            let start = if range.start == range.end { seq } else { range.start };
            *range = start..seq + 1;
        }
        self.add_slices(entry, leaf);
    }

    /// Adds an entry to the newest leaf, or to the next one, and returns its number.
    fn add_to_draft(
        &mut self,
        transcript: &Transcript,
        entry: &Entry<'_>,
        settings: &Settings,
    ) -> u32 {
        // A leaf never separates a call from its results.
        let may_end = entry.is_cut_point();
        let is_request = entry.is_user_message();
        if may_end && self.draft.ends_before(is_request, entry.timestamp_ms(), settings) {
            let draft = std::mem::take(&mut self.draft);
            let leaf = self.with_known_text(draft.finish(settings), settings);
            self.tree.push_leaf(leaf, &self.known, settings);
            self.leaf_entries.push(0..0);
        }
        self.draft.push(transcript, entry);
        self.tree.leaves() as u32
    }

    /// A finished leaf with what a model wrote for it before a restart. One that differs from the
    /// stored one is stored again, with the nodes above it.
    fn with_known_text(&mut self, mut leaf: DagNode, settings: &Settings) -> DagNode {
        let index = self.tree.leaves();
        let known = self.known.get(NodeId::leaf(index));
        match known.filter(|known| known.fingerprint == leaf.fingerprint) {
            Some(known) if known.written.is_some() => {
                leaf.written.clone_from(&known.written);
                leaf.render(settings.leaf_text_tokens);
            }
            Some(_) => {}
            None => self.mark_leaf_changed(index, settings),
        }
        leaf
    }

    fn add_slices(&mut self, entry: &Entry<'_>, leaf: u32) {
        let first_slice = self.slices.len() as u32;
        let is_user = entry.role() == Role::User && entry.kind() == EntryKind::Message;
        if !is_hidden(entry) && entry.kind() != EntryKind::CompactionSummary {
            let whole = entry.text();
            let text = whole.get(..whole.floor_char_boundary(INDEXED_BYTES)).unwrap_or_default();
            let most_tokens = if is_user { USER_SLICE_TOKENS } else { SLICE_TOKENS };
            for range in split_into_slices(text, most_tokens) {
                let part = text.get(range.clone()).unwrap_or_default();
                let size = tokens::estimate(part);
                self.add_slice(entry.seq() as u32, leaf, range, size, |terms| {
                    for_each_term(part, |term| terms.push(term));
                });
            }
            for call in entry.tool_calls() {
                let end = call.arguments.floor_char_boundary(ARGUMENT_BYTES);
                let arguments = call.arguments.get(..end).unwrap_or_default();
                // Calls are searchable but are never quoted as text.
                self.add_slice(entry.seq() as u32, leaf, 0..0, 0, |terms| {
                    for_each_term(&call.name, |term| terms.push(term));
                    for_each_term(arguments, |term| terms.push(term));
                });
            }
        }
        let end_slice = self.slices.len() as u32;
        self.entries.push(EntryRow { first_slice, end_slice, leaf, is_user });
    }

    fn add_slice(
        &mut self,
        entry: u32,
        leaf: u32,
        text: Range<usize>,
        tokens: u64,
        fill: impl FnOnce(&mut Vec<u64>),
    ) {
        self.index.add(fill);
        self.slices.push(EntrySlice {
            entry,
            leaf,
            start: text.start as u32,
            end: text.end as u32,
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
        });
    }

    /// Memory use of the index and its slices, in bytes.
    pub(crate) fn index_bytes(&self) -> usize {
        self.index.size_bytes()
            + self.slices.capacity() * size_of::<EntrySlice>()
            + self.entries.capacity() * size_of::<EntryRow>()
    }
}

fn is_own_summary(entry: &Entry<'_>, settings: &Settings) -> bool {
    folded_leaves(entry.text(), settings.fanout).is_some()
}

/// The newest summary of this engine: its position and the number of leaves that it folds.
pub(crate) fn newest_fold(transcript: &Transcript, settings: &Settings) -> Option<(u64, usize)> {
    let summaries = transcript.iter().filter(|entry| entry.kind() == EntryKind::CompactionSummary);
    // Summaries precede what was said after them.
    let mut folds = summaries.filter_map(|entry| {
        folded_leaves(entry.text(), settings.fanout).map(|folded| (entry.seq(), folded))
    });
    folds.next_back()
}
