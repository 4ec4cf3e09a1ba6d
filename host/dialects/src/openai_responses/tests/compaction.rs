use super::*;
use crate::failure::ProviderRefusal;

fn compacted() -> Value {
    json!({
        "id": "resp_1", "object": "response.compaction", "created_at": 1,
        "output": [
            { "id": "msg_1", "type": "message", "status": "completed", "role": "user",
              "content": [{ "type": "input_text", "text": "build it — 作って" }] },
            { "id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAAABp==", "created_by": null },
        ],
        "usage": { "input_tokens": 9000, "output_tokens": 300, "total_tokens": 9300 },
    })
}

#[test]
fn a_history_is_sent_with_its_instructions() {
    let asked = ModelRequest {
        system: "s".into(),
        cache_key: "k".into(),
        max_output_tokens: 5,
        ..request(vec![ChatMessage::from_user_text("hi")])
    };
    let (path, body) = OpenAiResponses.compact_request(&asked).unwrap();
    assert_eq!(path, "/responses/compact");
    assert_eq!(
        body,
        json!({
            "model": "gpt-5.1", "instructions": "s",
            "input": [{ "type": "message", "role": "user",
                "content": [{ "type": "input_text", "text": "hi" }] }],
            "prompt_cache_key": "k",
        })
    );
}

#[test]
fn compacted_items_are_stored_and_sent_back_unchanged() {
    let answer = compacted();
    let history = OpenAiResponses.parse_compaction(&answer).unwrap();
    let stored = serde_json::to_string(&history).unwrap();
    let mut messages: Vec<ChatMessage> = serde_json::from_str(&stored).unwrap();
    assert_eq!(messages, history);
    messages.push(ChatMessage::from_user_text("go on"));
    let body = OpenAiResponses.encode(&request(messages));
    let items = body["input"].as_array().unwrap();
    let output = answer["output"].as_array().unwrap();
    assert_eq!(items.len(), 3);
    for (sent, received) in items.iter().zip(output) {
        assert_eq!(sent.to_string(), received.to_string());
    }
}

#[test]
fn a_second_compaction_holds_the_first() {
    let history = OpenAiResponses.parse_compaction(&compacted()).unwrap();
    let (_, body) = OpenAiResponses.compact_request(&request(history)).unwrap();
    assert_eq!(body["input"], compacted()["output"]);
}

#[test]
fn an_answer_without_a_compaction_replaces_nothing() {
    let mut without = compacted();
    without["output"].as_array_mut().unwrap().pop();
    for answer in [without, json!({}), json!({ "output": [] }), json!([]), json!(null)] {
        let fault = OpenAiResponses.parse_compaction(&answer).unwrap_err();
        assert!(matches!(fault, StreamError::InvalidFrame { .. }), "{answer}");
    }
    let refused = json!({ "error": { "code": "context_length_exceeded", "message": "too long" } });
    let refusal = ProviderRefusal {
        status: None,
        code: "context_length_exceeded".into(),
        message: "too long".into(),
    };
    assert_eq!(OpenAiResponses.parse_compaction(&refused), Err(StreamError::Refused(refusal)));
}
