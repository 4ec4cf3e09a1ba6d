//! The layout of a compact boundary: the replaced history and the messages inserted for it.
//!
//! ```text
//!  before   task ──────────── history ────────────  last turn
//!  after    task [summary] [acknowledgement] [attachments]  last turn
//! ```

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::{
    CHARS_PER_TOKEN, estimate, group_thousands, weighted_chars,
};
use ctxhost_engine_api::{Entry, Flags, Plan, Role, Transcript};
use ctxhost_engine_kit::attachments::LEAD_IN;
use ctxhost_engine_kit::budget::{filled_tokens, least_summary_tokens, turn_floor_tokens};
use ctxhost_engine_kit::caps::{EntryCaps, cut_result};
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
use ctxhost_engine_kit::tail::{TranscriptTail, lengthen};

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
/// Steps towards the floor; each adds what is missing after the one before it.
const FLOOR_STEPS: u32 = 4;

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
    /// Size of the kept entries and the ledger, in tokens.
    used_tokens: u64,
    /// Whether summary and ledger have the least room that a result owes them.
    has_room: bool,
}

impl BoundaryLayout {
    /// The limits of the ledger beside a summary: requests that are not listed get the free room.
    pub(crate) fn limits_beside(&self, summary: &str, target: &BoundaryTarget) -> LedgerLimits {
        let chars = self.filled_chars(target).saturating_sub(weighted_chars(summary));
        self.ledger.widen_requests(self.ledger_limits, chars)
    }

    /// What the sections may take beside a ledger that lists all requests, in weighted characters.
    pub(crate) fn section_chars(&self, target: &BoundaryTarget) -> u64 {
        let filled_chars = self.filled_chars(target);
        let ledger_chars = filled_chars.saturating_sub(self.summary_chars);
        let limits = self.ledger.widen_requests(self.ledger_limits, ledger_chars);
        self.summary_chars.max(filled_chars.saturating_sub(self.ledger.chars(limits)))
    }

    /// What summary and ledger take of a filled result, in weighted characters.
    fn filled_chars(&self, target: &BoundaryTarget) -> u64 {
        let room_tokens = self.room_tokens.saturating_sub(FRAME_TOKENS);
        let ledger_tokens = self.ledger.chars(self.ledger_limits) / CHARS_PER_TOKEN;
        let kept_tokens = self.used_tokens.saturating_sub(ledger_tokens);
        let free_tokens = target.filled_tokens().saturating_sub(kept_tokens + FRAME_TOKENS);
        room_tokens.min(free_tokens) * CHARS_PER_TOKEN
    }

    /// Whether its ledger has as much room as that of another layout, or all that it may have needs no more.
    fn has_ledger_room_of(&self, other: &BoundaryLayout, most: LedgerLimits) -> bool {
        let (own, other) = (self.ledger_limits, other.ledger_limits);
        let has_room = own.request_chars >= other.request_chars
            && own.ledger_chars >= other.ledger_chars
            && own.name_chars >= other.name_chars;
        has_room || self.ledger.chars(own) == self.ledger.chars(most)
    }
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
    /// if the answer that the newest request refers to takes more; with older entries up to the floor.
    /// `None` if too little can be replaced or no room is left.
    pub(crate) fn choose(&self, ledgers: &mut LedgerReader<'_>) -> Option<BoundaryLayout> {
        let exchange = self.exchange(self.target.attempt);
        let layout = self.choose_turn(ledgers, exchange.as_ref())?;
        Some(self.fill_to_floor(ledgers, layout, exchange.as_ref()))
    }

    /// Whether there is a layout.
    pub(crate) fn has_layout(&self, ledgers: &mut LedgerReader<'_>) -> bool {
        self.choose_turn(ledgers, self.exchange(self.target.attempt).as_ref()).is_some()
    }

    /// The answer that the newest request is about, as small as an attempt allows.
    fn exchange(&self, attempt: u32) -> Option<NewestExchange> {
        let budget_tokens = self.target.budget_tokens;
        NewestExchange::fit(self.transcript, budget_tokens, attempt, self.previews.rewrites())
    }

    fn choose_turn(
        &self,
        ledgers: &mut LedgerReader<'_>,
        with_answer: Option<&NewestExchange>,
    ) -> Option<BoundaryLayout> {
        let LayoutPlanner { transcript, target, settings, .. } = self;
        let limit_tokens = share_of(target.base_tokens(), settings.last_turn_share);
        // Each further attempt keeps half as much of the last turn.
        let limit_tokens = limit_tokens >> target.attempt.saturating_sub(1).min(u64::BITS - 1);
        let turns = (0..=TAIL_HALVINGS).map(|halved| last_turn(transcript, limit_tokens >> halved));
        let newest = trailing_frame(transcript);
        let mut starts: Vec<u64> = turns.chain([newest]).collect();
        // A short turn is the same in each of its limits.
        starts.dedup();
        // The first layout that fits keeps the most.
        let (base_tokens, budget_tokens) = (target.base_tokens(), target.budget_tokens);
        let shorter = self.exchange(target.attempt + 1);
        let turns = starts.into_iter().map(|tail| (tail, base_tokens, with_answer));
        let answers = [with_answer, shorter.as_ref()].into_iter().flatten();
        let answers = answers.map(|answer| (newest, budget_tokens, Some(answer)));
        let mut layout_of =
            |(tail, tokens, answer)| self.layout_at(ledgers, &whole(tail), tokens, answer);
        for choice in turns.chain(answers) {
            let layout = layout_of(choice).filter(|layout| layout.has_room);
            if layout.is_some() {
                return layout;
            }
        }
        layout_of((newest, base_tokens, None))
            .or_else(|| layout_of((newest, budget_tokens, Some(with_answer?))))
    }

    /// The layout with older entries before the last turn, until the floor is reached or nothing more fits. The last
    /// turn may be one word, and running notes make a short summary.
    fn fill_to_floor(
        &self,
        ledgers: &mut LedgerReader<'_>,
        mut layout: BoundaryLayout,
        exchange: Option<&NewestExchange>,
    ) -> BoundaryLayout {
        let LayoutPlanner { transcript, target, settings, previews } = self;
        let (base_tokens, len) = (target.base_tokens(), transcript.len() as u64);
        let floor_tokens = target.floor_tokens(settings, transcript.total_tokens());
        let previews = previews.rewrites();
        let cost = |entry: &Entry<'_>| match previews.get(entry.seq()) {
            Some(preview) => preview.tokens(),
            None => entry.tokens(),
        };
        let most = LedgerLimits::new(target.budget_tokens, &settings.room);
        let mut tail = whole(layout.tail);
        // What was kept before the longer tail is counted twice at first, so the floor may take a second step.
        for _ in 0..FLOOR_STEPS {
            let missing_tokens = floor_tokens.saturating_sub(layout.used_tokens);
            if missing_tokens == 0 {
                break;
            }
            let range = layout.tail..len;
            let tail_tokens = transcript.tokens(range.clone()) - layout.shown.saved_tokens(range);
            tail = lengthen(transcript, &tail, tail_tokens + missing_tokens, cost);
            // With its question, which the summary would call unanswered.
            let before = tail.start.checked_sub(1).and_then(|seq| transcript.get(seq));
            tail.start = before
                .filter(|entry| entry.is_user_message())
                .map_or(tail.start, |question| question.frame());
            let longer = self.layout_at(ledgers, &tail, base_tokens, exchange);
            // Old rules and names say more than the entries that would take their room.
            let Some(longer) = longer.filter(|longer| longer.has_ledger_room_of(&layout, most))
            else {
                break;
            };
            layout = longer;
        }
        layout
    }

    /// The layout that replaces the most. It may exceed the threshold but not the budget; for a
    /// host whose request does not fit.
    pub(crate) fn choose_smallest(&self, ledgers: &mut LedgerReader<'_>) -> Option<BoundaryLayout> {
        let newest = trailing_frame(self.transcript);
        self.layout_at(ledgers, &whole(newest), self.target.budget_tokens, None)
            .or_else(|| self.layout_with_cuts(ledgers, newest))
    }

    /// The layout with a tail and the answer before the newest request.
    fn layout_at(
        &self,
        ledgers: &mut LedgerReader<'_>,
        tail: &TranscriptTail,
        whole_tokens: u64,
        exchange: Option<&NewestExchange>,
    ) -> Option<BoundaryLayout> {
        let TranscriptTail { start, cut } = tail;
        // In the tail it has the cuts of the tail.
        let exchange = exchange.filter(|exchange| exchange.answer().end <= *start);
        let answer = exchange.map_or(0..0, NewestExchange::answer);
        let mut shown = self.previews.rewrites().clone();
        exchange.into_iter().for_each(|exchange| shown.extend(exchange.cuts()));
        if let Some((frame, cap_chars)) = cut {
            let is_result =
                |entry: &Entry<'_>| entry.role() == Role::Tool && !entry.has(Flags::IMAGES);
            for entry in self.transcript.range(frame.clone()).filter(is_result) {
                cut_result(&entry, *cap_chars, LAYER)
                    .into_iter()
                    .for_each(|cut| shown.insert(&entry, cut));
            }
        }
        let fold = self.fold_before(*start, answer);
        let whole = self.transcript.total_tokens().min(self.target.budget_tokens);
        // Too little to be worth a summary and the loss of the cached prefix.
        if fold.tokens() < share_of(whole, LEAST_FOLD_SHARE) {
            return None;
        }
        self.layout_showing(ledgers, fold, *start, whole_tokens, shown)
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
            let used_tokens = shown.shown_tokens(transcript);
            (used_tokens <= target_tokens).then(|| BoundaryLayout {
                fold,
                tail,
                shown,
                summary_chars: 0,
                ledger: SummaryLedger::default(),
                ledger_limits: LedgerLimits::new(0, &self.settings.room),
                room_tokens: 0,
                used_tokens,
                has_room: true,
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
        let result_tokens = share_of(whole_tokens, target.target_share());
        // At most the size of earlier summaries and half of the new entries, so that the
        // transcript shrinks.
        let most_tokens = fold.tokens() - fold.new_tokens(transcript) / 2;
        let room_tokens = result_tokens
            .saturating_sub(kept_tokens)
            .min(share_of(target.budget_tokens, INSERT_SHARE))
            .min(most_tokens);
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
        let ledger_chars = ledger.chars(ledger_limits);
        let summary_chars = summary_chars.min(room_chars.saturating_sub(ledger_chars));
        let layout = BoundaryLayout {
            fold,
            tail,
            shown,
            summary_chars,
            ledger,
            ledger_limits,
            room_tokens,
            used_tokens: kept_tokens + ledger_chars / CHARS_PER_TOKEN,
            has_room: room_tokens >= least_summary_tokens(most_tokens, result_tokens),
        };
        Some(layout).filter(|layout| layout.summary_chars >= LEAST_SUMMARY_CHARS)
    }
}

/// A tail without cut results.
fn whole(start: u64) -> TranscriptTail {
    TranscriptTail { start, cut: None }
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

    /// The size up to which free room is filled.
    fn filled_tokens(&self) -> u64 {
        let base_tokens = self.base_tokens();
        filled_tokens(self.budget_tokens, base_tokens)
            .min(share_of(base_tokens, self.target_share()))
    }

    /// Minimum of what is kept of a transcript; half as much with each further attempt.
    fn floor_tokens(&self, settings: &Settings, transcript_tokens: u64) -> u64 {
        turn_floor_tokens(self.budget_tokens, settings.floor_share, transcript_tokens)
            >> self.attempt.saturating_sub(1).min(u64::BITS - 1)
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
mod tests;
