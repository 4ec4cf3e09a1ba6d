//! What a usage object of Responses says.

use serde_json::Value;

use crate::message::TokenUsage;

/// OpenAI counts cached tokens as input, and thinking as output.
pub(crate) fn read_usage(said: &Value) -> TokenUsage {
    let number = |path| said.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let prompt = number("/input_tokens");
    let cache_read = number("/input_tokens_details/cached_tokens").min(prompt);
    let output = number("/output_tokens");
    TokenUsage { input: prompt - cache_read, cache_read, output, ..TokenUsage::default() }
        .with_total()
}
