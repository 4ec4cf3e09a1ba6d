//! OL-1 to OL-8: Ollama's own chat. It refuses little, so most of these save an answer, not a request.

use serde_json::Value;

use super::json::{has, list, text};
use super::{Notes, Request, Rule};

pub(super) const RULES: &[Rule] = &[
    ("OL-1", ol_1),
    ("OL-2", ol_2),
    ("OL-3", ol_3),
    ("OL-4", ol_4),
    ("OL-5", ol_5),
    ("OL-6", ol_6),
    ("OL-7", ol_7),
    ("OL-8", ol_8),
];

const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

fn messages<'a>(request: &Request<'a>) -> &'a [Value] {
    list(request.body, "messages")
}

fn each<'a>(request: &Request<'a>) -> impl Iterator<Item = (usize, &'a Value)> {
    messages(request).iter().enumerate()
}

fn call_names(message: &Value) -> Vec<&str> {
    let calls = list(message, "tool_calls").iter();
    calls.map(|call| call.pointer("/function/name").and_then(Value::as_str).unwrap_or("")).collect()
}

/// There are messages: without them the server only loads the model and answers nothing.
fn ol_1(request: &Request<'_>, notes: &mut Notes<'_>) {
    notes.demand(!messages(request).is_empty(), "messages", "messages must not be empty");
}

/// Four roles are known.
fn ol_2(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, message) in each(request) {
        let role = text(message, "role");
        let why =
            format!("invalid role: {role}, role must be one of [system, user, assistant, tool]");
        notes.demand(ROLES.contains(&role), format!("messages.{at}.role"), why);
    }
}

/// A tool message comes after the calls that it answers, and names one of their tools.
fn ol_3(request: &Request<'_>, notes: &mut Notes<'_>) {
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in each(request) {
        if text(message, "role") != "tool" {
            open = call_names(message);
            continue;
        }
        let name = text(message, "tool_name");
        let found = open.iter().position(|called| name.is_empty() || *called == name);
        match found {
            Some(call) => drop(open.remove(call)),
            None => {
                notes.say(format!("messages.{at}"), "tool message without a tool call before it")
            }
        }
    }
}

/// Every call is answered before anybody else speaks.
fn ol_4(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, message) in each(request) {
        let behind = messages(request).iter().skip(at + 1);
        let answers = behind.take_while(|next| text(next, "role") == "tool").count();
        let calls = call_names(message).len();
        notes.demand(
            calls <= answers,
            format!("messages.{at}"),
            format!("{calls} tool calls have {answers} tool messages"),
        );
    }
}

/// The window is named: without it the server takes its own small one and forgets the beginning.
fn ol_5(request: &Request<'_>, notes: &mut Notes<'_>) {
    let window = request.body.pointer("/options/num_ctx").and_then(Value::as_u64);
    notes.demand(
        window.is_some_and(|tokens| tokens > 0),
        "options.num_ctx",
        "options.num_ctx must be a positive number",
    );
}

/// Arguments are an object, not a text.
fn ol_6(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, message) in each(request) {
        for call in list(message, "tool_calls") {
            let is_object = call.pointer("/function/arguments").is_some_and(Value::is_object);
            notes.demand(is_object, format!("messages.{at}.tool_calls"), "json: cannot unmarshal string into Go struct field .function.arguments of type api.ToolCallFunctionArguments");
        }
    }
}

/// Content is one text; images are Base64 without a head.
fn ol_7(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, message) in each(request) {
        let plain = !has(message, "content") || message["content"].is_string();
        notes.demand(plain, format!("messages.{at}.content"), "json: cannot unmarshal array into Go struct field ChatRequest.messages.content of type string");
        let bad = list(message, "images")
            .iter()
            .any(|image| image.as_str().is_none_or(|data| data.starts_with("data:")));
        notes.demand(!bad, format!("messages.{at}.images"), "illegal base64 data at input byte 4");
    }
}

/// A tool is a function with a name.
fn ol_8(request: &Request<'_>, notes: &mut Notes<'_>) {
    for (at, tool) in list(request.body, "tools").iter().enumerate() {
        let named = tool
            .pointer("/function/name")
            .and_then(Value::as_str)
            .is_some_and(|name| !name.is_empty());
        notes.demand(
            text(tool, "type") == "function" && named,
            format!("tools.{at}"),
            "a tool needs the type function and a name",
        );
    }
}
