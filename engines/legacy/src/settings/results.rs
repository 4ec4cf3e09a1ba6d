//! Settings of layer 2: limits of tool output.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// Layer 2.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct ToolResultSettings {
        /// Share of the window for one result: three large results must fit.
        pub cap_share: f64 = 0.3, Share, "share";
        /// Cap of one result in a window below `medium_window_tokens`.
        pub small_cap_chars: u64 = 16_000, Whole(0), "weighted characters";
        /// Cap of one result in a window of at least `medium_window_tokens`.
        pub medium_cap_chars: u64 = 32_000, Whole(0), "weighted characters";
        /// Cap of one result in a window of at least `large_window_tokens`.
        pub large_cap_chars: u64 = 64_000, Whole(0), "weighted characters";
        /// Smallest window with the medium cap.
        pub medium_window_tokens: u64 = 100_000, Whole(0), "tokens";
        /// Smallest window with the large cap.
        pub large_window_tokens: u64 = 200_000, Whole(0), "tokens";
        /// Minimum head of a text before an important tail gets room.
        pub min_keep_chars: u64 = 2_000, Whole(0), "weighted characters";
        /// A result above this share of the window is cleared once the model has answered it: a cut
        /// to a tenth would mislead later. Until then it is cut to the cap of one result.
        pub clear_share: f64 = 0.5, Share, "share";
        /// Share of the window for all results together: the other half is the conversation.
        pub aggregate_share: f64 = 0.5, Share, "share";
        /// All results together may always take this many times the cap of one.
        pub aggregate_results: u64 = 4, Whole(0), "results";
        /// Share of that limit that is free after a cut: each cut invalidates the cached prefix
        /// after it, so one frees room for many requests.
        pub aggregate_slack: f64 = 0.5, Number(0.0, 0.9), "share";
        /// Whether results that the provider may have cached are exempt from the aggregate limit
        /// while the request fits.
        pub protect_sent: bool = true, Flag;
        /// A larger result is stored as a blob, for tools that read files, and shown in at most
        /// this size; 0 for never. The session keeps every original anyway.
        pub spill_chars: u64 = 0, Whole(0), "weighted characters";
    }
}
