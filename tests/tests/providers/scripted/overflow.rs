//! Requests that are too large, in the exact form of each provider.

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{
    Answered, Ask, Model, OverflowForm, ScriptedServer, Speaker, Step, Steps,
};
use serde_json::json;

use super::client::{Came, ask, frames, hear, request, send};

const WINDOW_TOKENS: u64 = 4_000;

fn server(wire: Wire, overflow: OverflowForm) -> ScriptedServer {
    let model = Model { overflow, ..Model::new(WINDOW_TOKENS) };
    ScriptedServer::start(wire, model)
        .script(Steps::new([vec![Step::say("A short answer to it.")]]))
}

/// A request larger than the window, and its size in tokens.
async fn overflow(wire: Wire, form: OverflowForm) -> (Came, u64) {
    let server = server(wire, form);
    let came = ask(&server, wire, &"too much ".repeat(2_000)).await.unwrap();
    let seen = &server.requests()[0];
    assert!(matches!(seen.answered, Answered::Overflow(_)), "{wire:?}: {seen:?}");
    let small = ask(&server, wire, "less").await.unwrap();
    assert_eq!(
        hear(wire, &small.text).text.is_empty(),
        form == OverflowForm::Silent && small.status != 200
    );
    (came, seen.prompt_tokens)
}

#[tokio::test]
async fn openai_chat() {
    let (came, prompt) = overflow(Wire::OpenAiChat, OverflowForm::Plain).await;
    assert_eq!(came.status, 400);
    assert_eq!(
        came.json(),
        json!({"error": {"message": format!("This model's maximum context length is 4000 tokens. However, your messages resulted in {prompt} tokens. Please reduce the length of the messages."), "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}})
    );
    let (came, prompt) = overflow(Wire::OpenAiChat, OverflowForm::Other).await;
    let sum = prompt + 500;
    assert_eq!(
        came.json()["error"]["message"],
        format!(
            "This model's maximum context length is 4000 tokens. However, you requested {sum} tokens ({prompt} in the messages, 500 in the completion). Please reduce the length of the messages or completion."
        )
    );
    let (came, _) = overflow(Wire::OpenAiChat, OverflowForm::MidStream { after_text: true }).await;
    let last = frames(Wire::OpenAiChat, &came.text).pop().unwrap();
    assert_eq!((came.status, &last["error"]["code"]), (200, &json!(400)));
    let message = last["error"]["message"].as_str().unwrap();
    assert!(message.starts_with(
        "This endpoint's maximum context length is 4000 tokens. However, you requested about"
    ));
}

#[tokio::test]
async fn responses() {
    let (came, _) = overflow(Wire::Responses, OverflowForm::Plain).await;
    assert_eq!(came.status, 400);
    assert_eq!(
        came.json(),
        json!({"error": {"message": "Your input exceeds the context window of this model. Please adjust your input and try again.", "type": "invalid_request_error", "param": "input", "code": "context_length_exceeded"}})
    );
    let (came, prompt) = overflow(Wire::Responses, OverflowForm::Other).await;
    let message = came.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with(&format!("Input tokens exceed the configured limit of 4000 tokens. Your messages resulted in {prompt} tokens.")));
    for after_text in [false, true] {
        let (came, _) = overflow(Wire::Responses, OverflowForm::MidStream { after_text }).await;
        let last = frames(Wire::Responses, &came.text).pop().unwrap();
        assert_eq!(came.status, 200);
        assert_eq!(last["type"], "response.failed");
        assert_eq!(last["response"]["error"]["code"], "context_length_exceeded");
        assert_eq!(came.text.contains("response.output_text.delta"), after_text);
    }
}

#[tokio::test]
async fn anthropic() {
    let (came, prompt) = overflow(Wire::Anthropic, OverflowForm::Plain).await;
    let body = came.json();
    assert_eq!(
        (came.status, &body["type"], &body["error"]["type"]),
        (400, &json!("error"), &json!("invalid_request_error"))
    );
    assert_eq!(
        body["error"]["message"],
        format!("prompt is too long: {prompt} tokens > 4000 maximum")
    );
    let (came, prompt) = overflow(Wire::Anthropic, OverflowForm::Other).await;
    assert_eq!(
        came.json()["error"]["message"],
        format!(
            "input length and `max_tokens` exceed context limit: {prompt} + 500 > 4000, decrease input length or `max_tokens` and try again"
        )
    );
    let (came, _) = overflow(Wire::Anthropic, OverflowForm::TooLarge).await;
    assert_eq!(
        (came.status, &came.json()["error"]),
        (413, &json!({"type": "request_too_large", "message": "Request exceeds the maximum size"}))
    );
    for after_text in [false, true] {
        let (came, _) = overflow(Wire::Anthropic, OverflowForm::MidStream { after_text }).await;
        let received = hear(Wire::Anthropic, &came.text);
        assert_eq!((came.status, received.stop.as_str()), (200, "model_context_window_exceeded"));
        assert_eq!(!received.text.is_empty(), after_text);
    }
}

#[tokio::test]
async fn gemini() {
    let (came, prompt) = overflow(Wire::Gemini, OverflowForm::Plain).await;
    assert_eq!(came.status, 400);
    assert_eq!(
        came.json(),
        json!({"error": {"code": 400, "message": format!("The input token count ({prompt}) exceeds the maximum number of tokens allowed (4000)."), "status": "INVALID_ARGUMENT"}})
    );
    let (came, prompt) = overflow(Wire::Gemini, OverflowForm::Other).await;
    let message = came.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with(&format!("Unable to submit request because the input token count is {prompt} but model only supports up to 4000.")));
}

#[tokio::test]
async fn prompt_and_answer_together_are_measured() {
    for wire in [Wire::OpenAiChat, Wire::Responses, Wire::Anthropic, Wire::Gemini] {
        let server = server(wire, OverflowForm::Plain);
        // 3,600 tokens and 500 more are over the window, and neither is alone.
        let came = ask(&server, wire, &"x".repeat(3_600 * 7 / 2)).await.unwrap();
        assert_eq!(came.status, 400, "{wire:?}");
        assert_eq!(server.requests()[0].answered, Answered::Overflow(OverflowForm::Plain));
    }
    let server = server(Wire::Anthropic, OverflowForm::Plain);
    let (path, mut body) = request(Wire::Anthropic, "hello", false);
    body["max_tokens"] = json!(1_001);
    let came = send(&server, &path, &body).await.unwrap();
    assert_eq!(
        came.json()["error"]["message"],
        "max_tokens: 1001 > 1000, which is the maximum allowed number of output tokens for this model"
    );
    assert_eq!(server.requests()[0].answered, Answered::OutputLimit);
}

#[tokio::test]
async fn ollama_forgets_the_beginning_in_silence() {
    let remembers = |ask: &Ask<'_>| {
        let first = ask.said.iter().any(|said| said.text.starts_with("first"));
        let system = ask.said.iter().any(|said| said.by == Speaker::System);
        vec![Step::say(format!("first {first}, system {system}, {} messages", ask.said.len()))]
    };
    let server = ScriptedServer::start(Wire::Ollama, Model::new(32_000)).script(remembers);
    let (path, mut body) = request(Wire::Ollama, "last", false);
    let long = "word ".repeat(1_200);
    body["messages"] = json!([
        {"role": "system", "content": "You help."},
        {"role": "user", "content": format!("first {long}")},
        {"role": "assistant", "content": long},
        {"role": "user", "content": "last"},
    ]);
    let received = hear(Wire::Ollama, &send(&server, &path, &body).await.unwrap().text);
    assert_eq!(received.text, "first true, system true, 4 messages");
    body["options"]["num_ctx"] = json!(2_000);
    let received = hear(Wire::Ollama, &send(&server, &path, &body).await.unwrap().text);
    assert_eq!(
        (received.text.as_str(), received.prompt_tokens),
        ("first false, system true, 3 messages", 2_000)
    );
    assert_eq!(server.requests()[1].answered, Answered::Overflow(OverflowForm::Silent));

    let (came, prompt) = overflow(Wire::Ollama, OverflowForm::Other).await;
    assert_eq!(
        (came.status, came.json()),
        (
            200 + 200,
            json!({"error": format!("prompt too long; exceeded max context length by {} tokens", prompt - WINDOW_TOKENS)})
        )
    );
}

#[tokio::test]
async fn a_silent_server_counts_more_than_it_holds() {
    let (came, prompt) = overflow(Wire::OpenAiChat, OverflowForm::Silent).await;
    let received = hear(Wire::OpenAiChat, &came.text);
    assert_eq!((came.status, received.prompt_tokens), (200, prompt));
    assert!(prompt > WINDOW_TOKENS && !received.text.is_empty());
}
