//! Error bodies of providers and proxies.

use crate::failure::{FailureReason, ProviderRefusal, parse_refusal};

use super::CLASSIFIER;

fn check(body: &str, status: Option<u16>, code: &str, message: &str) {
    let expected = ProviderRefusal { status, code: code.to_owned(), message: message.to_owned() };
    assert_eq!(parse_refusal(None, body), expected, "{body}");
}

#[test]
fn each_dialect_is_dug_out() {
    check(
        r#"{"error":{"message":"too much","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#,
        None,
        "context_length_exceeded",
        "too much",
    );
    check(
        r#"{"error":{"message":"no","type":"invalid_request_error","param":null,"code":null}}"#,
        None,
        "invalid_request_error",
        "no",
    );
    check(
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}"#,
        None,
        "overloaded_error",
        "Overloaded",
    );
    check(
        r#"{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"context_length_exceeded","message":"Your input exceeds the context window"}}}"#,
        None,
        "context_length_exceeded",
        "Your input exceeds the context window",
    );
    check(
        r#"{"type":"error","code":"server_error","message":"sorry","param":null}"#,
        None,
        "server_error",
        "sorry",
    );
    // Gemini: an array while it streams.
    check(
        r#"[{"error":{"code":400,"message":"The input token count exceeds","status":"INVALID_ARGUMENT","details":[{"@type":"x"}]}}]"#,
        Some(400),
        "INVALID_ARGUMENT",
        "The input token count exceeds",
    );
    // Ollama.
    check(r#"{"error":"model 'x' not found"}"#, None, "", "model 'x' not found");
    // llama.cpp.
    check(
        r#"{"error":{"code":400,"message":"too big","type":"exceed_context_size_error","n_ctx":4096}}"#,
        Some(400),
        "exceed_context_size_error",
        "too big",
    );
}

#[test]
fn providers_of_their_own_kind_are_dug_out() {
    check(
        r#"{"error":{"code":"1261","message":"Prompt too long"}}"#,
        None,
        "1261",
        "Prompt too long",
    );
    check(
        r#"{"base_resp":{"status_code":2013,"status_msg":"invalid params, context window exceeds limit"}}"#,
        None,
        "2013",
        "invalid params, context window exceeds limit",
    );
    check(
        r#"{"code":"InvalidParameter","message":"Range of input length should be [1, 30720]","request_id":"1"}"#,
        None,
        "InvalidParameter",
        "Range of input length should be [1, 30720]",
    );
    check(r#"{"__type":"ValidationException","message":"no"}"#, None, "ValidationException", "no");
    check(
        r#"{"detail":[{"loc":["body"],"msg":"field required","type":"missing"}]}"#,
        None,
        "missing",
        "field required",
    );
    check(r#"{"error":["Error in x: wrong"]}"#, None, "", "Error in x: wrong");
}

#[test]
fn json_in_strings_is_opened() {
    let inner = r#"{"error":{"message":"prompt is too long: 9 tokens > 8 maximum","type":"invalid_request_error"}}"#;
    let in_message = serde_json::json!({ "error": { "code": 400, "message": format!("Upstream said: {inner}") } });
    let in_raw = serde_json::json!({ "error": {
        "message": "Provider returned error", "code": 400,
        "metadata": { "raw": inner, "provider_name": "X" },
    } });
    for body in [in_message.to_string(), in_raw.to_string(), format!("400 {inner}")] {
        let refusal = parse_refusal(Some(400), &body);
        assert_eq!(refusal.message, "prompt is too long: 9 tokens > 8 maximum", "{body}");
        assert_eq!(refusal.code, "invalid_request_error", "{body}");
        assert_eq!(CLASSIFIER.classify(&refusal).reason, FailureReason::ContextOverflow);
    }
}

#[test]
fn eight_wrappings_are_opened_and_a_thousand_do_no_harm() {
    let wrapped = |times: usize| {
        let mut body = r#"{"message":"deep"}"#.to_owned();
        for _ in 0..times {
            body = serde_json::json!({ "error": body }).to_string();
            if body.len() > 100_000 {
                break;
            }
        }
        parse_refusal(None, &body).message
    };
    assert_eq!(wrapped(3), "deep");
    assert!(wrapped(12).contains("deep"));
    let nested = format!("{}1{}", "[".repeat(1_000), "]".repeat(1_000));
    assert_eq!(parse_refusal(None, &nested).code, "");
}

#[test]
fn pages_texts_and_nothing_are_readable() {
    let page =
        "<!DOCTYPE html><html><head><title>502 Bad\n Gateway</title></head><body>x</body></html>";
    check(page, None, "", "502 Bad Gateway");
    check("<html><body><h1 class=\"x\">Blocked</h1></body></html>", None, "", "Blocked");
    check("<html><p>just <b>words</b></p></html>", None, "", "just words");
    check("upstream connect error", None, "", "upstream connect error");
    check("", None, "", "");
    check("{}", None, "", "{}");
    check(r#"{"oops":1}"#, None, "", r#"{"oops":1}"#);
    assert_eq!(parse_refusal(Some(502), "").status, Some(502));
}

#[test]
fn a_status_in_a_stream_is_seen_and_the_wires_own_goes_before() {
    let body = r#"{"error":{"code":429,"message":"context window","status":"RESOURCE_EXHAUSTED"}}"#;
    assert_eq!(parse_refusal(None, body).status, Some(429));
    assert_eq!(parse_refusal(Some(400), body).status, Some(400));
    assert_eq!(CLASSIFIER.classify(&parse_refusal(None, body)).reason, FailureReason::RateLimit);
}

#[test]
fn a_message_that_repeats_the_request_is_cut() {
    let body = serde_json::json!({ "error": { "message": "长".repeat(10_000) } }).to_string();
    assert_eq!(parse_refusal(None, &body).message.chars().count(), 4_000);
}
