//! Compaction on request: folds the older entries into their nodes.
//!
//! The summary is an outline, and its last line states how many leaves are folded. The next epoch
//! keeps these leaves in the tree, so every node still leads to its entries.

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{CompactRequest, Compaction, Transcript};
use ctxhost_engine_kit::requests::RequestRoom;
use ctxhost_engine_kit::retrieval::{RequestLayout, covering_plan};
use ctxhost_engine_kit::settings::share_of;
use ctxhost_engine_kit::shortening::shorten_or_nothing;
use ctxhost_engine_kit::summary::{Provenance, wrap_summary};

use crate::node::{DagNode, NodeId};
use crate::session::DagSession;
use crate::settings::Settings;
use crate::shown_requests::ShownRequests;
use crate::{LAYER, STYLE};

/// Writer name in the envelope of a summary.
const WRITER: &str = "dag";
/// Size after a compaction as a share of the smaller of budget and history.
const KEPT_SHARE: f64 = 0.6;
/// Share of that for the nodes. The host allows half of the budget.
const OUTLINE_SHARE: f64 = 0.35;
/// Share of it for names that nothing else shows.
const NAME_SHARE: f64 = 0.1;
/// Size of the envelope of a summary, in tokens.
const ENVELOPE_TOKENS: u64 = 60;

/// The last line of a summary: `[dag: 38 leaves folded, fanout 6]`.
fn fold_line(leaves: usize, fanout: u64) -> String {
    format!("[{WRITER}: {leaves} leaves folded, fanout {fanout}]")
}

/// Number of leaves that a summary of this engine folds; `None` for other summaries, and for those
/// of another fanout, whose ids mean other nodes.
pub(crate) fn folded_leaves(summary: &str, fanout: u64) -> Option<usize> {
    let lines = summary.lines().rev();
    // From the end: an earlier summary may be quoted in this one.
    let mut found = lines.filter_map(|line| {
        let rest = line.trim().strip_prefix('[')?.strip_prefix(WRITER)?.strip_prefix(": ")?;
        let (leaves, rest) = rest.split_once(" leaves folded, fanout ")?;
        let same = rest.strip_suffix(']')?.parse::<u64>().ok()? == fanout;
        same.then(|| leaves.parse().ok()).flatten()
    });
    found.next()
}

impl DagSession {
    /// A plan that shrinks the transcript. If all of it must stay, only results are shortened.
    pub(crate) fn compact(
        &mut self,
        transcript: &Transcript,
        request: &CompactRequest,
        settings: &Settings,
    ) -> Compaction {
        self.follow(transcript, settings);
        let (total_tokens, len) = (transcript.total_tokens(), transcript.len() as u64);
        // Each further attempt aims lower, because the last result was too large.
        let share = KEPT_SHARE / f64::from(request.attempt.clamp(1, 3));
        let limit_tokens = share_of(request.budget.min(total_tokens), share);
        let focus = request.custom_instructions.as_deref().unwrap_or_default();
        let ranking = self.index.rank(&self.index.build_query(transcript, focus));
        let mut layout = RequestLayout::default();
        self.place_tail(transcript, (0, limit_tokens), 0, settings, &mut layout);
        let always_tokens = layout.tokens(transcript, &STYLE);
        let outline_tokens = share_of(limit_tokens, OUTLINE_SHARE);
        let name_tokens = share_of(limit_tokens, NAME_SHARE);
        let request_tokens = share_of(limit_tokens, settings.request_share);
        let other_tokens = always_tokens + outline_tokens + name_tokens + request_tokens;
        let tail_tokens = limit_tokens.saturating_sub(other_tokens)
            + transcript.tokens(layout.cut..len)
            - layout.cuts.saved_tokens(layout.cut..len);
        self.place_tail(transcript, (tail_tokens, limit_tokens), 0, settings, &mut layout);
        let free_tokens = limit_tokens.saturating_sub(always_tokens);
        let tokens = request_tokens.min(free_tokens / 4);
        let requests = RequestRoom { tokens, long_tokens: 0, may_shorten: true };
        self.index.place_requests(transcript, &self.rules, requests, 0, &mut layout);
        let missing = layout.hidden();
        let is_new = |seq: &u64| !layout.kept.contains_key(seq) && *seq >= self.live_start;
        // Folding a summary of a summary loses detail and makes no progress.
        let is_folded_already =
            !(0..layout.cut).any(|seq| is_new(&seq)) && total_tokens <= request.budget;
        if missing == 0 || is_folded_already {
            return shorten_or_nothing(transcript, request, LAYER, "everything in it must stay");
        }
        let rules = self.render_rules(limit_tokens, &layout).text;
        let rule_tokens = tokens::estimate(&rules);
        let room_tokens = outline_tokens.saturating_sub(ENVELOPE_TOKENS + rule_tokens);
        // A later prompt may not show the requests that this layout shows, but still has the summary.
        let none = ShownRequests::default();
        let outline = self.outline_before(&layout, &ranking, none, room_tokens, settings);
        let mut shown = self.index.shown_names(transcript, &layout);
        shown.extend(self.index.names.name_numbers(&outline.text));
        let names = self.render_names(&shown, name_tokens).text;
        let leaves = self.range_before(layout.cut, missing, ShownRequests::default(), settings);
        let folded = leaves.leaves.end + usize::from(leaves.draft.is_some());
        let requests = layout.take_antecedents(transcript);
        let lines = [rules, requests, outline.text, names, fold_line(folded, settings.fanout)];
        let lines = lines.into_iter().filter(|line| !line.is_empty());
        let body = lines.collect::<Vec<_>>().join("\n");
        let summary = wrap_summary(&body, &Provenance { entries: missing, writer: WRITER });
        let plan = covering_plan(&layout, summary, transcript, &self.index, &STYLE);
        if plan.estimated_tokens >= total_tokens {
            return shorten_or_nothing(
                transcript,
                request,
                LAYER,
                "what must stay is all there is",
            );
        }
        // The draft keeps growing, so what was folded of it is kept as a leaf of its own.
        self.folded_draft = leaves.draft.map(|draft| (leaves.leaves.end, draft));
        Compaction::Plan(plan)
    }

    /// The leaf that a compaction folded before it was complete, with its id.
    pub(crate) fn folded_draft_of(&self, id: NodeId) -> Option<&DagNode> {
        let (index, draft) = self.folded_draft.as_ref()?;
        (id == NodeId::leaf(*index)).then_some(draft)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_states_its_leaves() {
        let body = format!("text\n{}", fold_line(38, 6));
        let summary = wrap_summary(&body, &Provenance { entries: 9, writer: WRITER });
        assert_eq!(folded_leaves(&summary, 6), Some(38));
        assert_eq!(folded_leaves(&summary, 4), None);
        assert_eq!(folded_leaves("a summary of another engine", 6), None);
    }
}
