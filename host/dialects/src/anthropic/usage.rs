//! What a usage object of Anthropic's says.

use serde_json::Value;

use crate::message::TokenUsage;

/// Each count replaces the earlier one; what is not said stays, so that the first and the last event of a
/// stream together tell everything.
pub(crate) fn read_usage(said: &Value, usage: &mut TokenUsage) {
    let take = |name: &str, into: &mut u64| {
        if let Some(tokens) = said.get(name).and_then(Value::as_u64) {
            *into = tokens;
        }
    };
    take("input_tokens", &mut usage.input);
    take("output_tokens", &mut usage.output);
    take("cache_read_input_tokens", &mut usage.cache_read);
    take("cache_creation_input_tokens", &mut usage.cache_write);
    *usage = usage.with_total();
}
