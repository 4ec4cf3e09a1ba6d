//! Whether a model is asked to think: the fields of a body that say so.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::type_of;
use crate::inbound::byte_offset;

/// The body with thinking turned off, where it has a budget; a model that thinks by effort asks for none
/// in its history (A-14). Everything else stays as it is; `None` for a body that has nothing to turn off.
pub(super) fn disable_thinking(body: &[u8]) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct ThinkingFields<'a> {
        #[serde(borrow)]
        thinking: &'a RawValue,
        #[serde(borrow, default)]
        context_management: Option<&'a RawValue>,
    }
    let json = std::str::from_utf8(body).ok()?;
    let options: ThinkingFields<'_> = serde_json::from_str(json).ok()?;
    let thinking: Value = serde_json::from_str(options.thinking.get()).ok()?;
    if type_of(&thinking) != "enabled" {
        return None;
    }
    let mut changes = vec![(options.thinking, json!({ "type": "disabled" }))];
    // Clearing thinking is an error where there is none.
    if let Some(raw) = options.context_management {
        let mut management: Value = serde_json::from_str(raw.get()).ok()?;
        if let Some(edits) = management.get_mut("edits").and_then(Value::as_array_mut) {
            edits.retain(|edit| !type_of(edit).starts_with("clear_thinking"));
            changes.push((raw, management));
        }
    }
    changes.sort_by_key(|(raw, _)| byte_offset(json, raw.get()));
    let (mut written, mut from) = (String::with_capacity(json.len()), 0);
    for (raw, value) in changes {
        let at = byte_offset(json, raw.get());
        written.push_str(json.get(from..at)?);
        written.push_str(&value.to_string());
        from = at + raw.get().len();
    }
    written.push_str(json.get(from..)?);
    Some(written.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(body: &str) -> Option<String> {
        disable_thinking(body.as_bytes()).map(|body| String::from_utf8(body).unwrap())
    }

    #[test]
    fn only_what_says_so_is_changed() {
        let body = r#"{ "context_management" : {"edits":[{"type":"clear_thinking_20251015","keep":"all"},{"type":"clear_tool_uses_20250919"}]},"max_tokens":9.50, "thinking" :{"type":"enabled", "budget_tokens":1024},
"messages":[] }"#;
        let expected = r#"{ "context_management" : {"edits":[{"type":"clear_tool_uses_20250919"}]},"max_tokens":9.50, "thinking" :{"type":"disabled"},
"messages":[] }"#;
        assert_eq!(off(body).as_deref(), Some(expected));
        let alone = r#"{"thinking":{"budget_tokens":1024,"type":"enabled"},"messages":[]}"#;
        assert_eq!(off(alone).unwrap(), r#"{"thinking":{"type":"disabled"},"messages":[]}"#);
    }

    #[test]
    fn nothing_is_turned_off_that_is_not_on() {
        for body in [
            r#"{"messages":[]}"#,
            r#"{"thinking":{"type":"disabled"}}"#,
            r#"{"thinking":{"type":"adaptive"}}"#,
            r#"{"thinking":17}"#,
            "{",
        ] {
            assert_eq!(off(body), None, "{body}");
        }
    }
}
