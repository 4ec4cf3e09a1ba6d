//! Paths, token counting and thinking levels.

use serde_json::json;

use super::*;
use crate::conversations::request;
use crate::request::ThinkingLevel;

fn asked(model: &str) -> ModelRequest {
    request(model, vec![ChatMessage::from_user_text("a")])
}

#[test]
fn a_request_has_its_address_and_its_body() {
    let path = "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse";
    assert_eq!(Gemini.path(&asked(SECOND)), path);
    assert_eq!(Gemini.path(&asked("models/gemini-2.5-pro")), path);
    assert_eq!(Gemini.key_header(), ("x-goog-api-key", ""));
    let body = encoded_request(&ModelRequest { temperature: Some(0.7), ..asked(SECOND) });
    assert_eq!(body["systemInstruction"], json!({ "parts": [{ "text": "You read files." }] }));
    let config = json!({ "maxOutputTokens": 32_000, "temperature": 0.7 });
    assert_eq!(body["generationConfig"], config);
}

#[test]
fn counting_asks_with_the_prompt_alone() {
    let (path, body) = Gemini.count_request(&asked("models/gemini-2.5-pro")).unwrap();
    assert_eq!(path, "/v1beta/models/gemini-2.5-pro:countTokens");
    let counted = body["generateContentRequest"].as_object().unwrap();
    let fields: Vec<_> = counted.keys().collect();
    assert_eq!(fields, ["model", "systemInstruction", "contents", "tools"]);
    assert_eq!(counted["model"], "models/gemini-2.5-pro");
    assert_eq!(Gemini.parse_count(&json!({ "totalTokens": 17 })), Some(17));
    assert_eq!(Gemini.parse_count(&json!({})), None);
}

#[test]
fn each_generation_thinks_in_its_own_way() {
    let config = |model: &str, thinking, max_output_tokens| {
        let asked = ModelRequest { thinking, max_output_tokens, ..asked(model) };
        encoded_request(&asked)["generationConfig"].get("thinkingConfig").cloned()
    };
    let budget = |tokens| Some(json!({ "thinkingBudget": tokens, "includeThoughts": true }));
    let level = |level| Some(json!({ "thinkingLevel": level, "includeThoughts": true }));
    assert_eq!(config(SECOND, ThinkingLevel::Off, 32_000), None);
    assert_eq!(
        config("gemini-2.5-flash", ThinkingLevel::Off, 0),
        Some(json!({ "thinkingBudget": 0 }))
    );
    assert_eq!(config(SECOND, ThinkingLevel::Medium, 32_000), budget(8_192));
    assert_eq!(config(SECOND, ThinkingLevel::High, 8_000), budget(4_000));
    assert_eq!(config(SECOND, ThinkingLevel::Low, 600), budget(512));
    assert_eq!(config(THIRD, ThinkingLevel::Off, 32_000), None);
    assert_eq!(config(THIRD, ThinkingLevel::Medium, 32_000), level("high"));
    assert_eq!(config("gemini-3-flash", ThinkingLevel::Medium, 32_000), level("medium"));
    assert_eq!(config("gemini-2.0-flash", ThinkingLevel::High, 32_000), None);
}
