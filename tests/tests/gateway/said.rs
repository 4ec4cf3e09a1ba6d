//! Refusals in the wording of many providers: overflows are retried smaller, others are passed on.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use ctxhost_tests::rules::Wire;

use crate::overflow::{BELIEVED, ask, long_conversation, request};
use crate::stage::{Gate, Upstream, plain};

const DEEPSEEK_OUTPUT: &str = r#"{"error":{"message":"Invalid max_tokens value, the valid range of max_tokens is [1, 8192]","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}"#;

const NO_KEY: &str = r#"{"error":{"message":"No API key found in request","type":"invalid_request_error","param":null,"code":null}}"#;

const LITELLM: &str = r#"{"error":{"message":"litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - This model's maximum context length is 32768 tokens. However, your messages resulted in 41107 tokens. Please reduce the length of the messages.. Received Model Group=m\nAvailable Model Group Fallbacks=None","type":null,"param":null,"code":"400"}}"#;

const GROQ_CEILING: &str = r#"{"error":{"message":"Request too large for model `m` in organization `org_01` service tier `on_demand` on tokens per minute (TPM): Limit 12000, Requested 41210, please reduce your message size and try again. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing","type":"tokens","code":"rate_limit_exceeded"}}"#;

const VLLM: &str = r#"{"object":"error","message":"'max_tokens' or 'max_completion_tokens' is too large: 500. This model's maximum context length is 32768 tokens and your request has 32700 input tokens (500 > 32768 - 32700).","type":"BadRequestError","param":null,"code":400}"#;

const TGI: &str = r#"{"error":"Input validation error: `inputs` must have less than 32000 tokens. Given: 40011","error_type":"validation"}"#;

const MINIMAX: &str = r#"{"choices":null,"usage":{"total_tokens":0},"base_resp":{"status_code":2013,"status_msg":"invalid params, context window exceeds limit (2013)"}}"#;

const DONE: &str = r#"{"choices":[{"message":{"role":"assistant","content":"Done."}}]}"#;

#[tokio::test]
async fn what_is_no_overflow_is_passed_on_word_for_word() {
    for (status, refusal) in [(400, DEEPSEEK_OUTPUT), (400, NO_KEY)] {
        let upstream = Upstream::start(move |_| plain(status, "application/json", refusal)).await;
        let gate = Gate::before(&upstream.url, BELIEVED).await;
        let body = request(Wire::OpenAiChat, &long_conversation(), false);
        let answer = ask(&gate, Wire::OpenAiChat, &body, false).await;
        assert_eq!(answer.status().as_u16(), status);
        assert_eq!(answer.text().await.unwrap(), refusal);
        assert_eq!(upstream.count(), 1, "{refusal}");
    }
}

#[tokio::test]
async fn overflows_in_other_words_are_asked_again_in_a_smaller_form() {
    let refusals = [
        (400, "application/json", LITELLM.to_owned()),
        (413, "application/json", GROQ_CEILING.to_owned()),
        (400, "application/json", VLLM.to_owned()),
        (422, "application/json", TGI.to_owned()),
        (200, "application/json", MINIMAX.to_owned()),
        (200, "text/event-stream", format!("data: {MINIMAX}\n\n")),
    ];
    for (status, kind, refusal) in refusals {
        let (reported, is_stream) = (AtomicBool::new(false), kind != "application/json");
        let said = refusal.clone();
        let answer = move || {
            if is_stream { format!("data: {DONE}\n\ndata: [DONE]\n\n") } else { DONE.to_owned() }
        };
        let upstream = Upstream::start(move |_| {
            if reported.swap(true, Ordering::Relaxed) {
                plain(200, kind, answer())
            } else {
                plain(status, kind, said.clone())
            }
        });
        let upstream = upstream.await;
        let gate = Gate::before(&upstream.url, "[models.m]\nwindow_tokens = 100000\n").await;
        let body = request(Wire::OpenAiChat, &long_conversation(), is_stream);
        let answer = ask(&gate, Wire::OpenAiChat, &body, is_stream).await;
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status == 200 && text.contains("Done."), "{refusal}: {status} {text}");
        assert_eq!(upstream.count(), 2, "{refusal}");
        let sent = upstream.last().body.len();
        assert!(sent < body.to_string().len(), "{refusal}: {sent} bytes");
    }
}

/// A request with a picture of 100 kB in each message of the user but the last.
fn with_pictures(pictures: usize) -> Value {
    let mut messages = Vec::new();
    for n in 0..pictures {
        let url = format!("data:image/png;base64,{n:04}{}", "A".repeat(100_000));
        let image = json!({"type": "image_url", "image_url": {"url": url}});
        let text = json!({"type": "text", "text": format!("Picture {n}, what is in it?")});
        messages.push(json!({"role": "user", "content": [text, image]}));
        messages.push(json!({"role": "assistant", "content": "A cat."}));
    }
    messages.push(json!({"role": "user", "content": "And in all of them?"}));
    json!({"model": "m", "max_tokens": 500, "messages": messages})
}

#[tokio::test]
async fn a_limit_of_bytes_costs_old_pictures_and_teaches_no_window() {
    let upstream = Upstream::start(|seen| match seen.body.len() {
        0..500_000 => plain(200, "application/json", DONE),
        _ => plain(413, "application/json", TOO_MANY_BYTES),
    });
    let upstream = upstream.await;
    let config =
        "[plugins.slots]\ncontext_engine = \"window\"\n[models.m]\nwindow_tokens = 100000\n";
    let gate = Gate::before(&upstream.url, config).await;
    let mut body = with_pictures(6);
    let answer = ask(&gate, Wire::OpenAiChat, &body, false).await;
    assert_eq!((answer.status().as_u16(), upstream.count()), (200, 2));
    let sent = String::from_utf8_lossy(&upstream.last().body).into_owned();
    // The first request of the session is pinned; of the others the older half goes.
    assert_eq!(sent.matches("data:image/png").count(), 3);
    for n in 0..6 {
        assert!(sent.contains(&format!("Picture {n}, what")), "{n}");
    }
    // What was left out stays so, and text alone may fill the window.
    let messages = body["messages"].as_array_mut().unwrap();
    for n in 0..40 {
        messages.push(json!({"role": "assistant", "content": format!("Answer {n}.")}));
        messages.push(
            json!({"role": "user", "content": format!("{n}: {}", "more of it ".repeat(200))}),
        );
    }
    let answer = ask(&gate, Wire::OpenAiChat, &body, false).await;
    assert_eq!((answer.status().as_u16(), upstream.count()), (200, 3));
    let sent = String::from_utf8_lossy(&upstream.last().body).into_owned();
    assert!(sent.contains("Answer 0.") && sent.contains("Answer 39."), "{} bytes", sent.len());
}

/// A refusal of the bytes of a request, as Anthropic words it.
const TOO_MANY_BYTES: &str = r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#;

/// What Gemini answers to the same.
const TOO_LARGE_PAYLOAD: &str = r#"{"error":{"code":400,"message":"Request payload size exceeds the limit: 20971520 bytes.","status":"INVALID_ARGUMENT"}}"#;

/// The history of a conversation that fits, and the key of its messages in a body.
fn history(wire: Wire) -> (Value, &'static str) {
    let body = request(wire, &long_conversation(), false);
    let list = match wire {
        Wire::Gemini => "contents",
        Wire::Responses => "input",
        _ => "messages",
    };
    (body, list)
}

/// A message of the user with a file of 1 MB.
fn with_file(wire: Wire) -> Value {
    let data = "A".repeat(1_000_000);
    let url = format!("data:application/pdf;base64,{data}");
    match wire {
        Wire::Anthropic => {
            let source = json!({"type": "base64", "media_type": "application/pdf", "data": data});
            json!({"role": "user", "content": [{"type": "document", "source": source}, {"type": "text", "text": "Read this file."}]})
        }
        Wire::OpenAiChat => {
            let file = json!({"type": "file", "file": {"filename": "a.pdf", "file_data": url}});
            json!({"role": "user", "content": [file, {"type": "text", "text": "Read this file."}]})
        }
        Wire::Responses => {
            let file = json!({"type": "input_file", "filename": "a.pdf", "file_data": url});
            json!({"type": "message", "role": "user", "content": [file, {"type": "input_text", "text": "Read this file."}]})
        }
        _ => {
            let file = json!({"inlineData": {"mimeType": "application/pdf", "data": data}});
            json!({"role": "user", "parts": [file, {"text": "Read this file."}]})
        }
    }
}

#[tokio::test]
async fn a_new_file_of_too_many_bytes_goes_and_every_text_stays() {
    for wire in [Wire::Anthropic, Wire::OpenAiChat, Wire::Responses, Wire::Gemini] {
        let (status, refusal) = match wire {
            Wire::Gemini => (400, TOO_LARGE_PAYLOAD),
            _ => (413, TOO_MANY_BYTES),
        };
        let upstream = Upstream::start(move |seen| match seen.body.len() {
            0..900_000 => plain(200, "application/json", "{}"),
            _ => plain(status, "application/json", refusal),
        });
        let upstream = upstream.await;
        let gate = Gate::before(&upstream.url, BELIEVED).await;
        let (mut body, list) = history(wire);
        body[list].as_array_mut().unwrap().pop();
        body[list].as_array_mut().unwrap().push(with_file(wire));
        let answer = ask(&gate, wire, &body, false).await;
        assert_eq!((answer.status().as_u16(), upstream.count()), (200, 2), "{wire:?}");
        let sent = String::from_utf8_lossy(&upstream.last().body).into_owned();
        assert!(sent.contains("[ctxhost: images or files left out to fit]"), "{wire:?}");
        assert!(sent.contains("Read this file.") && !sent.contains("AAAAAAAA"), "{wire:?}");
        for n in 0..80 {
            assert!(sent.contains(&format!("Part {n} of")), "{wire:?}: {n}");
        }
        // Without the file, the conversation is what it was before.
        let messages = body[list].as_array_mut().unwrap();
        messages.pop();
        let mut last = messages[0].clone();
        let text = if wire == Wire::Gemini { &mut last["parts"] } else { &mut last["content"] };
        *text = match wire {
            Wire::Gemini => json!([{"text": "No file then."}]),
            _ => json!("No file then."),
        };
        messages.push(last);
        let answer = ask(&gate, wire, &body, false).await;
        assert_eq!((answer.status().as_u16(), upstream.count()), (200, 3), "{wire:?}");
        assert_eq!(upstream.last().body, body.to_string(), "{wire:?}");
    }
}

#[tokio::test]
async fn bytes_that_nothing_can_mend_are_refused_in_the_providers_own_words() {
    let refuse = |_: &_| plain(413, "application/json", TOO_MANY_BYTES);
    let upstream = Upstream::start(refuse).await;
    let gate = Gate::before(&upstream.url, BELIEVED).await;
    let (mut body, list) = history(Wire::Anthropic);
    // Most of the bytes are in the tools, of which nothing can be left out.
    let schema = json!({"type": "object", "description": "x".repeat(500_000)});
    body["tools"] = json!([{"name": "t", "description": "t", "input_schema": schema}]);
    for is_with_file in [false, true] {
        let asked = upstream.count();
        if is_with_file {
            let messages = body[list].as_array_mut().unwrap();
            messages.pop();
            messages.push(with_file(Wire::Anthropic));
        }
        let answer = ask(&gate, Wire::Anthropic, &body, false).await;
        assert_eq!(answer.status().as_u16(), 413);
        assert_eq!(answer.text().await.unwrap(), TOO_MANY_BYTES);
        assert_eq!(upstream.count(), asked + 1 + usize::from(is_with_file));
    }
    let sent = String::from_utf8_lossy(&upstream.last().body).into_owned();
    for n in 0..80 {
        assert!(sent.contains(&format!("Part {n} of")), "{n}");
    }
}
