//! Errors of Anthropic's API: those in its streams, and those of the gateway in its form.

use serde_json::{Value, json};

use crate::failure::ProviderRefusal;
use crate::json::string;

/// The refusal in an error event.
pub(super) fn refusal(event: &Value) -> ProviderRefusal {
    let error = event.get("error").unwrap_or(event);
    let message = match error {
        Value::String(message) => message.clone(),
        _ => string(error, "message"),
    };
    ProviderRefusal { status: None, code: string(error, "type"), message }
}

/// The body of an error with this HTTP status.
pub(crate) fn error_body(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}
