//!

use ctxhost_tests::rules::Part;
use serde_json::json;

use super::*;

pub(crate) fn story() -> Story {
    Story {
        wire: Wire::Responses,
        path: "/v1/responses",
        headers: &[],
        good: json!({
            "model": "gpt-5.2", "store": false, "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "session-1",
            "input": [
                {"id": "cmp_1", "type": "compaction", "encrypted_content": "c29tZQ=="},
                {"role": "user", "content": [{"type": "input_text", "text": "read it"}]},
                {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "YWJjZA=="},
                {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "one"},
                {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
                {"type": "compaction_trigger"},
            ],
        }),
        breaks: &[
            ("R-1", |body| remove(body, "/input", 4)),
            ("R-1", |body| {
                let output = body["input"][4].clone();
                insert(body, "/input", 4, output);
            }),
            ("R-2", |body| remove(body, "/input", 3)),
            ("R-3", |body| set(body, "/input/3", json!({"role": "user", "content": "hm"}))),
            ("R-4", |body| remove(body, "/input", 2)),
            ("R-5", |body| unset(body, "/input/2/summary")),
            ("R-6", |body| set(body, "/input/2/encrypted_content", json!("YWJjZE=="))),
            ("R-6", |body| set(body, "/input/0/encrypted_content", json!("b3RoZXI="))),
            ("R-7", |body| set(body, "/input/5/id", json!("fc_1"))),
            ("R-7", |body| set(body, "/input/5/id", json!("item_1"))),
            ("R-7", |body| set(body, "/input/3/call_id", json!("c".repeat(65)))),
            ("R-8", |body| insert(body, "/input", 1, json!({"type": "compaction_trigger"}))),
            ("R-8", |body| unset(body, "/input/0/encrypted_content")),
            ("R-9", |body| set(body, "/previous_response_id", json!("resp_unknown"))),
            ("R-9", |body| {
                set(body, "/previous_response_id", json!("resp_1"));
                set(body, "/conversation", json!("conv_1"));
            }),
            ("R-11", |body| set(body, "/input/5/content/0/type", json!("input_text"))),
            ("R-12", |body| set(body, "/prompt_cache_key", json!("k".repeat(65)))),
        ],
        issued: Some((json!({}), issued())),
    }
}

fn issued() -> Issued {
    Issued {
        response_id: "resp_1".into(),
        is_stored: true,
        parts: vec![
            Part::Compaction { encrypted: "c29tZQ==".into() },
            Part::Thinking { id: "rs_1".into(), text: String::new(), signature: "YWJjZA==".into() },
            Part::Call {
                id: "fc_1".into(),
                call_id: "call_1".into(),
                name: "read".into(),
                signature: String::new(),
            },
        ],
    }
}
