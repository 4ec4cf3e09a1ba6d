//! Token counts in usage objects of chat completions.

use serde_json::Value;

use crate::message::TokenUsage;

/// The counts of a usage object.
pub(crate) fn read_usage(usage: &Value) -> TokenUsage {
    let number = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    // `prompt_tokens` includes what was read from the cache or written to it.
    let prompt = number("/prompt_tokens").unwrap_or(0);
    // DeepSeek names the cached tokens `prompt_cache_hit_tokens`.
    let cached = number("/prompt_tokens_details/cached_tokens");
    let cache_read = cached.or_else(|| number("/prompt_cache_hit_tokens")).unwrap_or(0).min(prompt);
    let cache_write = number("/prompt_tokens_details/cache_write_tokens").unwrap_or(0);
    let cache_write = cache_write.min(prompt - cache_read);
    let usage = TokenUsage {
        input: prompt - cache_read - cache_write,
        output: number("/completion_tokens").unwrap_or(0),
        cache_read,
        cache_write,
        ..TokenUsage::default()
    };
    usage.with_total()
}
