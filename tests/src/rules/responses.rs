//! OpenAI Responses. and the stored half of R-9 are kept by the memory.

use serde_json::Value;

use super::json::{has, list, repeated, text};
use super::{Notes, Request, Rule};

pub(super) const RULES: &[Rule] = &[
    ("R-1", r_1),
    ("R-2", r_2),
    ("R-3", r_3),
    ("R-5", r_5),
    ("R-7", r_7),
    ("R-8", r_8),
    ("R-9", r_9),
    ("R-11", r_11),
    ("R-12", r_12),
];

/// Ids of items begin with what they are.
const PREFIXES: [(&str, &str); 5] = [
    ("message", "msg_"),
    ("reasoning", "rs_"),
    ("function_call", "fc_"),
    ("custom_tool_call", "ctc_"),
    ("compaction", "cmp_"),
];
/// Ids, call ids and cache keys.
const MAX_ID_CHARS: usize = 64;
/// Pairs of metadata.
const MAX_PAIRS: usize = 16;

fn items<'a>(request: &Request<'a>) -> &'a [Value] {
    list(request.body, "input")
}

/// The type of an item; a message may leave it out.
pub(super) fn kind(item: &Value) -> &str {
    match text(item, "type") {
        "" if has(item, "role") => "message",
        other => other,
    }
}

fn is_call(item: &Value) -> bool {
    ["function_call", "custom_tool_call"].contains(&kind(item))
}

fn is_output(item: &Value) -> bool {
    ["function_call_output", "custom_tool_call_output"].contains(&kind(item))
}

fn is_stored(request: &Request<'_>) -> bool {
    has(request.body, "previous_response_id") || has(request.body, "conversation")
}

/// Every call has one output behind it.
fn r_1(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, call) in items(request).iter().enumerate().filter(|(_, item)| is_call(item)) {
        let id = text(call, "call_id");
        let behind = items(request).iter().skip(at + 1);
        let outputs = behind.filter(|item| is_output(item) && text(item, "call_id") == id).count();
        let why = match outputs {
            0 => format!("No tool output found for function call {id}."),
            _ => format!("Duplicate tool output found for function call {id}."),
        };
        notes.demand(outputs == 1, format!("input.{at}"), why);
    }
}

/// Every output has a call before it.
fn r_2(request: &Request<'_>, notes: &mut Notes<'_>) {
    if is_stored(request) {
        return;
    }
    for (at, output) in items(request).iter().enumerate().filter(|(_, item)| is_output(item)) {
        let id = text(output, "call_id");
        let mut before = items(request).iter().take(at);
        let called = before.any(|item| is_call(item) && text(item, "call_id") == id);
        notes.demand(
            called,
            format!("input.{at}"),
            format!("No tool call found for function call output with call_id {id}."),
        );
    }
}

/// Reasoning stands before what it led to.
fn r_3(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, item) in items(request).iter().enumerate() {
        if kind(item) != "reasoning" {
            continue;
        }
        let follows = items(request).get(at + 1).is_some_and(is_of_model);
        notes.demand(
            follows,
            format!("input.{at}"),
            format!(
                "Item '{}' of type 'reasoning' was provided without its required following item.",
                text(item, "id")
            ),
        );
    }
}

fn is_of_model(item: &Value) -> bool {
    match kind(item) {
        "message" => text(item, "role") == "assistant",
        "compaction" | "compaction_trigger" => false,
        other => !other.ends_with("_output"),
    }
}

/// Reasoning carries its summary, empty or not.
fn r_5(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, item) in items(request).iter().enumerate() {
        let whole = kind(item) != "reasoning" || item["summary"].is_array();
        notes.demand(
            whole,
            format!("input.{at}.summary"),
            format!("Missing required parameter: 'input[{at}].summary'."),
        );
    }
}

/// Ids are unique, short, and begin with their kind.
fn r_7(request: &Request<'_>, notes: &mut Notes<'_>) {
    let ids = items(request).iter().map(|item| text(item, "id")).filter(|id| !id.is_empty());
    for id in repeated(ids) {
        notes.say("input", format!("Duplicate item found with id {id}. Remove duplicate items from your input and try again."));
    }
    for (at, item) in items(request).iter().enumerate() {
        let id = text(item, "id");
        let prefix = PREFIXES.iter().find(|(of, _)| *of == kind(item)).map_or("", |(_, id)| id);
        let place = format!("input.{at}");
        notes.demand(
            id.is_empty() || id.starts_with(prefix),
            format!("{place}.id"),
            format!(
                "Invalid 'input[{at}].id': '{id}'. Expected an ID that begins with '{}'.",
                prefix.trim_end_matches('_')
            ),
        );
        let long = id.len() > MAX_ID_CHARS || text(item, "call_id").len() > MAX_ID_CHARS;
        notes.demand(!long, place.clone(), format!("Invalid 'input[{at}].id': string too long. Expected a string with maximum length 64."));
        let named = !(is_call(item) || is_output(item)) || has(item, "call_id");
        notes.demand(named, place, format!("Missing required parameter: 'input[{at}].call_id'."));
    }
}

/// One trigger at most, at the end; a compaction item is whole.
fn r_8(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, item) in items(request).iter().enumerate() {
        let place = format!("input.{at}");
        match kind(item) {
            "compaction_trigger" => {
                let last = at + 1 == items(request).len();
                notes.demand(last, place, "compaction_trigger must be the last input item");
            }
            "compaction" => {
                let whole = has(item, "encrypted_content");
                notes.demand(
                    whole,
                    place,
                    format!("Missing required parameter: 'input[{at}].encrypted_content'."),
                );
            }
            _ => {}
        }
    }
}

/// A stored conversation is named in one way.
fn r_9(request: &Request<'_>, notes: &mut Notes<'_>) {
    let both = has(request.body, "previous_response_id") && has(request.body, "conversation");
    notes.demand(
        !both,
        "previous_response_id",
        "Mutually exclusive parameters: 'previous_response_id' and 'conversation'.",
    );
}

/// What was said and what was heard have different names.
fn r_11(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, item) in items(request).iter().enumerate().filter(|(_, item)| kind(item) == "message")
    {
        let supported: &[&str] = match text(item, "role") {
            "assistant" => &["output_text", "refusal"],
            _ => &["input_text", "input_image", "input_file"],
        };
        for part in list(item, "content") {
            let kind = text(part, "type");
            notes.demand(
                supported.contains(&kind),
                format!("input.{at}.content"),
                format!(
                    "Invalid value: '{kind}'. Supported values are: '{}'.",
                    supported.join("', '")
                ),
            );
        }
    }
}

/// Keys and metadata are small.
fn r_12(request: &Request<'_>, notes: &mut Notes<'_>) {
    let key = text(request.body, "prompt_cache_key").len();
    notes.demand(key <= MAX_ID_CHARS, "prompt_cache_key", format!("Invalid 'prompt_cache_key': string too long. Expected a string with maximum length 64, but got a string with length {key} instead."));
    let pairs = request.body["metadata"].as_object().map_or(0, |pairs| pairs.len());
    notes.demand(
        pairs <= MAX_PAIRS,
        "metadata",
        "Invalid 'metadata': too many properties. Expected an object with at most 16 properties.",
    );
}
