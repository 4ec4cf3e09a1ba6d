//! Filling: what there is room for beside the base, the newest first.
//!
//! ```text
//!  base … ledger of the gaps │ newest frames, texts cut to a level
//!                            └ start: moves by steps of an eighth of the budget
//! ```

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Plan, Transcript};

use super::base::TrimBase;
use super::cost;
use super::text_limits::TextLimits;
use super::{LedgerBudget, LedgerWriter, MIN_TEXT_TOKENS, TrimLedger, build_plan, highest_level};
use crate::InvariantSettings;

/// Shares of the budget, as divisors, above which one text is shortened: the largest with which all of
/// the history fits, else the last, so that no huge result keeps out everything before it.
const TEXT_DIVISORS: [u64; 3] = [2, 4, 8];

/// Share of the budget, as a divisor, by which the start of the newest frames moves at once.
const STEP_DIVISOR: u64 = 8;

/// How many budgets of left-out history a ledger is read from, newest first: reading costs time with
/// every request, and what lies further back has hardly a line in it.
const LEDGER_BUDGETS: u64 = 8;

/// Fills what the base leaves free.
pub(super) struct TrimFiller<'a> {
    pub(super) view: &'a Transcript,
    pub(super) base: &'a TrimBase,
    pub(super) budget_tokens: u64,
    pub(super) settings: &'a InvariantSettings,
}

/// The newest frames: where they begin and what they cost beside the base.
#[derive(Clone, Copy, Debug)]
struct NewestFrames {
    start: u64,
    tokens: u64,
}

impl<'a> TrimFiller<'a> {
    /// The plan, with what `write_ledger` says of the rest.
    pub(super) fn plan(&self, write_ledger: &LedgerWriter<'_>) -> Plan {
        let room_tokens = self.budget_tokens.saturating_sub(self.base.tokens);
        for divisor in TEXT_DIVISORS {
            let level = self.level(divisor);
            if let Some(whole) = self.tails(level, room_tokens).last().filter(|it| it.start == 0) {
                let forms = TextLimits { start: whole.start, level, ..self.base.text_limits() };
                return build_plan(self.view, &forms, None);
            }
        }
        let ledger_room = self.ledger_room(room_tokens);
        let room_tokens = room_tokens - ledger_room.tokens;
        let [.., divisor] = TEXT_DIVISORS;
        let level = self.level(divisor);
        let mut forms = self.newest(level, room_tokens);
        self.reach_floor(&mut forms, room_tokens);
        let ledger = self.ledger(&forms, ledger_room, write_ledger);
        build_plan(self.view, &forms, ledger)
    }

    fn level(&self, divisor: u64) -> u64 {
        (self.budget_tokens / divisor).max(MIN_TEXT_TOKENS)
    }

    /// What the ledger may take: its own share and what requests have left of theirs, never more than
    /// an engine's own words may, and at most half of what is free.
    fn ledger_room(&self, room_tokens: u64) -> LedgerBudget {
        let share = |share: crate::BudgetShare| share.of_tokens(self.budget_tokens);
        let settings = self.settings;
        let request_tokens = share(settings.request_share).saturating_sub(self.base.request_tokens);
        let most_tokens = share(settings.inserted_text_max_share).min(room_tokens / 2);
        let tokens = (share(settings.ledger_share) + request_tokens).min(most_tokens);
        LedgerBudget { tokens, request_tokens: request_tokens.min(tokens) }
    }

    /// The newest frames that fit, one tail for each frame more.
    fn tails(&self, level: u64, room_tokens: u64) -> Vec<NewestFrames> {
        let base = self.base.text_limits();
        let mut tails = vec![NewestFrames { start: self.view.len() as u64, tokens: 0 }];
        while let Some(NewestFrames { start, tokens }) = tails.last().copied()
            && let Some(last) = start.checked_sub(1)
        {
            let frame = self.view.cut_at_or_before(last)..start;
            let loads = cost::costs_of(self.view, frame.clone());
            let kept = TextLimits { start: frame.start, level, ..base.clone() };
            let before_tokens = if self.base.contains(last) { base.tokens(&loads) } else { 0 };
            let tokens = tokens + kept.tokens(&loads).saturating_sub(before_tokens);
            if tokens > room_tokens {
                break;
            }
            tails.push(NewestFrames { start: frame.start, tokens });
        }
        tails
    }

    /// The newest frames from a start that stays where it is while a step's worth is added.
    fn newest(&self, level: u64, room_tokens: u64) -> TextLimits<'a> {
        let tails = self.tails(level, room_tokens);
        let longest = tails.last().copied().unwrap_or(NewestFrames { start: 0, tokens: 0 });
        let stepped = tails.iter().rev().find(|tail| self.is_step(tail.start));
        let is_enough =
            |tail: &&NewestFrames| self.base.tokens + tail.tokens >= self.floor_tokens();
        let tail = stepped.filter(is_enough).copied().unwrap_or(longest);
        TextLimits { start: tail.start, level, ..self.base.text_limits() }
    }

    /// Whether the history crosses a multiple of the step within the frame before a position.
    fn is_step(&self, start: u64) -> bool {
        let Some(last) = start.checked_sub(1) else { return true };
        let step = (self.budget_tokens / STEP_DIVISOR).max(1);
        let steps = |end: u64| self.view.tokens(0..end) / step;
        steps(self.view.cut_at_or_before(last)) != steps(start)
    }

    fn floor_tokens(&self) -> u64 {
        self.settings.floor_tokens(self.budget_tokens)
    }

    /// Takes older frames, too, cut as far as it needs, until no less than the floor is used: what does
    /// not fit whole is cut before it is left out.
    fn reach_floor(&self, forms: &mut TextLimits<'_>, room_tokens: u64) {
        let tail = self.tails(forms.level, room_tokens);
        let tail_tokens = tail.iter().find(|it| it.start == forms.start).map_or(0, |it| it.tokens);
        let mut left_tokens = room_tokens.saturating_sub(tail_tokens);
        let mut used_tokens = self.base.tokens + tail_tokens;
        let mut end = forms.start;
        while used_tokens < self.floor_tokens()
            && let Some(last) = end.checked_sub(1)
        {
            let frame = self.view.cut_at_or_before(last)..end;
            end = frame.start;
            if self.base.contains_pinned(last) {
                continue;
            }
            let loads = cost::costs_of(self.view, frame.clone());
            let base_tokens = match self.base.contains(last) {
                true => self.base.text_limits().tokens(&loads),
                false => 0,
            };
            let cost = |level| {
                let older = vec![(frame.clone(), level)];
                let kept = TextLimits { older, ..self.base.text_limits() };
                kept.tokens(&loads).saturating_sub(base_tokens)
            };
            let level = highest_level(left_tokens, cost).filter(|level| cost(*level) > 0);
            if let Some(level) = level {
                let tokens = cost(level);
                left_tokens -= tokens;
                used_tokens += tokens;
                forms.older.push((frame, level));
            }
        }
    }

    /// The ledger of what is left out; it stands behind the last gap.
    fn ledger(
        &self,
        forms: &TextLimits<'_>,
        room: LedgerBudget,
        write_ledger: &LedgerWriter<'_>,
    ) -> Option<TrimLedger> {
        let gaps = forms.kept().gaps_in(0..self.view.len() as u64);
        let covers = gaps.last()?.clone();
        let text = write_ledger(&self.newest_of(gaps), room);
        let is_fit = !text.trim().is_empty() && tokens::estimate(&text) <= room.tokens;
        is_fit.then_some(TrimLedger { covers, text })
    }

    /// The newest of the gaps, as much as a ledger is read from. What a summary stands for is in it.
    fn newest_of(&self, gaps: Vec<Range<u64>>) -> Vec<Range<u64>> {
        let most_tokens = self.budget_tokens.saturating_mul(LEDGER_BUDGETS);
        let mut read_tokens: u64 = 0;
        let mut newest = Vec::new();
        for gap in gaps.into_iter().rev() {
            if read_tokens >= most_tokens {
                break;
            }
            read_tokens = read_tokens.saturating_add(self.view.tokens(gap.clone()));
            newest.push(gap);
        }
        newest.reverse();
        newest
    }
}
