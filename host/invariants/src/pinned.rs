//! Pinned entries, which a plan may neither drop nor change.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Action, Entry, Flags, Plan, PlanItem, Role, Transcript};

use super::ranges::RangeSet;
use super::{InvariantSettings, PinReason, Repair, budget};

/// The positions of the pinned entries of one session.
///
/// Kept with a session and updated as it grows, it costs only what is new; a new epoch resets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedEntries {
    epoch: u64,
    seen: u64,
    pinned: Vec<u64>,
    newest_user: Option<u64>,
    /// Entries with unanswered calls, and the number of their calls.
    unanswered: Vec<(u64, u64)>,
}

impl PinnedEntries {
    /// The pinned entries of a transcript, by one pass over its flags.
    pub fn from_transcript(view: &Transcript) -> PinnedEntries {
        let mut pinned = PinnedEntries::default();
        pinned.update(view);
        pinned
    }

    /// Updates to a transcript that has grown.
    pub fn update(&mut self, view: &Transcript) {
        if view.epoch() != self.epoch || (view.len() as u64) < self.seen {
            // A new epoch renumbers the entries; a shorter transcript is another one.
            *self = PinnedEntries { epoch: view.epoch(), ..PinnedEntries::default() };
        }
        for entry in view.range(self.seen..view.len() as u64) {
            if entry.has(Flags::PINNED) {
                self.pinned.push(entry.seq());
            }
            if entry.is_user_message() {
                self.newest_user = Some(entry.seq());
            }
            if entry.has(Flags::UNANSWERED) {
                self.unanswered.push((entry.seq(), entry.tool_calls().len() as u64));
            }
        }
        // Results follow their calls, so calls that were open may be answered by now.
        let is_open = |seq: u64| view.get(seq).is_some_and(|entry| entry.has(Flags::UNANSWERED));
        self.unanswered.retain(|(seq, _)| is_open(*seq));
        self.seen = view.len() as u64;
    }

    /// The pinned messages of the user but the newest, in order.
    pub(crate) fn older_requests<'v>(
        &self,
        view: &'v Transcript,
    ) -> impl Iterator<Item = Entry<'v>> {
        let newest = self.newest_user;
        let entries = self.pinned.iter().filter_map(|seq| view.get(*seq));
        entries.filter(move |entry| entry.is_user_message() && Some(entry.seq()) != newest)
    }

    /// The most that the host adds to a plan over this transcript, in tokens: a synthetic result
    /// for each unanswered call. The budget of an engine is reduced by it, so that an engine that
    /// uses the last token does not exceed the real budget.
    pub fn added_tokens(&self) -> u64 {
        let calls: u64 = self.unanswered.iter().map(|(_, calls)| calls).sum();
        calls.saturating_mul(tokens::estimate(PlanItem::MISSING_RESULT))
    }

    /// The budget of a plan within the budget of its request, in tokens.
    pub fn request_budget(&self, budget_tokens: u64) -> u64 {
        budget_tokens.saturating_sub(self.added_tokens())
    }

    /// The budget of a compaction. Its margin is a share of this value, so the reduction is
    /// enlarged accordingly.
    pub fn compaction_budget(&self, budget_tokens: u64, settings: &InvariantSettings) -> u64 {
        // The margin is taken from the budget afterwards, and the added results must fit below it as well.
        let share = 1.0 - f64::from(settings.progress_margin);
        let added_tokens = (self.added_tokens() as f64 / share).ceil();
        budget_tokens.saturating_sub(added_tokens as u64)
    }

    /// The positions that are pinned for a reason, as whole frames.
    fn ranges_for(&self, view: &Transcript, reason: PinReason) -> RangeSet {
        let frames =
            |seqs: &[u64]| RangeSet::from_ranges(seqs.iter().map(|seq| frame_range(view, *seq)));
        match reason {
            PinReason::Pinned => frames(&self.pinned),
            PinReason::NewestUserMessage => frames(self.newest_user.as_slice()),
            PinReason::LiveToolRound => RangeSet::from_ranges(live_tool_round(view)),
        }
    }

    /// The number of entries that are pinned by flag.
    pub(super) fn pinned_count(&self) -> usize {
        self.pinned.len()
    }

    /// All pinned positions.
    pub(super) fn all_ranges(&self, view: &Transcript) -> RangeSet {
        REASONS
            .iter()
            .fold(RangeSet::default(), |all, reason| all.union(&self.ranges_for(view, *reason)))
    }
}

const REASONS: [PinReason; 3] =
    [PinReason::Pinned, PinReason::NewestUserMessage, PinReason::LiveToolRound];

/// What a plan that keeps `kept` lacks: the rest of frames that it cuts, and pinned entries.
pub(super) fn missing_ranges(
    view: &Transcript,
    pinned: &PinnedEntries,
    kept: &RangeSet,
    repairs: &mut Vec<Repair>,
) -> RangeSet {
    let mut have = kept.clone();
    let mut lacking = Vec::new();
    let mut want = |wanted: RangeSet, repair: &dyn Fn(Range<u64>) -> Repair| {
        let gaps: Vec<_> = wanted.iter().flat_map(|range| have.gaps_in(range)).collect();
        repairs.extend(gaps.iter().cloned().map(repair));
        lacking.extend(gaps);
        have = have.union(&wanted);
    };
    let whole = kept.iter().map(|run| widened(view, run));
    want(RangeSet::from_ranges(whole), &|entries| Repair::WidenedCut { entries });
    for reason in REASONS {
        let reinserted = move |entries| Repair::Reinserted { entries, reason };
        want(pinned.ranges_for(view, reason), &reinserted);
    }
    RangeSet::from_ranges(lacking)
}

/// The range, widened to whole frames.
fn widened(view: &Transcript, run: Range<u64>) -> Range<u64> {
    view.cut_at_or_before(run.start)..view.cut_at_or_after(run.end)
}

pub(super) fn frame_range(view: &Transcript, seq: u64) -> Range<u64> {
    widened(view, seq..seq.saturating_add(1))
}

/// The tool round at the end of the transcript that the model has not finished. Orphan results
/// after it are never sent, so they do not end it.
pub(super) fn live_tool_round(view: &Transcript) -> Option<Range<u64>> {
    // An orphan is never sent, so it does not end the round.
    let last = view.iter().rev().find(|entry| !entry.has(Flags::ORPHAN))?;
    let is_live = last.role() == Role::Tool || last.has(Flags::TOOL_CALLS);
    is_live.then(|| frame_range(view, last.seq()))
}

/// Restores the text of pinned entries that a plan changes.
pub(super) struct PinnedText<'a> {
    pub(super) view: &'a Transcript,
    pub(super) pinned: &'a PinnedEntries,
    pub(super) budget_tokens: u64,
    pub(super) settings: &'a InvariantSettings,
}

impl PinnedText<'_> {
    /// The plan with pinned entries verbatim.
    pub(super) fn restore(&self, mut plan: Plan, repairs: &mut Vec<Repair>) -> Plan {
        let mut is_tight = None;
        for op in &mut plan.ops {
            let seq = match &op.action {
                Action::ReplaceText { seq, .. } | Action::ReplaceRaw { seq, .. } => *seq,
                _ => continue,
            };
            let Some(entry) = self.view.get(seq) else { continue };
            let Some(reason) = self.text_pin_reason(&entry) else { continue };
            // A pasted log as the newest message would otherwise leave no room for anything else.
            if self.is_oversized(&entry) || *is_tight.get_or_insert_with(|| self.is_tight()) {
                continue;
            }
            op.action = Action::Keep(seq..seq + 1);
            repairs.push(Repair::RestoredText { seq, reason });
        }
        plan
    }

    /// Why the text of an entry may not change. Results of the live tool round may be shortened,
    /// but not a message of it with thinking: providers require the thinking unchanged together
    /// with the results.
    fn text_pin_reason(&self, entry: &Entry<'_>) -> Option<PinReason> {
        let is_live =
            || live_tool_round(self.view).is_some_and(|round| round.contains(&entry.seq()));
        if entry.has(Flags::PINNED) {
            Some(PinReason::Pinned)
        } else if self.pinned.newest_user == Some(entry.seq()) {
            Some(PinReason::NewestUserMessage)
        } else if entry.has(Flags::THINKING) && is_live() {
            Some(PinReason::LiveToolRound)
        } else {
            None
        }
    }

    fn is_oversized(&self, entry: &Entry<'_>) -> bool {
        entry.tokens() > self.settings.verbatim_max_share.of_tokens(self.budget_tokens)
    }

    /// Whether the pinned entries do not fit verbatim, so that changes have to be accepted.
    fn is_tight(&self) -> bool {
        let mut plan = Plan::default();
        for range in self.pinned.all_ranges(self.view).iter() {
            plan.keep(range);
        }
        budget::count_tokens(self.view, &plan).0 > self.budget_tokens
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::generate::{Script, transcripts};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_live_round_is_the_end_of_the_transcript_or_nothing() {
        let live = |script: Script| live_tool_round(&script.finish().transcript());
        let round = Script::new().user("task").calls("", &["a", "b"]).result("a", "1");
        assert_eq!(live(Script::new()), None);
        assert_eq!(live(Script::new().user("task").calls("", &["a"])), Some(1..2));
        assert_eq!(live(round.clone()), Some(1..3));
        assert_eq!(live(round.clone().orphan("lost")), Some(1..3));
        assert_eq!(live(round.clone().user("stop").result("b", "2")), Some(1..5));
        assert_eq!(live(round.assistant("done")), None);
    }

    #[test]
    fn a_new_epoch_resets_the_pinned_entries() {
        let generated = Script::new().user("task").user("more").finish();
        let mut pinned = PinnedEntries::from_transcript(&generated.transcript());
        let mut log = ctxhost_engine_api::transcript::log::TranscriptLog::new(1);
        log.append(generated.entries[0].clone());
        pinned.update(&log.snapshot());
        assert_eq!(pinned, PinnedEntries::from_transcript(&log.snapshot()));
    }

    proptest! {
        #[test]
        fn updating_equals_starting_over(generated in transcripts()) {
            let mut log = ctxhost_engine_api::transcript::log::TranscriptLog::new(0);
            let mut pinned = PinnedEntries::default();
            for entry in generated.entries {
                log.append(entry);
                pinned.update(&log.snapshot());
                prop_assert_eq!(&pinned, &PinnedEntries::from_transcript(&log.snapshot()));
            }
        }
    }
}
