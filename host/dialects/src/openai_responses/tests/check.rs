//! Checks bodies by the rules, independently of the encoder.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::Value;

use super::super::{API, OpenAiResponses};
use super::request;
use crate::conversations::conversations;
use crate::dialect::Dialect;
use crate::message::{ChatBlock, ChatMessage};

/// The first rule that a body breaks.
pub(super) fn check(body: &Value) -> Result<(), String> {
    let items = body["input"].as_array().ok_or("input is not a list")?;
    pairs(items)?;
    reasoning(items)?;
    ids(items)?;
    items.iter().try_for_each(message)?;
    for forbidden in ["previous_response_id", "conversation", "truncation"] {
        if body.get(forbidden).is_some() {
            return Err(format!("R-9, R-10: {forbidden} is set"));
        }
    }
    let key = body.get("prompt_cache_key").and_then(Value::as_str).unwrap_or("short");
    let fits = (1..=64).contains(&key.chars().count());
    if fits { Ok(()) } else { Err("R-12: the cache key is too long".into()) }
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or_default()
}

fn pairs(items: &[Value]) -> Result<(), String> {
    for (at, item) in items.iter().enumerate() {
        let Some(id) = item.get("call_id").and_then(Value::as_str) else { continue };
        if id.is_empty() || id.chars().count() > 64 {
            return Err(format!("R-7: call id {id:?}"));
        }
        let same = |other: &&Value| other["call_id"] == item["call_id"];
        if kind(item).ends_with("_output") {
            let before = items[..at].iter().rev().find(same);
            if !before.is_some_and(|before| kind(before).ends_with("_call")) {
                return Err(format!("R-2: output {id} has no call"));
            }
        } else {
            let after = items[at + 1..].iter().find(same);
            let output = format!("{}_output", kind(item));
            if after.is_none_or(|after| kind(after) != output) {
                return Err(format!("R-1: call {id} has no output"));
            }
        }
    }
    Ok(())
}

fn reasoning(items: &[Value]) -> Result<(), String> {
    for (at, item) in items.iter().enumerate().filter(|(_, item)| kind(item) == "reasoning") {
        let next = items[at + 1..].iter().find(|item| kind(item) != "reasoning");
        let is_made = |next: &Value| next["role"] != "user" && !kind(next).ends_with("_output");
        if !next.is_some_and(is_made) {
            return Err("R-3: reasoning without what it led to".into());
        }
        if !item["summary"].is_array() {
            return Err("R-5: reasoning without a summary".into());
        }
        if item["encrypted_content"].as_str().is_none_or(str::is_empty) {
            return Err("R-6: reasoning that the server cannot read".into());
        }
    }
    Ok(())
}

fn ids(items: &[Value]) -> Result<(), String> {
    let mut seen = HashSet::new();
    for item in items {
        let Some(id) = item.get("id") else { continue };
        let id = id.as_str().ok_or("R-7: an id is not text")?;
        if id.chars().count() > 64 || !seen.insert(id) {
            return Err(format!("R-7: id {id}"));
        }
        match kind(item) {
            "message" | "function_call" => return Err(format!("R-4: {id} demands its reasoning")),
            "reasoning" if !id.starts_with("rs_") => return Err(format!("R-7: id {id}")),
            _ => {}
        }
    }
    Ok(())
}

fn message(item: &Value) -> Result<(), String> {
    match kind(item) {
        "message" => {
            let parts = item["content"].as_array().filter(|parts| !parts.is_empty());
            let legal: &[&str] = match item["role"].as_str() {
                Some("user") => &["input_text", "input_image"],
                Some("assistant") => &["output_text"],
                other => return Err(format!("R-11: role {other:?}")),
            };
            let all = parts.ok_or("a message without content")?;
            let wrong = all.iter().find(|part| !legal.contains(&kind(part)) || part["text"] == "");
            wrong.map_or(Ok(()), |part| Err(format!("R-11: {part}")))
        }
        "function_call" => {
            let arguments = item["arguments"].as_str().ok_or("arguments are not text")?;
            let parsed = serde_json::from_str::<Value>(arguments).ok();
            parsed.filter(Value::is_object).ok_or("arguments are not an object")?;
            let name = item["name"].as_str().unwrap_or_default();
            let legal = |char: char| char.is_ascii_alphanumeric() || "_-".contains(char);
            let is_legal = (1..=64).contains(&name.len()) && name.chars().all(legal);
            if is_legal { Ok(()) } else { Err(format!("tool name {name:?}")) }
        }
        "function_call_output" if !item["output"].is_string() => Err("output is not text".into()),
        "" => Err(format!("an item without a type: {item}")),
        _ => Ok(()),
    }
}

/// No text and no image is missing.
fn lost(body: &Value, asked: &[ChatMessage]) -> Option<ChatBlock> {
    let all = body.to_string();
    let is_lost = |block: &&ChatBlock| match block {
        ChatBlock::Text { text, .. } => {
            !all.contains(Value::from(text.as_str()).to_string().trim_matches('"'))
        }
        ChatBlock::Image { data, .. } => !all.contains(data.as_str()),
        _ => false,
    };
    asked.iter().flat_map(ChatMessage::content).find(is_lost).cloned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn valid_conversations_satisfy_the_rules(
        asked in conversations(API),
        key in "[a-zé]{0,90}",
    ) {
        let asked_for = crate::request::ModelRequest {
            cache_key: key,
            ..request(asked.clone())
        };
        let body = OpenAiResponses.encode(&asked_for);
        prop_assert_eq!(check(&body), Ok(()), "{:#}", body);
        // No answer holds images; those that the generator puts there are not looked for.
        prop_assert_eq!(lost(&body, &asked), None, "{:#}", body);
        let (_, compaction) = OpenAiResponses.compact_request(&asked_for).unwrap();
        prop_assert_eq!(check(&compaction), Ok(()));
    }

    /// Invalid conversations are repaired as well.
    #[test]
    fn a_torn_conversation_keeps_the_rules(
        asked in conversations(API),
        torn in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let mut asked = asked;
        for at in torn {
            if !asked.is_empty() {
                asked.remove(at.index(asked.len()));
            }
        }
        let body = OpenAiResponses.encode(&request(asked));
        prop_assert_eq!(check(&body), Ok(()), "{:#}", body);
    }
}
