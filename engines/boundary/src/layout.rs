//! The layout of a compact boundary: the replaced history and the messages inserted for it.
//!
//! ```text
//!  before   task ──────────── history ────────────  last turn
//!  after    task [summary] [acknowledgement] [attachments]  last turn
//! ```

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::{CHARS_PER_TOKEN, estimate, group_thousands};
use ctxhost_engine_api::{Plan, Role, Transcript};
use ctxhost_engine_kit::attachments::LEAD_IN;
use ctxhost_engine_kit::caps::EntryCaps;
use ctxhost_engine_kit::cuts::{
    gaps, newest_entry, protected_before, recent_turns_start, tail_start, trailing_frame,
};
use ctxhost_engine_kit::exchange::NewestExchange;
use ctxhost_engine_kit::history_fold::HistoryFold;
use ctxhost_engine_kit::ledger::{LedgerLimits, LedgerReader, SummaryLedger};
use ctxhost_engine_kit::previews::ResultPreviews;
use ctxhost_engine_kit::replacement::ReplacementMap;
use ctxhost_engine_kit::settings::share_of;
use ctxhost_engine_kit::summariser::WrittenSummary;
use ctxhost_engine_kit::summary::{Provenance, wrap_summary};

use crate::settings::Settings;

/// Layer name in plan notes.
pub(crate) const LAYER: &str = "boundary";

const OPENING: &str =
    "This conversation was compacted here. What came before is folded into this summary.";
const GO_ON: &str = "Go on with the work where it stopped. Do not ask again what the summary answers, and do not speak of it.";
const ACKNOWLEDGEMENT: &str = "I have read the summary and go on from there.";

/// Lower bound of a summary, in weighted characters: nine headings and the task.
const LEAST_SUMMARY_CHARS: u64 = 1_000;
/// Minimum history as a share of transcript or budget.
// A summary takes at most half of it, and the host refuses a compaction that saves less than 0.05.
const LEAST_FOLD_SHARE: f64 = 0.1;
/// Room for summary and ledger if kept entries are cut, as a multiple of the least summary.
const SHORT_SUMMARY_PARTS: u64 = 4;
/// Size of the text around the summary, in tokens: fixed sentences and envelope.
const FRAME_TOKENS: u64 = 200;
/// Maximum share of the budget for inserted text.
// The host refuses more than half; the rest allows for different estimates.
const INSERT_SHARE: f64 = 0.45;
/// Halvings of the last turn before only its newest frame is left.
const TAIL_HALVINGS: u32 = 2;

/// The sizes that one attempt aims at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BoundaryTarget {
    pub(crate) threshold_tokens: u64,
    pub(crate) budget_tokens: u64,
    pub(crate) attempt: u32,
}

/// The replaced history and the room for the messages that replace it.
#[derive(Clone, Debug)]
pub(crate) struct BoundaryLayout {
    pub(crate) fold: HistoryFold,
    /// Start of the part that stays word for word.
    pub(crate) tail: u64,
    /// Kept entries that are cut.
    pub(crate) shown: ReplacementMap,
    /// Limit of the summary, in weighted characters.
    pub(crate) summary_chars: u64,
    /// Ledger of the summary, and its limits.
    pub(crate) ledger: SummaryLedger,
    pub(crate) ledger_limits: LedgerLimits,
    /// Limit of all inserted text, in tokens.
    pub(crate) room_tokens: u64,
}

/// Whether a message is the acknowledgement or the attachments of an earlier boundary.
pub(crate) fn is_boundary_message(text: &str) -> bool {
    text == ACKNOWLEDGEMENT || text.starts_with(LEAD_IN)
}

/// Chooses a layout from its inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayoutPlanner<'a> {
    pub(crate) transcript: &'a Transcript,
    pub(crate) previews: &'a ResultPreviews,
    pub(crate) settings: &'a Settings,
    pub(crate) target: BoundaryTarget,
}

impl LayoutPlanner<'_> {
    /// The layout with the most of the last turn that stays below the threshold, or below the budget
    /// if the answer that the newest request refers to takes more; `None` if too little can be
    /// replaced or no room is left.
    pub(crate) fn choose(&self, ledgers: &mut LedgerReader<'_>) -> Option<BoundaryLayout> {
        let LayoutPlanner { transcript, target, settings, previews } = self;
        let BoundaryTarget { budget_tokens, attempt, .. } = *target;
        let exchange = NewestExchange::fit(transcript, budget_tokens, attempt, previews.rewrites());
        let limit_tokens = share_of(target.base_tokens(), settings.last_turn_share);
        // Each further attempt keeps half as much of the last turn.
        let limit_tokens = limit_tokens >> target.attempt.saturating_sub(1).min(u64::BITS - 1);
        let turns = (0..=TAIL_HALVINGS).map(|halved| last_turn(transcript, limit_tokens >> halved));
        let newest = trailing_frame(transcript);
        let mut starts: Vec<u64> = turns.chain([newest]).collect();
        // A short turn is the same in each of its limits.
        starts.dedup();
        // The first layout that fits keeps the most.
        let with_answer = exchange.as_ref();
        let base_tokens = target.base_tokens();
        starts
            .into_iter()
            .find_map(|tail| self.layout_at(ledgers, tail, base_tokens, with_answer))
            .or_else(|| {
                with_answer
                    .and_then(|_| self.layout_at(ledgers, newest, budget_tokens, with_answer))
            })
            .or_else(|| self.layout_at(ledgers, newest, base_tokens, None))
    }

    /// The layout that replaces the most. It may exceed the threshold but not the budget; for a
    /// host whose request does not fit.
    pub(crate) fn choose_smallest(&self, ledgers: &mut LedgerReader<'_>) -> Option<BoundaryLayout> {
        let newest = trailing_frame(self.transcript);
        self.layout_at(ledgers, newest, self.target.budget_tokens, None)
            .or_else(|| self.layout_with_cuts(ledgers, newest))
    }

    /// The layout with a tail and the answer before the newest request.
    fn layout_at(
        &self,
        ledgers: &mut LedgerReader<'_>,
        tail: u64,
        whole_tokens: u64,
        exchange: Option<&NewestExchange>,
    ) -> Option<BoundaryLayout> {
        // In the tail it is whole.
        let exchange = exchange.filter(|exchange| exchange.answer().end <= tail);
        let answer = exchange.map_or(0..0, NewestExchange::answer);
        let mut shown = self.previews.rewrites().clone();
        exchange.into_iter().for_each(|exchange| shown.extend(exchange.cuts()));
        let fold = self.fold_before(tail, answer);
        let whole = self.transcript.total_tokens().min(self.target.budget_tokens);
        // Too little to be worth a summary and the loss of the cached prefix.
        if fold.tokens() < share_of(whole, LEAST_FOLD_SHARE) {
            return None;
        }
        self.layout_showing(ledgers, fold, tail, whole_tokens, shown)
    }

    /// The layout whose kept results and call arguments are cut to what a short summary leaves;
    /// without a summary if there is too little to fold.
    fn layout_with_cuts(
        &self,
        ledgers: &mut LedgerReader<'_>,
        tail: u64,
    ) -> Option<BoundaryLayout> {
        let LayoutPlanner { transcript, target, .. } = self;
        let least_tokens = SHORT_SUMMARY_PARTS * LEAST_SUMMARY_CHARS / CHARS_PER_TOKEN;
        let target_tokens = share_of(target.budget_tokens, target.target_share());
        let limit_tokens = target_tokens.saturating_sub(FRAME_TOKENS + least_tokens);
        // What fits is not cut for the sake of a summary.
        if transcript.total_tokens() <= target.budget_tokens {
            return None;
        }
        let cut = |fold: &HistoryFold| {
            let kept = gaps(fold.gaps(), transcript.len() as u64);
            let caps = EntryCaps::fit(transcript, &kept, limit_tokens);
            let mut shown = self.previews.rewrites().clone();
            for entry in kept.into_iter().flat_map(|range| transcript.range(range)) {
                caps.cut(&entry, LAYER).into_iter().for_each(|cut| shown.insert(&entry, cut));
            }
            shown
        };
        let fold = self.fold_before(tail, 0..0);
        let shown = cut(&fold);
        self.layout_showing(ledgers, fold, tail, target.budget_tokens, shown).or_else(|| {
            let fold = HistoryFold::default();
            let shown = cut(&fold);
            let fits = shown.shown_tokens(transcript) <= target_tokens;
            fits.then(|| BoundaryLayout {
                fold,
                tail,
                shown,
                summary_chars: 0,
                ledger: SummaryLedger::default(),
                ledger_limits: LedgerLimits::new(0, &self.settings.room),
                room_tokens: 0,
            })
        })
    }

    fn fold_before(&self, tail: u64, answer: Range<u64>) -> HistoryFold {
        let kept = protected_before(self.transcript, tail, answer);
        HistoryFold::anchored_at_largest(self.transcript, gaps(&kept, tail))
    }

    fn layout_showing(
        &self,
        ledgers: &mut LedgerReader<'_>,
        fold: HistoryFold,
        tail: u64,
        whole_tokens: u64,
        shown: ReplacementMap,
    ) -> Option<BoundaryLayout> {
        let LayoutPlanner { transcript, target, settings, .. } = self;
        let before_tokens = transcript.total_tokens();
        // Kept entries may be shown as previews or cut, which cost less than the entries.
        let kept = gaps(fold.gaps(), transcript.len() as u64);
        let shown_less: u64 = kept.into_iter().map(|range| shown.saved_tokens(range)).sum();
        let kept_tokens = before_tokens - fold.tokens() - shown_less;
        let room_tokens = share_of(whole_tokens, target.target_share())
            .saturating_sub(kept_tokens)
            .min(share_of(target.budget_tokens, INSERT_SHARE))
            // At most the size of earlier summaries and half of the new entries, so that the
            // transcript shrinks.
            .min(fold.tokens() - fold.new_tokens(transcript) / 2);
        let room_chars = room_tokens.saturating_sub(FRAME_TOKENS) * CHARS_PER_TOKEN;
        // Before the ledger, for which the whole history is searched.
        if room_chars < LEAST_SUMMARY_CHARS {
            return None;
        }
        let wanted_chars = share_of(target.base_tokens(), settings.summary_share) * CHARS_PER_TOKEN;
        let summary_chars = settings.summary_chars.min(wanted_chars).max(LEAST_SUMMARY_CHARS);
        let ledger = ledgers.read(fold.gaps());
        let limits = LedgerLimits::new(target.budget_tokens, &settings.room);
        let ledger_limits =
            ledger.fit_limits(limits, room_chars.saturating_sub(LEAST_SUMMARY_CHARS));
        let left_chars = room_chars.saturating_sub(ledger.chars(ledger_limits));
        let summary_chars = summary_chars.min(left_chars);
        let layout =
            BoundaryLayout { fold, tail, shown, summary_chars, ledger, ledger_limits, room_tokens };
        Some(layout).filter(|layout| layout.summary_chars >= LEAST_SUMMARY_CHARS)
    }
}

/// Start of the last turn, or of its newest part if it exceeds the limit.
fn last_turn(transcript: &Transcript, limit_tokens: u64) -> u64 {
    let len = transcript.len() as u64;
    // A question alone refers to the turn before it, so the answer needs both.
    let ends_with_question = newest_entry(transcript).is_some_and(|entry| entry.is_user_message());
    let turns = if ends_with_question { 2 } else { 1 };
    let start = transcript.cut_at_or_before(recent_turns_start(transcript, 0..len, turns));
    start.max(tail_start(transcript, limit_tokens)).min(trailing_frame(transcript))
}

impl BoundaryTarget {
    /// The size that shares refer to.
    pub(crate) fn base_tokens(&self) -> u64 {
        self.threshold_tokens.min(self.budget_tokens)
    }

    /// Limit of the tool results of one round.
    pub(crate) fn preview_tokens(&self, settings: &Settings) -> u64 {
        share_of(self.base_tokens(), settings.preview_share)
    }

    /// The share of a size that this attempt stays below. The host requires 0.95 of the budget; a
    /// further attempt means that its count and ours differ.
    fn target_share(&self) -> f64 {
        match self.attempt {
            0 | 1 => 0.9,
            2 => 0.7,
            _ => 0.5,
        }
    }
}

/// Size of the summary message and the acknowledgement, in tokens.
pub(crate) fn message_tokens(message: &str) -> u64 {
    estimate(message) + estimate(ACKNOWLEDGEMENT)
}

/// The message that replaces the history.
pub(crate) fn summary_message(fold: &HistoryFold, summary: &WrittenSummary) -> String {
    let provenance = Provenance { entries: fold.entries(), writer: &summary.writer };
    [OPENING, &wrap_summary(&summary.text, &provenance), GO_ON].join("\n\n")
}

/// The plan of a boundary.
pub(crate) fn build_plan(
    transcript: &Transcript,
    layout: &BoundaryLayout,
    message: &str,
    attachments: Option<&str>,
    writer: &str,
) -> Plan {
    let BoundaryLayout { fold, shown, .. } = layout;
    let keep = |plan: &mut Plan, range| shown.keep_range(plan, range);
    fold.plan(transcript, LAYER, keep, |plan, gap| {
        let end = gap.end;
        plan.insert(Role::User, message, gap).note(LAYER, fold.describe(message, writer));
        // Two consecutive assistant messages are not a valid dialogue in every dialect.
        let next_is_model = transcript.get(end).is_some_and(|e| e.role() == Role::Assistant);
        if attachments.is_some() || !next_is_model {
            plan.insert(Role::Assistant, ACKNOWLEDGEMENT, end..end).note(LAYER, "acknowledged");
        }
        if let Some(text) = attachments {
            let detail = format!("{} tokens put back", group_thousands(estimate(text)));
            plan.insert(Role::User, text, end..end).note(LAYER, detail);
        }
    })
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn turns(count: u64, rounds: u64) -> TranscriptBuilder {
        let mut talk = TranscriptBuilder::new();
        for turn in 0..count {
            talk.user(&format!("question {turn}"));
            for round in 0..rounds {
                let id = format!("{turn}-{round}");
                talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &"text ".repeat(80));
            }
            talk.assistant(&format!("answer {turn}"));
        }
        talk
    }

    fn target(tokens: u64) -> BoundaryTarget {
        BoundaryTarget { threshold_tokens: tokens, budget_tokens: tokens, attempt: 1 }
    }

    fn planned(
        talk: &TranscriptBuilder,
        target: BoundaryTarget,
        plan: fn(&LayoutPlanner<'_>) -> Option<BoundaryLayout>,
    ) -> Option<BoundaryLayout> {
        let (previews, settings) = (&ResultPreviews::default(), &Settings::default());
        plan(&LayoutPlanner { transcript: &talk.transcript(), previews, settings, target })
    }

    fn chosen(talk: &TranscriptBuilder, target: BoundaryTarget) -> Option<BoundaryLayout> {
        planned(talk, target, |planner| planner.choose(&mut LedgerReader::new(planner.transcript)))
    }

    #[test]
    fn the_last_turn_stays_whole_and_the_task_stays() {
        let talk = turns(10, 4);
        let layout = chosen(&talk, target(4_000)).unwrap();
        // With the answer before it.
        assert_eq!((layout.tail, layout.fold.gaps()), (90, &[1..89][..]));
    }

    #[test]
    fn a_question_alone_brings_the_turn_before_it() {
        let mut talk = turns(10, 4);
        talk.user("yes, do it");
        assert_eq!(chosen(&talk, target(4_000)).unwrap().tail, 90);
    }

    #[test]
    fn a_turn_too_long_keeps_its_question_and_its_newest_part() {
        let mut talk = turns(2, 4);
        talk.user("the long one");
        let question = talk.len() - 1;
        for round in 0..60 {
            let id = format!("r{round}");
            talk.calls(&[(&id, "read", "{}")]).result(&id, "read", &"text ".repeat(80));
        }
        let BoundaryLayout { fold, tail, .. } = chosen(&talk, target(4_000)).unwrap();
        assert_eq!(fold.gaps(), [1..question - 1, question + 1..tail]);
        assert!(talk.transcript().get(tail).unwrap().is_cut_point());
        assert!(talk.transcript().tokens(tail..talk.len()) <= 1_200);
    }

    #[test]
    fn calls_without_a_result_stay_before_a_lost_result() {
        let mut talk = TranscriptBuilder::new();
        (0..40).for_each(|_| _ = talk.assistant(&"words ".repeat(80)));
        talk.calls(&[("open", "read", "{}")]).result("unknown", "read", "lost");
        assert_eq!(chosen(&talk, target(4_000)).unwrap().tail, 40);
        assert_eq!(chosen(&talk, BoundaryTarget { attempt: 3, ..target(4_000) }).unwrap().tail, 40);
    }

    #[test]
    fn the_answer_that_the_newest_request_is_about_stays() {
        let mut talk = turns(10, 4);
        talk.assistant(&"word ".repeat(1_200)).user("Shorten it.");
        let layout = chosen(&talk, target(4_000)).unwrap();
        assert_eq!(layout.fold.gaps().last().unwrap().end, talk.len() - 2);
        talk.assistant(&"word ".repeat(4_800)).user("Shorten it.");
        let layout = chosen(&talk, target(4_000)).unwrap();
        assert_eq!(layout.fold.gaps().last().unwrap().end, talk.len() - 2);
        let shown_tokens = layout.shown.get(talk.len() - 2).unwrap().tokens();
        assert!((1_800..2_000).contains(&shown_tokens), "{shown_tokens}");
    }

    #[test]
    fn large_arguments_are_cut_where_nothing_else_fits() {
        let write = format!(r#"{{"path":"a.rs","content":"{}"}}"#, "text ".repeat(7_000));
        let mut talk = turns(10, 4);
        talk.calls(&[("w", "write", &write)]).result("w", "write", "done");
        assert!(chosen(&talk, target(10_000)).is_none());
        let layout = planned(&talk, target(10_000), |planner| {
            planner.choose_smallest(&mut LedgerReader::new(planner.transcript))
        })
        .unwrap();
        let shown = format!("{:?}", layout.shown.get(talk.len() - 2).unwrap());
        assert!(shown.contains("a.rs") && layout.summary_chars >= LEAST_SUMMARY_CHARS);
        // Nothing to fold: the call alone is too large.
        let mut talk = TranscriptBuilder::new();
        talk.user("go").calls(&[("w", "write", &write)]).result("w", "write", "done");
        let planner = |planner: &LayoutPlanner<'_>| {
            planner.choose_smallest(&mut LedgerReader::new(planner.transcript))
        };
        let layout = planned(&talk, target(6_000), planner).unwrap();
        assert!(layout.fold.is_empty());
        assert!(layout.shown.shown_tokens(&talk.transcript()) <= 5_400);
    }

    #[test]
    fn what_must_stay_may_leave_no_room() {
        let mut talk = turns(10, 4);
        talk.user(&"a long paste ".repeat(1_000));
        assert!(chosen(&talk, target(3_500)).is_none());
        let target = BoundaryTarget { threshold_tokens: 2_000, budget_tokens: 6_000, attempt: 1 };
        assert!(chosen(&talk, target).is_none());
        let layout = planned(&talk, target, |planner| {
            planner.choose_smallest(&mut LedgerReader::new(planner.transcript))
        });
        assert_eq!(layout.unwrap().fold.gaps(), [1..100]);
    }

    #[test]
    fn an_answer_of_the_model_needs_no_acknowledgement_before_it() {
        let talk = turns(6, 4);
        let transcript = talk.transcript();
        let roles = |gaps: Vec<std::ops::Range<u64>>, attachments: Option<&str>| {
            let fold = HistoryFold::anchored_at_largest(&transcript, gaps);
            let layout = BoundaryLayout {
                fold,
                tail: 0,
                shown: ReplacementMap::default(),
                summary_chars: 0,
                ledger: SummaryLedger::default(),
                ledger_limits: LedgerLimits::new(0, &Settings::default().room),
                room_tokens: 0,
            };
            let plan = build_plan(&transcript, &layout, "summary", attachments, "test");
            let items = plan.project(&transcript);
            assert_eq!(items.iter().map(|item| item.tokens()).sum::<u64>(), plan.estimated_tokens);
            items
                .iter()
                .take(5)
                .map(|item| (item.role(), item.entry().is_some()))
                .collect::<Vec<_>>()
        };
        use Role::{Assistant, Tool, User};
        let before_question = roles(vec![1..10], None);
        assert_eq!(
            before_question[..4],
            [(User, true), (User, false), (Assistant, false), (User, true)]
        );
        let inside_a_turn = roles(vec![1..11], None);
        assert_eq!(
            inside_a_turn[..4],
            [(User, true), (User, false), (Assistant, true), (Tool, true)]
        );
        let with_attachments = roles(vec![1..11], Some("files"));
        assert_eq!(with_attachments[2..], [(Assistant, false), (User, false), (Assistant, true)]);
    }
}
