//! The rules once more, read from a body alone: it shares no code with the encoder.

use serde_json::Value;

/// The numbers of the rules that a body breaks.
pub(super) fn breaches(model: &str, body: &Value) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut check = |rule: &str, holds: bool| {
        if !holds {
            breaches.push(rule.to_owned());
        }
    };
    let third = model.starts_with("gemini-3");
    let contents = list(&body["contents"]);
    turns(contents, &mut check);
    parts(contents, third, &mut check);
    pairs(contents, third, &mut check);
    if third {
        signatures(contents, &mut check);
    }
    breaches
}

type Check<'a> = dyn FnMut(&str, bool) + 'a;

fn turns(contents: &[Value], check: &mut Check<'_>) {
    check("G-1 not empty", !contents.is_empty());
    for content in contents {
        check("G-1 role", content["role"] == "user" || content["role"] == "model");
        check("G-1 parts", !list(&content["parts"]).is_empty());
        for part in list(&content["parts"]) {
            let has_text = part["text"].as_str().is_none_or(|text| !text.trim().is_empty());
            check("G-1 text", has_text || part.get("thoughtSignature").is_some());
        }
    }
    let first =
        contents.first().is_some_and(|first| first["role"] == "user" && answers(first).is_empty());
    check("G-2 begins with the user", first);
    check("G-2 ends with the user", contents.last().is_some_and(|last| last["role"] == "user"));
}

fn parts(contents: &[Value], third: bool, check: &mut Check<'_>) {
    for content in contents {
        for part in list(&content["parts"]) {
            if let Some(call) = part.get("functionCall") {
                check("G-9 args", call["args"].is_object());
                check("calls are of the model", content["role"] == "model");
            }
            if let Some(response) = part.get("functionResponse") {
                check("G-9 response", response["response"].is_object());
                check("G-12", third || response.get("parts").is_none());
            }
            if let Some(signature) = part.get("thoughtSignature").and_then(Value::as_str) {
                let stand_in = signature == "skip_thought_signature_validator";
                check("G-8", stand_in || signature.len() % 4 == 0 && !signature.contains(' '));
                check("signatures are of the model", content["role"] == "model");
            }
            let known = ["text", "inlineData", "functionCall", "functionResponse"];
            check("G-10", known.iter().filter(|key| part.get(key).is_some()).count() == 1);
        }
    }
}

fn pairs(contents: &[Value], third: bool, check: &mut Check<'_>) {
    for (place, content) in contents.iter().enumerate() {
        let called = calls(content);
        let before = place.checked_sub(1).map(|before| &contents[before]);
        if !called.is_empty() {
            check("G-3", before.is_some_and(|before| before["role"] == "user"));
            let answered = contents.get(place + 1).map(answers).unwrap_or_default();
            check("G-5 same number", answered.len() == called.len());
            let key = |value: &&Value| (value["name"].clone(), value.get("id").cloned());
            let same = called.iter().map(key).eq(answered.iter().map(key));
            check("G-6 same names and ids", same);
            let named = |call: &&Value| call["id"].as_str().is_some_and(|id| !id.is_empty());
            check("G-6 ids", !third || called.iter().all(named));
        }
        let answered = answers(content);
        if !answered.is_empty() {
            let called = before.map(calls).unwrap_or_default();
            check("G-5 same number", answered.len() == called.len());
            check("G-4 nothing else", answered.len() == list(&content["parts"]).len());
        }
    }
}

fn signatures(contents: &[Value], check: &mut Check<'_>) {
    let text = |part: &Value| part.get("text").is_some();
    let speaks =
        |content: &Value| content["role"] == "user" && list(&content["parts"]).iter().any(text);
    let start = contents.iter().rposition(speaks).unwrap_or_default();
    for content in contents.iter().skip(start) {
        let parts = list(&content["parts"]).iter();
        let first = parts.clone().find(|part| part.get("functionCall").is_some());
        check("G-7", first.is_none_or(|part| part.get("thoughtSignature").is_some()));
    }
}

fn calls(content: &Value) -> Vec<&Value> {
    list(&content["parts"]).iter().filter_map(|part| part.get("functionCall")).collect()
}

fn answers(content: &Value) -> Vec<&Value> {
    list(&content["parts"]).iter().filter_map(|part| part.get("functionResponse")).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
