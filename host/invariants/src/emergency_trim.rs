//! The emergency trim: a plan made without an engine, which fits the budget and uses most of it.
//!
//! ```text
//!  everything fits         keep all
//!  pinned entries fit      keep them and, in this order while there is room: user requests verbatim, a
//!                          ledger of the dropped entries, the newest whole frames
//!  they do not             keep the requests that fit their share, shorten the longest of the other texts,
//!                          all to one length, until everything fits
//! ```
//!
//! A text can be shortened to [`MIN_TEXT_TOKENS`](shorten::MIN_TEXT_TOKENS). Pinned entries therefore fit a
//! budget of 200 tokens, and 40 for each call of the live tool round, as long as at most a dozen entries
//! are pinned and tool names have at most the 64 characters that providers allow.

mod base;
mod cost;
mod fill;
mod shorten;
mod text_limits;

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{Plan, Transcript};

use self::base::TrimBase;
pub(super) use self::cost::{has_files, shorten_entry, text_to_shorten};
use self::fill::TrimFiller;
pub use self::fill::{LedgerBudget, LedgerWriter};
use super::pinned::{PinnedEntries, live_tool_round};
use super::{InvariantSettings, PinReason, budget};

/// The pinned entries do not fit, even with every text at its minimum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{content} need {} tokens at the least, but the budget is {}; use a model with a larger window, or reserve less for the answer (max_tokens of the request, budget.reserve_max_share)", group_thousands(*needed_tokens), group_thousands(*budget_tokens)
)]
pub struct EmergencyTrimError {
    /// The pinned entries, counted by reason.
    pub content: String,
    /// The tokens that they need at the least.
    pub needed_tokens: u64,
    /// The budget.
    pub budget_tokens: u64,
}

/// A valid plan within the budget, deterministic for a transcript.
///
/// # Errors
///
/// [`EmergencyTrimError`] where the pinned entries do not fit in their shortest form.
pub fn emergency_trim(
    view: &Transcript,
    budget_tokens: u64,
    settings: &InvariantSettings,
    write_ledger: &LedgerWriter<'_>,
) -> Result<Plan, EmergencyTrimError> {
    let everything = Plan::keep_all(view.len());
    let fits = |plan: &Plan| budget::count_tokens(view, plan).0 <= budget_tokens;
    // The sum is known; pairing and counting the whole view is not free.
    if view.total_tokens() <= budget_tokens && fits(&everything) {
        return Ok(everything);
    }
    let pinned = PinnedEntries::from_transcript(view);
    let cannot_fit = |needed_tokens| cannot_fit(view, &pinned, needed_tokens, budget_tokens);
    let base = TrimBase::new(view, &pinned, budget_tokens, settings).map_err(cannot_fit)?;
    let filler = TrimFiller { view, base: &base, budget_tokens, settings };
    let filled = filler.plan(write_ledger);
    if fits(&filled) {
        return Ok(filled);
    }
    // The counts above are bounds. If they were too low, the base alone still is a valid prompt.
    let plan = base.text_limits().plan(view, None);
    let needed_tokens = || budget::count_tokens(view, &plan).0;
    if fits(&plan) { Ok(plan) } else { Err(cannot_fit(needed_tokens())) }
}

/// The tokens of the pinned entries in full: in a smaller budget, a trim shortens their texts.
pub fn pinned_tokens(view: &Transcript) -> u64 {
    TrimBase::pinned_tokens(view, &PinnedEntries::from_transcript(view))
}

fn cannot_fit(
    view: &Transcript,
    pinned: &PinnedEntries,
    needed_tokens: u64,
    budget_tokens: u64,
) -> EmergencyTrimError {
    let live_calls = live_tool_round(view)
        .map_or(0, |round| view.range(round).map(|entry| entry.tool_calls().len()).sum());
    let content = format!(
        "{} {} entries, the {} and a {} of {live_calls} calls",
        pinned.pinned_count(),
        PinReason::Pinned.name(),
        PinReason::NewestUserMessage.name(),
        PinReason::LiveToolRound.name(),
    );
    EmergencyTrimError { content, needed_tokens, budget_tokens }
}
