//! Token counts in the last line of an answer.

use serde_json::Value;

use crate::json::update_count;
use crate::message::TokenUsage;

/// The counts of a last line.
pub(crate) fn read_usage(line: &Value) -> TokenUsage {
    let (mut prompt, mut cached, mut output) = (0, 0, 0);
    update_count(&mut prompt, line, "prompt_eval_count");
    update_count(&mut cached, line, "prompt_eval_cached_count");
    update_count(&mut output, line, "eval_count");
    usage(prompt, cached, output)
}

pub(super) fn usage(prompt: u64, cached: u64, output: u64) -> TokenUsage {
    // Ollama's prompt count includes cached tokens, `TokenUsage::input` does not.
    let cache_read = cached.min(prompt);
    TokenUsage { input: prompt - cache_read, cache_read, output, ..TokenUsage::default() }
        .with_total()
}
