//! Clients that compact by themselves, told by what they write.

use axum::http::HeaderMap;
use serde_json::{Map, Value};

use crate::side_calls;

/// Items at the beginning of a conversation among which a summary stands: what a client says of its
/// surroundings may come before it.
const FIRST_ITEMS: usize = 8;

/// Bytes of an item that are looked at: the longest of these prompts take a quarter of it, and reading
/// a whole result for them would cost more than everything else.
const LOOKED_AT_BYTES: usize = 32_768;

/// Whether the newest item asks for a summary of all before it.
pub(super) fn asks_for_summary(headers: &HeaderMap, items: &[&str]) -> bool {
    let is_asked = |item: &&str| {
        // Some prompts hold the whole conversation: they say what they want before it, or behind it.
        [head(item), tail(item)].into_iter().any(side_calls::may_ask_for_summary)
            && matches_client_text(&side_calls::asks_for_summary, item)
    };
    items.last().is_some_and(is_asked) || request_kind(headers).as_deref() == Some("compaction")
}

/// Which of the items that begin a conversation, or a branch of one, is what a client's compaction left.
pub(super) fn find_summary(new: &[&str]) -> Option<usize> {
    let is_left = |item: &&str| {
        side_calls::may_follow_summary(head(item))
            && matches_client_text(&side_calls::follows_summary, item)
    };
    new.iter().take(FIRST_ITEMS).position(is_left)
}

/// Characters of what the person asked that a summary has to quote to be one of that conversation.
const QUOTED_CHARS: usize = 200;

/// Fewer characters than these are anybody's.
const QUOTED_MIN_CHARS: usize = 24;

/// Whether the words of an item quote what the person asked.
pub(super) fn quotes_task(item: &str, task: &str) -> bool {
    let task: String = task.chars().take(QUOTED_CHARS).collect();
    task.chars().count() >= QUOTED_MIN_CHARS
        && matches_client_text(&|text| text.contains(&task), item)
}

/// Whether a client says that it has compacted before.
pub(super) fn has_compacted(headers: &HeaderMap) -> bool {
    window_number(headers).is_some_and(|number| number > 0)
}

/// Whether this stands in words of the client's own. Results of tools and the model itself may quote anything.
fn matches_client_text(is_in: &dyn Fn(&str) -> bool, item: &str) -> bool {
    serde_json::from_str(item).is_ok_and(|item| any_client_text(&item, is_in))
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

/// Whether an item, or a part of one, is a tool's or the model's.
fn is_tool_or_model(fields: &Map<String, Value>) -> bool {
    let is = |key: &str, words: &[&str]| {
        fields.get(key).and_then(Value::as_str).is_some_and(|word| words.contains(&word))
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

/// Codex counts its windows from 0: `thread:number`.
fn window_number(headers: &HeaderMap) -> Option<u64> {
    let id = headers.get("x-codex-window-id")?.to_str().ok()?;
    id.rsplit_once(':')?.1.parse().ok()
}

/// Codex says what each request is for: `turn`, `prewarm`, `compaction`.
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
    fn what_clients_write_and_what_people_write() {
        let none = HeaderMap::new();
        let asks = r#"{"role":"user","content":"Your task is to create a detailed summary of the conversation so far, paying"}"#;
        let left = r#"{"role":"user","content":"This session is being continued from a previous conversation that ran out of context."}"#;
        let person = r#"{"role":"user","content":"Write a summary of this file"}"#;
        assert!(asks_for_summary(&none, &[person, asks]));
        // Said earlier, it has been answered.
        assert!(!asks_for_summary(&none, &[asks, person]));
        assert_eq!(find_summary(&[left, person]), Some(0));
        assert_eq!(find_summary(&[person, left]), Some(1));
        assert_eq!(find_summary(&[person]), None);
        let quotes =
            json!({ "role": "user", "content": [{ "type": "tool_result", "content": left }] });
        assert_eq!(find_summary(&[&quotes.to_string()]), None);
    }

    #[test]
    fn every_client_s_own_words_are_known_wherever_they_stand() {
        let none = HeaderMap::new();
        let (asks, goes_on) = side_calls::phrases();
        let long = "what was said ".repeat(2_000);
        for phrase in asks {
            for text in [format!("{phrase} {long}"), format!("{long} {phrase}"), phrase.into()] {
                let item = json!({ "role": "user", "content": [{ "type": "text", "text": text }] });
                assert!(asks_for_summary(&none, &[&item.to_string()]), "{phrase}");
            }
        }
        for phrase in goes_on {
            let item = json!({ "role": "user", "content": format!("{phrase} {long}") });
            assert_eq!(find_summary(&[&item.to_string()]), Some(0), "{phrase}");
        }
        let person = json!({ "role": "user", "content": "Write a context summary: of what?" });
        assert_eq!(find_summary(&[&person.to_string()]), None);
    }

    #[test]
    fn results_and_models_may_quote_anything() {
        let none = HeaderMap::new();
        let (asks, goes_on) = side_calls::phrases();
        let phrases = format!("{} ... {}", asks[0], goes_on[0]);
        let check = |item: Value, is_said: bool| {
            let item = item.to_string();
            assert_eq!(asks_for_summary(&none, &[&item]), is_said, "{item}");
            assert_eq!(find_summary(&[&item]).is_some(), is_said, "{item}");
        };
        let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": [{ "type": "text", "text": phrases }] });
        let text = json!({ "type": "text", "text": phrases });
        check(json!({ "role": "user", "content": [result] }), false);
        // Claude Code asks beside the last results.
        check(json!({ "role": "user", "content": [result, text] }), true);
        check(json!({ "role": "tool", "tool_call_id": "t", "content": phrases }), false);
        check(json!({ "role": "assistant", "content": phrases }), false);
        check(json!({ "type": "function_call_output", "call_id": "t", "output": phrases }), false);
        let response = json!({ "name": "read", "response": { "output": phrases } });
        check(json!({ "role": "user", "parts": [{ "functionResponse": response }] }), false);
        check(json!({ "role": "user", "parts": [{ "text": phrases }] }), true);
    }

    #[test]
    fn codex_says_it_in_headers() {
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
