//! Settings of layer 1: the minimum window.

use serde::{Deserialize, Serialize};

use super::share_of;

/// How the limits of the window guard are determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WindowRule {
    /// Fixed limits.
    #[default]
    Fixed,
    /// Shares of the model's native window, each with a floor.
    Reference,
}

ctxhost_engine_api::settings! {
    /// Layer 1.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct WindowSettings {
        /// Limits: `fixed` sizes, because system prompt, tools and reserve do not grow with the
        /// model, or shares of the native window, each with a floor (`reference`).
        pub rule: WindowRule = WindowRule::Fixed, Word(&["fixed", "reference"]);
        /// `fixed`: a smaller window is refused. System prompt, tools and reserve would leave no
        /// room.
        pub block_tokens: u64 = 16_000, Whole(0), "tokens";
        /// `fixed`: a smaller window causes a warning.
        pub warn_tokens: u64 = 32_000, Whole(0), "tokens";
        /// `reference`: native window of the model; 0 for the configured window.
        pub reference_tokens: u64 = 0, Whole(0), "tokens";
        /// `reference`: a window below this share is refused.
        pub block_share: f64 = 0.1, Share, "share";
        /// `reference`: a window below this share causes a warning.
        pub warn_share: f64 = 0.2, Share, "share";
        /// `reference`: a smaller window is always refused.
        pub block_floor_tokens: u64 = 4_000, Whole(0), "tokens";
        /// `reference`: a smaller window always causes a warning.
        pub warn_floor_tokens: u64 = 8_000, Whole(0), "tokens";
    }
}

/// The two limits for one window, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowLimits {
    /// A smaller window is refused.
    pub(crate) block_tokens: u64,
    /// A smaller window causes a warning.
    pub(crate) warn_tokens: u64,
}

impl WindowSettings {
    /// The limits for a window.
    pub(crate) fn limits(&self, window_tokens: u64) -> WindowLimits {
        if self.rule == WindowRule::Fixed {
            let WindowSettings { block_tokens, warn_tokens, .. } = *self;
            return WindowLimits { block_tokens, warn_tokens };
        }
        let reference = match self.reference_tokens {
            0 => window_tokens,
            native => native,
        };
        let floor = self.block_floor_tokens;
        let block = floor.max(share_of(reference, self.block_share));
        WindowLimits {
            // Above the floor the operator may configure a smaller window than the model has.
            block_tokens: block.min(window_tokens.max(floor)),
            warn_tokens: self.warn_floor_tokens.max(share_of(reference, self.warn_share)),
        }
    }
}
