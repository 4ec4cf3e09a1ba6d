//! Token counts in the last line of an answer.

use crate::message::TokenUsage;

pub(super) fn usage(prompt: u64, cached: u64, output: u64) -> TokenUsage {
    // Ollama's prompt count includes cached tokens, `TokenUsage::input` does not.
    let cache_read = cached.min(prompt);
    TokenUsage { input: prompt - cache_read, cache_read, output, ..TokenUsage::default() }
        .with_total()
}
