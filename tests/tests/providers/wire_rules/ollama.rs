//! OL-1 to OL-8.

use serde_json::json;

use super::*;

pub(crate) fn story() -> Story {
    Story {
        wire: Wire::Ollama,
        path: "/api/chat",
        headers: &[],
        good: json!({
            "model": "qwen3", "options": {"num_ctx": 32768},
            "tools": [{"type": "function", "function": {"name": "read", "parameters": {}}}],
            "messages": [
                {"role": "system", "content": "You help."},
                {"role": "user", "content": "look", "images": ["AAAA"]},
                {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "read", "arguments": {}}}]},
                {"role": "tool", "tool_name": "read", "content": "one"},
            ],
        }),
        breaks: &[
            ("OL-1", |body| set(body, "/messages", json!([]))),
            ("OL-2", |body| set(body, "/messages/0/role", json!("developer"))),
            ("OL-3", |body| remove(body, "/messages", 2)),
            ("OL-3", |body| set(body, "/messages/3/tool_name", json!("write"))),
            ("OL-4", |body| remove(body, "/messages", 3)),
            ("OL-5", |body| unset(body, "/options/num_ctx")),
            ("OL-5", |body| set(body, "/options/num_ctx", json!("32k"))),
            ("OL-6", |body| set(body, "/messages/2/tool_calls/0/function/arguments", json!("{}"))),
            ("OL-7", |body| {
                set(body, "/messages/1/content", json!([{"type": "text", "text": "x"}]))
            }),
            ("OL-7", |body| set(body, "/messages/1/images/0", json!("data:image/png;base64,AAAA"))),
            ("OL-8", |body| set(body, "/tools/0/type", json!("tool"))),
        ],
        issued: None,
    }
}
