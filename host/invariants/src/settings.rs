//! The settings of the invariants, each with unit, default and reason.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[invariants]`: the limits of the invariants. Everything else about them is fixed.
    #[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct InvariantSettings {
        /// A compaction makes progress only if it ends this much below its target; the next request
        /// then does not trigger another.
        pub progress_margin: BudgetShare = BudgetShare(0.05), Number(0.0, 0.9), "share";
        /// Consecutive failures that open the circuit breaker; three are not a coincidence.
        pub breaker_failures: u32 = 3, Whole(1), "failures in a row";
        /// Time that the circuit breaker stays open; summaries mostly fail while a provider has an
        /// outage.
        pub breaker_cooldown_ms: u64 = 600_000, Whole(0), "ms";
        /// Most compactions without progress in one session and hour; more are a loop that costs
        /// money.
        pub compactions_per_hour: u32 = 20, Whole(1), "compactions";
        /// Share of the budget, or of 1,000 tokens if that is more, that text of an engine may take;
        /// beyond it, the request is the engine's text and not the session's.
        pub inserted_text_max_share: BudgetShare = BudgetShare(0.5), Number(0.01, 1.0), "share";
        /// A pinned entry is sent verbatim up to this size; an engine may shorten larger ones, such
        /// as a pasted file that leaves no room for an answer.
        pub verbatim_max_share: BudgetShare = BudgetShare(0.5), Number(0.01, 1.0), "share of the budget";
        /// Least use of the budget after a compaction, an overflow or an emergency trim, if the
        /// session has as much; less wastes paid room, much more soon triggers the next compaction.
        pub room_floor_share: BudgetShare = BudgetShare(0.3), Number(0.0, 0.5), "share of the budget";
        /// The same in tokens; the smaller one counts. It is what `legacy` keeps: recent turns
        /// (20,000 tokens) and the longest summary (16,000 characters).
        pub room_floor_tokens: u64 = 24_000, Whole(0), "tokens";
        /// Share for user requests that an emergency trim keeps verbatim, newest first; enough for
        /// a long session in a small window.
        pub request_share: BudgetShare = BudgetShare(0.1), Number(0.0, 0.5), "share of the budget";
        /// Share for commands, paths and identifiers in an emergency trim; on a session of 484
        /// requests a larger one gained little.
        pub ledger_share: BudgetShare = BudgetShare(0.15), Number(0.0, 0.5), "share of the budget";
    }
}

impl InvariantSettings {
    /// The least that a request contains, if the session has as much, in tokens as entries count
    /// them.
    pub fn floor_tokens(&self, budget_tokens: u64) -> u64 {
        self.room_floor_share.of_tokens(budget_tokens).min(self.room_floor_tokens)
    }

    /// The settings with which a plan may shorten any text of pinned entries.
    #[must_use]
    pub fn with_shorter_texts(&self) -> InvariantSettings {
        InvariantSettings { verbatim_max_share: BudgetShare(0.0), ..self.clone() }
    }
}

/// A share from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Deserialize, Serialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct BudgetShare(f64);

impl BudgetShare {
    /// This share of a number of tokens, rounded down.
    pub fn of_tokens(self, tokens: u64) -> u64 {
        (tokens as f64 * self.0) as u64
    }
}

/// A number that is not a share.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is not a share; write a number from 0 to 1")]
pub struct ShareError(pub f64);

impl From<BudgetShare> for f64 {
    fn from(share: BudgetShare) -> f64 {
        share.0
    }
}

impl TryFrom<f64> for BudgetShare {
    type Error = ShareError;

    fn try_from(share: f64) -> Result<Self, ShareError> {
        if (0.0..=1.0).contains(&share) { Ok(BudgetShare(share)) } else { Err(ShareError(share)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_table_is_the_default() {
        assert_eq!(toml::from_str::<InvariantSettings>("").unwrap(), InvariantSettings::default());
    }

    #[test]
    fn unknown_keys_and_impossible_shares_are_refused() {
        let parse = toml::from_str::<InvariantSettings>;
        for wrong in ["progres_margin = 0.1", "progress_margin = 1.5", "progress_margin = nan"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse("progress_margin = 1.0").unwrap().progress_margin.of_tokens(7), 7);
    }
}
