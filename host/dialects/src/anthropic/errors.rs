//! Errors of Anthropic's API: those of a stream, and ours as its clients read them.

use serde_json::Value;

use crate::failure::Refusal;

/// Why a stream gives no answer.
pub(super) fn refusal(event: &Value) -> Refusal {
    let error = event.get("error").unwrap_or(event);
    let field = |name| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let message = match error {
        Value::String(message) => message.clone(),
        _ => field("message"),
    };
    Refusal { status: None, code: field("type"), message }
}
