//! The thinking options of a request: Gemini 2.5 has budgets, Gemini 3 has levels.

use serde_json::{Value, json};

use crate::gemini::{is_gemini_3, path_name};
use crate::request::{ModelRequest, ThinkingLevel};

/// The smallest budget that every 2.5 model accepts.
const BUDGET_MIN_TOKENS: u64 = 512;

/// The largest budget of the smaller 2.5 models.
const BUDGET_MAX_TOKENS: u64 = 24_576;

/// The `thinkingConfig`; `None` leaves it to the model. Other models refuse the field.
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
        // 2.5 Pro cannot stop thinking and refuses a budget of 0.
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

/// The level of a Gemini 3 model.
fn level(model: &str, level: ThinkingLevel) -> Option<&'static str> {
    match level {
        ThinkingLevel::Off => None,
        ThinkingLevel::Low => Some("low"),
        // The first Gemini 3 models have no medium level.
        ThinkingLevel::Medium if model.starts_with("gemini-3-pro") => Some("high"),
        ThinkingLevel::Medium => Some("medium"),
        ThinkingLevel::High => Some("high"),
    }
}

// Thinking counts against the limit of the answer; half of it stays for the answer.
fn within(budget_tokens: u64, max_output_tokens: u64) -> u64 {
    match max_output_tokens {
        0 => budget_tokens,
        max => budget_tokens.min(max / 2).max(BUDGET_MIN_TOKENS),
    }
}
