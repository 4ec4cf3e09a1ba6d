//! Errors in a stream of Ollama's.

use serde_json::Value;

use crate::failure::ProviderRefusal;

/// Why there is no answer; `code` stands where the error itself names none.
pub(super) fn refusal(error: &Value, code: String) -> ProviderRefusal {
    let said = error.as_str().or_else(|| error.get("message").and_then(Value::as_str));
    let message = said.map_or_else(|| error.to_string(), str::to_owned);
    let word = |field| error.get(field).and_then(Value::as_str);
    let inner = word("code").or_else(|| word("type"));
    ProviderRefusal { status: None, code: inner.map_or(code, str::to_owned), message }
}
