//! Calls and their results.

use serde_json::Value;

use super::super::json::{has, is_name, list, repeated, text};
use super::{Notes, Request, merged, of, thinking_tokens};

fn ids<'a>(blocks: &[&'a Value], kind: &str, key: &str) -> Vec<&'a str> {
    of(blocks, kind).into_iter().map(|block| text(block, key)).collect()
}

/// Every call is answered in the next message.
pub(super) fn a_5(request: &Request<'_>, notes: &mut Notes<'_>) {
    let turns = merged(request);
    for (turn, (at, _, blocks)) in turns.iter().enumerate() {
        let results =
            turns.get(turn + 1).map(|(_, _, next)| ids(next, "tool_result", "tool_use_id"));
        let results = results.unwrap_or_default();
        let calls = ids(blocks, "tool_use", "id");
        let open: Vec<_> = calls.into_iter().filter(|id| !results.contains(id)).collect();
        notes.demand(open.is_empty(), format!("messages.{at}"), format!("messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.", open.join(", ")));
    }
}

/// Every result has its call in the message before.
pub(super) fn a_6(request: &Request<'_>, notes: &mut Notes<'_>) {
    let mut calls: Vec<&str> = Vec::new();
    for (at, _, blocks) in merged(request) {
        for id in ids(&blocks, "tool_result", "tool_use_id") {
            notes.demand(calls.contains(&id), format!("messages.{at}"), format!("messages.{at}.content: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."));
        }
        calls = ids(&blocks, "tool_use", "id");
    }
}

/// Results come first.
pub(super) fn a_7(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, role, blocks) in merged(request).into_iter().filter(|(_, role, _)| *role == "user") {
        let is_result = |block: &&&Value| text(block, "type") == "tool_result";
        let first = blocks.iter().take_while(is_result).count();
        let all = blocks.iter().filter(is_result).count();
        notes.demand(
            first == all,
            format!("messages.{at}"),
            format!(
                "messages.{at}.content: `tool_result` blocks must come first in a {role} message"
            ),
        );
    }
}

/// One result for each call; every call has its own id.
pub(super) fn a_8(request: &Request<'_>, notes: &mut Notes<'_>) {
    let turns = merged(request);
    let all = |kind, key| turns.iter().flat_map(move |(_, _, blocks)| ids(blocks, kind, key));
    for id in repeated(all("tool_use", "id")) {
        notes.say("messages", format!("messages: `tool_use` ids must be unique: {id}"));
    }
    for id in repeated(all("tool_result", "tool_use_id")) {
        notes.say("messages", format!("messages.content: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"));
    }
}

/// Ids and names are plain.
pub(super) fn a_9(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, _, blocks) in merged(request) {
        for call in of(&blocks, "tool_use") {
            let why = format!(
                "messages.{at}.content.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
            );
            notes.demand(is_name(text(call, "id"), 64), format!("messages.{at}"), why);
            let why = format!(
                "messages.{at}.content.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            );
            notes.demand(is_name(text(call, "name"), 128), format!("messages.{at}"), why);
        }
    }
    for (at, tool) in list(request.body, "tools").iter().enumerate() {
        notes.demand(
            is_name(text(tool, "name"), 128),
            format!("tools.{at}"),
            format!(
                "tools.{at}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            ),
        );
    }
}

/// Input is an object; a history with calls needs tools.
pub(super) fn a_10(request: &Request<'_>, notes: &mut Notes<'_>) {
    let mut calls = 0;
    for (at, _, blocks) in merged(request) {
        for call in of(&blocks, "tool_use") {
            calls += 1;
            notes.demand(
                call["input"].is_object(),
                format!("messages.{at}"),
                format!("messages.{at}.content.tool_use.input: Input should be a valid dictionary"),
            );
        }
    }
    let tools = list(request.body, "tools").len();
    notes.demand(
        calls == 0 || tools > 0,
        "tools",
        "Requests which include `tool_use` or `tool_result` blocks must define tools",
    );
    notes.demand(
        tools > 0 || !has(request.body, "tool_choice"),
        "tool_choice",
        "tool_choice may only be specified while providing tools.",
    );
}

/// A failure is told in text.
pub(super) fn a_11(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, _, blocks) in merged(request) {
        for result in
            of(&blocks, "tool_result").into_iter().filter(|block| block["is_error"] == true)
        {
            let text_alone =
                list(result, "content").iter().all(|part| text(part, "type") == "text");
            notes.demand(
                text_alone,
                format!("messages.{at}"),
                format!(
                    "messages.{at}.content: all content must be type `text` if `is_error` is true"
                ),
            );
        }
    }
}

/// A model that thinks and waits for results began so after the person last spoke; its later calls in
/// the same turn may come without.
pub(super) fn a_14(request: &Request<'_>, notes: &mut Notes<'_>) {
    if thinking_tokens(request).is_none() {
        return;
    }
    let turns = merged(request);
    let answers = |blocks: &[&Value]| !of(blocks, "tool_result").is_empty();
    let in_loop = turns.last().is_some_and(|(_, _, last)| answers(last));
    let spoke =
        |(_, role, blocks): &(usize, &str, Vec<&Value>)| *role == "user" && !answers(blocks);
    let asked = turns.iter().rposition(spoke).unwrap_or(0);
    let Some((at, _, blocks)) = turns.iter().skip(asked).find(|(_, role, _)| *role == "assistant")
    else {
        return;
    };
    let first = blocks.first().map_or("", |block| text(block, "type"));
    let thinks = ["thinking", "redacted_thinking"].contains(&first);
    notes.demand(!in_loop || thinks, format!("messages.{at}"), format!("messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block."));
}

/// The arguments of a tool are described as an object; a chosen tool exists.
pub(super) fn a_18(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, tool) in list(request.body, "tools").iter().enumerate() {
        let place = format!("tools.{at}.custom.input_schema");
        // Tools of the provider's own have a type and no schema.
        let own = has(tool, "type") && text(tool, "type") != "custom";
        let schema = &tool["input_schema"];
        let is_object = own || text(schema, "type") == "object";
        notes.demand(is_object, place.clone(), format!("{place}.type: Input should be 'object'"));
        let chooses = ["oneOf", "allOf", "anyOf"].iter().any(|word| has(schema, word));
        notes.demand(
            !chooses,
            place.clone(),
            format!(
                "{place}: input_schema does not support oneOf, allOf, or anyOf at the top level"
            ),
        );
    }
    let chosen = text(&request.body["tool_choice"], "name");
    let exists = list(request.body, "tools").iter().any(|tool| text(tool, "name") == chosen);
    notes.demand(
        chosen.is_empty() || exists,
        "tool_choice",
        format!("Tool '{chosen}' not found in provided tools"),
    );
}
