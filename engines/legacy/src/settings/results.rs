//! The numbers of layer 2: how much of a tool's output the model sees.

use serde::{Deserialize, Serialize};

/// Layer 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolResultSettings {
    /// Share of the window that one result may take. Default 0.3: three large results must fit.
    pub cap_share: f64,
    /// One result in a window below `medium_window_tokens`, in weighted characters. Default 16,000.
    pub small_cap_chars: u64,
    /// One result in a window from `medium_window_tokens` on, in weighted characters. Default 32,000.
    pub medium_cap_chars: u64,
    /// One result in a window from `large_window_tokens` on, in weighted characters. Default 64,000.
    pub large_cap_chars: u64,
    /// Where the medium cap begins, in tokens. Default 100,000.
    pub medium_window_tokens: u64,
    /// Where the large cap begins, in tokens. Default 200,000.
    pub large_window_tokens: u64,
    /// So much of a text's head is kept before an important tail takes room, in weighted characters.
    /// Default 2,000.
    pub min_keep_chars: u64,
    /// A result that alone takes more than this share of the window is cleared. Default 0.5: a cut
    /// that keeps a tenth of it would only look like the output.
    pub clear_share: f64,
    /// Share of the window that all results together may take. Default 0.5: the other half is the
    /// conversation.
    pub aggregate_share: f64,
    /// All results together may always take so many times the cap of one. Default 4.
    pub aggregate_results: u64,
    /// How much of that is free after a cut, 0 to 0.9. Default 0.5: with each cut a provider's cache
    /// loses what follows it, so one makes room for many requests.
    pub aggregate_slack: f64,
    /// Results that went out whole are not cut for the sake of the others while the provider may have
    /// them cached and the request fits. Default true: another byte in the middle makes everything
    /// behind it dear.
    pub protect_sent: bool,
    /// A result over this size is put into the host's store of bytes and shown in at most this size,
    /// in weighted characters; 0 for never. Default 0: the session keeps every original anyway, and
    /// a file beside it is of use only to tools that read files.
    pub spill_chars: u64,
}

impl Default for ToolResultSettings {
    fn default() -> Self {
        ToolResultSettings {
            cap_share: 0.3,
            small_cap_chars: 16_000,
            medium_cap_chars: 32_000,
            large_cap_chars: 64_000,
            medium_window_tokens: 100_000,
            large_window_tokens: 200_000,
            min_keep_chars: 2_000,
            clear_share: 0.5,
            aggregate_share: 0.5,
            aggregate_results: 4,
            aggregate_slack: 0.5,
            protect_sent: true,
            spill_chars: 0,
        }
    }
}
