//! The rules once more, read from a body alone: it shares no code with the encoder.

use std::collections::HashSet;

use serde_json::Value;

/// The numbers of the rules that a body breaks.
pub(super) fn breaches(body: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut check = |rule: &str, holds: bool| {
        if !holds {
            breaches.push(rule.to_owned());
        }
    };
    roles(body, &mut check);
    blocks(body, &mut check);
    pairs(body, &mut check);
    tools(body, &mut check);
    marks(body, &mut check);
    thinking(body, &mut check);
    breaches
}

type Check<'a> = dyn FnMut(&str, bool) + 'a;

fn roles(body: &Value, check: &mut Check<'_>) {
    let messages = list(&body["messages"]);
    check("A-1 not empty", !messages.is_empty());
    for (place, message) in messages.iter().enumerate() {
        let expected = if place % 2 == 0 { "user" } else { "assistant" };
        check("A-1 roles in turn", message["role"] == expected);
        check("A-3 content", !list(&message["content"]).is_empty());
    }
    check("A-4 ends with the user", messages.last().is_some_and(|last| last["role"] == "user"));
}

fn blocks(body: &Value, check: &mut Check<'_>) {
    for message in list(&body["messages"]) {
        let user = message["role"] == "user";
        for block in list(&message["content"]) {
            block_alone(block, user, check);
            for inner in list(&block["content"]) {
                block_alone(inner, true, check);
                check("A-11", block["is_error"] != true || inner["type"] == "text");
            }
        }
        let last = &list(&message["content"])[list(&message["content"]).len() - 1];
        let thinks = last["type"] == "thinking" || last["type"] == "redacted_thinking";
        check("no message ends with thinking", !thinks);
    }
    for block in list(&body["system"]) {
        block_alone(block, true, check);
    }
}

fn block_alone(block: &Value, user: bool, check: &mut Check<'_>) {
    match block["type"].as_str().unwrap() {
        "text" => check("A-3 text", !block["text"].as_str().unwrap().trim().is_empty()),
        "image" => {
            check("images are of the user", user);
            let types = ["image/png", "image/jpeg", "image/gif", "image/webp"];
            let media = block["source"]["media_type"].as_str().unwrap();
            check("A-19", types.contains(&media));
        }
        "tool_use" => {
            check("calls are of the assistant", !user);
            check("A-9 id", legal(&block["id"]));
            check("A-9 name", legal(&block["name"]));
            check("A-10 input", block["input"].is_object());
        }
        "tool_result" => check("results are of the user", user),
        "thinking" => {
            check("thinking is of the assistant", !user);
            check("A-16", !block["signature"].as_str().unwrap().is_empty());
        }
        "redacted_thinking" => check("A-16", !block["data"].as_str().unwrap().is_empty()),
        other => check(&format!("unknown block {other}"), false),
    }
}

fn pairs(body: &Value, check: &mut Check<'_>) {
    let messages = list(&body["messages"]);
    let mut all = HashSet::new();
    for (place, message) in messages.iter().enumerate() {
        let calls = ids(message, "tool_use", "id");
        check("A-8 unique", calls.iter().all(|id| all.insert(id.clone())));
        if !calls.is_empty() {
            let answers =
                messages.get(place + 1).map(|next| ids(next, "tool_result", "tool_use_id"));
            check("A-5, A-8", sorted(answers.unwrap_or_default()) == sorted(calls));
        }
        let answers = ids(message, "tool_result", "tool_use_id");
        if !answers.is_empty() {
            let before =
                place.checked_sub(1).map(|before| ids(&messages[before], "tool_use", "id"));
            check("A-6", sorted(before.unwrap_or_default()) == sorted(answers.clone()));
            let first = list(&message["content"]).iter().take(answers.len());
            check("A-7", first.clone().all(|block| block["type"] == "tool_result"));
        }
    }
    check("A-10 tools", all.is_empty() || !list(&body["tools"]).is_empty());
}

fn tools(body: &Value, check: &mut Check<'_>) {
    let mut names = HashSet::new();
    for tool in list(&body["tools"]) {
        check("A-9 tool", legal(&tool["name"]));
        check("tool names are unique", names.insert(tool["name"].to_string()));
        let schema = &tool["input_schema"];
        check("A-18 object", schema["type"] == "object");
        let folded = ["anyOf", "oneOf", "allOf"].iter().all(|key| schema.get(key).is_none());
        check("A-18 alternatives", folded);
    }
}

fn marks(body: &Value, check: &mut Check<'_>) {
    let messages = list(&body["messages"]);
    let inner = messages.iter().flat_map(|message| list(&message["content"]));
    let blocks = list(&body["tools"]).iter().chain(list(&body["system"])).chain(inner);
    let marked: Vec<_> = blocks.filter(|block| block.get("cache_control").is_some()).collect();
    check("A-12 at most four", marked.len() <= 4);
    let thinks = |block: &&&Value| block["type"].as_str().is_some_and(|of| of.contains("thinking"));
    check("A-12 not on thinking", !marked.iter().any(|block| thinks(&block)));
    let lifetimes: HashSet<_> =
        marked.iter().map(|block| block["cache_control"].to_string()).collect();
    check("A-12 one lifetime", lifetimes.len() <= 1);
    check(
        "A-12 on blocks alone",
        messages.iter().all(|message| message.get("cache_control").is_none()),
    );
}

fn thinking(body: &Value, check: &mut Check<'_>) {
    let Some(thinking) = body.get("thinking") else { return };
    check("A-13 temperature", body.get("temperature").is_none());
    check("A-13 choice", body.get("tool_choice").is_none_or(|choice| choice["type"] == "none"));
    if thinking["type"] != "enabled" {
        return;
    }
    let budget = thinking["budget_tokens"].as_u64().unwrap();
    check("A-13 budget", (1_024..body["max_tokens"].as_u64().unwrap()).contains(&budget));
    // The turn: the messages since the last user message without results.
    let messages = list(&body["messages"]);
    let answers = |message: &Value| !ids(message, "tool_result", "tool_use_id").is_empty();
    let start = messages.iter().rposition(|message| message["role"] == "user" && !answers(message));
    let first = messages.get(start.unwrap() + 1).map(|message| &message["content"][0]["type"]);
    let begins = first.is_none_or(|of| of == "thinking" || of == "redacted_thinking");
    check("A-14", begins);
}

fn ids(message: &Value, of: &str, key: &str) -> Vec<String> {
    let blocks = list(&message["content"]).iter().filter(|block| block["type"] == of);
    blocks.map(|block| block[key].as_str().unwrap().to_owned()).collect()
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

fn legal(name: &Value) -> bool {
    let name = name.as_str().unwrap();
    let legal = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    (1..=64).contains(&name.len()) && name.chars().all(legal)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
