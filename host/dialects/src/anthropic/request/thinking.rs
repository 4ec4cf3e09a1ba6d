//! How much a model is asked to think, in the way that the model takes.

use serde_json::{Map, Value, json};

use super::history::{AnthropicMessage, AnthropicRole, is_thinking};
use crate::request::{ModelRequest, ThinkingLevel};

/// The least that a model may be asked to think.
const BUDGET_MIN_TOKENS: u64 = 1_024;

/// Claudes that take a budget. Newer ones take an effort instead and refuse budgets; models of others
/// that speak this dialect know budgets only.
const BUDGET_CLAUDES: [&str; 7] =
    ["claude-2", "claude-3", "-4-0", "-4-1", "-4-5", "-4-20", "claude-instant"];

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThinkingMode {
    /// Nothing.
    Off,
    /// Thinking of at most so many tokens.
    Budget(u64),
    /// As much as the model finds right for an effort.
    Effort(&'static str),
}

impl ThinkingMode {
    /// What a request may ask for, given its limit and its messages.
    pub(super) fn for_request(
        request: &ModelRequest,
        max_tokens: u64,
        messages: &[AnthropicMessage],
    ) -> ThinkingMode {
        let (wanted_tokens, effort) = match request.thinking {
            ThinkingLevel::Off => return ThinkingMode::Off,
            ThinkingLevel::Low => (2_048, "low"),
            ThinkingLevel::Medium => (8_192, "medium"),
            ThinkingLevel::High => (16_384, "high"),
        };
        if is_adaptive(&request.model) {
            return ThinkingMode::Effort(effort);
        }
        // Half of the limit stays for the answer, since thinking counts against it.
        let budget_tokens = (max_tokens / 2).min(wanted_tokens).max(BUDGET_MIN_TOKENS);
        if budget_tokens >= max_tokens || !loop_began_with_thinking(messages) {
            return ThinkingMode::Off;
        }
        ThinkingMode::Budget(budget_tokens)
    }

    /// Writes the fields of it.
    pub(super) fn write(self, body: &mut Map<String, Value>, drop_unbound: bool) {
        let mut thinking = match self {
            ThinkingMode::Off => return,
            ThinkingMode::Budget(tokens) => json!({ "type": "enabled", "budget_tokens": tokens }),
            ThinkingMode::Effort(effort) => {
                body.insert("output_config".into(), json!({ "effort": effort }));
                json!({ "type": "adaptive" })
            }
        };
        if let Some(fields) = thinking.as_object_mut().filter(|_| drop_unbound) {
            let binding = json!({ "prefix_mismatch_behavior": "drop_block" });
            fields.insert("block_binding".into(), binding);
        }
        body.insert("thinking".into(), thinking);
    }
}

/// Whether a model thinks by effort alone and takes neither a budget nor a temperature.
pub(super) fn is_adaptive(model: &str) -> bool {
    // Other endpoints write `claude-sonnet-4.5` and `claude-sonnet-4@20250514`.
    let model = model.replace(['.', '@'], "-");
    let takes_budget = BUDGET_CLAUDES.iter().any(|part| model.contains(part));
    model.contains("claude") && !takes_budget && !model.ends_with("-4")
}

/// Whether thinking may be on although the model waits for results: only where its turn began so
/// . A turn that began without thinking, or with that of another model, is finished without.
fn loop_began_with_thinking(messages: &[AnthropicMessage]) -> bool {
    let spoke =
        |message: &AnthropicMessage| message.role == AnthropicRole::User && !message.has_results();
    let start = messages.iter().rposition(spoke).unwrap_or_default();
    let answers = messages.iter().skip(start);
    let first = answers
        .filter(|message| message.role == AnthropicRole::Assistant)
        .find_map(|message| message.content.first());
    first.is_none_or(is_thinking)
}
