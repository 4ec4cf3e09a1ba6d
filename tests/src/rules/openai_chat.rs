//! O-1 to O-10: chat completions.

use serde_json::Value;

use super::json::{has, is_name, list, repeated, text};
use super::{Notes, Request, Rule};

pub(super) const RULES: &[Rule] = &[
    ("O-1", o_1),
    ("O-2", o_2),
    ("O-3", o_3),
    ("O-4", o_4),
    ("O-5", o_5),
    ("O-6", o_6),
    ("O-7", o_7),
    ("O-8", o_8),
    ("O-9", o_9),
    ("O-10", o_10),
];

/// Names of models that reason, which take other limits than the old ones.
const REASONING_MODELS: [&str; 4] = ["o1", "o3", "o4", "gpt-5"];
/// Call ids: newer servers take 64 characters.
const MAX_ID_CHARS: usize = 64;

fn messages<'a>(request: &Request<'a>) -> &'a [Value] {
    list(request.body, "messages")
}

fn call_ids(message: &Value) -> Vec<&str> {
    list(message, "tool_calls").iter().map(|call| text(call, "id")).collect()
}

/// Each message with the tool messages directly behind it.
fn answered(messages: &[Value]) -> impl Iterator<Item = (usize, &Value, Vec<&str>)> {
    messages.iter().enumerate().map(|(at, message)| {
        let behind = messages.iter().skip(at + 1);
        let tools = behind.take_while(|next| text(next, "role") == "tool");
        (at, message, tools.map(|tool| text(tool, "tool_call_id")).collect())
    })
}

fn calls<'a>(request: &Request<'a>) -> impl Iterator<Item = (usize, &'a Value)> {
    let each = messages(request).iter().enumerate();
    each.flat_map(|(at, message)| list(message, "tool_calls").iter().map(move |call| (at, call)))
}

/// Every call is answered before any other role speaks.
fn o_1(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, message, answers) in answered(messages(request)) {
        let open: Vec<_> =
            call_ids(message).into_iter().filter(|id| !answers.contains(id)).collect();
        notes.demand(open.is_empty(), format!("messages.{at}"), format!("An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}", open.join(", ")));
    }
}

/// Every tool message answers the assistant message before it.
fn o_2(request: &Request<'_>, notes: &mut Notes<'_>) {
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages(request).iter().enumerate() {
        if text(message, "role") != "tool" {
            open = call_ids(message);
            continue;
        }
        notes.demand(open.contains(&text(message, "tool_call_id")), format!("messages.{at}"), "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.");
    }
}

/// One answer for each call; ids are unique within a message.
fn o_3(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, message, answers) in answered(messages(request)) {
        for id in repeated(call_ids(message).into_iter()) {
            notes.say(format!("messages.{at}"), format!("Duplicate tool call id {id}."));
        }
        if text(message, "role") != "tool" {
            for id in repeated(answers.into_iter()) {
                let why = format!("Duplicate tool message for tool_call_id {id}.");
                notes.say(format!("messages.{at}"), why);
            }
        }
    }
}

/// An assistant says something or calls something.
fn o_4(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, message) in messages(request).iter().enumerate() {
        let place = format!("messages.{at}");
        if text(message, "role") != "assistant" {
            notes.demand(
                has(message, "content"),
                place,
                format!(
                    "Invalid value for 'messages.[{at}].content': expected a string, got null."
                ),
            );
            continue;
        }
        let is_empty = message.get("tool_calls").is_some() && call_ids(message).is_empty();
        notes.demand(!is_empty, place.clone(), format!("Invalid 'messages[{at}].tool_calls': empty array. Expected an array with minimum length 1."));
        let calls = !call_ids(message).is_empty() || has(message, "function_call");
        notes.demand(
            calls || has(message, "content"),
            place,
            format!("Invalid value for 'content': expected a string, got null in messages.[{at}]."),
        );
    }
}

/// Arguments are a text that is JSON.
fn o_5(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, call) in calls(request) {
        let arguments = call.pointer("/function/arguments").and_then(Value::as_str);
        let parses = arguments.is_some_and(|text| serde_json::from_str::<Value>(text).is_ok());
        notes.demand(
            parses,
            format!("messages.{at}.tool_calls"),
            "failed to parse tool call arguments as JSON",
        );
    }
}

/// What speaks of tools needs tools.
fn o_6(request: &Request<'_>, notes: &mut Notes<'_>) {
    let tools = request.body.get("tools");
    let count = list(request.body, "tools").len();
    notes.demand(
        tools.is_none() || count > 0,
        "tools",
        "Invalid 'tools': empty array. Expected an array with minimum length 1.",
    );
    for field in ["tool_choice", "parallel_tool_calls"] {
        let why = format!(
            "Invalid value for '{field}': '{field}' is only allowed when 'tools' are specified."
        );
        notes.demand(!has(request.body, field) || count > 0, field, why);
    }
}

/// There are messages, one of them the person's.
fn o_7(request: &Request<'_>, notes: &mut Notes<'_>) {
    let person = messages(request).iter().any(|message| text(message, "role") == "user");
    notes.demand(person, "messages", "messages must hold at least one user message");
}

/// Prompts and results of tools are text.
fn o_8(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, message) in messages(request).iter().enumerate() {
        let role = text(message, "role");
        let of_text = ["system", "developer", "tool"].contains(&role);
        let images = list(message, "content").iter().any(|part| text(part, "type") != "text");
        notes.demand(!(of_text && images), format!("messages.{at}.content"), format!("Image URLs are only allowed for messages with role 'user', but this message with role '{role}' contains an image URL."));
    }
}

/// Names and ids are short and plain.
fn o_9(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, call) in calls(request) {
        let name = call.pointer("/function/name").and_then(Value::as_str).unwrap_or_default();
        let place = format!("messages.{at}.tool_calls");
        notes.demand(is_name(name, 64), place.clone(), "Invalid 'function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.");
        let id = text(call, "id");
        notes.demand(
            !id.is_empty() && id.len() <= MAX_ID_CHARS,
            place,
            "Invalid 'tool_calls.id': string too long.",
        );
    }
    for (at, tool) in list(request.body, "tools").iter().enumerate() {
        let name = tool.pointer("/function/name").and_then(Value::as_str).unwrap_or_default();
        notes.demand(
            is_name(name, 64),
            format!("tools.{at}"),
            "Invalid 'tools.function.name': string does not match pattern '^[a-zA-Z0-9_-]+$'.",
        );
    }
}

/// Models that reason want `max_completion_tokens` and no temperature.
fn o_10(request: &Request<'_>, notes: &mut Notes<'_>) {
    let model = text(request.body, "model");
    if !REASONING_MODELS.iter().any(|name| model.starts_with(name)) {
        return;
    }
    notes.demand(!has(request.body, "max_tokens"), "max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.");
    let temperature = request.body.get("temperature").and_then(Value::as_f64).unwrap_or(1.0);
    notes.demand(temperature == 1.0, "temperature", "Unsupported value: 'temperature' does not support this value with this model. Only the default (1) value is supported.");
}
