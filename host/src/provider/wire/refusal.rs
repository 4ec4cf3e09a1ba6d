//! What a provider said when it refused, found in whatever it wrapped it in.

use serde_json::Value;

use super::failing::excerpt;
use crate::provider::failure::{Reason, Refusal};

/// Errors stand in errors, as JSON in strings, at most so deep.
const DEPTH_MAX: usize = 8;

/// Reads the body of an answer that is none, or a frame that holds an error.
pub(in crate::provider) fn of_body(status: Option<u16>, body: &str) -> Refusal {
    let mut refusal = Refusal { status, ..Refusal::default() };
    let value = serde_json::from_str::<Value>(body).ok();
    if !value.is_some_and(|value| read(&value, &mut refusal, 0)) {
        refusal.message = excerpt(body);
    }
    refusal
}

/// What a refusal means: the reason, the observed size of the request and the limit, in tokens.
pub(super) fn meaning(_provider: &str, refusal: &Refusal) -> (Reason, Option<u64>, Option<u64>) {
    let reason = match (refusal.code.as_str(), refusal.status) {
        ("context_length_exceeded", _) | (_, Some(413)) => Reason::ContextOverflow,
        ("overloaded_error", _) | (_, Some(503 | 529)) => Reason::Overloaded,
        ("rate_limit_error" | "rate_limit_exceeded", _) | (_, Some(429)) => Reason::RateLimit,
        (_, Some(401)) => Reason::Auth,
        (_, Some(402)) => Reason::Billing,
        (_, Some(403)) => Reason::AuthPermanent,
        (_, Some(404)) => Reason::ModelNotFound,
        (_, Some(408 | 504)) => Reason::Timeout,
        (_, Some(400 | 422)) => Reason::Format,
        (_, Some(500..=599)) => Reason::ServerError,
        _ => Reason::Unclassified,
    };
    (reason, None, None)
}

/// Follows an error inwards; what stands further in is more exact.
fn read(value: &Value, refusal: &mut Refusal, depth: usize) -> bool {
    if depth > DEPTH_MAX {
        return false;
    }
    match value {
        Value::Array(items) => items.first().is_some_and(|it| read(it, refusal, depth + 1)),
        Value::String(text) => {
            let inner = serde_json::from_str::<Value>(text).ok().filter(|it| !it.is_string());
            if !inner.is_some_and(|inner| read(&inner, refusal, depth + 1)) {
                refusal.message.clone_from(text);
            }
            true
        }
        Value::Object(_) => match value.get("error").filter(|error| !error.is_null()) {
            Some(error) => read(error, refusal, depth + 1),
            None => read_fields(value, refusal, depth),
        },
        _ => false,
    }
}

fn read_fields(error: &Value, refusal: &mut Refusal, depth: usize) -> bool {
    let code = ["code", "type", "status"].into_iter().filter_map(|name| word(error.get(name)?));
    // Gemini repeats the status as its code, and says in words below what it is.
    let is_status =
        |code: &String| refusal.status.is_some_and(|status| *code == status.to_string());
    if let Some(code) = code.into_iter().find(|code| !is_status(code)) {
        refusal.code = code;
    }
    let inner = error.get("metadata").and_then(|it| it.get("raw")).or_else(|| error.get("detail"));
    let told = ["message", "msg"].into_iter().filter_map(|name| error.get(name));
    let mut found = false;
    for text in told.chain(inner) {
        found |= read(text, refusal, depth + 1);
    }
    found || !refusal.code.is_empty()
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, code: &str, message: &str) {
        let refusal = of_body(Some(400), body);
        assert_eq!((refusal.code.as_str(), refusal.message.as_str()), (code, message), "{body}");
    }

    #[test]
    fn every_wrapping_is_taken_off() {
        let openai = r#"{"error":{"message":"too long","type":"invalid_request_error","code":"context_length_exceeded"}}"#;
        check(openai, "context_length_exceeded", "too long");
        let anthropic =
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"too long"}}"#;
        check(anthropic, "invalid_request_error", "too long");
        let gemini = r#"[{"error":{"code":400,"message":"too long","status":"INVALID_ARGUMENT"}}]"#;
        check(gemini, "INVALID_ARGUMENT", "too long");
        check(r#"{"error":"too long"}"#, "", "too long");
        check(r#"{"object":"error","message":"too long","code":40303}"#, "40303", "too long");
        let nested =
            r#"{"error":{"message":"{\"error\":{\"message\":\"too long\",\"code\":\"1261\"}}"}}"#;
        check(nested, "1261", "too long");
        let router = r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"message\":\"too long\"}"}}}"#;
        check(router, "", "too long");
        check("<html>  Bad\n Gateway", "", "<html> Bad Gateway");
        check("", "", "");
    }
}
