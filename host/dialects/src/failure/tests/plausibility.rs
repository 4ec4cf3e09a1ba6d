//! Which refusals are overflows of a request far below the window that the config states.

use serde_json::json;

use super::CLASSIFIER;
use crate::failure::{FailureReason, ProviderError, parse_refusal};

/// A window as a config states it, in provider tokens.
const WINDOW_TOKENS: u64 = 200_000;

/// The size of a refused request by the host's count.
const OWN_TOKENS: u64 = 30_979;

fn refused(body: &str) -> ProviderError {
    let refusal = parse_refusal(Some(400), body);
    CLASSIFIER.classify(&refusal).into_error("p", "m", refusal, None)
}

fn is_overflow(body: &str, own_tokens: u64) -> bool {
    let error = refused(body);
    error.reason == FailureReason::ContextOverflow
        && error.is_plausible_overflow(own_tokens, WINDOW_TOKENS)
}

#[test]
fn clear_words_need_no_numbers() {
    for body in [
        r#"{"message":"Input is too long for requested model."}"#,
        r#"{"message":"The model returned the following errors: Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again."}"#,
        r#"{"type":"error","error":{"type":"bad_request_error","message":"invalid params, context window exceeds limit (2013)","http_code":"400"}}"#,
        r#"{"error":{"message":"litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - too long\nmodel=x. context_window_fallbacks=None","code":"400"}}"#,
        r#"{"error":"input length exceeds maximum context length"}"#,
        r#"{"code":400,"reason":"INVALID_REQUEST_BODY","message":"prompt is too long for model context size"}"#,
        r#"{"error":{"message":"The context length of the request exceeded the limit","type":"invalid_message","code":400}}"#,
        r#"{"detail":{"msg":"Prompt is longer than the max context","type":"invalid"}}"#,
        r#"{"error":{"code":"InvalidParameter","message":"Total tokens of image and text exceed max message tokens. Request id: 02"}}"#,
        r#"{"error":{"message":"Please reduce the length of the messages or completion."}}"#,
        r#"{"error":{"code":"1261","message":"Prompt 超长"}}"#,
    ] {
        assert!(is_overflow(body, OWN_TOKENS), "{body}");
    }
}

#[test]
fn two_numbers_are_evidence_in_any_order_of_words() {
    for text in [
        "Maximum context length exceeded: requested 30979 tokens, limit 16384",
        "The sum of prompt length (30979.0), query length (0) should not exceed max_num_tokens (16384)",
        "Prompt contains 30979 tokens, which exceeds the 16384 token limit",
        "The sum of prompt length (30979.0) and query length (0) exceeds max_num_tokens (16384)",
        "you requested 30979 tokens, more than the maximum of 16,384",
        "Input length 30979 exceeds maximum allowed token size 16384",
        "the number of input tokens 30979 cannot exceed the total tokens limit 16384 for this model",
        "This model's maximum context length is 16384, got 30979 tokens",
        "Prompt too long: 30979 tokens exceeds maximum of 16384",
        "context length of 30979 tokens exceeds model's limit of 16384",
        "E005: Input of 30979 tokens exceeds context window of 16384 tokens",
        "length of prompt_tokens (30979) must be less than max_seq_len (16384).",
    ] {
        let error = refused(text);
        let sizes = (error.observed_tokens, error.limit_tokens);
        assert_eq!(sizes, (Some(30_979), Some(16_384)), "{text}");
        assert!(error.has_overflow_evidence() && is_overflow(text, 1), "{text}");
    }
}

#[test]
fn a_prompt_and_a_maximum_are_evidence_among_other_numbers() {
    for (text, size) in [
        (
            "Requested generation length 1000 is not possible! The provided prompt is 32677 tokens long, so generating 1000 tokens requires a sequence length of 33677, but the maximum supported sequence length is just 30000!",
            33_677,
        ),
        (
            "Your input has 32677 tokens. With 512 reserved, the maximum total length is 30000.",
            32_677,
        ),
        (
            "The prompt is 32677 tokens (cached: 20480, new: 12197); the maximum context size of this model is 30000",
            32_677,
        ),
    ] {
        let error = refused(&json!({ "error": { "message": text } }).to_string());
        let sizes = (error.observed_tokens, error.prompt_tokens, error.limit_tokens);
        assert_eq!(sizes, (Some(size), Some(32_677), Some(30_000)), "{text}");
        assert!(is_overflow(text, 1), "{text}");
    }
}

#[test]
fn a_prompt_beside_the_limit_of_another_thing_is_no_overflow() {
    for text in [
        "The prompt is 9000 tokens long. The maximum number of tools is 128.",
        "Your input has 9000 tokens and 300 images; the maximum number of images is 250.",
        "The prompt is 9000 tokens long; the maximum supported sequence length is 32768. Field `n` is invalid.",
        "The conversation has 9000 tokens. Tool name 'x' has 140 characters, the limit is 128 characters.",
    ] {
        assert_ne!(refused(text).reason, FailureReason::ContextOverflow, "{text}");
    }
}

#[test]
fn other_numbers_beside_a_size_are_not_its_limit() {
    for text in [
        "you requested 9000 tokens (8200 in the messages, 800 in the completion)",
        "you requested 9000 tokens with max_tokens 4096",
        "the prompt contains 9000 tokens and exceeds the window by 512 tokens",
        "model llama-3.1-405b: you requested 9000 tokens, which exceeds gpt-4 limits",
        "you requested 9000 tokens; the limit is 200000",
    ] {
        assert!(
            refused(text)
                .observed_tokens
                .zip(refused(text).limit_tokens)
                .is_none_or(|(o, l)| o <= l),
            "{text}"
        );
    }
}

#[test]
fn other_refusals_of_small_requests_are_no_overflows() {
    for body in [
        // Too small for any server.
        r#"{"error":{"message":"Your prompt is too long."}}"#,
        // A quotation of the request.
        r#"{"error":{"message":"Unknown parameter: 'foo'. Request quoted: 'maximum context length is exceeded'"}}"#,
        r#"{"error":{"message":"invalid metadata: \"the prompt is too long\""}}"#,
    ] {
        assert!(!is_overflow(body, 4_000), "{body}");
    }
    for body in [
        r#"{"error":{"message":"Unknown parameter: 'foo'. Request quoted: 'maximum context length is exceeded'"}}"#,
        r#"{"error":{"message":"invalid metadata: \"the prompt is too long\""}}"#,
        // Hints.
        r#"{"error":{"message":"the prompt exceeds what is possible"}}"#,
        r#"{"error":{"message":"the request has a context that is too large"}}"#,
        // A limit far above the request.
        r#"{"error":{"message":"This model's maximum context length is 200000 tokens"}}"#,
        // Limits of other things.
        r#"{"error":{"message":"Image too large: exceeds 5 MB maximum","type":"invalid_request_error"}}"#,
        r#"{"error":{"message":"The input image exceeds the limit of 20 megapixels"}}"#,
        r#"{"error":{"message":"Invalid 'messages': array too long. Expected an array with maximum length 2048, but got an array with length 2050 instead."}}"#,
        r#"{"error":{"message":"stop sequences too long: maximum 4"}}"#,
        r#"{"error":{"message":"max_tokens is too large: 500. This model supports at most 256 completion tokens, whereas you provided 500."}}"#,
    ] {
        assert!(!is_overflow(body, OWN_TOKENS), "{body}");
    }
}
