//!

use ctxhost_tests::rules::Part;
use serde_json::json;

use super::*;

pub(crate) fn story() -> Story {
    let good = json!({
        "model": "claude-opus-5", "max_tokens": 8000, "stream": true,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "system": [{"type": "text", "text": "You help.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "read both"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Both.", "signature": "c2lnMQ=="},
                {"type": "thinking", "thinking": "At once.", "signature": "c2lnMg=="},
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
                {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
                {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true, "content": [{"type": "text", "text": "two"}]},
                {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}}]},
        ],
    });
    let mut asked = good.clone();
    asked["messages"].as_array_mut().unwrap().truncate(1);
    Story {
        wire: Wire::Anthropic,
        path: "/v1/messages",
        headers: &[("anthropic-version", "2023-06-01")],
        good,
        breaks: BREAKS,
        issued: Some((asked, issued())),
    }
}

const BREAKS: &[Break] = &[
    ("A-0", |body| set(body, "/without_header", json!("anthropic-version"))),
    ("A-1", |body| set(body, "/messages", json!([]))),
    ("A-1", |body| set(body, "/messages/0/role", json!("assistant"))),
    ("A-1", |body| insert(body, "/messages", 0, json!({"role": "system", "content": "no"}))),
    ("A-2", |body| {
        set(body, "/messages", json!(vec![json!({"role": "user", "content": "x"}); 100_001]))
    }),
    ("A-3", |body| set(body, "/messages/0/content", json!(""))),
    ("A-3", |body| set(body, "/messages/2/content/2/text", json!(" \n"))),
    ("A-4", |body| insert(body, "/messages", 3, json!({"role": "assistant", "content": "so "}))),
    ("A-5", |body| remove(body, "/messages/2/content", 0)),
    ("A-5", |body| remove(body, "/messages", 2)),
    ("A-6", |body| remove(body, "/messages/1/content", 2)),
    ("A-7", |body| {
        insert(body, "/messages/2/content", 1, json!({"type": "text", "text": "between"}))
    }),
    ("A-8", |body| set(body, "/messages/2/content/1/tool_use_id", json!("toolu_1"))),
    ("A-8", |body| set(body, "/messages/1/content/3/id", json!("toolu_1"))),
    ("A-9", |body| set(body, "/messages/1/content/2/id", json!("call.1|fc"))),
    ("A-9", |body| set(body, "/tools/0/name", json!("read file"))),
    ("A-10", |body| set(body, "/messages/1/content/2/input", json!("{}"))),
    ("A-10", |body| unset(body, "/tools")),
    ("A-11", |body| set(body, "/messages/2/content/1/content/0/type", json!("image"))),
    ("A-12", |body| {
        let mark = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
        (0..3).for_each(|_| insert(body, "/messages/2/content", 3, mark.clone()));
    }),
    ("A-12", |body| set(body, "/messages/1/content/0/cache_control", json!({"type": "ephemeral"}))),
    ("A-12", |body| set(body, "/messages/0/cache_control", json!({"type": "ephemeral"}))),
    ("A-12", |body| set(body, "/tools/0/cache_control", json!({"type": "ephemeral"}))),
    ("A-13", |body| set(body, "/thinking/budget_tokens", json!(1_000))),
    ("A-13", |body| set(body, "/max_tokens", json!(2_000))),
    ("A-13", |body| set(body, "/tool_choice", json!({"type": "any"}))),
    ("A-14", |body| {
        remove(body, "/messages/1/content", 0);
        remove(body, "/messages/1/content", 0);
    }),
    ("A-15", |body| remove(body, "/messages/1/content", 1)),
    ("A-16", |body| set(body, "/messages/1/content/0/thinking", json!("Both!"))),
    ("A-16", |body| set(body, "/messages/1/content/0/signature", json!("c2lnOQ=="))),
    ("A-17", |body| {
        remove(body, "/messages/1/content", 1);
        insert(body, "/messages", 3, json!({"role": "assistant", "content": "done"}));
        insert(body, "/messages", 4, json!({"role": "user", "content": "thanks"}));
    }),
    ("A-18", |body| set(body, "/tools/0/input_schema", json!({"type": "object", "anyOf": []}))),
    ("A-18", |body| set(body, "/tools/0/input_schema", json!({}))),
    ("A-19", |body| {
        let image = json!({"type": "image", "source": {"type": "base64", "data": "AAAA"}});
        set(body, "/messages/0/content", json!(vec![image; 101]));
    }),
    ("A-20", |body| set(body, "/context_management", json!({"edits": []}))),
    ("A-20", |body| {
        insert(
            body,
            "/messages/1/content",
            0,
            json!({"type": "compaction", "encrypted_content": "eA=="}),
        )
    }),
    ("A-21", |body| set(body, "/messages/0/content", json!("read one"))),
    ("A-21", |body| set(body, "/system/0/text", json!("You do not help."))),
    ("A-22", |body| unset(body, "/max_tokens")),
];

fn issued() -> Issued {
    let thinking = |text: &str, signature: &str| Part::Thinking {
        id: String::new(),
        text: text.into(),
        signature: signature.into(),
    };
    let call = |id: &str| Part::Call {
        id: String::new(),
        call_id: id.into(),
        name: "read".into(),
        signature: String::new(),
    };
    let parts = vec![
        thinking("Both.", "c2lnMQ=="),
        thinking("At once.", "c2lnMg=="),
        call("toolu_1"),
        call("toolu_2"),
    ];
    Issued { response_id: "msg_01".into(), is_stored: false, parts }
}

#[test]
fn marks_of_the_cache_bind_nothing() {
    let story = story();
    let mut body = story.good.clone();
    unset(&mut body, "/system/0/cache_control");
    assert_eq!(story.numbers(&body), Vec::<&str>::new());
}

#[test]
fn old_thinking_may_go_as_a_whole() {
    let story = story();
    let mut body = story.good.clone();
    remove(&mut body, "/messages/1/content", 0);
    remove(&mut body, "/messages/1/content", 0);
    insert(&mut body, "/messages", 3, json!({"role": "assistant", "content": "done"}));
    insert(&mut body, "/messages", 4, json!({"role": "user", "content": "thanks"}));
    assert_eq!(story.numbers(&body), Vec::<&str>::new());
}
