//! Turns thinking off in a request body.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::type_of;
use crate::inbound::{replace_spans, span_of};

/// The body with thinking disabled; `None` if it has no thinking budget.
pub(super) fn disable_thinking(body: &[u8]) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct ThinkingFields<'a> {
        #[serde(borrow)]
        thinking: &'a RawValue,
        #[serde(borrow, default)]
        context_management: Option<&'a RawValue>,
    }
    let json = std::str::from_utf8(body).ok()?;
    let fields: ThinkingFields<'_> = serde_json::from_str(json).ok()?;
    let thinking: Value = serde_json::from_str(fields.thinking.get()).ok()?;
    // Models with adaptive thinking do not require thinking in their history (A-14).
    if type_of(&thinking) != "enabled" {
        return None;
    }
    let disabled = json!({ "type": "disabled" }).to_string();
    let mut changes = vec![(span_of(json, fields.thinking.get()), disabled)];
    if let Some(raw) = fields.context_management {
        let mut management: Value = serde_json::from_str(raw.get()).ok()?;
        if let Some(edits) = management.get_mut("edits").and_then(Value::as_array_mut) {
            // The API refuses `clear_thinking` edits in a request without thinking.
            edits.retain(|edit| !type_of(edit).starts_with("clear_thinking"));
            changes.push((span_of(json, raw.get()), management.to_string()));
        }
    }
    replace_spans(json, changes).map(String::into_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(body: &str) -> Option<String> {
        disable_thinking(body.as_bytes()).map(|body| String::from_utf8(body).unwrap())
    }

    #[test]
    fn only_thinking_options_change() {
        let body = r#"{ "context_management" : {"edits":[{"type":"clear_thinking_20251015","keep":"all"},{"type":"clear_tool_uses_20250919"}]},"max_tokens":9.50, "thinking" :{"type":"enabled", "budget_tokens":1024},
"messages":[] }"#;
        let expected = r#"{ "context_management" : {"edits":[{"type":"clear_tool_uses_20250919"}]},"max_tokens":9.50, "thinking" :{"type":"disabled"},
"messages":[] }"#;
        assert_eq!(off(body).as_deref(), Some(expected));
        let alone = r#"{"thinking":{"budget_tokens":1024,"type":"enabled"},"messages":[]}"#;
        assert_eq!(off(alone).unwrap(), r#"{"thinking":{"type":"disabled"},"messages":[]}"#);
    }

    #[test]
    fn bodies_without_a_budget_stay() {
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
