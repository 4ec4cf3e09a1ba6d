//! What the last line of an answer counts.

use crate::message::TokenUsage;

/// The prompt count includes what came from the cache; ours does not.
pub(super) fn usage(prompt: u64, cached: u64, output: u64) -> TokenUsage {
    let cache_read = cached.min(prompt);
    TokenUsage { input: prompt - cache_read, cache_read, output, ..TokenUsage::default() }
        .with_total()
}
