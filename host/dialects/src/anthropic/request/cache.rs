//! Marks the ends of cached prefixes: at most four, at the same positions in every request.

use serde_json::{Value, json};

use super::history::{AnthropicMessage, AnthropicRole};

/// Number of marked user messages, from the end. The second last one had the last mark of the
/// previous request, and the provider looks back only 20 blocks from a mark.
const MARKED_MESSAGES: usize = 2;

/// Marks the last tool, the last system block and the ends of the last user messages.
pub(super) fn mark(
    tools: &mut [Value],
    system: &mut [Value],
    messages: &mut [AnthropicMessage],
    one_hour: bool,
) {
    let users = messages.iter_mut().rev().filter(|message| message.role == AnthropicRole::User);
    let ends = users.take(MARKED_MESSAGES).filter_map(|message| message.parts.last_mut());
    for block in tools.last_mut().into_iter().chain(system.last_mut()).chain(ends) {
        if let Some(block) = block.as_object_mut() {
            block.insert("cache_control".into(), lifetime(one_hour));
        }
    }
}

fn lifetime(one_hour: bool) -> Value {
    // All marks have one lifetime: the API refuses a longer one after a shorter one.
    if one_hour {
        json!({ "type": "ephemeral", "ttl": "1h" })
    } else {
        json!({ "type": "ephemeral" })
    }
}
