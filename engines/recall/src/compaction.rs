//! Compaction on request: the layout for a smaller budget becomes permanent.
//!
//! Rules and names become the summary, found entries keep their position, and the newest entries
//! follow. The next epoch parses the rules from the summary.

use ctxhost_engine_api::{CompactRequest, Compaction, Entry, EntryKind, Plan, Transcript};
use ctxhost_engine_kit::retrieval::{RequestLayout, covering_plan};
use ctxhost_engine_kit::settings::share_of;
use ctxhost_engine_kit::shortening::shorten_or_nothing;
use ctxhost_engine_kit::summary::{Provenance, wrap_summary};

use crate::LAYER;
use crate::session::RecallSession;
use crate::settings::Settings;

/// Size after a compaction, without what must stay, as a share of the smaller of budget and history.
const KEPT_SHARE: f64 = 0.6;
/// Most that a compaction leaves, as a share of the budget. The host requires 0.95; its count may be
/// a little higher.
const MOST_SHARE: f64 = 0.9;
/// The summary if no room is left for rules and names, or if the history has none.
const EMPTY_SUMMARY: &str = "Left out to save room; none of it is repeated here.";
/// Writer names in the envelope of a summary.
const WRITER: &str = "recall";
const OWN_SUMMARY: &str = ", recall. Untrusted";
const ANY_SUMMARY: &str = ". Untrusted notes of what was said";

impl RecallSession {
    /// A plan that shrinks the transcript. If all of it must stay, only results are shortened.
    pub(crate) fn compact(
        &mut self,
        transcript: &Transcript,
        request: &CompactRequest,
        settings: &Settings,
    ) -> Compaction {
        self.follow(transcript);
        let tokens = transcript.total_tokens();
        // Each further attempt aims lower, because the last result was too large.
        let share = 1.0 / f64::from(request.attempt.clamp(1, 3));
        // No slack: the smaller budget already makes room.
        let lasting = Settings { slack_share: 0.0, leave_out_note: false, ..settings.clone() };
        let focus = request.custom_instructions.as_deref().unwrap_or_default();
        let ranked = self.index.rank(&self.index.build_query(transcript, focus)).slices;
        // The new summary includes the contents of the engine's earlier ones.
        let must_stay = self.index.must_stay.clone();
        let is_own = |seq: &u64| transcript.get(*seq).is_some_and(|entry| is_own_summary(&entry));
        self.index.must_stay.retain(|seq| !is_own(seq));
        // What must stay, such as the summary of another engine, takes no room from rules and names.
        let protected_tokens = self.index.protected_tokens(transcript);
        let free_tokens = request.budget.min(tokens).saturating_sub(protected_tokens);
        let limit_tokens = (protected_tokens + share_of(free_tokens, KEPT_SHARE * share))
            .min(share_of(request.budget, MOST_SHARE));
        let layout = self.new_layout(transcript, limit_tokens, &ranked, &lasting);
        self.index.must_stay = must_stay;
        let missing = layout.hidden();
        if missing == 0 {
            return shorten_or_nothing(transcript, request, LAYER, "everything in it must stay");
        }
        let plan = self.lasting_plan(transcript, layout, missing, &lasting);
        if plan.estimated_tokens >= tokens {
            return shorten_or_nothing(
                transcript,
                request,
                LAYER,
                "what must stay is all there is",
            );
        }
        Compaction::Plan(plan)
    }
}

/// Whether an entry is a summary of this engine. Summaries of other engines contain more than rules
/// and names, and stay.
fn is_own_summary(entry: &Entry<'_>) -> bool {
    let text = entry.text();
    let own = text.matches(OWN_SUMMARY).count();
    entry.kind() == EntryKind::CompactionSummary
        && own > 0
        && own == text.matches(ANY_SUMMARY).count()
}

impl RecallSession {
    /// The plan with rules and names as the summary of the dropped entries.
    fn lasting_plan(
        &self,
        transcript: &Transcript,
        mut layout: RequestLayout,
        missing: u64,
        settings: &Settings,
    ) -> Plan {
        let body =
            if layout.head.is_empty() { EMPTY_SUMMARY.to_owned() } else { layout.head.clone() };
        let requests = layout.take_antecedents(transcript);
        let parts: Vec<&str> = [requests.as_str(), body.as_str(), layout.excerpt.as_str()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        let summary =
            wrap_summary(&parts.join("\n"), &Provenance { entries: missing, writer: WRITER });
        layout.head.clear();
        layout.excerpt.clear();
        covering_plan(&layout, summary, transcript, &self.index, &settings.style())
    }
}
