//! The rules O-1 to O-9 over a finished body, written without a look at the code that keeps them.

use std::collections::BTreeSet;

use serde_json::Value;

/// The rules that a body breaks, by number, each with the cause.
pub(super) fn broken(body: &Value) -> Vec<String> {
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let mut broken = Vec::new();
    let mut blame = |rule: &str, what: &Value| broken.push(format!("{rule}: {what}"));
    let mut open: BTreeSet<String> = BTreeSet::new();
    for message in &messages {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            blame("O-1", message);
            open.clear();
        }
        match role {
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                if !open.remove(id) {
                    blame("O-2", message);
                }
                if !message["content"].is_string() {
                    blame("O-8", message);
                }
            }
            "assistant" => {
                let calls = message.get("tool_calls");
                if message["content"].is_null() && calls.is_none() {
                    blame("O-4", message);
                }
                if calls.is_some_and(|calls| calls.as_array().is_none_or(Vec::is_empty)) {
                    blame("O-4", message);
                }
                for call in calls.and_then(Value::as_array).into_iter().flatten() {
                    let id = call["id"].as_str().unwrap_or_default();
                    if !open.insert(id.to_owned()) {
                        blame("O-3", message);
                    }
                    let arguments = call["function"]["arguments"].as_str().unwrap_or("-");
                    if !serde_json::from_str::<Value>(arguments)
                        .is_ok_and(|value| value.is_object())
                    {
                        blame("O-5", message);
                    }
                    if id.is_empty() || id.len() > 40 || !is_name(&call["function"]["name"]) {
                        blame("O-9", message);
                    }
                }
            }
            "system" | "developer" if message["content"].is_string() => {}
            "system" | "developer" => blame("O-8", message),
            "user" => {
                let parts = message["content"].as_array();
                let is_nothing = parts.is_some_and(Vec::is_empty) || message["content"] == "";
                if is_nothing || message["content"].is_null() {
                    blame("O-7", message);
                }
            }
            _ => blame("O-0", message),
        }
    }
    if !open.is_empty() {
        blame("O-1", &body["messages"]);
    }
    if !messages.iter().any(|message| message["role"] == "user") {
        blame("O-7", &body["messages"]);
    }
    let tools = body.get("tools");
    if tools.is_some_and(|tools| tools.as_array().is_none_or(Vec::is_empty))
        || tools.is_none() && body.get("tool_choice").is_some()
    {
        blame("O-6", body);
    }
    broken
}

fn is_name(name: &Value) -> bool {
    let name = name.as_str().unwrap_or_default();
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=64).contains(&name.len()) && name.chars().all(is_legal)
}
