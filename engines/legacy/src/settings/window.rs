//! The numbers of layer 1: which window is too small.

use serde::{Deserialize, Serialize};

use super::share_of;

/// How the limits of the window guard are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WindowRule {
    /// The two limits as they are written.
    #[default]
    Fixed,
    /// Shares of the window the model has by nature, with a floor under each.
    Reference,
}

ctxhost_engine_api::settings! {
    /// Layer 1.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct WindowSettings {
        /// How the limits are found: `fixed` takes them as they are written, since what fills a
        /// small window (system prompt, tools and reserve) does not grow with the model;
        /// `reference` takes shares of the window the model has by nature, with a floor under each.
        pub rule: WindowRule = WindowRule::Fixed, Word(&["fixed", "reference"]);
        /// `fixed`: a window below this is refused. System prompt, tools and a reserve leave
        /// nothing to work in below it.
        pub block_tokens: u64 = 16_000, Whole(0), "tokens";
        /// `fixed`: a window below this is worked in with a warning.
        pub warn_tokens: u64 = 32_000, Whole(0), "tokens";
        /// `reference`: the window the model has by nature; 0 for the one it was given.
        pub reference_tokens: u64 = 0, Whole(0), "tokens";
        /// `reference`: a window below this share is refused.
        pub block_share: f64 = 0.1, Share, "share";
        /// `reference`: a window below this share is worked in with a warning.
        pub warn_share: f64 = 0.2, Share, "share";
        /// `reference`: no window below this is worked in.
        pub block_floor_tokens: u64 = 4_000, Whole(0), "tokens";
        /// `reference`: every window below this has a warning.
        pub warn_floor_tokens: u64 = 8_000, Whole(0), "tokens";
    }
}

/// The two limits for one window, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowLimits {
    /// Below it a window is refused.
    pub(crate) block_tokens: u64,
    /// Below it a window is worked in with a warning.
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
            // A window that somebody chose to cut small is that person's affair above the floor.
            block_tokens: block.min(window_tokens.max(floor)),
            warn_tokens: self.warn_floor_tokens.max(share_of(reference, self.warn_share)),
        }
    }
}
