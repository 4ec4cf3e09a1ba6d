//! Token counts in Anthropic's usage objects.

use serde_json::Value;

use crate::json::update_count;
use crate::message::TokenUsage;

/// Updates `usage` by the counts that a usage object has.
pub(crate) fn read_usage(object: &Value, usage: &mut TokenUsage) {
    // The first event of a stream has the prompt, the last one the answer; counts are cumulative.
    update_count(&mut usage.input, object, "input_tokens");
    update_count(&mut usage.output, object, "output_tokens");
    update_count(&mut usage.cache_read, object, "cache_read_input_tokens");
    update_count(&mut usage.cache_write, object, "cache_creation_input_tokens");
    *usage = usage.with_total();
}
