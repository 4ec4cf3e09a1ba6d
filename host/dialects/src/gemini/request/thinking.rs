//! How much a Gemini is asked to think: the second generation has budgets, the third has levels.

use serde_json::{Value, json};

use crate::gemini::{is_gemini_3, path_name};
use crate::request::{ModelRequest, ThinkingLevel};

/// The least budget that every model of the second generation takes.
const BUDGET_MIN_TOKENS: u64 = 512;

/// The largest one; a smaller model takes no more.
const BUDGET_MAX_TOKENS: u64 = 24_576;

/// The `thinkingConfig`; `None` leaves it to the model. Models that are neither refuse the field.
pub(super) fn config(request: &ModelRequest) -> Option<Value> {
    let model = path_name(&request.model);
    if is_gemini_3(model) {
        let level = level(model, request.thinking)?;
        return Some(json!({ "thinkingLevel": level, "includeThoughts": true }));
    }
    if !model.starts_with("gemini-2.5") {
        return None;
    }
    let budget_tokens = match request.thinking {
        // The larger model cannot stop thinking and refuses a budget of nothing.
        ThinkingLevel::Off if model.starts_with("gemini-2.5-flash") => {
            return Some(json!({ "thinkingBudget": 0 }));
        }
        ThinkingLevel::Off => return None,
        ThinkingLevel::Low => 2_048,
        ThinkingLevel::Medium => 8_192,
        ThinkingLevel::High => BUDGET_MAX_TOKENS,
    };
    let budget_tokens = within(budget_tokens, request.max_output_tokens);
    Some(json!({ "thinkingBudget": budget_tokens, "includeThoughts": true }))
}

/// The first of the third generation knew no middle.
fn level(model: &str, level: ThinkingLevel) -> Option<&'static str> {
    match level {
        ThinkingLevel::Off => None,
        ThinkingLevel::Low => Some("low"),
        ThinkingLevel::Medium if model.starts_with("gemini-3-pro") => Some("high"),
        ThinkingLevel::Medium => Some("medium"),
        ThinkingLevel::High => Some("high"),
    }
}

/// Half of the limit stays for the answer, since thinking counts against it.
fn within(budget_tokens: u64, max_output_tokens: u64) -> u64 {
    match max_output_tokens {
        0 => budget_tokens,
        max => budget_tokens.min(max / 2).max(BUDGET_MIN_TOKENS),
    }
}
