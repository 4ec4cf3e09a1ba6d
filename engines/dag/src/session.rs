//! Engine state of one session: the tree of nodes and an index of the live entries.
//!
//! The tree covers the whole session. A compaction only changes which entries are live: its summary
//! names the leaves that it folds, and these leaves stay in the tree.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use ctxhost_engine_api::{Entry, EntryKind, Flags, Transcript};
use ctxhost_engine_kit::circuit_breaker::CircuitBreaker;
use ctxhost_engine_kit::cursor::TranscriptCursor;
use ctxhost_engine_kit::dialogue::is_hidden;
use ctxhost_engine_kit::retrieval::{HistoryIndex, NO_ENTRY, RequestLayout, TextNames};
use ctxhost_engine_kit::rules::UserRules;
use ctxhost_engine_kit::summary::unwrap_summary;
use ctxhost_text::injected_text::request_text;

use crate::LAYER;
use crate::compaction::folded_leaves;
use crate::leaf::LeafDraft;
use crate::node::{DagNode, NodeId};
use crate::node_lines::RenderedLine;
use crate::settings::Settings;
use crate::tree::NodeTree;

/// Position of the rules of folded entries: before all live ones.
const FOLDED_SEQ: u64 = 0;

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
    /// Its groups are the leaves and the draft; texts without an entry are folded leaves. Pinned entries and
    /// summaries of other engines must stay.
    pub(crate) index: HistoryIndex,
    /// The lines of the nodes that outlines asked for.
    pub(crate) rendered_lines: RefCell<HashMap<NodeId, Arc<RenderedLine>>>,
    /// The names in the lines of the newest outline.
    pub(crate) line_names: RefCell<TextNames>,
    /// The user's rules, also those in summaries.
    pub(crate) rules: UserRules,
    /// The layout of the last request; `None` while everything fits.
    pub(crate) layout: Option<RequestLayout>,
    /// Whether the layout differs from the stored one.
    pub(crate) is_layout_new: bool,
    /// The stored layout, before the transcript was read.
    pub(crate) stored_layout: Option<String>,
    /// Whether stored state was loaded.
    pub(crate) is_loaded: bool,
    /// Number of stored nodes by depth.
    pub(crate) stored: Vec<usize>,
    pub(crate) model_failures: CircuitBreaker,
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
            stored_layout: before.stored_layout.filter(|_| before.epoch.is_none()),
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
            self.index.add_text(&leaf.text, index as u32);
            // A folded rule may be replaced by a live one, and its leaf still holds it.
            for rule in leaf.rules() {
                self.rules.read_message(FOLDED_SEQ, rule, &self.index.names);
            }
            self.tree.push_leaf(leaf.clone(), &known, settings);
        }
        self.known = known;
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
            self.index.read_entry(transcript, entry, NO_ENTRY, LAYER);
            self.read_rules(entry);
            return;
        }
        if is_summary || entry.has(Flags::PINNED) {
            self.index.must_stay.push(entry.seq());
        }
        if entry.is_user_message() {
            self.index.newest_user = Some(entry.seq());
        }
        let leaf = folded.unwrap_or_else(|| self.add_to_draft(transcript, entry, settings));
        // Also for a folded leaf: a part of it may still be live.
        self.index.read_entry(transcript, entry, leaf, LAYER);
        self.read_rules(entry);
    }

    fn read_rules(&mut self, entry: &Entry<'_>) {
        let names = &self.index.names;
        if entry.is_user_message() && !is_hidden(entry) {
            self.rules.read_message(entry.seq(), &request_text(entry), names);
        } else if entry.kind() == EntryKind::CompactionSummary {
            self.rules.read_summary(entry.seq(), &unwrap_summary(entry.text()), names);
        }
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
