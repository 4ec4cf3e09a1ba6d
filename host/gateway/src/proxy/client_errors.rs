//! Errors that the gateway returns in the client's dialect, in the form that the client's own recovery recognizes.

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use super::endpoint::Endpoint;
use super::messages::{LocalResponse, ShapingReport};
use super::request::ProxyRequest;
use ctxhost_dialects::DialectName;
use ctxhost_dialects::errors::error_body;

const OPENAI_OVERFLOW: &str =
    "Your input exceeds the context window of this model. Please adjust your input and try again.";

/// The size of a request that does not fit.
pub(super) struct OverflowSize {
    /// Estimated tokens of the conversation in it.
    pub(super) conversation_tokens: u64,
    /// All of it, in provider tokens.
    pub(super) tokens: u64,
}

/// Whether a client recognizes an overflow only as an event of the stream.
pub(super) fn wants_event(endpoint: &Endpoint, is_stream: bool, headers: &HeaderMap) -> bool {
    // Codex compacts on a `response.failed` event with the overflow code, and only shows the user an error on status
    // 400. OpenAI's SDKs do the opposite: they raise an error on the status and ignore the event.
    let is_codex = headers.contains_key("x-codex-window-id")
        || headers.contains_key("x-codex-turn-metadata")
        || headers.get("originator").is_some_and(|name| name.as_bytes().starts_with(b"codex"));
    endpoint.dialect == DialectName::OpenAiResponses
        && endpoint.is_generation()
        && is_stream
        && is_codex
}

/// The overflow error, in the words that the dialect's provider uses.
pub(super) fn overflow(request: &ProxyRequest, session: &str, size: OverflowSize) -> LocalResponse {
    let report = ShapingReport {
        tokens: Some(size.conversation_tokens),
        before_tokens: Some(request.conversation.state().known.client_tokens()),
        ..ShapingReport::unshaped("failed", session)
    };
    if request.as_event {
        return failed_event(report);
    }
    let window_tokens = request.window.tokens;
    // Clients parse both numbers and expect the first to exceed the second.
    let tokens = size.tokens.max(window_tokens.saturating_add(1));
    let body = match request.client_request.endpoint.dialect {
        DialectName::AnthropicMessages => anthropic(
            "invalid_request_error",
            &format!("prompt is too long: {tokens} tokens > {window_tokens} maximum"),
        ),
        DialectName::OpenAiCompletions => openai(
            &format!(
                "This model's maximum context length is {window_tokens} tokens. However, your messages resulted in {tokens} tokens. Please reduce the length of the messages."
            ),
            "messages",
            "context_length_exceeded",
        ),
        DialectName::OpenAiResponses => openai(OPENAI_OVERFLOW, "input", "context_length_exceeded"),
        DialectName::GoogleGenerativeAi => google(&format!(
            "The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window_tokens})."
        )),
        // What Ollama answers to `truncate: false`.
        DialectName::Ollama => ollama(&format!(
            "the input length exceeds the context length: {tokens} tokens > {window_tokens}"
        )),
    };
    local_error(body, report)
}

/// The error for an invalid request.
pub(super) fn bad_request(endpoint: &Endpoint, message: &str) -> LocalResponse {
    let body = match endpoint.dialect {
        DialectName::AnthropicMessages => anthropic("invalid_request_error", message),
        DialectName::OpenAiCompletions | DialectName::OpenAiResponses => {
            openai(message, "", "invalid_request")
        }
        DialectName::GoogleGenerativeAi => google(message),
        DialectName::Ollama => ollama(message),
    };
    local_error(body, ShapingReport::unshaped("none", ""))
}

/// An error with status 404.
pub(super) fn not_found(body: &Value) -> LocalResponse {
    let report = ShapingReport::unshaped("none", "");
    LocalResponse { status: StatusCode::NOT_FOUND, ..local_error(body.clone(), report) }
}

/// The error for a failed engine with `plugins.on_engine_error = "fail"`.
pub(super) fn engine_failed(endpoint: &Endpoint, message: &str, session: &str) -> LocalResponse {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    let body = error_body(endpoint.dialect, status.as_u16(), message);
    let report = ShapingReport::unshaped("failed", session);
    LocalResponse { status, ..local_error(body, report) }
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

fn ollama(message: &str) -> Value {
    json!({ "error": message })
}

fn local_error(body: Value, report: ShapingReport) -> LocalResponse {
    LocalResponse {
        status: StatusCode::BAD_REQUEST,
        content_type: "application/json",
        body: Bytes::from(body.to_string()),
        report,
    }
}

fn failed_event(report: ShapingReport) -> LocalResponse {
    let error = json!({ "code": "context_length_exceeded", "message": OPENAI_OVERFLOW });
    let response = json!({
        "id": "resp_ctxhost", "object": "response", "status": "failed", "error": error,
    });
    let event = json!({ "type": "response.failed", "sequence_number": 0, "response": response });
    LocalResponse {
        status: StatusCode::OK,
        content_type: "text/event-stream",
        body: Bytes::from(format!("event: response.failed\ndata: {event}\n\n")),
        report,
    }
}
