//! Errors in a stream of the Responses API.

use serde_json::Value;

use crate::failure::ProviderRefusal;
use crate::json::text;

/// The refusal in a `response.failed` event.
pub(super) fn failure(event: &Value, name: &str) -> ProviderRefusal {
    let error = event.pointer("/response/error").filter(|error| !error.is_null());
    let mut refusal = refusal(error.unwrap_or(&Value::Null));
    if refusal.code.is_empty() {
        name.trim_start_matches("response.").clone_into(&mut refusal.code);
    }
    refusal
}

/// The error object of an `error` event: OpenAI sends it flat, proxies wrap it.
pub(super) fn inner_error(event: &Value) -> &Value {
    event.get("error").filter(|error| error.is_object()).unwrap_or(event)
}

/// The refusal in an error object.
pub(super) fn refusal(error: &Value) -> ProviderRefusal {
    let code = match error.get("code") {
        Some(Value::String(code)) if !code.is_empty() => code.clone(),
        Some(Value::Number(code)) => code.to_string(),
        _ => Some(text(error, "type")).filter(|kind| *kind != "error").unwrap_or_default().into(),
    };
    let message = error.as_str().unwrap_or_else(|| text(error, "message"));
    let message = if message.is_empty() { "the provider gave no reason" } else { message };
    ProviderRefusal { status: None, code, message: message.to_owned() }
}
