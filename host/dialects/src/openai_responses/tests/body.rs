use ctxhost_engine_api::ToolSpec;

use super::*;
use crate::request::ThinkingLevel;

#[test]
fn a_request_keeps_nothing_at_the_server() {
    let asked = ModelRequest {
        system: "Be brief.".into(),
        max_output_tokens: 4,
        thinking: ThinkingLevel::High,
        temperature: Some(0.7),
        cache_key: "session-1".into(),
        tools: vec![ToolSpec {
            name: "read_file".into(),
            description: "Reads.".into(),
            input_schema: json!({ "type": "object" }),
        }],
        ..request(vec![ChatMessage::from_user_text("hi")])
    };
    assert_eq!(OpenAiResponses.path(&asked), "/responses");
    assert_eq!(
        OpenAiResponses.encode(&asked),
        json!({
            "model": "gpt-5.1",
            "instructions": "Be brief.",
            "input": [{ "type": "message", "role": "user",
                "content": [{ "type": "input_text", "text": "hi" }] }],
            "tools": [{ "type": "function", "name": "read_file", "description": "Reads.",
                "parameters": { "type": "object" }, "strict": false }],
            "reasoning": { "effort": "high", "summary": "auto" },
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 16,
            "prompt_cache_key": "session-1",
        })
    );
}

#[test]
fn a_model_that_does_not_think_is_not_asked_to() {
    for model in ["gpt-4o", "openai/gpt-4.1-mini", "gpt-5-chat-latest"] {
        let asked = ModelRequest {
            model: model.into(),
            thinking: ThinkingLevel::High,
            temperature: Some(0.5),
            ..request(vec![ChatMessage::from_user_text("hi")])
        };
        let body = OpenAiResponses.encode(&asked);
        assert_eq!((body.get("include"), body.get("reasoning")), (None, None), "{model}");
        assert_eq!(body["temperature"], json!(0.5));
    }
}

#[test]
fn a_request_can_be_counted() {
    let asked =
        ModelRequest { system: "s".into(), ..request(vec![ChatMessage::from_user_text("hi")]) };
    let (path, body) = OpenAiResponses.count_request(&asked).unwrap();
    assert_eq!(path, "/responses/input_tokens");
    assert_eq!((body.get("stream"), &body["instructions"]), (None, &json!("s")));
    let answer = json!({ "object": "response.input_tokens", "input_tokens": 11 });
    assert_eq!(OpenAiResponses.parse_count(&answer), Some(11));
}
