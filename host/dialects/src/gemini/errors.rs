//! Errors of Gemini's API: those in its streams, and those of the gateway in its form.

use serde_json::{Value, json};

use crate::failure::ProviderRefusal;
use crate::json::text;

/// The refusal in a response: an error, or a blocked prompt.
pub(super) fn refusal(response: &Value) -> Option<ProviderRefusal> {
    if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
        let code = match text(error, "status") {
            "" => error.get("code").map(ToString::to_string).unwrap_or_default(),
            status => status.to_owned(),
        };
        let message = error.as_str().unwrap_or_else(|| text(error, "message")).to_owned();
        return Some(ProviderRefusal { status: None, code, message });
    }
    let feedback = response.get("promptFeedback")?;
    let code = text(feedback, "blockReason");
    let message = match text(feedback, "blockReasonMessage") {
        "" => format!("the prompt was blocked: {code}"),
        message => message.to_owned(),
    };
    Some(ProviderRefusal { status: None, code: code.to_owned(), message })
        .filter(|_| !code.is_empty())
}

/// The body of an error with this HTTP status.
pub(crate) fn error_body(status: u16, message: &str) -> Value {
    let name = match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        502 | 503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        400..=499 => "INVALID_ARGUMENT",
        _ => "INTERNAL",
    };
    json!({ "error": { "code": status, "message": message, "status": name } })
}
