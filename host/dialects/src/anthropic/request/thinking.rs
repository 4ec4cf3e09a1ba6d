//! The thinking options of a request.

use serde_json::{Map, Value, json};

use super::history::{AnthropicMessage, AnthropicRole, is_thinking};
use crate::request::{ModelRequest, ThinkingLevel};

/// The smallest thinking budget.
const BUDGET_MIN_TOKENS: u64 = 1_024;

/// Claude models with a thinking budget. Newer ones require an effort and refuse budgets; models of
/// other providers with this dialect know only budgets.
const BUDGET_CLAUDES: [&str; 7] =
    // `-4-20` matches dated names such as `claude-sonnet-4-20250514`.
    ["claude-2", "claude-3", "-4-0", "-4-1", "-4-5", "-4-20", "claude-instant"];

/// How thinking is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThinkingMode {
    /// Not at all.
    Off,
    /// At most this many tokens.
    Budget(u64),
    /// As much as the model considers right for an effort.
    Effort(&'static str),
}

impl ThinkingMode {
    /// The mode that the model, the limit of the answer and the history allow.
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
        // Thinking counts against `max_tokens`; half of it stays for the answer.
        let budget_tokens = (max_tokens / 2).min(wanted_tokens).max(BUDGET_MIN_TOKENS);
        if budget_tokens >= max_tokens || !loop_began_with_thinking(messages) {
            return ThinkingMode::Off;
        }
        ThinkingMode::Budget(budget_tokens)
    }

    /// Adds the fields to a body.
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

/// Whether a model takes an effort, but neither a budget nor a temperature.
pub(super) fn is_adaptive(model: &str) -> bool {
    // Other endpoints use the names `claude-sonnet-4.5` and `claude-sonnet-4@20250514`.
    let model = model.replace(['.', '@'], "-");
    let takes_budget = BUDGET_CLAUDES.iter().any(|part| model.contains(part));
    model.contains("claude") && !takes_budget && !model.ends_with("-4")
}

/// Whether the current turn began with thinking. One that began without it, or with that of another
/// model, has to be finished without.
fn loop_began_with_thinking(messages: &[AnthropicMessage]) -> bool {
    let is_user_turn =
        |message: &AnthropicMessage| message.role == AnthropicRole::User && !message.has_results();
    let start = messages.iter().rposition(is_user_turn).unwrap_or_default();
    let answers = messages.iter().skip(start);
    let first = answers
        .filter(|message| message.role == AnthropicRole::Assistant)
        .find_map(|message| message.parts.first());
    first.is_none_or(is_thinking)
}
