//! The texts of refusals as data: case-insensitive regular expressions.
//!
//! The first matching row of a table decides. `classifier.rs` defines the order of the tables.
//! `.{0,80}` allows a short gap.

use super::reason::FailureReason::{self, *};

/// Patterns of one reason.
pub(super) type PhraseRows = (FailureReason, &'static [&'static str]);

/// Texts that rule out an overflow, whatever else the message says. They are not searched in codes
/// and types: `invalid_request_error` would match in every refusal.
pub(super) const VETOES: &[PhraseRows] = &[
    // Billing errors with the status of rate limits: Anthropic's long-context tier, OpenAI's quota,
    // OpenRouter's balance, Z.ai's packages.
    (
        Billing,
        &[
            "extra usage",
            "insufficient[ _]quota",
            "can only afford",
            r"openrouter\.ai/settings/(?:credits|keys)",
            "no resource package",
            "credit limit exceeded",
            "(?:insufficient|overdue).{0,20}(?:funds|invoice)",
        ],
    ),
    (
        RateLimit,
        &[
            "rate[ _-]?limit",
            "too many requests",
            "per[ -](?:second|minute|min|hour|day)",
            r"(?-u:\b)(?:tpm|rpm|tpd|rpd)(?-u:\b)",
            "throttl",
            "try again in",
            "retry[ -]after",
            "retry in",
            "resource (?:has been )?exhausted|resource[_ ]?exhausted",
            "rate increased too quickly",
            "tokens? (?:count )?(?:per|/) ?min",
            "usage limit",
            // Bedrock uses words of an overflow for throttling.
            "too many tokens,? please wait",
            r"^[^a-z0-9]*(?:error:? )?429(?-u:\b)",
            "status(?: code)?:? ?429",
            "速率限制|频率限制|流控|访问量.{0,8}(?:限制|超限)|请求过于频繁|请求过多|限流|并发(?:数)?(?:过高|超过|超限)|每分钟",
        ],
    ),
    (Overloaded, &[r"^[^a-z0-9]*service unavailable:", "访问量过大"]),
    (
        Billing,
        &[
            "billing",
            "credit balance",
            "insufficient (?:funds|balance|credits?)",
            "payment required",
            "out of credits?",
            "余额不足|欠费|请充值",
        ],
    ),
    (RateLimit, &["quota", "配额|额度"]),
    (
        Format,
        &[
            "string_above_max_length",
            // Length limits of single fields: names, ids, descriptions, lists.
            "(?:string|array) too long",
            r"must be .{0,40}with a length of [0-9]",
            "expected max_?length",
            "string value length",
            // Limits of images, in pixels and bytes.
            r"image.{0,60}(?:dimension|pixel|[0-9] ?mb|bytes|may be provided)",
            // The answer reached its limit and needs a higher one.
            "higher max_tokens",
            "greater than .?thinking",
            "minimum token count to start caching",
            "prompt template",
            "reasoning (?:is )?(?:mandatory|required)",
        ],
    ),
    // Messages of ctxhost and similar hosts about their own configuration.
    (
        WindowTooSmall,
        &["context window.{0,80}(?:too small|minimum is)", "window (?:is )?too small"],
    ),
    // Taken for an overflow, this advice has sent agents into endless compactions.
    (EmptyResponse, &["empty response", "very low max_tokens"]),
];

/// The requested answer exceeds the model's limit. Such a text must not mention the context as well
/// ([`CONTEXT_WORDS`], [`PROMPT_PLUS_OUTPUT`]).
pub(super) const OUTPUT_CAPS: &[PhraseRows] = &[(
    OutputLimit,
    &[
        // The field and the problem with its value, which may follow in parentheses.
        r"max_?(?:completion_?|output_?|new_?)?tokens\W{0,4}(?:value )?(?:of )?(?:\(?[0-9,]+\)?)? ?(?:is |are )?(?:too (?:large|high|big)|above|cannot exceed|can ?not exceed|exceeds?|> ?[0-9])",
        r"max_?(?:completion_?|output_?|new_?)?tokens\W{0,4}[0-9]+ ?>",
        r"max_?(?:completion_?|output_?|new_?)?tokens\W{0,4}(?:or .{0,30})?is too large",
        r"max_?(?:completion_?|output_?|new_?)?tokens\W{0,4}integer above maximum value",
        r"max[ _]?(?:completion_?|output_?|new_?)?tokens\W{0,4}(?:must|should) be (?:<|less|at most|between|in |within)",
        r"(?:valid |supported )?range (?:of|for) max_?(?:completion_?|output_?|new_?)?tokens",
        "max_?output_?tokens.{0,80}supported range",
        "maximum allowed number of output tokens|maximum output (?:length|tokens)",
        "at most [0-9,]+ (?:completion|output) tokens",
        "maximum tokens you requested exceeds?",
    ],
)];

/// Words that make a text about `max_tokens` one about the window. Field names have underscores and
/// do not match.
pub(super) const CONTEXT_WORDS: &str = "context (?:length|window|size|limit)";

/// Prompt and answer as one sum.
pub(super) const PROMPT_PLUS_OUTPUT: &str = r"(?:input|prompt|message).{0,40}(?:\+|(?-u:\b)and(?-u:\b)|(?-u:\b)plus(?-u:\b)).{0,30}max(?:imum output |_(?:new_|completion_|output_)?)tokens";

/// The history violates the dialect's rules: repair helps, compaction does not.
pub(super) const MALFORMED: &[PhraseRows] = &[(
    MalformedHistory,
    &[
        r"tool_use.{0,40}without.{0,40}tool_result",
        r"each .?tool_use.? (?:block )?must have a single result",
        r"multiple .?tool_result.? blocks with id",
        r"unexpected .?tool_use_id",
        "must be followed by tool messages",
        r"messages with role .?tool.? must be a response to a preceding",
        r"failed to parse tool.?call arguments as json",
        "number of function response parts",
        "function (?:call|response) turn",
        "no tool (?:output|call) found for function call",
        "without its required following item",
        r"thinking.{0,160}(?:signature|cannot be modified|must remain as they were)",
        r"signature.{0,80}thinking",
        r"expected .?thinking.? or .?redacted_thinking",
        "roles must alternate",
    ],
)];

/// Codes, types and stop reasons of an overflow.
pub(super) const OVERFLOW_CODES: &[&str] = &[
    "context_length_exceeded",
    "context_window_exceeded",
    "ContextWindowExceededError",
    "model_context_window_exceeded",
    "request_too_large",
    "context_overflow",
    // llama.cpp.
    "exceed_context_size_error",
    // z.ai: "too long", and "wrong parameter", which it also sends for a prompt that is too long.
    "1261",
    "1210",
];

/// Those of them that are codes for any wrong parameter, and prove nothing alone.
pub(super) const VAGUE_OVERFLOW_CODES: &[&str] = &["1210"];

/// Statuses with which a text may mean overflow. Local servers and proxies also send 500, 502 and
/// 503, Together documents 403, MiniMax sends 200.
pub(super) const OVERFLOW_STATUSES: &[u16] = &[200, 400, 403, 413, 422, 500, 502, 503];

/// Statuses with which a hint may mean overflow.
pub(super) const HINT_STATUSES: &[u16] = &[200, 400, 413, 422];

/// Providers whose 400 without a body means overflow. Others send such responses for any reason.
pub(super) const BODYLESS_OVERFLOW_PROVIDERS: &[&str] = &["cerebras"];

/// The text of SDKs for a response without a body.
pub(super) const BODYLESS: &str = r"^\s*(?:[0-9]{3} )?(?:\(?status code\)? )?(?:\(no body\))?\s*$";

/// Texts of an overflow.
pub(super) const OVERFLOWS: &[PhraseRows] = &[(
    ContextOverflow,
    &[
        // Codes inside a text.
        "context_length_exceeded|contextwindowexceeded|context_window_exceeded|request_too_large",
        "context_overflow|exceed_context_size_error",
        // Anthropic, also at Vertex and Bedrock.
        "prompt (?:is )?too long",
        "request exceeds the maximum (?:size|allowed number of bytes)",
        "input length and .?max_tokens.? exceed context limit",
        "exceed context limit",
        "max_tokens.{0,80}exceed.{0,80}context",
        // Byte limits of gRPC and of proxies.
        "sent message larger than max|payload size exceeds the limit",
        // Together and others that count input and answer together.
        "must be less than the (?:model'?s )?context length",
        // vLLM, if the input alone exceeds the window: the remaining answer is negative.
        "max_tokens must be at least 1, got -[0-9]",
        // Bedrock, Gemini, llama.cpp.
        "input is too long for",
        "input tokens exceeded",
        "number of input tokens exceeds? (?:the )?max",
        "context is too long|is too large to process",
        "too many input tokens",
        "max input token",
        "exceeds? the maximum number of (?:input )?tokens",
        // OpenAI and compatible APIs: xAI, OpenRouter, DeepSeek, vLLM.
        "maximum context",
        "context length exceeded",
        "exceeded (?:max )?context length",
        "exceeds? the context window",
        "context length of the (?:request|prompt|input) exceed",
        "longer than the max(?:imum)? context",
        "reduce the length of the (?:messages|prompt|input)",
        "maximum prompt length is",
        r"max_model_len|maximum model length",
        r"prompt length.{0,40}(?:exceed|longer|greater|larger)",
        // Azure.
        "input tokens exceed the configured limit",
        // LiteLLM and other proxies.
        "context window exceeded",
        r"exceeds? (?:the )?(?:model(?:'s)? )?(?:maximum )?context (?:length|limit)",
        "exceeds? model context window",
        "input length.{0,80}exceed.{0,80}(?:context|model limit)",
        "input length [0-9,]+ tokens exceeds the model limit",
        "context limit exceeded",
        // Gemini and Vertex.
        "invalid_argument.{0,160}maximum number of tokens",
        r"input exceeds.{0,80}maximum number of tokens",
        r"input token count.{0,80}exceeds? the maximum",
        r"input token count is.{0,80}only supports up to",
        // OpenRouter's Poolside.
        "maximum allowed input length",
        // Together and TGI.
        r"longer than the model'?s context length",
        r"inputs.? tokens \+ .?max_new_tokens.? must be",
        // Mistral.
        "too large for model with.{0,40}maximum context length",
        // Cerebras.
        r"current length is [0-9,]+.{0,40}while limit is",
        // MiniMax.
        "context window exceeds limit",
        // Kimi and Moonshot.
        "exceeded model token limit|model token limit",
        // DS4.
        "configured context size is",
        // Qwen and DashScope.
        "range of input length should be",
        "requested input length.{0,80}exceeds?.{0,80}maximum",
        // z.ai.
        r"prompt exceeds max(?:imum)? length",
        "tokens in request more than max tokens allowed",
        // Ollama.
        "exceeded (?:max )?context length by",
        "truncating input",
        // llama.cpp and Lemonade.
        r"exceeds the available context size",
        "context size has been exceeded",
        "slot context|n_ctx_slot",
        // LM Studio.
        "greater than the context length",
        // Several providers.
        "context window.{0,80}ran out of (?:room|space)",
        "ran out of (?:room|space).{0,80}context window",
        "request size exceeds.{0,80}context window",
        "context overflow:",
        r"(?-u:\b)413(?-u:\b).{0,80}too large",
        r"total tokens.{0,80}exceeds? (?:the )?(?:model'?s )?(?:max|limit)",
        "input (?:is )?too long",
        "too many tokens",
        "token limit exceeded",
        // Chinese.
        "上下文过长|上下文超出|上下文长度|上下文超限|超出最大上下文|超过最大上下文|请压缩上下文|超过最大长度",
        r"prompt\s*超长|输入(?:内容)?(?:过长|超长)",
    ],
)];

/// Texts of an overflow that other limits of a request resemble, such as that of an image. The host acts on them as on
/// [`HINTS`].
pub(super) const LOOSE_OVERFLOWS: &[PhraseRows] = &[(
    ContextOverflow,
    &[
        // GitHub Copilot; its 413 "failed to parse request" is an overflow by its status.
        r"(?:token|prompt|context|input).{0,60}exceeds the limit of [0-9]",
    ],
)];

/// Quotations of more than one word. A quoted name of a field is a part of the provider's sentence.
pub(super) const QUOTATIONS: &str =
    r#"(?:^|[\s(:,])(?:'[^']*\s[^']*'|"[^"]*\s[^"]*"|`[^`]*\s[^`]*`)"#;

/// Texts that hint at an overflow within one sentence, checked after all specific tables. The host
/// acts on them only if its own count makes an overflow plausible.
pub(super) const HINTS: &[PhraseRows] = &[(
    ContextOverflow,
    &[
        "context.{0,80}overflow",
        "context window.{0,80}(?:requested|sent|tokens)",
        r"(?:prompt|input|context|conversation|messages?|history|request|sequence|tokens?).{0,80}(?:too (?:large|long|big|many)|exceed|(?:longer|larger|greater|more|more tokens) than|way over|(?-u:\b)over the|above the (?:limit|max)).{0,80}(?:token|context|window|length|limit|max)",
        "(?:input|prompt) (?:token|length|size).{0,40}above the (?:limit|max)",
        "(?:length|size|number).{0,30}(?:messages|prompt|input|conversation).{0,30}(?:too (?:long|large|many)|exceed)",
        r"(?:prompt|input|messages?|request).{0,40}(?:token|context|length|size).{0,40}(?:too (?:large|long|big|many)|exceed|way over)",
        "(?:prompt|conversation|history).{0,60}(?:too (?:large|long|big)|exceed|way over)",
        r"(?:prompt|inputs?|messages?|tokens?)(?-u:\b).{0,60}must (?:be|have) (?:less|fewer|smaller|shorter|at most|no more|<)",
        r"(?:token|context)s? (?:limit|length).{0,40}exceed|max(?:imum)? tokens.{0,40}exceed",
        r"^\W*(?:token|context) limit\W*$",
        // Chinese.
        "(?:token|输入|上下文|对话|消息|提示词).{0,20}(?:超|过长|太长)|超.{0,12}(?:token|上下文)",
    ],
)];

/// Words that mark two numbers as token size and limit; one of each list is required.
pub(super) const TOKEN_WORDS: &str = "token|context|prompt|n_ctx|max_seq_len";
pub(super) const LIMIT_WORDS: &str =
    "max|limit|exceed|capacity|allowed|window|context|longer|greater|larger";

/// Words that rule out a hint: fields with limits of their own.
pub(super) const HINT_EXCLUSIONS: &str = r"min_tokens|budget_tokens|top_n_tokens|stop_token|logprob|temperature|truncate|`?stop`? s|schema|placeholder|cache_control|rate";

/// Type names and phrases that some servers put into every message; removed before hints are
/// searched.
pub(super) const BOILERPLATE: &str =
    r"(?-u:\b)[a-z]+(?:_[a-z]+)*_error(?-u:\b)|(?:input|request) validation (?:error|failed)";

/// Ends of sentences, but not the point in a number.
pub(super) const SENTENCE_END: &str = r"[.!?;]\s|[。；！？\n]";

/// One request above the tokens per minute. Neither waiting nor a retry helps.
pub(super) const CEILING: &str = r"(?:tokens per min|(?-u:\b)tpm(?-u:\b)).{0,40}limit:? (?<limit>N),? (?:used:? N,? )?requested:? (?<whole>N)";

/// Codes that say more than their message: Gemini words every per-minute limit as one of the plan, and texts such as
/// "quota exceeded" are of rate limits without such a code.
pub(super) const PRIORITY_CODES: &[PhraseRows] = &[
    (RateLimit, &["RESOURCE_EXHAUSTED"]),
    (
        Billing,
        &["billing_error", "insufficient_credits", "insufficient_quota", "CreditLimitExceeded"],
    ),
];

/// Codes and types that rule out an overflow.
pub(super) const VETO_CODES: &[PhraseRows] = &[(
    RateLimit,
    &[
        "rate_limit_exceeded",
        "rate_limit_error",
        "rate_limit_reached_error",
        "too_many_requests",
        "ThrottlingException",
        "TooManyRequestsException",
        "REQUEST_LIMIT_EXCEEDED",
    ],
)];

/// Codes and types of other reasons.
pub(super) const CODES: &[PhraseRows] = &[
    (Auth, &["authentication_error", "invalid_api_key", "UNAUTHENTICATED", "token_expired"]),
    (
        AuthPermanent,
        &["permission_error", "PERMISSION_DENIED", "AccessDeniedException", "account_deactivated"],
    ),
    (ModelNotFound, &["model_not_found", "not_found_error", "NOT_FOUND", "model_not_available"]),
    (
        Overloaded,
        &["overloaded_error", "server_overloaded", "UNAVAILABLE", "ServiceUnavailableException"],
    ),
    (Timeout, &["timeout_error", "DEADLINE_EXCEEDED", "ModelTimeoutException"]),
    (SessionExpired, &["previous_response_not_found"]),
    (
        ServerError,
        &["api_error", "server_error", "internal_error", "internal_server_error", "INTERNAL"],
    ),
];

/// Texts that say more than the status.
pub(super) const PHRASES: &[PhraseRows] = &[
    (
        Auth,
        &[
            r"(?:incorrect|invalid|missing|wrong|expired|no) (?:x-)?api[ _-]?key",
            r"api[ _-]?key (?:is )?(?:not valid|not found|invalid|missing|expired)",
            "authentication (?:failed|fails|error|required)",
            "unauthori[sz]ed",
            r"(?:invalid|expired) (?:bearer|access|auth[a-z]*) token",
            r"鉴权失败|身份验证失败|认证失败|api ?key ?(?:无效|错误|不正确|已过期)|密钥(?:无效|错误)",
        ],
    ),
    (
        AuthPermanent,
        &[
            "permission denied|access denied",
            "(?:organi[sz]ation|account).{0,60}(?:disabled|suspended|deactivated)",
            "country, region,? or territory",
            "无权访问|没有权限",
        ],
    ),
    (
        ModelNotFound,
        &[
            r"model.{0,80}(?:not found|does not exist|decommissioned|has been (?:retired|shut down))",
            "no such model|unknown model|try pulling it first|no endpoints found",
            "模型不存在",
        ],
    ),
    (
        Overloaded,
        &[
            "overloaded|(?:at|over) capacity|server is busy|high (?:demand|load)",
            "temporarily unavailable",
            "服务繁忙|系统繁忙|负载过高|稍后(?:再试|重试)",
        ],
    ),
    (SessionExpired, &["previous response.{0,80}not found", "session (?:has expired|not found)"]),
];

/// Texts of limits of the bytes of a request: Anthropic, gRPC, proxies. They say nothing about tokens.
pub(super) const BYTE_LIMITS: &str = "request exceeds the maximum (?:size|allowed number of bytes)|sent message larger than max|\
    payload size exceeds|(?:entity|payload|content|body) (?:is )?too large|request_too_large";

/// Unambiguous statuses.
pub(super) const CLEAR_STATUSES: &[(u16, FailureReason)] = &[
    (401, Auth),
    (402, Billing),
    (403, AuthPermanent),
    (404, ModelNotFound),
    (408, Timeout),
    (410, SessionExpired),
    (413, ContextOverflow),
    (429, RateLimit),
    (503, Overloaded),
    (504, Timeout),
    // Cloudflare: timeout of the server behind it, or its invalid certificate.
    (524, Timeout),
    (526, TlsCertificate),
    // Anthropic.
    (529, Overloaded),
];

/// Texts that decide if neither code nor status does.
pub(super) const FALLBACK_PHRASES: &[PhraseRows] = &[
    (TlsCertificate, &["certificate"]),
    (Connection, &["connection (?:refused|reset|error)|econnrefused|enotfound|dns error"]),
    (Timeout, &["time[ds]?[ -]?out|deadline exceeded|etimedout|超时"]),
    (ServerError, &["internal (?:server )?error|server had an error|内部错误|服务器错误"]),
];
