//! G-1 to G-12: Gemini. Whether a signature is the one that was sent is kept by the memory.

use serde_json::Value;

use super::json::{has, list, text};
use super::{Notes, Request, Rule};

pub(super) const RULES: &[Rule] = &[
    ("G-1", g_1),
    ("G-2", g_2),
    ("G-3", g_3),
    ("G-4", g_4),
    ("G-5", g_5),
    ("G-6", g_6),
    ("G-7", g_7),
    ("G-8", g_8),
    ("G-9", g_9),
    ("G-10", g_10),
    ("G-11", g_11),
    ("G-12", g_12),
];

/// What Google accepts in place of a signature that somebody else's history never had.
pub(super) const STAND_IN: &str = "skip_thought_signature_validator";

const TOP_FIELDS: [&str; 9] = [
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
    "labels",
    "model",
];
const PART_FIELDS: [&str; 10] = [
    "text",
    "thought",
    "thoughtSignature",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "videoMetadata",
];

fn contents<'a>(request: &Request<'a>) -> &'a [Value] {
    list(request.body, "contents")
}

fn each<'a>(request: &Request<'a>) -> impl Iterator<Item = (usize, &'a Value)> {
    contents(request).iter().enumerate()
}

fn parts<'a>(request: &Request<'a>) -> impl Iterator<Item = (usize, &'a Value)> {
    each(request).flat_map(|(at, turn)| list(turn, "parts").iter().map(move |part| (at, part)))
}

/// What a turn holds under a name of a part.
fn inner<'a>(turn: Option<&'a Value>, field: &str) -> Vec<&'a Value> {
    let parts = turn.map_or(&[][..], |turn| list(turn, "parts"));
    parts.iter().filter_map(|part| part.get(field)).collect()
}

fn holds(turn: Option<&Value>, field: &str) -> bool {
    !inner(turn, field).is_empty()
}

/// The model is in the path; a count may name it in the body.
fn is_third_generation(request: &Request<'_>) -> bool {
    let model = text(request.body, "model");
    let named = if model.is_empty() { request.path } else { model };
    named.contains("gemini-3")
}

/// Turns are there, each of one of two roles and with parts.
fn g_1(request: &Request<'_>, notes: &mut Notes<'_>) {
    notes.demand(
        !contents(request).is_empty(),
        "contents",
        "* GenerateContentRequest.contents: contents is not specified",
    );
    for (at, turn) in each(request) {
        let place = format!("contents.{at}");
        notes.demand(
            !list(turn, "parts").is_empty(),
            place.clone(),
            format!(
                "* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty."
            ),
        );
        notes.demand(
            ["user", "model"].contains(&text(turn, "role")),
            place,
            "Please use a valid role: user, model.",
        );
    }
}

/// The person begins, and not with a result.
fn g_2(request: &Request<'_>, notes: &mut Notes<'_>) {
    let first = contents(request).first();
    let person = first.is_none_or(|turn| text(turn, "role") == "user");
    let why = "Please ensure that the conversation starts with a user turn.";
    notes.demand(person && !holds(first, "functionResponse"), "contents.0", why);
}

/// A call comes behind the person or behind results.
fn g_3(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, turn) in each(request).filter(|(_, turn)| holds(Some(turn), "functionCall")) {
        let before = at.checked_sub(1).and_then(|before| contents(request).get(before));
        let kept = text(turn, "role") == "model"
            && before.is_some_and(|turn| text(turn, "role") == "user");
        notes.demand(kept, format!("contents.{at}"), "Please ensure that function call turn comes immediately after a user turn or after a function response turn.");
    }
}

/// Results come directly behind the calls.
fn g_4(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, _) in each(request).filter(|(_, turn)| holds(Some(turn), "functionResponse")) {
        let before = at.checked_sub(1).and_then(|before| contents(request).get(before));
        notes.demand(holds(before, "functionCall"), format!("contents.{at}"), "Please ensure that function response turn comes immediately after a function call turn.");
    }
}

/// As many results as calls, in one turn.
fn g_5(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, turn) in each(request) {
        let calls = inner(Some(turn), "functionCall").len();
        let results = inner(contents(request).get(at + 1), "functionResponse").len();
        notes.demand(calls == 0 || calls == results, format!("contents.{at}"), "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.");
    }
}

/// Results in the order of the calls, with their names and ids.
fn g_6(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, turn) in each(request) {
        let calls = inner(Some(turn), "functionCall");
        let results = inner(contents(request).get(at + 1), "functionResponse");
        for (call, result) in calls.iter().zip(results) {
            let same = text(call, "name") == text(result, "name")
                && text(call, "id") == text(result, "id");
            notes.demand(
                same,
                format!("contents.{}", at + 1),
                format!(
                    "function response {} does not match function call {}",
                    text(result, "name"),
                    text(call, "name")
                ),
            );
        }
        let nameless = is_third_generation(request) && calls.iter().any(|call| !has(call, "id"));
        notes.demand(!nameless, format!("contents.{at}"), "function call is missing an id");
    }
}

/// The newest models want the signature of the first call of each step back while the turn lasts.
fn g_7(request: &Request<'_>, notes: &mut Notes<'_>) {
    let asks = |turn: &Value| text(turn, "role") == "user" && holds(Some(turn), "text");
    let begun = contents(request).iter().rposition(asks).unwrap_or(0);
    for (at, turn) in each(request).skip(begun).filter(|_| is_third_generation(request)) {
        let first = list(turn, "parts").iter().find(|part| has(part, "functionCall"));
        let signed = first.is_none_or(|part| has(part, "thoughtSignature"));
        notes.demand(signed, format!("contents.{at}"), "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly.");
    }
}

/// Signatures are Base64.
fn g_8(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, part) in parts(request).filter(|(_, part)| has(part, "thoughtSignature")) {
        let signature = text(part, "thoughtSignature");
        let plain = |c: char| c.is_ascii_alphanumeric() || "+/=-_".contains(c);
        let base64 = signature.len().is_multiple_of(4) && signature.chars().all(plain);
        notes.demand(base64 || signature == STAND_IN, format!("contents.{at}"), format!("Invalid value at 'contents[{at}].parts.thought_signature' (TYPE_BYTES), Base64 decoding failed"));
    }
}

/// Arguments and results are objects.
fn g_9(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, part) in parts(request) {
        for (field, value) in [("functionCall", "args"), ("functionResponse", "response")] {
            let is_object = part.get(field).is_none_or(|inner| match inner.get(value) {
                None => field == "functionCall",
                Some(value) => value.is_object(),
            });
            notes.demand(is_object, format!("contents.{at}"), format!("Invalid value at 'contents[{at}].parts.{field}.{value}' (type.googleapis.com/google.protobuf.Struct)"));
        }
    }
}

/// Fields that nobody knows are refused.
fn g_10(request: &Request<'_>, notes: &mut Notes<'_>) {
    let mut strange = |value: &Value, known: &[&str], place: String| {
        for field in value.as_object().into_iter().flat_map(|fields| fields.keys()) {
            let why = format!(
                "Invalid JSON payload received. Unknown name \"{field}\" at '{place}': Cannot find field."
            );
            notes.demand(known.contains(&field.as_str()), place.clone(), why);
        }
    };
    strange(request.body, &TOP_FIELDS, String::new());
    each(request)
        .for_each(|(at, turn)| strange(turn, &["role", "parts"], format!("contents[{at}]")));
    parts(request)
        .for_each(|(at, part)| strange(part, &PART_FIELDS, format!("contents[{at}].parts")));
}

/// What is cached is not sent again.
fn g_11(request: &Request<'_>, notes: &mut Notes<'_>) {
    let twice =
        ["tools", "systemInstruction", "toolConfig"].iter().any(|field| has(request.body, field));
    notes.demand(!(has(request.body, "cachedContent") && twice), "cachedContent", "CachedContent can not be used with GenerateContent request setting system_instruction, tools or tool_config.");
}

/// Results hold media from the third generation on.
fn g_12(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, part) in parts(request) {
        let media = part.get("functionResponse").is_some_and(|inner| has(inner, "parts"));
        notes.demand(
            !media || is_third_generation(request),
            format!("contents.{at}"),
            "Multimodal function responses are not supported by this model.",
        );
    }
}
