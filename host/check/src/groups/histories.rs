//! The histories of cases and the budgets they are assembled with.

use ctxhost_engine_api::Transcript;

use crate::provider::ProviderFamily;
use crate::settings::{BUDGETS, HISTORIES};

/// The number of a history and the provider family of its format.
pub(super) type HistoryKey = (u64, ProviderFamily);

/// Every history in every family.
pub(super) const CASES: u64 = HISTORIES * ProviderFamily::ALL.len() as u64;

/// The history of a case that runs each history in all families.
pub(super) fn key_per_family(case: u64) -> HistoryKey {
    let at = case.saturating_sub(1);
    (at / ProviderFamily::ALL.len() as u64, family(at))
}

/// The history of a case that runs each history in one family, in rotation.
pub(super) fn key_rotating(case: u64) -> HistoryKey {
    let at = case.saturating_sub(1);
    (at, family(at))
}

pub(super) fn describe((number, family): HistoryKey) -> String {
    format!("history {number} in {}", family.name())
}

fn family(at: u64) -> ProviderFamily {
    let families = ProviderFamily::ALL;
    let place = usize::try_from(at % families.len() as u64).unwrap_or(0);
    families.get(place).copied().unwrap_or(ProviderFamily::Anthropic)
}

/// Budgets with different cut positions, including one for the whole history.
pub(super) fn budgets(view: &Transcript) -> Vec<u64> {
    let len = view.len();
    let step = len.div_ceil(BUDGETS).max(1);
    let cuts = (0..len).step_by(step).map(|from| view.tokens(from as u64..len as u64));
    let mut budgets: Vec<u64> = cuts.collect();
    // One token less than the newest entry needs: no cut fits, and careless ones split a pair.
    budgets.extend(view.last().map(|entry| entry.tokens().saturating_sub(1)));
    // Entries without tokens give the same budget twice.
    budgets.dedup();
    budgets
}
