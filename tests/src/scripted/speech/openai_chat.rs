//! OpenAI's chat completions, as OpenAI and OpenRouter speak them.

use serde_json::{Value, json};

use super::*;
use crate::scripted::answer::{Block, Stop};

pub(super) struct OpenAiChat;

impl Speech for OpenAiChat {
    fn endpoint(&self, path: &str) -> Option<Endpoint> {
        path.ends_with("/chat/completions").then_some(Endpoint::Answer)
    }

    fn output_tokens(&self, body: &Value) -> Option<u64> {
        body["max_completion_tokens"].as_u64().or_else(|| body["max_tokens"].as_u64())
    }

    fn said(&self, body: &Value) -> Vec<Said> {
        let said = |message: &Value| Said {
            by: speaker(message["role"].as_str().unwrap_or_default()),
            text: texts(&message["content"]),
        };
        items(body, "messages").map(said).collect()
    }

    fn tools(&self, body: &Value) -> Vec<Offer> {
        items(body, "tools").map(|tool| offer(&tool["function"], "parameters")).collect()
    }

    fn prefixes(&self) -> (&'static str, &'static str) {
        ("chatcmpl-", "call_")
    }

    fn frames(
        &self,
        answer: &Answer,
        inquiry: &Inquiry<'_>,
        pieces: &mut Pieces<'_>,
    ) -> Vec<Frame> {
        let counts = inquiry.body["stream_options"]["include_usage"] == true;
        let chunk = |choices: Value, usage: Value| {
            let mut chunk = json!({
                "id": answer.id, "object": "chat.completion.chunk", "created": 1_790_000_000,
                "model": answer.model, "system_fingerprint": "fp_scripted", "choices": choices,
            });
            if counts {
                chunk["usage"] = usage;
            }
            data(&chunk)
        };
        let delta = |delta: Value| {
            let choice =
                json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]);
            chunk(choice, Value::Null)
        };
        let mut frames = vec![delta(json!({"role": "assistant", "content": "", "refusal": null}))];
        let mut calls = 0;
        for block in &answer.blocks {
            match block {
                Block::Think { text, .. } => {
                    let thought = |piece| delta(json!({"reasoning_content": piece}));
                    frames.extend(pieces.of(text).into_iter().map(thought));
                }
                Block::Text { text, .. } => {
                    let said = |piece| delta(json!({"content": piece})).said();
                    frames.extend(pieces.of(text).into_iter().map(said));
                }
                Block::Call { call_id, tool, args, .. } => {
                    let function = json!({"name": tool, "arguments": ""});
                    frames.push(delta(json!({"tool_calls": [{"index": calls, "id": call_id, "type": "function", "function": function}]})));
                    let more = |piece: String| {
                        delta(
                            json!({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]}),
                        )
                    };
                    frames.extend(pieces.of(&args.to_string()).into_iter().map(more));
                    calls += 1;
                }
            }
        }
        frames.push(chunk(json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": finish(answer.stop)}]), Value::Null));
        if counts {
            frames.push(chunk(json!([]), usage(answer)));
        }
        frames.push(Frame { text: "data: [DONE]\n\n".into(), is_said: false });
        frames
    }

    fn whole(&self, answer: &Answer, _inquiry: &Inquiry<'_>) -> Value {
        let mut text = String::new();
        let mut calls = Vec::new();
        for block in &answer.blocks {
            match block {
                Block::Think { .. } => {}
                Block::Text { text: more, .. } => text.push_str(more),
                Block::Call { call_id, tool, args, .. } => calls.push(json!({"id": call_id, "type": "function", "function": {"name": tool, "arguments": args.to_string()}})),
            }
        }
        let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { json!(text) };
        let mut message = json!({"role": "assistant", "content": content, "refusal": null});
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        json!({
            "id": answer.id, "object": "chat.completion", "created": 1_790_000_000, "model": answer.model,
            "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish(answer.stop)}],
            "usage": usage(answer),
        })
    }

    fn counted(&self, tokens: u64) -> Value {
        json!({"input_tokens": tokens})
    }

    fn refuse(&self, trouble: &Trouble) -> Refusal {
        let invalid = "invalid_request_error";
        let (status, body) = match trouble {
            Trouble::Overflow { .. } => (
                400,
                openai_error(
                    &overflow(trouble),
                    invalid,
                    Some("messages"),
                    Some("context_length_exceeded"),
                ),
            ),
            Trouble::OutputLimit { asked, most } => (
                400,
                openai_error(
                    &format!(
                        "max_tokens is too large: {asked}. This model supports at most {most} completion tokens, whereas you provided {asked}."
                    ),
                    invalid,
                    Some("max_tokens"),
                    Some("invalid_value"),
                ),
            ),
            Trouble::Malformed(broken) => {
                (400, openai_error(&broken.why, invalid, Some(&broken.at), None))
            }
            other => return plain(other),
        };
        Refusal::new(status, body)
    }

    /// As OpenRouter does: a chunk with an error, and no more.
    fn break_off(&self, answer: &Answer, trouble: &Trouble) -> Broke {
        let Trouble::Overflow { prompt, output, window, .. } = trouble else {
            let error = json!({"code": 502, "message": "Upstream error"});
            return Broke::Frame(data(&json!({"error": error})));
        };
        let message = format!(
            "This endpoint's maximum context length is {window} tokens. However, you requested about {} tokens ({prompt} of text input, {output} in the output). Please reduce the length of either one.",
            prompt + output
        );
        Broke::Frame(data(&json!({
            "id": answer.id, "object": "chat.completion.chunk", "created": 1_790_000_000, "model": answer.model,
            "error": {"code": 400, "message": message},
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}],
        })))
    }
}

fn overflow(trouble: &Trouble) -> String {
    let Trouble::Overflow { prompt, output, window, form } = trouble else { return String::new() };
    let head = format!("This model's maximum context length is {window} tokens. However, ");
    if *form == OverflowForm::Other || prompt <= window {
        return format!(
            "{head}you requested {} tokens ({prompt} in the messages, {output} in the completion). Please reduce the length of the messages or completion.",
            prompt + output
        );
    }
    format!(
        "{head}your messages resulted in {prompt} tokens. Please reduce the length of the messages."
    )
}

/// What both of OpenAI's dialects say in the same words.
pub(super) fn plain(trouble: &Trouble) -> Refusal {
    let (status, message, kind, code) = match trouble {
        Trouble::RateLimited { retry_after_s } => (
            429,
            format!(
                "Rate limit reached for requests per minute (RPM): Limit 3, Used 3, Requested 1. Please try again in {retry_after_s}s."
            ),
            "requests",
            Some("rate_limit_exceeded"),
        ),
        Trouble::Overloaded => (
            503,
            "The engine is currently overloaded, please try again later".into(),
            "server_error",
            None,
        ),
        Trouble::Unauthorized => (
            401,
            "Incorrect API key provided.".into(),
            "invalid_request_error",
            Some("invalid_api_key"),
        ),
        Trouble::NoCredit => (
            402,
            "Insufficient credits. Add more and retry the request.".into(),
            "insufficient_quota",
            Some("insufficient_quota"),
        ),
        Trouble::NoModel(model) => (
            404,
            format!("The model `{model}` does not exist or you do not have access to it."),
            "invalid_request_error",
            Some("model_not_found"),
        ),
        Trouble::NotFound => (404, "Invalid URL".into(), "invalid_request_error", None),
        Trouble::ServerError
        | Trouble::Overflow { .. }
        | Trouble::OutputLimit { .. }
        | Trouble::Malformed(_) => (
            500,
            "The server had an error while processing your request. Sorry about that!".into(),
            "server_error",
            None,
        ),
    };
    Refusal::new(status, openai_error(&message, kind, None, code)).after(trouble)
}

fn finish(stop: Stop) -> &'static str {
    match stop {
        Stop::Done => "stop",
        Stop::Calls => "tool_calls",
        Stop::Length | Stop::Window => "length",
    }
}

fn usage(answer: &Answer) -> Value {
    let usage = &answer.usage;
    json!({
        "prompt_tokens": usage.prompt, "completion_tokens": usage.output,
        "total_tokens": usage.prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": usage.thinking, "audio_tokens": 0},
    })
}
