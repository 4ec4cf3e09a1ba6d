//! A full text for every overflow phrase, and texts that only resemble one.

use proptest::prelude::*;

use super::super::{ExtraPhrase, FailureReason, ProviderRefusal, phrases};
use super::{CLASSIFIER, check, classified};
use crate::failure::Classifier;

/// One text or more for each row of the facts, by provider.
const OVERFLOWS: &[&str] = &[
    // Anthropic, Bedrock, Vertex.
    "prompt is too long: 207774 tokens > 200000 maximum",
    "Request exceeds the maximum size",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "ValidationException: Input is too long for requested model.",
    "The model returned the following errors: too many input tokens",
    "Your prompt is above the max input token count of this model",
    "Input exceeds the maximum number of input tokens for this model",
    "ValidationException: The model returned the following errors: prompt is too long: 300 tokens",
    // OpenAI and Azure.
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens. Please reduce the length of the messages.",
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (1000 in the messages, 8000 in the completion).",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Input tokens exceed the configured limit of 272000 tokens.",
    // vLLM: the sum is too large, and a shorter answer helps.
    "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 8192 tokens and your request has 500 input tokens",
    // LiteLLM and other proxies.
    "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - too big",
    "Context Window exceeded for given call",
    "The request exceeds the model's maximum context length of 32768 tokens",
    "Input length (40000) exceeds model's maximum context length (32768).",
    "This exceeds the model's maximum context limit",
    // Gemini and Vertex.
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "Unable to submit request because the input token count is 1200000 but model only supports up to 1048576.",
    "INVALID_ARGUMENT: the maximum number of tokens is passed",
    "Input token count exceeds the maximum number of input tokens",
    // xAI, Groq, OpenRouter, Poolside.
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Please reduce the length of the messages or completion.",
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 150000 tokens (140000 of text input, 10000 in the output).",
    "Input length 140000 exceeds the maximum allowed input length of 131072 tokens.",
    // Together, TGI.
    "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
    // Mistral, Cerebras, Copilot.
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
    "Current length is 9000 while limit is 8192",
    "prompt token count of 131000 exceeds the limit of 128000",
    // MiniMax, Kimi, DS4, DashScope, z.ai.
    "invalid params, context window exceeds limit",
    "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
    "Prompt has 9000 tokens, but the configured context size is 8192 tokens",
    "Range of input length should be [1, 30720]",
    "the requested input length 40000 exceeds the model's maximum",
    "Prompt too long",
    "Prompt exceeds max length",
    "tokens in request more than max tokens allowed",
    // Ollama, llama.cpp, LM Studio, vLLM.
    "prompt too long; exceeded max context length by 4 tokens",
    "exceeded context length by 4 tokens",
    "ollama error: context length exceeded",
    "truncating input prompt",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "the prompt is larger than the slot context",
    "input is larger than n_ctx_slot = 4096",
    "Context size has been exceeded.",
    "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length",
    "the sequence exceeds the max_model_len",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "prompt length 5000 exceeds what this server takes",
    // Generic, and OpenClaw's own lists.
    "context_length_exceeded",
    "400 context_length_exceeded",
    "context length exceeded",
    "context window exceeded",
    "too many tokens",
    "token limit exceeded",
    "maximum context reached",
    "exceeds model context window",
    "context limit exceeded",
    "input too long for the model",
    "input is too long for this model",
    "model token limit",
    "The model's context window ran out of room",
    "request size exceeds the model context window",
    "Context overflow: prompt too large for the model (precheck).",
    "you exceed context limit",
    "max_tokens and the prompt exceed the context",
    "413 Request Entity Too Large",
    "context_window_exceeded",
    "model_context_window_exceeded",
    "request_too_large",
    "input length 5000 tokens exceeds the model limit",
    "total tokens of the request exceed the model's limit",
    "prompt (9000 tokens) exceeds the available context size",
    "The context length of the request exceeded the limit",
    "Prompt is longer than the max context",
    // Hints.
    "the prompt exceeds max tokens",
    "trying to keep the first 5000 tokens when context the overflows",
    "the context window has fewer tokens than you sent",
    "the prompt is way over what is possible",
    "the request has a context that is too large",
    "the input has a length that is too long",
    // Chinese.
    "上下文过长",
    "请求失败:上下文超出限制",
    "上下文长度超过限制",
    "超出最大上下文",
    "请压缩上下文后重试",
    "错误:上下文长度不合法",
    "输入超过最大长度",
    "Prompt 超长",
];

/// Texts of other reasons.
const OTHERS: &[(&str, FailureReason)] = &[
    (
        "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 4096, but got 8192 instead.",
        FailureReason::OutputLimit,
    ),
    // Throttling speaks of tokens too.
    ("Too many tokens, please wait before trying again.", FailureReason::RateLimit),
    (
        "Throttling error: Too many tokens, please wait before trying again.",
        FailureReason::RateLimit,
    ),
    (
        "Rate limit reached on tokens per minute (TPM): Limit 8000, Used 7000, Requested 1098",
        FailureReason::RateLimit,
    ),
    ("Number of input tokens has exceeded your rate_limit of 30,000", FailureReason::RateLimit),
    ("input tokens per minute exceed the limit", FailureReason::RateLimit),
    ("429 the prompt is too long", FailureReason::RateLimit),
    ("Too many requests: context window", FailureReason::RateLimit),
    ("Please retry in 36.07s.", FailureReason::RateLimit),
    ("prompt is too long, try again in 20s", FailureReason::RateLimit),
    ("maximum context tokens, retry after 3 s", FailureReason::RateLimit),
    ("RESOURCE_EXHAUSTED: input token count exceeds the maximum", FailureReason::RateLimit),
    ("Quota exceeded for input tokens", FailureReason::RateLimit),
    ("tokens per day exceed the limit of 200000", FailureReason::RateLimit),
    ("您的账户已达到速率限制,上下文过长", FailureReason::RateLimit),
    ("请求过于频繁,请稍后再试", FailureReason::RateLimit),
    ("Service unavailable: too many tokens", FailureReason::Overloaded),
    ("Extra usage is required for long context requests.", FailureReason::Billing),
    ("Your credit balance is too low; the prompt exceeds max tokens", FailureReason::Billing),
    ("余额不足,输入过长", FailureReason::Billing),
    // One's own configuration.
    (
        "Model context window too small (4096 tokens; source=model). Minimum is 16000.",
        FailureReason::WindowTooSmall,
    ),
    ("Context window of this entry: minimum is 16000 tokens", FailureReason::WindowTooSmall),
    ("error loading prompt template: context exceeded limit", FailureReason::Format),
    ("Reasoning is mandatory for this endpoint, prompt exceeds", FailureReason::Format),
    ("string_above_max_length: prompt too long", FailureReason::Format),
    ("Invalid 'user': string too long. Expected at most 64 characters", FailureReason::Format),
    ("the minimum token count to start caching is 1024, context too large", FailureReason::Format),
    (
        "Provider returned an empty response; the context window may be exceeded",
        FailureReason::EmptyResponse,
    ),
    ("prompt too long or a very low max_tokens", FailureReason::EmptyResponse),
    // Output caps.
    (
        "max_tokens: 65536 > 64000, which is the maximum allowed number of output tokens for this model",
        FailureReason::OutputLimit,
    ),
    (
        "max_tokens is too large: 5000. This model supports at most 4096 completion tokens.",
        FailureReason::OutputLimit,
    ),
    ("Range of max_tokens should be [1, 8192]", FailureReason::OutputLimit),
    (
        "Unable to submit request because it has a maxOutputTokens value of 99999 but the supported range is from 1 to 8193",
        FailureReason::OutputLimit,
    ),
    // The history.
    (
        "messages.3: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
        FailureReason::MalformedHistory,
    ),
    ("each `tool_use` must have a single result", FailureReason::MalformedHistory),
    ("multiple `tool_result` blocks with id toolu_1", FailureReason::MalformedHistory),
    (
        "unexpected `tool_use_id` found in `tool_result` blocks: toolu_1",
        FailureReason::MalformedHistory,
    ),
    (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
        FailureReason::MalformedHistory,
    ),
    ("Failed to parse tool call arguments as JSON", FailureReason::MalformedHistory),
    (
        "Please ensure that the number of function response parts is equal to the number of function call parts",
        FailureReason::MalformedHistory,
    ),
    ("No tool output found for function call call_1.", FailureReason::MalformedHistory),
    (
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        FailureReason::MalformedHistory,
    ),
    (
        "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
        FailureReason::MalformedHistory,
    ),
    ("messages.1: Invalid `signature` in `thinking` block", FailureReason::MalformedHistory),
    (
        "thinking blocks must remain as they were in the original response",
        FailureReason::MalformedHistory,
    ),
    (
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
        FailureReason::MalformedHistory,
    ),
    // The rest.
    ("Incorrect API key provided: sk-...", FailureReason::Auth),
    ("API key 无效", FailureReason::Auth),
    (
        "You exceeded your current quota, please check your plan and billing details.",
        FailureReason::Billing,
    ),
    ("Your organization has been disabled.", FailureReason::AuthPermanent),
    (
        "The model `gpt-9` does not exist or you do not have access to it.",
        FailureReason::ModelNotFound,
    ),
    ("模型不存在,请检查模型代码", FailureReason::ModelNotFound),
    ("Overloaded", FailureReason::Overloaded),
    ("该模型当前访问量过大,请您稍后再试", FailureReason::Overloaded),
    ("self signed certificate in certificate chain", FailureReason::TlsCertificate),
    ("connect ECONNREFUSED 127.0.0.1:11434", FailureReason::Connection),
    ("Request timed out.", FailureReason::Timeout),
    ("请求超时", FailureReason::Timeout),
    ("The server had an error while processing your request", FailureReason::ServerError),
    ("Previous response with id 'resp_1' not found.", FailureReason::SessionExpired),
    ("something else", FailureReason::Unclassified),
];

#[test]
fn every_overflow_is_one_with_and_without_a_fitting_status() {
    for text in OVERFLOWS {
        for status in [None, Some(400), Some(413), Some(422)] {
            check(status, text, FailureReason::ContextOverflow);
        }
    }
}

#[test]
fn no_overflow_under_another_status() {
    let statuses = [401, 402, 404, 408, 410, 429, 504, 529].into_iter().map(Some);
    for (status, text) in statuses.flat_map(|status| OVERFLOWS.iter().map(move |t| (status, t))) {
        let reason = classified(status, "", text).reason;
        assert_ne!(reason, FailureReason::ContextOverflow, "{status:?} {text}");
    }
}

#[test]
fn what_only_sounds_like_an_overflow_is_what_it_is() {
    for (text, reason) in OTHERS {
        check(None, text, *reason);
    }
}

#[test]
fn codes_win_over_texts_but_not_over_429() {
    for code in phrases::OVERFLOW_CODES {
        assert_eq!(classified(Some(400), code, "whatever").reason, FailureReason::ContextOverflow);
        assert_eq!(classified(None, code, "").reason, FailureReason::ContextOverflow);
        assert_eq!(classified(Some(429), code, "whatever").reason, FailureReason::RateLimit);
        // llama.cpp has sent its code with 500.
        assert_eq!(classified(Some(500), code, "whatever").reason, FailureReason::ContextOverflow);
        assert_eq!(classified(Some(504), code, "whatever").reason, FailureReason::Timeout);
    }
    let by_code = [
        ("rate_limit_exceeded", FailureReason::RateLimit),
        ("RESOURCE_EXHAUSTED", FailureReason::RateLimit),
        ("ThrottlingException", FailureReason::RateLimit),
        ("insufficient_quota", FailureReason::Billing),
        ("overloaded_error", FailureReason::Overloaded),
        ("authentication_error", FailureReason::Auth),
        ("permission_error", FailureReason::AuthPermanent),
        ("not_found_error", FailureReason::ModelNotFound),
        ("DEADLINE_EXCEEDED", FailureReason::Timeout),
        ("api_error", FailureReason::ServerError),
        ("previous_response_not_found", FailureReason::SessionExpired),
    ];
    for (code, reason) in by_code {
        assert_eq!(classified(None, code, "it did not work").reason, reason, "{code}");
    }
}

#[test]
fn statuses_speak_where_texts_do_not() {
    let by_status = [
        (400, FailureReason::Format),
        (401, FailureReason::Auth),
        (402, FailureReason::Billing),
        (403, FailureReason::AuthPermanent),
        (404, FailureReason::ModelNotFound),
        (408, FailureReason::Timeout),
        (410, FailureReason::SessionExpired),
        (413, FailureReason::ContextOverflow),
        (422, FailureReason::Format),
        (429, FailureReason::RateLimit),
        (500, FailureReason::ServerError),
        (503, FailureReason::Overloaded),
        (504, FailureReason::Timeout),
        (526, FailureReason::TlsCertificate),
        (529, FailureReason::Overloaded),
    ];
    for (status, reason) in by_status {
        check(Some(status), "", reason);
    }
    check(Some(413), "failed to parse request", FailureReason::ContextOverflow);
    check(None, "413 (status code) (no body)", FailureReason::ContextOverflow);
}

#[test]
fn a_400_without_a_body_is_an_overflow_at_cerebras_only() {
    for message in ["", "400 (status code) (no body)", "400 status code (no body)"] {
        let refusal =
            ProviderRefusal { status: Some(400), code: String::new(), message: message.to_owned() };
        let of = |provider| CLASSIFIER.classify_for(provider, &refusal).reason;
        assert_eq!(of("cerebras"), FailureReason::ContextOverflow, "{message}");
        assert_eq!(of("openai"), FailureReason::Format, "{message}");
    }
    let other = ProviderRefusal {
        status: Some(400),
        message: "bad tool".into(),
        ..ProviderRefusal::default()
    };
    assert_eq!(CLASSIFIER.classify_for("cerebras", &other).reason, FailureReason::Format);
}

#[test]
fn phrases_of_the_config_apply_and_invalid_ones_are_named() {
    let extra = |pattern: &str, reason| ExtraPhrase { pattern: pattern.to_owned(), reason };
    let own = Classifier::with_extra_phrases(&[
        extra("the scroll is full", FailureReason::ContextOverflow),
        extra("come back at dawn", FailureReason::Overloaded),
    ])
    .unwrap();
    let of = |status, message: &str| {
        own.classify(&ProviderRefusal { status, code: String::new(), message: message.to_owned() })
            .reason
    };
    assert_eq!(of(Some(500), "The Scroll is full"), FailureReason::ContextOverflow);
    assert_eq!(of(Some(429), "The Scroll is full"), FailureReason::RateLimit);
    assert_eq!(of(None, "the scroll is full, come back at dawn"), FailureReason::Overloaded);
    let bad = Classifier::with_extra_phrases(&[extra("full (", FailureReason::ContextOverflow)])
        .unwrap_err();
    assert!(bad.to_string().starts_with("`full (` is not a regular expression"), "{bad}");
    let read: ExtraPhrase = toml::from_str("pattern = 'x'\nreason = 'context_overflow'").unwrap();
    assert_eq!(read.reason, FailureReason::ContextOverflow);
    assert!(toml::from_str::<ExtraPhrase>("pattern = 'x'\nreason = 'no_such'").is_err());
}

/// Otherwise a broader row would hide a row with a mistake.
#[test]
fn every_row_of_the_tables_matches_a_text_here() {
    let others = OTHERS.iter().map(|(text, _)| *text);
    let bodies = super::corpus::messages();
    let bodies = bodies.iter().map(String::as_str);
    let texts: Vec<&str> =
        OVERFLOWS.iter().copied().chain(others).chain(MORE.to_vec()).chain(bodies).collect();
    let tables = [
        phrases::VETOES,
        phrases::OUTPUT_CAPS,
        phrases::MALFORMED,
        phrases::OVERFLOWS,
        phrases::LOOSE_OVERFLOWS,
        phrases::HINTS,
        phrases::PHRASES,
        phrases::FALLBACK_PHRASES,
    ];
    let rows = tables.into_iter().flatten().flat_map(|(_, rows)| rows.iter());
    let silent: Vec<_> = rows
        .filter(|row| {
            let pattern = super::super::patterns::compile_pattern(row).unwrap();
            !texts.iter().any(|text| pattern.is_match(text))
        })
        .collect();
    assert!(silent.is_empty(), "rows that no text matches: {silent:#?}");
}

/// Texts for rows that the tables above do not reach.
const MORE: &[&str] = &[
    "status code: 429",
    "已超出配额",
    "code context_overflow",
    "Payment required",
    "You are out of credits",
    "insufficient_quota",
    "Insufficient balance",
    "max_tokens must be less than 8192",
    "messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
    "Please ensure that function call turn comes immediately after a user turn",
    "Invalid signature in the thinking block",
    "Conversation roles must alternate user/assistant",
    "The input exceeds what is allowed: maximum number of tokens",
    "We ran out of room in the model's context window",
    "API key not valid. Please pass a valid API key.",
    "authentication failed",
    "Unauthorized",
    "invalid bearer token",
    "Permission denied on resource",
    "Country, region, or territory not supported",
    "没有权限",
    "No endpoints found for this model",
    "The engine is temporarily unavailable",
    "系统繁忙",
    "Session has expired",
];

/// A text for each veto.
const VETOED: &[&str] = &[
    "extra usage",
    "insufficient_quota",
    "rate limit",
    "rate_limit",
    "too many requests",
    "per minute",
    "tokens per minute",
    "TPM",
    "throttled",
    "try again in",
    "retry after",
    "RESOURCE_EXHAUSTED",
    "too many tokens, please wait",
    "429",
    "status code: 429",
    "速率限制",
    "billing",
    "credit balance",
    "payment required",
    "余额不足",
    "quota",
    "配额",
    "string_above_max_length",
    "prompt template",
    "reasoning required",
    "context window too small",
    "empty response",
    "very low max_tokens",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_text_with_a_veto_is_an_overflow(
        veto in proptest::sample::select(VETOED),
        overflow in proptest::sample::select(OVERFLOWS),
        code in proptest::sample::select(phrases::OVERFLOW_CODES),
        with_code: bool,
        is_first: bool,
        status in proptest::option::of(400_u16..600),
    ) {
        // "429" alone is a veto at the beginning only: elsewhere it may count something.
        let is_first = is_first || veto == "429";
        let text =
            if is_first { format!("{veto} - {overflow}") } else { format!("{overflow} - {veto}") };
        let code = if with_code { code } else { "" };
        let reason = classified(status, code, &text).reason;
        prop_assert_ne!(reason, FailureReason::ContextOverflow, "{:?} {}", status, text);
    }

    #[test]
    fn whatever_comes_is_classified(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        status in proptest::option::of(any::<u16>()),
        code in ".{0,20}",
    ) {
        let text = String::from_utf8_lossy(&bytes);
        classified(status, &code, &text);
        CLASSIFIER.classify(&super::super::parse_refusal(status, &text));
    }
}
