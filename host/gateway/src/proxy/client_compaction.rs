//! Recognizes clients that compact by themselves, by their prompts and headers.

use axum::http::HeaderMap;
use serde_json::{Map, Value};

use ctxhost_conversations::side_calls;
use ctxhost_dialects::inbound::parse_item;

/// The first items that may be a summary: a client may put context messages before it.
const FIRST_ITEMS: usize = 8;

/// Bytes of an item that are searched, from each end. The longest summary prompts take a quarter of this, and parsing
/// large tool results would cost more than all other matching.
const LOOKED_AT_BYTES: usize = 32_768;

/// Whether the last item asks for a summary of the conversation.
pub(super) fn asks_for_summary(headers: &HeaderMap, items: &[&str]) -> bool {
    let is_asked = |item: &&str| {
        // Some prompts quote the whole conversation, before or after the instruction.
        [head(item), tail(item)].into_iter().any(side_calls::may_ask_for_summary)
            && matches_client_text(&side_calls::asks_for_summary, item)
    };
    items.last().is_some_and(is_asked) || request_kind(headers).as_deref() == Some("compaction")
}

/// The index of the item that is a client's summary, among the first items of a conversation or a branch.
pub(super) fn find_summary(new: &[&str]) -> Option<usize> {
    let is_left = |item: &&str| {
        side_calls::may_follow_summary(head(item))
            && matches_client_text(&side_calls::follows_summary, item)
    };
    new.iter().take(FIRST_ITEMS).position(is_left)
}

/// Characters of the user's task that a summary must quote to be matched to that conversation.
const QUOTED_CHARS: usize = 200;

/// Shorter tasks do not identify a conversation.
const QUOTED_MIN_CHARS: usize = 24;

/// Whether the text of an item quotes the user's task.
pub(super) fn quotes_task(item: &str, task: &str) -> bool {
    let task: String = task.chars().take(QUOTED_CHARS).collect();
    task.chars().count() >= QUOTED_MIN_CHARS
        && matches_client_text(&|text| text.contains(&task), item)
}

/// Whether the client's headers say that it has compacted before.
pub(super) fn has_compacted(headers: &HeaderMap) -> bool {
    window_number(headers).is_some_and(|number| number > 0)
}

/// Whether client or user text of an item matches. Tool results and model text may quote anything, so they are skipped.
fn matches_client_text(is_in: &dyn Fn(&str) -> bool, item: &str) -> bool {
    parse_item(item).is_ok_and(|item| any_client_text(&item, is_in))
}

fn any_client_text(value: &Value, is_in: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => is_in(text),
        Value::Array(values) => values.iter().any(|value| any_client_text(value, is_in)),
        Value::Object(fields) => {
            !is_tool_or_model(fields) && fields.values().any(|value| any_client_text(value, is_in))
        }
        _ => false,
    }
}

/// Whether an item, or a part of one, is from a tool or the model.
fn is_tool_or_model(fields: &Map<String, Value>) -> bool {
    let is = |key: &str, values: &[&str]| {
        fields.get(key).and_then(Value::as_str).is_some_and(|value| values.contains(&value))
    };
    is("role", &["assistant", "model", "tool"])
        || is("type", &["tool_result", "function_call_output", "custom_tool_call_output"])
        || fields.contains_key("functionResponse")
}

fn head(item: &str) -> &str {
    let end = (0..=item.len().min(LOOKED_AT_BYTES)).rev().find(|at| item.is_char_boundary(*at));
    item.get(..end.unwrap_or_default()).unwrap_or_default()
}

fn tail(item: &str) -> &str {
    let from = item.len().saturating_sub(LOOKED_AT_BYTES);
    let start = (from..=item.len()).find(|at| item.is_char_boundary(*at));
    item.get(start.unwrap_or_default()..).unwrap_or_default()
}

/// The window number of Codex: `thread:number`, from 0.
fn window_number(headers: &HeaderMap) -> Option<u64> {
    let id = headers.get("x-codex-window-id")?.to_str().ok()?;
    id.rsplit_once(':')?.1.parse().ok()
}

/// The kind of a Codex request: `turn`, `prewarm`, `compaction`.
fn request_kind(headers: &HeaderMap) -> Option<String> {
    let metadata = headers.get("x-codex-turn-metadata")?.to_str().ok()?;
    let metadata: Value = serde_json::from_str(metadata).ok()?;
    metadata.get("request_kind")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn client_phrases_are_distinguished_from_user_text() {
        let none = HeaderMap::new();
        let asks = r#"{"role":"user","content":"Your task is to create a detailed summary of the conversation so far, paying"}"#;
        let left = r#"{"role":"user","content":"This session is being continued from a previous conversation that ran out of context."}"#;
        let user = r#"{"role":"user","content":"Write a summary of this file"}"#;
        assert!(asks_for_summary(&none, &[user, asks]));
        // An earlier request was answered already.
        assert!(!asks_for_summary(&none, &[asks, user]));
        assert_eq!(find_summary(&[left, user]), Some(0));
        assert_eq!(find_summary(&[user, left]), Some(1));
        assert_eq!(find_summary(&[user]), None);
        let quotes =
            json!({ "role": "user", "content": [{ "type": "tool_result", "content": left }] });
        assert_eq!(find_summary(&[&quotes.to_string()]), None);
    }

    #[test]
    fn every_phrase_is_found_in_any_position() {
        let none = HeaderMap::new();
        let (asks, follows) = side_calls::phrases();
        let long = "earlier text ".repeat(2_000);
        for phrase in asks {
            for text in [format!("{phrase} {long}"), format!("{long} {phrase}"), phrase.into()] {
                let item = json!({ "role": "user", "content": [{ "type": "text", "text": text }] });
                assert!(asks_for_summary(&none, &[&item.to_string()]), "{phrase}");
            }
        }
        for phrase in follows {
            let item = json!({ "role": "user", "content": format!("{phrase} {long}") });
            assert_eq!(find_summary(&[&item.to_string()]), Some(0), "{phrase}");
        }
        let user = json!({ "role": "user", "content": "Write a context summary: of what?" });
        assert_eq!(find_summary(&[&user.to_string()]), None);
    }

    #[test]
    fn quotes_in_results_and_answers_are_ignored() {
        let none = HeaderMap::new();
        let (asks, follows) = side_calls::phrases();
        let phrases = format!("{} ... {}", asks[0], follows[0]);
        let check = |item: Value, is_client: bool| {
            let item = item.to_string();
            assert_eq!(asks_for_summary(&none, &[&item]), is_client, "{item}");
            assert_eq!(find_summary(&[&item]).is_some(), is_client, "{item}");
        };
        let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": [{ "type": "text", "text": phrases }] });
        let text = json!({ "type": "text", "text": phrases });
        check(json!({ "role": "user", "content": [result] }), false);
        // Claude Code puts its request next to the last results.
        check(json!({ "role": "user", "content": [result, text] }), true);
        check(json!({ "role": "tool", "tool_call_id": "t", "content": phrases }), false);
        check(json!({ "role": "assistant", "content": phrases }), false);
        check(json!({ "type": "function_call_output", "call_id": "t", "output": phrases }), false);
        let response = json!({ "name": "read", "response": { "output": phrases } });
        check(json!({ "role": "user", "parts": [{ "functionResponse": response }] }), false);
        check(json!({ "role": "user", "parts": [{ "text": phrases }] }), true);
    }

    #[test]
    fn codex_is_recognized_by_headers() {
        let with = |name: &'static str, value: &'static str| {
            HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
        };
        assert!(has_compacted(&with("x-codex-window-id", "t:1")));
        assert!(!has_compacted(&with("x-codex-window-id", "t:0")));
        let kind = with("x-codex-turn-metadata", r#"{"request_kind":"compaction"}"#);
        assert!(asks_for_summary(&kind, &[]));
        assert!(!asks_for_summary(&with("x-codex-turn-metadata", "?"), &[]));
    }
}
