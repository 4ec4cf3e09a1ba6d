//! What a client is told that cannot be helped, in the form that its own recovery knows.

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::{Endpoint, LocalResponse, ShapingReport};
use ctxhost_dialects::errors::error_body;

/// What does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestOverflow {
    /// What the request takes, in provider tokens.
    pub(super) tokens: u64,
    /// What it may take.
    pub(super) window_tokens: u64,
    /// Whether the client waits for an event: see [`wants_event`].
    pub(super) as_event: bool,
}

/// Whether a client takes an overflow for one only where it comes as an event of the stream.
///
/// Codex compacts on `response.failed` with the code of an overflow; of a status 400 it only tells the
/// person. The SDKs of OpenAI raise their error on the status alone.
pub(super) fn wants_event(door: &Endpoint, is_stream: bool, headers: &HeaderMap) -> bool {
    let is_codex = headers.contains_key("x-codex-window-id")
        || headers.contains_key("x-codex-turn-metadata")
        || headers.get("originator").is_some_and(|it| it.as_bytes().starts_with(b"codex"));
    *door == Endpoint::Responses && is_stream && is_codex
}

/// The overflow as the provider of the dialect words it (facts: other agents 3, "Overflow").
pub(super) fn overflow(
    door: &Endpoint,
    it: RequestOverflow,
    truth: ShapingReport,
) -> LocalResponse {
    let RequestOverflow { tokens, window_tokens, as_event } = it;
    // A client that reads the numbers expects the first to be the larger one.
    let tokens = tokens.max(window_tokens.saturating_add(1));
    if as_event {
        return failed_event(truth);
    }
    let body = match door {
        Endpoint::Messages | Endpoint::CountTokens => anthropic(
            "invalid_request_error",
            &format!("prompt is too long: {tokens} tokens > {window_tokens} maximum"),
        ),
        Endpoint::ChatCompletions => openai(
            &format!(
                "This model's maximum context length is {window_tokens} tokens. However, your messages resulted in {tokens} tokens. Please reduce the length of the messages."
            ),
            "messages",
            "context_length_exceeded",
        ),
        Endpoint::Responses | Endpoint::ResponsesCompact => {
            openai(OPENAI_OVERFLOW, "input", "context_length_exceeded")
        }
        Endpoint::Generate { .. } | Endpoint::GenerateCountTokens { .. } => google(&format!(
            "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window_tokens})."
        )),
    };
    answer(body, truth)
}

const OPENAI_OVERFLOW: &str =
    "Your input exceeds the context window of this model. Please adjust your input and try again.";

/// A request that is refused for what is wrong with it.
pub(super) fn bad_request(door: &Endpoint, message: &str, truth: ShapingReport) -> LocalResponse {
    let body = match door {
        Endpoint::Messages | Endpoint::CountTokens => anthropic("invalid_request_error", message),
        Endpoint::ChatCompletions | Endpoint::Responses | Endpoint::ResponsesCompact => {
            openai(message, "", "invalid_request")
        }
        Endpoint::Generate { .. } | Endpoint::GenerateCountTokens { .. } => google(message),
    };
    answer(body, truth)
}

/// A request that ends because its engine failed and the config wants it so.
pub(super) fn engine_failed(door: &Endpoint, message: &str, truth: ShapingReport) -> LocalResponse {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    let body = error_body(door.dialect(), status.as_u16(), message);
    LocalResponse { status, ..answer(body, truth) }
}

fn anthropic(kind: &str, message: &str) -> Value {
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}

fn openai(message: &str, param: &str, code: &str) -> Value {
    let param = if param.is_empty() { Value::Null } else { param.into() };
    json!({ "error": {
        "message": message, "type": "invalid_request_error", "param": param, "code": code,
    } })
}

fn google(message: &str) -> Value {
    json!({ "error": { "code": 400, "message": message, "status": "INVALID_ARGUMENT" } })
}

fn answer(body: Value, truth: ShapingReport) -> LocalResponse {
    LocalResponse {
        status: StatusCode::BAD_REQUEST,
        content_type: "application/json",
        body: Bytes::from(body.to_string()),
        report: truth,
    }
}

fn failed_event(truth: ShapingReport) -> LocalResponse {
    let error = json!({ "code": "context_length_exceeded", "message": OPENAI_OVERFLOW });
    let response = json!({
        "id": "resp_ctxhost", "object": "response", "status": "failed", "error": error,
    });
    let event = json!({ "type": "response.failed", "sequence_number": 0, "response": response });
    LocalResponse {
        status: StatusCode::OK,
        content_type: "text/event-stream",
        body: Bytes::from(format!("event: response.failed\ndata: {event}\n\n")),
        report: truth,
    }
}
