//! Where the prompt cache ends: at most four marks, at the same places in every request.
//!
//! The second last user message is marked because the mark of the request before stood there: the
//! provider looks back from a mark by 20 blocks only.

use serde_json::{Value, json};

use super::history::{AnthropicMessage, AnthropicRole};

/// User messages that are marked, from the end.
const MARKED_MESSAGES: usize = 2;

/// Marks the last tool, the last system block and the ends of the last user messages.
pub(super) fn mark(
    tools: &mut [Value],
    system: &mut [Value],
    messages: &mut [AnthropicMessage],
    one_hour: bool,
) {
    let users = messages.iter_mut().rev().filter(|message| message.role == AnthropicRole::User);
    let ends = users.take(MARKED_MESSAGES).filter_map(|message| message.content.last_mut());
    for block in tools.last_mut().into_iter().chain(system.last_mut()).chain(ends) {
        if let Some(block) = block.as_object_mut() {
            block.insert("cache_control".into(), lifetime(one_hour));
        }
    }
}

/// One lifetime for all marks, so that no long one follows a short one.
fn lifetime(one_hour: bool) -> Value {
    if one_hour {
        json!({ "type": "ephemeral", "ttl": "1h" })
    } else {
        json!({ "type": "ephemeral" })
    }
}
