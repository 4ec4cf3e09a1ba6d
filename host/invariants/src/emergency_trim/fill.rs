//! Fills the budget that the base leaves free, with the newest frames first.
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
use super::shorten::MIN_TEXT_TOKENS;
use super::text_limits::{TextLimits, TrimLedger, highest_level};
use crate::settings::{BudgetShare, InvariantSettings};

/// The budget of a ledger of dropped entries, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerBudget {
    /// The whole ledger.
    pub tokens: u64,
    /// The user requests in it.
    pub request_tokens: u64,
}

/// Writes the ledger of dropped ranges (requests, commands, identifiers) within a budget; empty where
/// there is nothing to list. The caller provides it, because the format is that of the engines.
pub type LedgerWriter<'a> = dyn Fn(&[Range<u64>], LedgerBudget) -> String + 'a;

/// The largest text as a divisor of the budget: the first with which all of the history fits, else the
/// last, so that one huge result does not displace everything before it.
const TEXT_DIVISORS: [u64; 3] = [2, 4, 8];

/// The step by which the start of the newest frames moves, as a divisor of the budget.
const STEP_DIVISOR: u64 = 8;

/// The amount of dropped history, in budgets, that a ledger is made from, newest first. Reading costs time
/// in every request, and older history would hardly get a line.
const LEDGER_BUDGETS: u64 = 8;

/// Fills what the base leaves free.
pub(super) struct TrimFiller<'a> {
    pub(super) view: &'a Transcript,
    pub(super) base: &'a TrimBase,
    pub(super) budget_tokens: u64,
    pub(super) settings: &'a InvariantSettings,
}

/// The newest frames: their start, and their cost beside the base.
#[derive(Clone, Copy, Debug)]
struct NewestFrames {
    start: u64,
    tokens: u64,
}

impl<'a> TrimFiller<'a> {
    /// The plan, with the ledger of what it drops.
    pub(super) fn plan(&self, write_ledger: &LedgerWriter<'_>) -> Plan {
        let room_tokens = self.budget_tokens.saturating_sub(self.base.tokens);
        // Shortening a few huge texts loses less than dropping history, so it is tried first.
        for divisor in TEXT_DIVISORS {
            let level = self.level(divisor);
            if let Some(whole) =
                self.tails(level, room_tokens).last().filter(|tail| tail.start == 0)
            {
                let limits = TextLimits { start: whole.start, level, ..self.base.text_limits() };
                return limits.plan(self.view, None);
            }
        }
        let ledger_room = self.ledger_room(room_tokens);
        let room_tokens = room_tokens - ledger_room.tokens;
        let [.., divisor] = TEXT_DIVISORS;
        let level = self.level(divisor);
        let mut limits = self.newest(level, room_tokens);
        self.reach_floor(&mut limits, room_tokens);
        let ledger = self.ledger(&limits, ledger_room, write_ledger);
        limits.plan(self.view, ledger)
    }

    fn level(&self, divisor: u64) -> u64 {
        (self.budget_tokens / divisor).max(MIN_TEXT_TOKENS)
    }

    /// The budget of the ledger: its own share and what the requests leave of theirs, at most the limit of
    /// inserted text and half of the free room.
    fn ledger_room(&self, room_tokens: u64) -> LedgerBudget {
        let share = |share: BudgetShare| share.of_tokens(self.budget_tokens);
        let settings = self.settings;
        let request_tokens = share(settings.request_share).saturating_sub(self.base.request_tokens);
        // At most half of the room: a list of names without the newest turns is of no use to a model.
        let max_tokens = share(settings.inserted_text_max_share).min(room_tokens / 2);
        let tokens = (share(settings.ledger_share) + request_tokens).min(max_tokens);
        LedgerBudget { tokens, request_tokens: request_tokens.min(tokens) }
    }

    /// The newest frames that fit, with one item for each further frame.
    fn tails(&self, level: u64, room_tokens: u64) -> Vec<NewestFrames> {
        let base = self.base.text_limits();
        let mut tails = vec![NewestFrames { start: self.view.len() as u64, tokens: 0 }];
        while let Some(NewestFrames { start, tokens }) = tails.last().copied()
            && let Some(last) = start.checked_sub(1)
        {
            let frame = self.view.cut_at_or_before(last)..start;
            let costs = cost::costs_of(self.view, frame.clone());
            let kept = TextLimits { start: frame.start, level, ..base.clone() };
            let before_tokens = if self.base.contains(last) { base.tokens(&costs) } else { 0 };
            let tokens = tokens + kept.tokens(&costs).saturating_sub(before_tokens);
            if tokens > room_tokens {
                break;
            }
            tails.push(NewestFrames { start: frame.start, tokens });
        }
        tails
    }

    /// The newest frames from a start that moves in steps.
    fn newest(&self, level: u64, room_tokens: u64) -> TextLimits<'a> {
        let tails = self.tails(level, room_tokens);
        let longest = tails.last().copied().unwrap_or(NewestFrames { start: 0, tokens: 0 });
        // In steps, because a start that moves with every entry would invalidate the provider's
        // prompt cache with every request.
        let stepped = tails.iter().rev().find(|tail| self.is_step(tail.start));
        let is_enough =
            |tail: &&NewestFrames| self.base.tokens + tail.tokens >= self.floor_tokens();
        let tail = stepped.filter(is_enough).copied().unwrap_or(longest);
        TextLimits { start: tail.start, level, ..self.base.text_limits() }
    }

    /// Whether the history crosses a multiple of the step in the frame before a position.
    fn is_step(&self, start: u64) -> bool {
        let Some(last) = start.checked_sub(1) else { return true };
        let step = (self.budget_tokens / STEP_DIVISOR).max(1);
        let steps = |end: u64| self.view.tokens(0..end) / step;
        steps(self.view.cut_at_or_before(last)) != steps(start)
    }

    fn floor_tokens(&self) -> u64 {
        self.settings.floor_tokens(self.budget_tokens)
    }

    /// Adds older frames until the floor is reached, each shortened as far as needed.
    fn reach_floor(&self, limits: &mut TextLimits<'_>, room_tokens: u64) {
        let tails = self.tails(limits.level, room_tokens);
        let tail_tokens =
            tails.iter().find(|tail| tail.start == limits.start).map_or(0, |tail| tail.tokens);
        let mut left_tokens = room_tokens.saturating_sub(tail_tokens);
        let mut used_tokens = self.base.tokens + tail_tokens;
        let mut end = limits.start;
        while used_tokens < self.floor_tokens()
            && let Some(last) = end.checked_sub(1)
        {
            let frame = self.view.cut_at_or_before(last)..end;
            end = frame.start;
            if self.base.contains_pinned(last) {
                continue;
            }
            let costs = cost::costs_of(self.view, frame.clone());
            let base_tokens =
                if self.base.contains(last) { self.base.text_limits().tokens(&costs) } else { 0 };
            let cost = |level| {
                let older = vec![(frame.clone(), level)];
                let kept = TextLimits { older, ..self.base.text_limits() };
                kept.tokens(&costs).saturating_sub(base_tokens)
            };
            let level = highest_level(left_tokens, cost).filter(|level| cost(*level) > 0);
            if let Some(level) = level {
                let tokens = cost(level);
                left_tokens -= tokens;
                used_tokens += tokens;
                limits.older.push((frame, level));
            }
        }
    }

    /// The ledger of what is dropped, placed after the last gap.
    fn ledger(
        &self,
        limits: &TextLimits<'_>,
        room: LedgerBudget,
        write_ledger: &LedgerWriter<'_>,
    ) -> Option<TrimLedger> {
        let gaps = limits.kept().gaps_in(0..self.view.len() as u64);
        let covers = gaps.last()?.clone();
        let text = write_ledger(&self.newest_of(gaps), room);
        let is_fit = !text.trim().is_empty() && tokens::estimate(&text) <= room.tokens;
        is_fit.then_some(TrimLedger { covers, text })
    }

    /// The newest gaps, as much as a ledger is made from.
    fn newest_of(&self, gaps: Vec<Range<u64>>) -> Vec<Range<u64>> {
        // Reading all of a long history for a text of a few hundred tokens would make the trim linear in the history.
        let max_tokens = self.budget_tokens.saturating_mul(LEDGER_BUDGETS);
        let mut read_tokens: u64 = 0;
        let mut newest = Vec::new();
        for gap in gaps.into_iter().rev() {
            if read_tokens >= max_tokens {
                break;
            }
            read_tokens = read_tokens.saturating_add(self.view.tokens(gap.clone()));
            newest.push(gap);
        }
        newest.reverse();
        newest
    }
}
