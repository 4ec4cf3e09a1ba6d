//! History that one summary replaces, and the plan that inserts the summary.
//!
//! ```text
//!  before   keep ── gap ── keep ───── gap ───── keep
//!  after    keep           keep    [summary]    keep      one gap is the anchor, the others are dropped
//! ```

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{EntryKind, Plan, Transcript};
use serde_json::{Value, json};

use crate::files::FileLedger;

/// The gaps that one summary replaces. Entries between the gaps are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFold {
    gaps: Vec<Range<u64>>,
    tokens: u64,
    anchor: Range<u64>,
}

impl HistoryFold {
    /// Places the summary in the largest gap.
    pub fn anchored_at_largest(transcript: &Transcript, gaps: Vec<Range<u64>>) -> HistoryFold {
        let anchor = gaps.iter().max_by_key(|gap| transcript.tokens((*gap).clone())).cloned();
        HistoryFold::new(transcript, gaps, anchor)
    }

    /// Places the summary in the last gap, so that it may refer to the entries before it.
    pub fn anchored_at_last(transcript: &Transcript, gaps: Vec<Range<u64>>) -> HistoryFold {
        let anchor = gaps.last().cloned();
        HistoryFold::new(transcript, gaps, anchor)
    }

    fn new(
        transcript: &Transcript,
        gaps: Vec<Range<u64>>,
        anchor: Option<Range<u64>>,
    ) -> HistoryFold {
        let tokens = gaps.iter().map(|gap| transcript.tokens(gap.clone())).sum();
        HistoryFold { gaps, tokens, anchor: anchor.unwrap_or(0..0) }
    }

    /// The gaps in rising order.
    pub fn gaps(&self) -> &[Range<u64>] {
        &self.gaps
    }

    /// Whether there is nothing to replace.
    pub fn is_empty(&self) -> bool {
        self.gaps.is_empty()
    }

    /// Current size of the gaps, in tokens.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Number of entries in the gaps.
    pub fn entries(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.end - gap.start).sum()
    }

    /// Whether the summary is inserted in this gap.
    pub fn is_anchor(&self, gap: &Range<u64>) -> bool {
        self.anchor == *gap
    }

    /// Size of the entries that no earlier summary covers, in tokens.
    pub fn new_tokens(&self, transcript: &Transcript) -> u64 {
        let entries = self.gaps.iter().flat_map(|gap| transcript.range(gap.clone()));
        // Rewriting an earlier summary alone is not worth a compaction, so it does not count.
        let new = entries.filter(|entry| entry.kind() != EntryKind::CompactionSummary);
        new.map(|entry| entry.tokens()).sum()
    }

    /// The files of the gaps and of earlier summaries in them.
    pub fn files(&self, transcript: &Transcript) -> FileLedger {
        let mut ledger = FileLedger::default();
        ledger.add_history(transcript, &self.gaps);
        ledger
    }

    /// The details stored with the compaction and read back by the next one.
    pub fn details(&self, transcript: &Transcript) -> Value {
        let ledger = self.files(transcript);
        json!({ "readFiles": ledger.read(), "modifiedFiles": ledger.modified() })
    }

    /// Describes the result for users: `40 entries, 12,000 → 1,400 tokens, extractive`.
    pub fn describe(&self, summary: &str, writer: &str) -> String {
        let noun = if self.entries() == 1 { "entry" } else { "entries" };
        format!(
            "{} {noun}, {} → {} tokens, {writer}",
            group_thousands(self.entries()),
            group_thousands(self.tokens),
            group_thousands(tokens::estimate(summary)),
        )
    }

    /// Builds the plan: `keep` keeps the ranges around the gaps, `put_in` inserts the summary at
    /// the anchor, and the other gaps are dropped in the name of `layer`.
    pub fn plan(
        &self,
        transcript: &Transcript,
        layer: &str,
        keep: impl Fn(&mut Plan, Range<u64>),
        insert: impl Fn(&mut Plan, Range<u64>),
    ) -> Plan {
        let mut plan = Plan::default();
        let mut from = 0;
        for gap in &self.gaps {
            keep(&mut plan, from..gap.start);
            if self.is_anchor(gap) {
                insert(&mut plan, gap.clone());
            } else {
                leave_out(&mut plan, gap.clone(), layer);
            }
            from = gap.end;
        }
        keep(&mut plan, from..transcript.len() as u64);
        plan.estimated_tokens = plan_tokens(&plan, transcript);
        plan
    }
}

/// Drops a gap that is covered by a summary elsewhere.
pub fn leave_out(plan: &mut Plan, gap: Range<u64>, layer: &str) {
    plan.leave_out(gap).note(layer, "told in the summary");
}

/// Size of a transcript under a plan, in tokens.
pub fn plan_tokens(plan: &Plan, transcript: &Transcript) -> u64 {
    plan.project(transcript).iter().map(|item| item.tokens()).sum()
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::Role;
    use ctxhost_engine_api::testing::{TranscriptBuilder, plan_fault};

    use super::*;

    fn talk() -> Transcript {
        let mut talk = TranscriptBuilder::with_epoch(1);
        talk.user("task").summary("<read-files>\n/old\n</read-files>").assistant("a word");
        talk.user("more");
        talk.calls(&[("1", "edit", r#"{"path":"/new"}"#)]).result("1", "edit", "ok").user("last");
        talk.transcript()
    }

    fn summed(fold: &HistoryFold) -> Plan {
        let insert = |plan: &mut Plan, gap| _ = plan.insert(Role::User, "summary", gap);
        fold.plan(&talk(), "test", |plan, range| _ = plan.keep(range), insert)
    }

    #[test]
    fn the_summary_is_at_the_anchor_and_every_entry_is_named() {
        let transcript = talk();
        let gaps = vec![1..3, 4..6];
        for (fold, place) in [
            (HistoryFold::anchored_at_largest(&transcript, gaps.clone()), 1),
            (HistoryFold::anchored_at_last(&transcript, gaps), 2),
        ] {
            let plan = summed(&fold);
            assert_eq!(plan_fault(&plan, &transcript), None);
            let items = plan.project(&transcript);
            assert_eq!(items[place].text(), "summary", "{items:?}");
            assert_eq!(items.iter().map(|item| item.tokens()).sum::<u64>(), plan.estimated_tokens);
            assert_eq!((fold.entries(), items.len()), (4, 4));
            assert!(fold.new_tokens(&transcript) < fold.tokens());
        }
    }

    #[test]
    fn files_of_earlier_summaries_are_carried_on() {
        let transcript = talk();
        let fold = HistoryFold::anchored_at_last(&transcript, vec![1..3, 4..6]);
        let expected = json!({ "readFiles": ["/old"], "modifiedFiles": ["/new"] });
        assert_eq!(fold.details(&transcript), expected);
        assert!(fold.describe("summary", "test").starts_with("4 entries, "));
    }

    #[test]
    fn nothing_folded_keeps_everything() {
        let fold = HistoryFold::anchored_at_largest(&talk(), Vec::new());
        assert!(fold.is_empty());
        assert_eq!(summed(&fold).ops.len(), 1);
    }
}
