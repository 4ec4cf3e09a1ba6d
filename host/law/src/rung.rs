//! The last rung: a plan made without any engine, which always fits or says exactly what cannot.
//!
//! ```text
//!  everything fits         keep all
//!  what must stay fits     keep it, and the newest whole frames beside it while there is room
//!  it does not             shorten its longest texts, all to one length, until it does
//! ```
//!
//! A text needs no more than [`SHORTEST_TOKENS`], so what must stay fits a budget of 200 tokens and
//! 40 for each call of the live round as long as no more than a dozen entries are pinned and tool
//! names keep to the 64 characters that providers allow.

mod load;
mod shorten;

use std::ops::Range;

use ctxhost_engine_api::{Plan, Transcript};

use super::keep::{Anchors, live_round};
use super::span::Spans;
use super::{Because, budget};
use load::Load;

/// What any text can be brought down to, in tokens: the notice that it was cut, and little else.
const SHORTEST_TOKENS: u64 = 12;

/// Share of the budget, as a divisor, above which one text of the older history is shortened, so
/// that a single huge result does not keep out everything before it.
const HISTORY_TEXT_DIVISOR: u64 = 8;

/// What must stay does not fit, even with every text of it cut to the bone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} need {needed_tokens} tokens at the least, but the budget is {budget_tokens}; use a model with a larger window or a smaller reserve"
)]
pub struct CannotFit {
    /// What must stay, counted by reason.
    pub what: String,
    /// What it needs in its shortest form.
    pub needed_tokens: u64,
    /// What there is.
    pub budget_tokens: u64,
}

/// A lawful plan within the budget, the same for the same transcript.
pub fn last_rung(view: &Transcript, budget_tokens: u64) -> Result<Plan, CannotFit> {
    let everything = Plan::keep_all(view.len());
    let fits = |plan: &Plan| budget::count(view, plan).0 <= budget_tokens;
    if view.total_tokens() <= budget_tokens && fits(&everything) {
        return Ok(everything);
    }
    let anchors = Anchors::of(view);
    let must_stay = anchors.must_stay(view);
    let loads: Vec<Load> = must_stay.iter().flat_map(|range| load::of(view, range)).collect();
    let whole_tokens = tokens_at(&loads, u64::MAX);
    let (kept, level_tokens) = if whole_tokens <= budget_tokens {
        let level_tokens = (budget_tokens / HISTORY_TEXT_DIVISOR).max(SHORTEST_TOKENS);
        let room_tokens = budget_tokens - whole_tokens;
        (with_newest(view, &must_stay, room_tokens, level_tokens), level_tokens)
    } else {
        let level_tokens = highest_level(&loads, budget_tokens)
            .ok_or_else(|| cannot_fit(view, &anchors, &loads, budget_tokens))?;
        (must_stay.clone(), level_tokens)
    };
    let spared = if whole_tokens <= budget_tokens { must_stay } else { Spans::default() };
    let plan = plan_of(view, &kept, &spared, level_tokens);
    if fits(&plan) { Ok(plan) } else { Err(cannot_fit(view, &anchors, &loads, budget_tokens)) }
}

fn tokens_at(loads: &[Load], level_tokens: u64) -> u64 {
    loads.iter().map(|load| load.tokens_at(level_tokens)).sum()
}

/// The greatest length to which texts may go so that all of them fit.
fn highest_level(loads: &[Load], budget_tokens: u64) -> Option<u64> {
    if tokens_at(loads, SHORTEST_TOKENS) > budget_tokens {
        return None;
    }
    let (mut fits, mut too_high) = (SHORTEST_TOKENS, budget_tokens.max(SHORTEST_TOKENS) + 1);
    while too_high - fits > 1 {
        let middle = fits + (too_high - fits) / 2;
        if tokens_at(loads, middle) <= budget_tokens { fits = middle } else { too_high = middle }
    }
    Some(fits)
}

/// What must stay and the newest frames that fit beside it, without a hole but those it makes.
fn with_newest(view: &Transcript, must_stay: &Spans, room_tokens: u64, level_tokens: u64) -> Spans {
    let (mut room_tokens, mut start) = (room_tokens, view.len() as u64);
    while let Some(last) = start.checked_sub(1) {
        let frame = view.cut_at_or_before(last)..start;
        if !must_stay.contains(last) {
            let tokens = tokens_at(&load::of(view, frame.clone()), level_tokens);
            match room_tokens.checked_sub(tokens) {
                Some(left) => room_tokens = left,
                None => break,
            }
        }
        start = frame.start;
    }
    must_stay.with(&Spans::of(Some(start..view.len() as u64)))
}

/// Keeps positions, each entry above the level in its shorter form unless it is spared.
fn plan_of(view: &Transcript, kept: &Spans, spared: &Spans, level_tokens: u64) -> Plan {
    let mut plan = Plan::default();
    for entry in kept.iter().flat_map(|range: Range<u64>| view.range(range)) {
        let seq = entry.seq();
        let shorter =
            (!spared.contains(seq)).then(|| load::shorter(&entry, level_tokens)).flatten();
        match shorter {
            Some(op) => plan.ops.push(op),
            None => _ = plan.keep(seq..seq + 1),
        }
    }
    plan
}

fn cannot_fit(
    view: &Transcript,
    anchors: &Anchors,
    loads: &[Load],
    budget_tokens: u64,
) -> CannotFit {
    let live_calls = live_round(view)
        .map_or(0, |round| view.range(round).map(|entry| entry.tool_calls().len()).sum());
    let what = format!(
        "{} {} entries, the {} and a {} of {live_calls} calls",
        anchors.pinned_count(),
        Because::Pinned.name(),
        Because::NewestUserMessage.name(),
        Because::LiveToolRound.name(),
    );
    CannotFit { what, needed_tokens: tokens_at(loads, SHORTEST_TOKENS), budget_tokens }
}
