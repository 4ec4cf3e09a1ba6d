//! `[budget]`: from a window to a budget.

use serde::{Deserialize, Serialize};

/// Least reserve for an answer, in provider tokens, if the window allows it.
///
/// A long answer with a tool call fits into 20,000. Small windows are covered by
/// `reserve_max_share`, so a smaller number would only truncate answers.
pub const RESERVE_FLOOR_TOKENS: u64 = 20_000;

ctxhost_engine_api::settings! {
    /// `[budget]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct BudgetSettings {
        /// Tokens reserved for the answer. 20,000 fit a long answer with a tool call, and are the minimum
        /// that counts.
        pub reserve_tokens: u64 = RESERVE_FLOOR_TOKENS, Whole(1), "provider tokens";
        /// Largest part of the window that the reserve may take; a quarter keeps small windows usable.
        pub reserve_max_share: f64 = 0.25, Number(0.01, 0.9), "share";
        /// Factor on estimates before they are compared with a window; estimates of mixed text are off by
        /// up to a fifth.
        pub safety_margin: f64 = 1.2, Number(1.0, 4.0), "factor";
        /// System prompt and tools of a replayed session, which recordings lack; 0, because any
        /// other number would be a guess.
        pub overhead_tokens: u64 = 0, Whole(0), "provider tokens";
    }
}

impl BudgetSettings {
    /// The reserve in provider tokens, and the budget in estimated tokens.
    ///
    /// `overhead_tokens` is the size of system prompt and tools, in provider tokens. If they fill
    /// the window, the budget is 0.
    pub fn budget(&self, window_tokens: u64, overhead_tokens: u64) -> (u64, u64) {
        let reserve_tokens = self.reserve(window_tokens);
        let free_tokens =
            // Saturating: the tools of an agent can be larger than a small window.
            window_tokens.saturating_sub(reserve_tokens).saturating_sub(overhead_tokens);
        (reserve_tokens, floor(free_tokens as f64 / self.safety_margin))
    }

    fn reserve(&self, window_tokens: u64) -> u64 {
        // A smaller reserve truncates answers with tool calls, which then fail to parse.
        let wanted_tokens = self.reserve_tokens.max(RESERVE_FLOOR_TOKENS);
        wanted_tokens.min(floor(window_tokens as f64 * self.reserve_max_share))
    }
}

/// Casting a float saturates, so a huge window cannot wrap around.
fn floor(tokens: f64) -> u64 {
    tokens.floor() as u64
}
