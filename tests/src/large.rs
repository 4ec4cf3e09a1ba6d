//! Requests of tens of thousands of messages, calls or parts.

use serde_json::{Value, json};

/// What a large request is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Messages of the person and the model by turns.
    Messages,
    /// Calls, each with its result behind it.
    Pairs,
    /// One message with all calls, and a result for each.
    Calls,
    /// The same, without a result for any.
    Unanswered,
    /// One message with so many parts.
    Parts,
    /// One message of Anthropic's dialect with all calls, and one with all results.
    Blocks,
    /// The same in Gemini's, whose results name no calls.
    Nameless,
    /// Items of OpenAI's Responses: calls without results.
    Items,
}

/// All of them.
pub const SHAPES: [Shape; 8] = [
    Shape::Messages,
    Shape::Pairs,
    Shape::Calls,
    Shape::Unanswered,
    Shape::Parts,
    Shape::Blocks,
    Shape::Nameless,
    Shape::Items,
];

impl Shape {
    /// Where it is sent.
    pub fn path(self) -> &'static str {
        match self {
            Shape::Blocks => "/v1/messages",
            Shape::Nameless => "/v1beta/models/gemini-3-pro:generateContent",
            Shape::Items => "/v1/responses",
            _ => "/v1/chat/completions",
        }
    }

    /// The body of `count` of them, in which `name` stands, so that no two are the same conversation.
    pub fn body(self, count: usize, name: &str) -> String {
        let task = json!({ "role": "user", "content": format!("Task {name}.") });
        let next = json!({ "role": "user", "content": "Go on." });
        let function = |n: usize| json!({ "name": "read", "arguments": format!("{{\"n\":{n}}}") });
        let call = |n: usize| json!({ "id": format!("call_{n}"), "type": "function", "function": function(n) });
        let calls =
            |all: Vec<Value>| json!({ "role": "assistant", "content": null, "tool_calls": all });
        let result = |n: usize| json!({ "role": "tool", "tool_call_id": format!("call_{n}"), "content": "done" });
        let mut list = vec![task];
        match self {
            Shape::Messages => list.extend((1..count).map(|n| match n % 2 {
                0 => json!({ "role": "user", "content": format!("Word {n}.") }),
                _ => json!({ "role": "assistant", "content": format!("Word {n}.") }),
            })),
            Shape::Pairs => {
                list.extend((0..count).flat_map(|n| [calls(vec![call(n)]), result(n)]));
            }
            Shape::Calls => {
                list.push(calls((0..count).map(call).collect()));
                list.extend((0..count).map(result));
            }
            Shape::Unanswered => list.push(calls((0..count).map(call).collect())),
            Shape::Parts => {
                let part = |n: usize| json!({ "type": "text", "text": format!("Word {n}.") });
                let parts: Vec<Value> = (0..count).map(part).collect();
                list.push(json!({ "role": "user", "content": parts }));
            }
            Shape::Blocks => {
                let used = |n: usize| json!({ "type": "tool_use", "id": format!("call_{n}"), "name": "read", "input": {} });
                let reported = |n: usize| json!({ "type": "tool_result", "tool_use_id": format!("call_{n}"), "content": "done" });
                let used: Vec<Value> = (0..count).map(used).collect();
                let reported: Vec<Value> = (0..count).map(reported).collect();
                list.push(json!({ "role": "assistant", "content": used }));
                list.push(json!({ "role": "user", "content": reported }));
            }
            Shape::Nameless => {
                let used = json!({ "functionCall": { "name": "read", "args": {} } });
                let reported = json!({ "functionResponse": { "name": "read", "response": { "output": "done" } } });
                let text = format!("Task {name}.");
                return json!({ "contents": [
                    { "role": "user", "parts": [{ "text": text }] },
                    { "role": "model", "parts": vec![used; count] },
                    { "role": "user", "parts": vec![reported; count] },
                ] })
                .to_string();
            }
            Shape::Items => {
                let item = |n: usize| json!({ "type": "function_call", "call_id": format!("call_{n}"), "name": "read", "arguments": "{}" });
                list.extend((0..count).map(item));
                list.push(next);
                return json!({ "model": "m", "input": list }).to_string();
            }
        }
        if matches!(self, Shape::Calls | Shape::Unanswered | Shape::Pairs) {
            list.push(next);
        }
        json!({ "model": "m", "max_tokens": 100, "messages": list }).to_string()
    }
}
