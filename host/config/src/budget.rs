//! How a window becomes a budget.

use serde::{Deserialize, Serialize};

/// The least that is held free for an answer where the window allows it, in provider tokens.
///
/// Default 20,000: a long answer with a tool call in it still ends. Windows for which this is too
/// much are covered by `reserve_max_share`, so a smaller number would only cut answers short.
pub const RESERVE_FLOOR_TOKENS: u64 = 20_000;

ctxhost_engine_api::settings! {
    /// `[budget]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct BudgetSettings {
        /// Held free for the answer. 20,000 lets a long answer with a tool call end, and is the
        /// least that counts.
        pub reserve_tokens: u64 = RESERVE_FLOOR_TOKENS, Whole(1), "provider tokens";
        /// The most of the window that the reserve may take; a quarter keeps small windows usable.
        pub reserve_max_share: f64 = 0.25, Number(0.01, 0.9), "share";
        /// Estimates are multiplied by this before they meet a window; mixed text is misjudged by
        /// up to a fifth.
        pub safety_margin: f64 = 1.2, Number(1.0, 4.0), "factor";
        /// System prompt and tools of a replayed session, which recordings do not hold; 0, because
        /// a number nobody measured would be invented.
        pub overhead_tokens: u64 = 0, Whole(0), "provider tokens";
    }
}

impl BudgetSettings {
    /// The reserve in provider tokens, and the budget in tokens as entries count them.
    ///
    /// `overhead_tokens` is what system prompt and tools take, in provider tokens. A window that
    /// they fill leaves a budget of 0.
    pub fn budget(&self, window_tokens: u64, overhead_tokens: u64) -> (u64, u64) {
        let reserve_tokens = self.reserve(window_tokens);
        let free_tokens =
            window_tokens.saturating_sub(reserve_tokens).saturating_sub(overhead_tokens);
        (reserve_tokens, floor(free_tokens as f64 / self.safety_margin))
    }

    fn reserve(&self, window_tokens: u64) -> u64 {
        let wanted_tokens = self.reserve_tokens.max(RESERVE_FLOOR_TOKENS);
        wanted_tokens.min(floor(window_tokens as f64 * self.reserve_max_share))
    }
}

/// Casting a float saturates, so no size of window can wrap around.
fn floor(tokens: f64) -> u64 {
    tokens.floor() as u64
}
