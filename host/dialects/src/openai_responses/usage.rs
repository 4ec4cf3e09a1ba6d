//! Token counts in usage objects of the Responses API.

use serde_json::Value;

use crate::message::TokenUsage;

/// The counts of a usage object.
pub(crate) fn read_usage(usage: &Value) -> TokenUsage {
    let number = |path| usage.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    // `input_tokens` includes cached tokens, and `output_tokens` includes thinking.
    let prompt = number("/input_tokens");
    let cache_read = number("/input_tokens_details/cached_tokens").min(prompt);
    let output = number("/output_tokens");
    TokenUsage { input: prompt - cache_read, cache_read, output, ..TokenUsage::default() }
        .with_total()
}
