//! Keeping: what must reach the model whatever the engine thinks of it, word for word.

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Action, Entry, Flags, Plan, PlanItem, Role, Transcript};

use super::ranges::RangeSet;
use super::{InvariantSettings, PinReason, Repair, budget};

/// Where the entries of one session's transcript are that a plan may never drop.
///
/// Kept beside a session and followed as it grows, it costs what is new; a new epoch starts it over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PinnedEntries {
    epoch: u64,
    seen: u64,
    pinned: Vec<u64>,
    newest_user: Option<u64>,
    /// Entries with calls that have no result yet, and how many calls each makes.
    unanswered: Vec<(u64, u64)>,
}

impl PinnedEntries {
    /// The anchors of a transcript: one pass over its flags.
    pub fn from_transcript(view: &Transcript) -> PinnedEntries {
        let mut anchors = PinnedEntries::default();
        anchors.update(view);
        anchors
    }

    /// Takes in what the transcript has gained.
    pub fn update(&mut self, view: &Transcript) {
        if view.epoch() != self.epoch || (view.len() as u64) < self.seen {
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
        // Results come later than their calls, so what was open may be answered by now.
        let is_open = |seq: u64| view.get(seq).is_some_and(|entry| entry.has(Flags::UNANSWERED));
        self.unanswered.retain(|(seq, _)| is_open(*seq));
        self.seen = view.len() as u64;
    }

    /// The most that the host adds to any plan over this transcript, in tokens: one synthetic result
    /// for each call of a message that still waits for results. What an engine may pack is the budget
    /// less this, so that an engine that packs to the last token is never over the budget.
    pub fn added_tokens(&self) -> u64 {
        let calls: u64 = self.unanswered.iter().map(|(_, calls)| calls).sum();
        calls.saturating_mul(tokens::estimate(PlanItem::MISSING_RESULT))
    }

    /// What a request may be packed with, of what it may cost, in tokens.
    pub fn request_budget(&self, budget_tokens: u64) -> u64 {
        budget_tokens.saturating_sub(self.added_tokens())
    }

    /// What a compaction is asked to fall below. Its margin is a share of what it is told, so the
    /// additions are taken off as much larger as makes up for that.
    pub fn compaction_budget(&self, budget_tokens: u64, settings: &InvariantSettings) -> u64 {
        let share = 1.0 - f64::from(settings.progress_margin);
        let added_tokens = (self.added_tokens() as f64 / share).ceil();
        budget_tokens.saturating_sub(added_tokens as u64)
    }

    /// The positions that must stay for a reason, as whole frames.
    fn ranges_for(&self, view: &Transcript, because: PinReason) -> RangeSet {
        let frames =
            |seqs: &[u64]| RangeSet::from_ranges(seqs.iter().map(|seq| frame_range(view, *seq)));
        match because {
            PinReason::Pinned => frames(&self.pinned),
            PinReason::NewestUserMessage => frames(self.newest_user.as_slice()),
            PinReason::LiveToolRound => RangeSet::from_ranges(live_tool_round(view)),
        }
    }

    /// How many entries are pinned.
    pub(super) fn pinned_count(&self) -> usize {
        self.pinned.len()
    }

    /// All positions that must stay.
    pub(super) fn all_ranges(&self, view: &Transcript) -> RangeSet {
        REASONS
            .iter()
            .fold(RangeSet::default(), |all, because| all.union(&self.ranges_for(view, *because)))
    }
}

const REASONS: [PinReason; 3] =
    [PinReason::Pinned, PinReason::NewestUserMessage, PinReason::LiveToolRound];

/// What a plan that keeps `kept` lacks: the rest of every frame it cuts, and what must stay.
pub(super) fn missing_ranges(
    view: &Transcript,
    anchors: &PinnedEntries,
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
    for because in REASONS {
        let put_back = move |entries| Repair::Reinserted { entries, because };
        want(anchors.ranges_for(view, because), &put_back);
    }
    RangeSet::from_ranges(lacking)
}

/// The range with the rest of the frames that it cuts.
fn widened(view: &Transcript, run: Range<u64>) -> Range<u64> {
    view.cut_at_or_before(run.start)..view.cut_at_or_after(run.end)
}

pub(super) fn frame_range(view: &Transcript, seq: u64) -> Range<u64> {
    widened(view, seq..seq.saturating_add(1))
}

/// The calls that the model is in the middle of, where the transcript ends in them. Orphan results
/// behind them are never sent and so do not end them.
pub(super) fn live_tool_round(view: &Transcript) -> Option<Range<u64>> {
    let last = view.iter().rev().find(|entry| !entry.has(Flags::ORPHAN))?;
    let is_live = last.role() == Role::Tool || last.has(Flags::TOOL_CALLS);
    is_live.then(|| frame_range(view, last.seq()))
}

/// Decides where a plan may change the words of what must stay.
pub(super) struct PinnedText<'a> {
    pub(super) view: &'a Transcript,
    pub(super) pinned: &'a PinnedEntries,
    pub(super) budget_tokens: u64,
    pub(super) settings: &'a InvariantSettings,
}

impl PinnedText<'_> {
    /// The plan with the words of the person and of the operator as they were written.
    pub(super) fn restore(&self, mut plan: Plan, repairs: &mut Vec<Repair>) -> Plan {
        let mut is_tight = None;
        for op in &mut plan.ops {
            let seq = match &op.action {
                Action::ReplaceText { seq, .. } | Action::ReplaceRaw { seq, .. } => *seq,
                _ => continue,
            };
            let Some(entry) = self.view.get(seq) else { continue };
            let Some(because) = self.text_pin_reason(&entry) else { continue };
            if self.is_oversized(&entry) || *is_tight.get_or_insert_with(|| self.is_tight()) {
                continue;
            }
            op.action = Action::Keep(seq..seq + 1);
            repairs.push(Repair::RestoredText { seq, because });
        }
        plan
    }

    /// Why the words of an entry may not change. Results of the live round may be shortened; a
    /// message of it that thinks may not, for a provider wants the thinking back with the results.
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

    /// Whether what must stay does not fit as it was written, so that something has to give.
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
    fn a_new_epoch_starts_the_anchors_over() {
        let generated = Script::new().user("task").user("more").finish();
        let mut anchors = PinnedEntries::from_transcript(&generated.transcript());
        let mut log = ctxhost_engine_api::transcript::log::TranscriptLog::new(1);
        log.append(generated.entries[0].clone());
        anchors.update(&log.snapshot());
        assert_eq!(anchors, PinnedEntries::from_transcript(&log.snapshot()));
    }

    proptest! {
        #[test]
        fn following_is_the_same_as_looking_afresh(generated in transcripts()) {
            let mut log = ctxhost_engine_api::transcript::log::TranscriptLog::new(0);
            let mut anchors = PinnedEntries::default();
            for entry in generated.entries {
                log.append(entry);
                anchors.update(&log.snapshot());
                prop_assert_eq!(&anchors, &PinnedEntries::from_transcript(&log.snapshot()));
            }
        }
    }
}
