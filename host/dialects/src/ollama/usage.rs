//! What the last line of an answer counts.

use crate::message::Usage;

/// The prompt count includes what came from the cache; ours does not.
pub(super) fn usage(prompt: u64, cached: u64, output: u64) -> Usage {
    let cache_read = cached.min(prompt);
    Usage { input: prompt - cache_read, cache_read, output, ..Usage::default() }.summed()
}
