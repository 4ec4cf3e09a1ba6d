//! The outline: the nodes that stand for everything before the cut, finer where the prompt matches.

use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::{self, CHARS_PER_TOKEN};
use ctxhost_engine_kit::retrieval::RequestLayout;
use ctxhost_engine_kit::summary::wrap_untrusted;
use ctxhost_text::truncate::clip;
use serde::{Deserialize, Serialize};

use crate::node::{DagNode, NodeId, ROOT};
use crate::node_lines::{NodeLines, line_tokens};
use crate::replaced::hide_replaced;
use crate::session::DagSession;
use crate::settings::Settings;
use crate::shown_requests::ShownRequests;

/// The tag around the nodes.
const TAG: &str = "outline";
/// A shorter line, in tokens, would only name its id.
const LEAST_LINE_TOKENS: u64 = 20;
/// Nodes whose sources do not fit before an outline counts as full.
// Each asks for the lines of all its sources, of which a long session has thousands.
const MAX_MISSES: usize = 8;
/// The first line.
const LEAD_IN: &str =
    "Earlier parts of this conversation, oldest first, each with the id of its summary.";

/// What stands for the entries before the cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HistoryOutline {
    /// Ids of the nodes, oldest first.
    pub(crate) ids: Vec<String>,
    /// The message; empty without nodes.
    pub(crate) text: String,
}

/// The leaves that an outline covers.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutlineRange {
    /// Finished leaves.
    pub(crate) leaves: Range<usize>,
    /// The leaf that still grows, if a part of it is covered.
    pub(crate) draft: Option<DagNode>,
    /// Entries that are not shown otherwise.
    pub(crate) hidden: u64,
    /// The requests that are shown otherwise.
    pub(crate) shown: ShownRequests,
}

/// A node that can be refined. Best score first; of equal ones the newest, because work continues
/// there.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct RankedNode {
    score_bits: u32,
    /// The end of its leaves.
    end: usize,
    id: NodeId,
}

impl DagSession {
    /// The leaves with entries before a position.
    pub(crate) fn range_before(
        &self,
        cut: u64,
        hidden: u64,
        shown: ShownRequests,
        settings: &Settings,
    ) -> OutlineRange {
        let finished = self.tree.leaves();
        let starts_before = |live: &Range<u32>| !live.is_empty() && u64::from(live.start) < cut;
        // From the end: few leaves are behind the cut.
        let last = self.index.groups().iter().rposition(starts_before);
        let leaves = last.map_or(0, |leaf| leaf + 1).max(self.folded);
        let has_draft = leaves > finished;
        OutlineRange {
            leaves: 0..leaves.min(finished),
            draft: has_draft.then(|| self.draft.finish(settings)),
            hidden,
            shown,
        }
    }

    /// The leaves before the cut of a layout that its head does not show, because short moves took them out of the
    /// newest entries.
    pub(crate) fn range_behind_head(
        &self,
        layout: &RequestLayout,
        shown: ShownRequests,
        settings: &Settings,
    ) -> OutlineRange {
        let mut range = self.range_before(layout.cut, layout.hidden(), shown, settings);
        let starts_before = |live: &Range<u32>| u64::from(live.start) < layout.head_cut;
        let known = self.index.groups().partition_point(starts_before);
        // The last leaf of the head may have grown since.
        let line = |leaf: usize| {
            let id = NodeId::leaf(leaf);
            self.tree.get(id).map(|node| node.line_with(&id.to_string(), ""))
        };
        let has_grown = |leaf: &usize| line(*leaf).is_none_or(|line| !layout.head.contains(&line));
        let first = known.checked_sub(1).filter(has_grown).unwrap_or(known);
        range.leaves.start = first.min(range.leaves.end);
        range
    }

    /// The finest outline that fits: the fewest nodes, then finer ones where a leaf scores, then
    /// the newest. If even the fewest nodes do not fit, their lines are cut; if little would be left
    /// of them, one line stands for all.
    pub(crate) fn outline(
        &self,
        range: &OutlineRange,
        scores: &BTreeMap<u32, f32>,
        room_tokens: u64,
        settings: &Settings,
    ) -> HistoryOutline {
        let mut ids = self.tree.cover(range.leaves.clone(), settings);
        if ids.is_empty() && range.draft.is_none() {
            return HistoryOutline::default();
        }
        let draft_tokens = range.draft.as_ref().map_or(0, |draft| {
            line_tokens(&draft.line_with("d0-0", &range.shown.text_beside(draft, 0)))
        });
        let mut lines = NodeLines::new(self, &range.shown);
        let spent_tokens = ids.iter().map(|id| lines.tokens(*id)).sum::<u64>() + draft_tokens;
        let free_tokens = room_tokens.checked_sub(frame_tokens() + spent_tokens);
        if let Some(free_tokens) = free_tokens {
            self.refine(&mut ids, scores, &mut lines, free_tokens, settings);
            let outline = self.render(&ids, range, &mut lines, u64::MAX);
            if tokens::estimate(&outline.text) <= room_tokens {
                return outline;
            }
        }
        // Nothing fits whole: every node gets the same part, so that no time of the session disappears.
        let count = ids.len() as u64 + u64::from(range.draft.is_some());
        let room_tokens = room_tokens.saturating_sub(frame_tokens());
        let line_tokens = (room_tokens / count).saturating_sub(1);
        if line_tokens < LEAST_LINE_TOKENS {
            // Where the head has an outline, it says already that there is more.
            let is_whole = range.leaves.start == 0;
            return if is_whole { root_line(range) } else { HistoryOutline::default() };
        }
        self.render(&ids, range, &mut lines, line_tokens)
    }

    /// Replaces nodes by their sources, best first, as long as there is room.
    fn refine(
        &self,
        ids: &mut Vec<NodeId>,
        scores: &BTreeMap<u32, f32>,
        lines: &mut NodeLines<'_>,
        free_tokens: u64,
        settings: &Settings,
    ) {
        let mut free_tokens = free_tokens;
        // Leaves cannot be refined; their entries are found by the search.
        let inner = |ids: &[NodeId]| -> Vec<RankedNode> {
            let inner = ids.iter().filter(|id| id.depth > 0);
            inner.map(|id| self.ranked(*id, scores, settings)).collect()
        };
        let mut open = BinaryHeap::from(inner(ids));
        let mut misses = 0;
        while misses < MAX_MISSES
            && let Some(RankedNode { id, .. }) = open.pop()
        {
            let sources = self.tree.sources(id, settings);
            let cost: u64 = sources.iter().map(|id| lines.tokens(*id)).sum();
            // A better node that does not fit lets smaller ones pass.
            let Some(rest) = (free_tokens + lines.tokens(id)).checked_sub(cost) else {
                misses += 1;
                continue;
            };
            free_tokens = rest;
            if let Some(place) = ids.iter().position(|known| *known == id) {
                open.extend(inner(&sources));
                ids.splice(place..=place, sources);
            }
        }
    }

    /// The best leaves that fit, in order; empty for none.
    pub(crate) fn render_leaves(
        &self,
        best: impl Iterator<Item = usize>,
        room_tokens: u64,
    ) -> String {
        let Some(mut free_tokens) = room_tokens.checked_sub(frame_tokens()) else {
            return String::new();
        };
        let mut ids = Vec::new();
        let range = OutlineRange::default();
        let mut lines = NodeLines::new(self, &range.shown);
        for id in best.map(NodeId::leaf) {
            let Some(rest) = free_tokens.checked_sub(lines.tokens(id)) else {
                break;
            };
            free_tokens = rest;
            ids.push(id);
        }
        if ids.is_empty() {
            return String::new();
        }
        ids.sort_unstable();
        self.render(&ids, &range, &mut lines, u64::MAX).text
    }

    fn ranked(&self, id: NodeId, scores: &BTreeMap<u32, f32>, settings: &Settings) -> RankedNode {
        let range = self.tree.leaf_range(id, settings);
        let end = range.end;
        let range = range.start as u32..range.end as u32;
        let score = scores.range(range).map(|(_, score)| *score).fold(0.0, f32::max);
        // Of numbers that are not negative the bits have the same order.
        RankedNode { score_bits: score.to_bits(), end, id }
    }

    /// Renders nodes, each in at most `line_tokens`, and the draft of the range, without replaced rules.
    fn render(
        &self,
        ids: &[NodeId],
        range: &OutlineRange,
        lines: &mut NodeLines<'_>,
        line_tokens: u64,
    ) -> HistoryOutline {
        let line_chars = line_tokens.saturating_mul(CHARS_PER_TOKEN);
        let mut ids_and_lines: Vec<(String, String)> = Vec::new();
        for id in ids {
            ids_and_lines.push((id.to_string(), clip(lines.get(*id), line_chars).into_owned()));
        }
        if let Some(draft) = &range.draft {
            let id = NodeId::leaf(self.tree.leaves()).to_string();
            let line = draft.line_with(&id, &range.shown.text_beside(draft, 0));
            ids_and_lines.push((id, clip(&line, line_chars).into_owned()));
        }
        let (ids, lines): (Vec<String>, Vec<String>) = ids_and_lines.into_iter().unzip();
        let rules: Vec<&str> = self.rules.replaced_texts().collect();
        let lines = hide_replaced(&lines.join("\n"), &rules, self.rules.withdrawn_texts());
        let text = wrap_untrusted(TAG, &format!("{LEAD_IN}\n{lines}"));
        HistoryOutline { ids, text }
    }
}

/// One line for everything.
fn root_line(range: &OutlineRange) -> HistoryOutline {
    let noun = if range.hidden == 1 { "entry" } else { "entries" };
    let text = format!("[{ROOT}: {} earlier {noun}]", range.hidden);
    HistoryOutline { ids: vec![ROOT.to_owned()], text }
}

/// Size of the message without its nodes, in tokens.
fn frame_tokens() -> u64 {
    tokens::estimate(&wrap_untrusted(TAG, LEAD_IN)) + 2
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    #[test]
    fn leaves_that_a_prompt_finds_show_no_replaced_rule() {
        let mut talk = TranscriptBuilder::new();
        talk.user("Always deploy to region eu_west_1.").assistant("Noted.");
        (0..20).for_each(|at| _ = talk.user(&format!("Explain part {at}.")).assistant("It reads."));
        talk.user("From now on deploy to region us_east_7 instead.").assistant("Noted.");
        let (mut session, settings) = (DagSession::default(), Settings::default());
        session.follow(&talk.transcript(), &settings);
        let leaves = session.render_leaves(0..session.tree.leaves(), 4_000);
        assert!(leaves.contains("[replaced]") && !leaves.contains("eu_west_1"), "{leaves}");
    }
}
