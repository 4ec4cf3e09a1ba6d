//! The last rung: a plan made without any engine, which always fits or says exactly what cannot, and
//! uses what it was allowed.
//!
//! ```text
//!  everything fits         keep all
//!  what must stay fits     keep it and, in this order while there is room: the person's requests word for
//!                          word, a ledger of what is left out, the newest whole frames
//!  it does not             keep the requests that fit their share, shorten the longest of the other texts,
//!                          all to one length, until everything fits
//! ```
//!
//! A text needs no more than [`MIN_TEXT_TOKENS`], so what must stay fits a budget of 200 tokens and
//! 40 for each call of the live round as long as no more than a dozen entries are pinned and tool
//! names keep to the 64 characters that providers allow.

mod base;
mod cost;
mod fill;
mod shorten;
mod text_limits;

use std::ops::Range;

use ctxhost_engine_api::{Plan, Role, Transcript};

use self::base::TrimBase;
use self::fill::TrimFiller;
use self::text_limits::TextLimits;
use super::pinned::{PinnedEntries, live_tool_round};
use super::{InvariantSettings, PinReason, budget};

/// What any text can be brought down to, in tokens: the notice that it was cut, and little else.
const MIN_TEXT_TOKENS: u64 = 12;

/// What must stay does not fit, even with every text of it cut to the bone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{content} need {needed_tokens} tokens at the least, but the budget is {budget_tokens}; use a model with a larger window or a smaller reserve"
)]
pub struct EmergencyTrimError {
    /// What must stay, counted by reason.
    pub content: String,
    /// What it needs in its shortest form.
    pub needed_tokens: u64,
    /// What there is.
    pub budget_tokens: u64,
}

/// What a ledger of left-out entries may take, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerBudget {
    /// All of it.
    pub tokens: u64,
    /// Requests of the person in it.
    pub request_tokens: u64,
}

/// Writes the ledger of left-out ranges: requests, commands and identifiers in at most so many tokens;
/// empty where there is nothing to say. The law knows no engine's words, so the caller writes it.
pub type LedgerWriter<'a> = dyn Fn(&[Range<u64>], LedgerBudget) -> String + 'a;

/// A lawful plan within the budget, the same for the same transcript. While what must stay fits, what
/// comes before the newest frames changes only once in an eighth of the budget, so that the beginning
/// of a request stays what the provider has read.
///
/// # Errors
///
/// [`EmergencyTrimError`] where not even the shortest form of what must stay fits.
pub fn emergency_trim(
    view: &Transcript,
    budget_tokens: u64,
    settings: &InvariantSettings,
    write_ledger: &LedgerWriter<'_>,
) -> Result<Plan, EmergencyTrimError> {
    let everything = Plan::keep_all(view.len());
    let fits = |plan: &Plan| budget::count_tokens(view, plan).0 <= budget_tokens;
    if view.total_tokens() <= budget_tokens && fits(&everything) {
        return Ok(everything);
    }
    let anchors = PinnedEntries::from_transcript(view);
    let cannot_fit = |needed_tokens| cannot_fit(view, &anchors, needed_tokens, budget_tokens);
    let base = TrimBase::new(view, &anchors, budget_tokens, settings).map_err(cannot_fit)?;
    let filling = TrimFiller { view, base: &base, budget_tokens, settings };
    let filled = filling.plan(write_ledger);
    if fits(&filled) {
        return Ok(filled);
    }
    let plan = build_plan(view, &base.text_limits(), None);
    let needed_tokens = || budget::count_tokens(view, &plan).0;
    if fits(&plan) { Ok(plan) } else { Err(cannot_fit(needed_tokens())) }
}

/// A text of the host's own and the range it stands for.
struct TrimLedger {
    covers: Range<u64>,
    text: String,
}

/// Keeps what has a form, each entry in that form, and puts the ledger behind what it covers.
fn build_plan(view: &Transcript, forms: &TextLimits<'_>, ledger: Option<TrimLedger>) -> Plan {
    let mut plan = Plan::default();
    let mut ledger = ledger;
    for entry in forms.kept().iter().flat_map(|range: Range<u64>| view.range(range)) {
        let seq = entry.seq();
        if let Some(TrimLedger { covers, text }) = ledger.take_if(|it| it.covers.end <= seq) {
            plan.insert(Role::User, text, covers).note("last rung", "what is left out, in short");
        }
        match cost::shorten_entry(&entry, forms.level_of(seq)) {
            Some(op) => plan.ops.push(op),
            None => _ = plan.keep(seq..seq + 1),
        }
    }
    if let Some(TrimLedger { covers, text }) = ledger {
        plan.insert(Role::User, text, covers).note("last rung", "what is left out, in short");
    }
    plan
}

/// The greatest length to which texts may go so that all of them cost no more than the budget.
fn highest_level(budget_tokens: u64, cost: impl Fn(u64) -> u64) -> Option<u64> {
    if cost(MIN_TEXT_TOKENS) > budget_tokens {
        return None;
    }
    let (mut fits, mut too_high) = (MIN_TEXT_TOKENS, budget_tokens.max(MIN_TEXT_TOKENS) + 1);
    while too_high - fits > 1 {
        let middle = fits + (too_high - fits) / 2;
        if cost(middle) <= budget_tokens { fits = middle } else { too_high = middle }
    }
    Some(fits)
}

fn cannot_fit(
    view: &Transcript,
    anchors: &PinnedEntries,
    needed_tokens: u64,
    budget_tokens: u64,
) -> EmergencyTrimError {
    let live_calls = live_tool_round(view)
        .map_or(0, |round| view.range(round).map(|entry| entry.tool_calls().len()).sum());
    let what = format!(
        "{} {} entries, the {} and a {} of {live_calls} calls",
        anchors.pinned_count(),
        PinReason::Pinned.name(),
        PinReason::NewestUserMessage.name(),
        PinReason::LiveToolRound.name(),
    );
    EmergencyTrimError { content: what, needed_tokens, budget_tokens }
}
