//! Errors in Ollama's form.

use serde_json::{Value, json};

use crate::failure::ProviderRefusal;

/// The body of an error, whatever its HTTP status.
pub(crate) fn error_body(message: &str) -> Value {
    json!({ "error": message })
}

/// The refusal in an error; `code` is used if the error has none.
pub(super) fn refusal(error: &Value, code: String) -> ProviderRefusal {
    let text = error.as_str().or_else(|| error.get("message").and_then(Value::as_str));
    let message = text.map_or_else(|| error.to_string(), str::to_owned);
    let field = |field| error.get(field).and_then(Value::as_str);
    let inner = field("code").or_else(|| field("type"));
    ProviderRefusal { status: None, code: inner.map_or(code, str::to_owned), message }
}
