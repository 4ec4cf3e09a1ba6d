//! Sizes and limits in refusals.

use super::classified;
use crate::failure::{Classifier, FailureReason, ProviderRefusal, parse_refusal};

fn check(text: &str, observed_tokens: Option<u64>, limit_tokens: Option<u64>) {
    let found = classified(None, "", text);
    assert_eq!(
        (found.observed_tokens, found.limit_tokens),
        (observed_tokens, limit_tokens),
        "{text}"
    );
}

#[test]
fn counts_and_limits_are_read() {
    let both: &[(&str, u64, u64)] = &[
        ("prompt is too long: 207774 tokens > 200000 maximum", 207_774, 200_000),
        ("prompt is too long: 207774, model maximum context length: 200000", 207_774, 200_000),
        (
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            210_000,
            200_000,
        ),
        (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
            130_001,
            128_000,
        ),
        (
            "This endpoint's maximum context length is 131,072 tokens. However, you requested about 150,000 tokens (140,000 of text input, 10,000 in the output).",
            150_000,
            131_072,
        ),
        (
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
            537_812,
            131_072,
        ),
        ("Input length (40000) exceeds model's maximum context length (32768).", 40_000, 32_768),
        (
            "Input length 140000 exceeds the maximum allowed input length of 131072 tokens.",
            140_000,
            131_072,
        ),
        (
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            1_196_265,
            1_048_575,
        ),
        (
            "the input token count is 1200000 but model only supports up to 1048576.",
            1_200_000,
            1_048_576,
        ),
        (
            "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
            40_000,
            32_768,
        ),
        (
            "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
            4_512,
            4_096,
        ),
        (
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
            40_000,
            32_768,
        ),
        ("Current length is 9000 while limit is 8192", 9_000, 8_192),
        ("prompt token count of 131000 exceeds the limit of 128000", 131_000, 128_000),
        ("Your request exceeded model token limit: 131072 (requested: 140000)", 140_000, 131_072),
        ("Prompt has 9000 tokens, but the configured context size is 8192 tokens", 9_000, 8_192),
        (
            "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
            9_000,
            8_192,
        ),
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            5_000,
            4_096,
        ),
    ];
    for (text, observed_tokens, limit_tokens) in both {
        check(text, Some(*observed_tokens), Some(*limit_tokens));
    }
    check("Input tokens exceed the configured limit of 272000 tokens.", None, Some(272_000));
    check("Range of input length should be [1, 30720]", None, Some(30_720));
    check("you requested 9000 tokens", Some(9_000), None);
    check("input length 5000 tokens exceeds the model limit", Some(5_000), None);
    check("上下文过长", None, None);
    check("prompt is too long: 99999999999999999999999 tokens > 5 maximum", None, Some(5));
}

#[test]
fn an_output_limit_is_not_a_request_size() {
    let found = classified(Some(400), "", "max_tokens: 65536 > 64000, which is the maximum");
    assert_eq!(found.reason, FailureReason::OutputLimit);
    assert_eq!((found.observed_tokens, found.limit_tokens), (None, Some(64_000)));
}

#[test]
fn one_request_above_the_tokens_of_a_minute_is_a_ceiling() {
    let text = |requested: u64| {
        format!("Request too large on tokens per minute (TPM): Limit 8000, Requested {requested}")
    };
    assert!(classified(Some(413), "", &text(8_098)).is_ceiling);
    assert!(!classified(Some(429), "", &text(500)).is_ceiling);
    let overflow = classified(Some(400), "", "prompt is too long: 9 tokens > 8 maximum");
    assert!(!overflow.is_ceiling);
}

#[test]
fn a_limit_of_bytes_says_nothing_about_tokens() {
    let bytes = [
        (413, "request_too_large", "Request exceeds the maximum size"),
        (413, "", "<html><head><title>413 Request Entity Too Large</title></head></html>"),
        (400, "", "Request payload size exceeds the limit: 20971520 bytes."),
        (413, "", ""),
    ];
    for (status, code, message) in bytes {
        let found = classified(Some(status), code, message);
        assert_eq!(found.reason, FailureReason::ContextOverflow, "{message}");
        assert!(found.is_byte_limit, "{message}");
    }
    for message in ["prompt is too long: 9 tokens > 8 maximum", "Your prompt is too long."] {
        assert!(!classified(Some(413), "", message).is_byte_limit, "{message}");
    }
}

#[test]
fn what_shows_that_a_request_is_too_large() {
    let shows = |status, code: &str, message: &str| {
        let refusal =
            ProviderRefusal { status: Some(status), code: code.into(), message: message.into() };
        let classified = Classifier::for_phrases(&[]).unwrap().classify(&refusal);
        classified.into_error("p", "m", refusal, None)
    };
    let ollama = "prompt too long; exceeded max context length by 6652 tokens";
    assert!(shows(400, "", ollama).has_overflow_evidence());
    assert!(shows(400, "context_length_exceeded", "Too long.").has_overflow_evidence());
    assert!(
        shows(400, "", "prompt is too long: 210000 tokens > 200000 maximum")
            .has_overflow_evidence()
    );
    let bare = shows(400, "", "Your prompt is too long.");
    assert!(!bare.has_overflow_evidence());
    assert!(!bare.is_plausible_overflow(4_000, 64_000));
    assert!(bare.is_plausible_overflow(40_000, 64_000) && bare.is_plausible_overflow(4_000, 0));
    // Of every wrong parameter.
    assert!(!shows(400, "1210", "Invalid parameter").has_overflow_evidence());
}

#[test]
fn gemini_s_per_minute_limits_are_rate_limits() {
    let words = "You exceeded your current quota, please check your plan and billing details.";
    let message = format!("{words} Please retry in 36.074s.");
    let reason = |code: &str, message: &str| {
        let refusal =
            ProviderRefusal { status: Some(429), code: code.into(), message: message.into() };
        Classifier::for_phrases(&[]).unwrap().classify(&refusal).reason
    };
    assert_eq!(reason("RESOURCE_EXHAUSTED", words), FailureReason::RateLimit);
    assert_eq!(reason("", &message), FailureReason::RateLimit);
    assert_eq!(reason("insufficient_quota", words), FailureReason::Billing);
}

#[test]
fn a_code_of_billing_counts_with_any_status_and_message() {
    for code in ["insufficient_quota", "billing_error", "insufficient_credits"] {
        for message in ["quota exceeded", "Rate limit reached, try again in 20s", ""] {
            let body = format!(r#"{{"error":{{"message":"{message}","type":"{code}"}}}}"#);
            for status in [None, Some(400), Some(429)] {
                let refusal = parse_refusal(status, &body);
                let reason = Classifier::for_phrases(&[]).unwrap().classify(&refusal).reason;
                assert_eq!(reason, FailureReason::Billing, "{status:?} {body}");
            }
        }
    }
}
