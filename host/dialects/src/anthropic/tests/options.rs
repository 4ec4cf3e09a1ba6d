//! Paths, headers, token counting and settings.

use serde_json::json;

use super::*;
use crate::conversations::request;
use crate::request::ThinkingLevel;

fn asked() -> ModelRequest {
    let messages = vec![ChatMessage::from_user_text("a")];
    ModelRequest { thinking: ThinkingLevel::High, ..request(MODEL, messages) }
}

#[test]
fn a_request_has_its_address_and_its_headers() {
    let dialect = Anthropic::default();
    assert_eq!(dialect.path(&asked()), "/v1/messages");
    assert_eq!(dialect.key_header(), ("x-api-key", ""));
    assert_eq!(dialect.headers(&asked()), [("anthropic-version", "2023-06-01".to_owned())]);
    let body = encoded_request(&asked());
    assert_eq!((&body["stream"], &body["max_tokens"]), (&json!(true), &json!(32_000)));
    let unlimited = ModelRequest { max_output_tokens: 0, ..asked() };
    assert_eq!(encoded_request(&unlimited)["max_tokens"], 8_192);
}

#[test]
fn counting_asks_with_the_prompt_alone() {
    let dialect = Anthropic::default();
    let (path, body) = dialect.count_request(&asked()).unwrap();
    assert_eq!(path, "/v1/messages/count_tokens");
    let fields: Vec<_> = body.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["model", "system", "tools", "messages", "thinking"]);
    assert_eq!(dialect.parse_count(&json!({ "input_tokens": 17 })), Some(17));
    assert_eq!(dialect.parse_count(&json!({ "error": {} })), None);
}

#[test]
fn context_editing_is_asked_for_with_its_beta() {
    let editing = ContextEditing {
        clear_at_least_tokens: 5_000,
        exclude_tools: vec!["read".into()],
        ..ContextEditing::default()
    };
    let dialect = Anthropic {
        context_editing: Some(editing),
        drop_unbound_thinking: true,
        ..Anthropic::default()
    };
    let betas = "context-management-2025-06-27,thinking-binding-controls-2026-08-01";
    assert_eq!(dialect.headers(&asked())[1], ("anthropic-beta", betas.to_owned()));
    let body = dialect.encode(&asked());
    let edit = json!({
        "type": "clear_tool_uses_20250919",
        "trigger": { "type": "input_tokens", "value": 100_000 },
        "keep": { "type": "tool_uses", "value": 3 },
        "clear_tool_inputs": false,
        "clear_at_least": { "type": "input_tokens", "value": 5_000 },
        "exclude_tools": ["read"],
    });
    assert_eq!(body["context_management"], json!({ "edits": [edit] }));
    assert_eq!(
        body["thinking"]["block_binding"],
        json!({ "prefix_mismatch_behavior": "drop_block" })
    );
}

#[test]
fn newer_models_think_by_effort_and_older_ones_by_budget() {
    let kind = |model: &str| {
        let body = encoded_request(&ModelRequest { model: model.into(), ..asked() });
        let effort = body["output_config"]["effort"].as_str().map(str::to_owned);
        (body["thinking"]["type"].as_str().unwrap().to_owned(), effort)
    };
    for model in [
        "claude-3-7-sonnet-latest",
        "claude-opus-4-20250514",
        "claude-haiku-4-5",
        "anthropic/claude-sonnet-4.5",
        "claude-opus-4@20250514",
        "kimi-k2",
    ] {
        assert_eq!(kind(model), ("enabled".into(), None), "{model}");
    }
    for model in ["claude-opus-4-6", "claude-opus-4-7", "claude-mythos-5"] {
        assert_eq!(kind(model), ("adaptive".into(), Some("high".into())), "{model}");
    }
}
