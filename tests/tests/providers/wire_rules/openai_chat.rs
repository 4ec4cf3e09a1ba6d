//! O-1 to O-10.

use serde_json::json;

use super::*;

pub(crate) fn story() -> Story {
    Story {
        wire: Wire::OpenAiChat,
        path: "/v1/chat/completions",
        headers: &[],
        good: json!({
            "model": "gpt-5.2", "stream": true, "max_completion_tokens": 4000, "tool_choice": "auto",
            "tools": [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}],
            "messages": [
                {"role": "system", "content": "You help."},
                {"role": "user", "content": [{"type": "text", "text": "read both"}]},
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"a\"}"}},
                    {"id": "call_2", "type": "function", "function": {"name": "read", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "one"},
                {"role": "tool", "tool_call_id": "call_2", "content": "two"},
                {"role": "assistant", "content": "done"},
            ],
        }),
        breaks: &[
            ("O-1", |body| remove(body, "/messages", 3)),
            ("O-1", |body| {
                insert(body, "/messages", 4, json!({"role": "user", "content": "wait"}))
            }),
            ("O-2", |body| remove(body, "/messages", 2)),
            ("O-3", |body| {
                insert(
                    body,
                    "/messages",
                    4,
                    json!({"role": "tool", "tool_call_id": "call_1", "content": "again"}),
                )
            }),
            ("O-3", |body| set(body, "/messages/2/tool_calls/1/id", json!("call_1"))),
            ("O-4", |body| set(body, "/messages/5/content", json!(null))),
            ("O-4", |body| set(body, "/messages/5/tool_calls", json!([]))),
            ("O-5", |body| {
                set(body, "/messages/2/tool_calls/0/function/arguments", json!({"path": "a"}))
            }),
            ("O-5", |body| {
                set(body, "/messages/2/tool_calls/0/function/arguments", json!("{\"path\":"))
            }),
            ("O-6", |body| set(body, "/tools", json!([]))),
            ("O-6", |body| unset(body, "/tools")),
            ("O-7", |body| remove(body, "/messages", 1)),
            ("O-8", |body| {
                set(
                    body,
                    "/messages/3/content",
                    json!([{"type": "image_url", "image_url": {"url": "data:"}}]),
                )
            }),
            ("O-9", |body| set(body, "/messages/2/tool_calls/0/function/name", json!("read file"))),
            ("O-9", |body| set(body, "/messages/2/tool_calls/0/id", json!("c".repeat(65)))),
            ("O-10", |body| set(body, "/max_tokens", json!(100))),
            ("O-10", |body| set(body, "/temperature", json!(0.2))),
        ],
        issued: None,
    }
}
