//! The numbers of layer 2: how much of a tool's output the model sees.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// Layer 2.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct ToolResultSettings {
        /// Share of the window that one result may take: three large results must fit.
        pub cap_share: f64 = 0.3, Share, "share";
        /// One result in a window below `medium_window_tokens`.
        pub small_cap_chars: u64 = 16_000, Whole(0), "weighted characters";
        /// One result in a window from `medium_window_tokens` on.
        pub medium_cap_chars: u64 = 32_000, Whole(0), "weighted characters";
        /// One result in a window from `large_window_tokens` on.
        pub large_cap_chars: u64 = 64_000, Whole(0), "weighted characters";
        /// Where the medium cap begins.
        pub medium_window_tokens: u64 = 100_000, Whole(0), "tokens";
        /// Where the large cap begins.
        pub large_window_tokens: u64 = 200_000, Whole(0), "tokens";
        /// So much of a text's head is kept before an important tail takes room.
        pub min_keep_chars: u64 = 2_000, Whole(0), "weighted characters";
        /// A result that alone takes more than this share of the window is cleared: a cut that
        /// keeps a tenth of it would only look like the output.
        pub clear_share: f64 = 0.5, Share, "share";
        /// Share of the window that all results together may take: the other half is the
        /// conversation.
        pub aggregate_share: f64 = 0.5, Share, "share";
        /// All results together may always take so many times the cap of one.
        pub aggregate_results: u64 = 4, Whole(0), "results";
        /// How much of that is free after a cut, 0 to 0.9: with each cut a provider's cache loses
        /// what follows it, so one makes room for many requests.
        pub aggregate_slack: f64 = 0.5, Number(0.0, 0.9), "share";
        /// Results that went out whole are not cut for the sake of the others while the provider
        /// may have them cached and the request fits: another byte in the middle makes everything
        /// behind it dear.
        pub protect_sent: bool = true, Flag;
        /// A result over this size is put into the host's store of bytes and shown in at most this
        /// size; 0 for never. The session keeps every original anyway, and a file beside it is of
        /// use only to tools that read files.
        pub spill_chars: u64 = 0, Whole(0), "weighted characters";
    }
}
