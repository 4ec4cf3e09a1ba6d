//! Settings of the providers of models.

use super::{Allowed, MS, Setting, TOKENS, setting};
use ctxhost_dialects::DialectName;

/// In the order in which people read about them.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "providers.*.dialect",
        "",
        Allowed::Word(DialectName::WORDS),
        "how its requests are written and its answers streamed; the long names are those that sessions hold",
    ),
    setting(
        "providers.*.base_url",
        "",
        Allowed::Url,
        "where its API begins; unset, the address of whoever the dialect belongs to",
    ),
    setting(
        "providers.*.api_key_env",
        "",
        Allowed::Text,
        "the environment variable that holds the key, so that no key stands in a file. Unset without base_url, the usual one: OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY; unset with base_url, none, so that no key goes to a stranger",
    ),
    setting(
        "providers.*.api_key_command",
        "",
        Allowed::List,
        "a program that prints the key, and its arguments; run without a shell, once, and again when the key is refused",
    ),
    setting(
        "providers.*.headers",
        "",
        Allowed::Texts,
        "sent with every request, before those of the dialect; never shown, since keys stand there too",
    ),
    setting(
        "providers.*.proxy",
        "",
        Allowed::Text,
        "http://, https:// or socks5:// and an address, or `none`; unset, the system's, but none for this very machine",
    ),
    setting(
        "providers.*.connect_timeout_ms",
        MS,
        Allowed::Whole(1),
        "a connection that takes longer will not come",
    ),
    setting(
        "providers.*.first_byte_timeout_ms",
        MS,
        Allowed::Whole(1),
        "until an answer begins; a local model reads a long prompt for minutes, and some think before they say a word",
    ),
    setting(
        "providers.*.idle_timeout_ms",
        MS,
        Allowed::Whole(1),
        "without a single byte in the middle of an answer; there is no limit in all, because long answers are no failure",
    ),
    setting(
        "providers.*.retries",
        "retries",
        Allowed::Whole(0),
        "of a request that was throttled, that met an overloaded or failing server, or that reached nobody; never of one whose answer had begun",
    ),
    setting(
        "providers.*.retry_pause_ms",
        MS,
        Allowed::Whole(1),
        "the first pause; each further one is twice as long, and a random part is added",
    ),
    setting(
        "providers.*.retry_pause_max_ms",
        MS,
        Allowed::Whole(1),
        "the longest pause of our own",
    ),
    setting(
        "providers.*.retry_after_max_ms",
        MS,
        Allowed::Whole(0),
        "the longest pause that a provider may ask for; beyond two minutes another model serves better, so the request ends",
    ),
    setting(
        "providers.*.one_hour_cache",
        "",
        Allowed::Flag,
        "anthropic-messages: whether cached prompts live for an hour and not five minutes; writing them costs 2 times the input price then and not 1.25 times",
    ),
    setting(
        "providers.*.context_editing",
        "",
        Allowed::Flag,
        "anthropic-messages: whether the provider clears old tool results by itself beyond 100,000 tokens; off, since the engine does that, and each clearing costs the cache",
    ),
    setting(
        "providers.*.overflow_phrases",
        "",
        Allowed::List,
        "what it writes when a request is too large, beside what ctxhost knows: regular expressions, without regard to case; the answer is a compaction",
    ),
    setting(
        "providers.*.never_overflow_phrases",
        "",
        Allowed::List,
        "what only sounds like that: no compaction follows, whatever else is said",
    ),
    setting(
        "providers.*.compat.max_tokens_field",
        "",
        Allowed::Word(&["by_model", "max_tokens", "max_completion_tokens"]),
        "the field that limits an answer; unset, what is known of the host, else by_model: models that reason refuse max_tokens",
    ),
    setting(
        "providers.*.compat.developer_role",
        "",
        Allowed::Flag,
        "whether the system prompt goes as `developer`; unset, it does not: every server knows `system`",
    ),
    setting(
        "providers.*.compat.store",
        "",
        Allowed::Flag,
        "whether `store: false` is sent; unset, to OpenAI only",
    ),
    setting(
        "providers.*.compat.stream_usage",
        "",
        Allowed::Flag,
        "whether usage is asked for with `stream_options`; unset, of all but Mistral, which sends it unasked",
    ),
    setting(
        "providers.*.compat.reasoning_effort",
        "",
        Allowed::Flag,
        "whether `reasoning_effort` is sent where thinking is asked for; unset, to all but Mistral, which refuses it",
    ),
    setting(
        "providers.*.compat.reasoning_content",
        "",
        Allowed::Flag,
        "whether a model's thinking is sent back to it; unset, to DeepSeek, which refuses calls without it",
    ),
    setting(
        "providers.*.compat.prompt_cache_key",
        "",
        Allowed::Flag,
        "whether a session's key for the prompt cache is sent; unset, to OpenAI only",
    ),
    setting(
        "providers.*.compat.tool_result_name",
        "",
        Allowed::Flag,
        "whether results carry the name of their tool; unset, to Mistral only",
    ),
    setting(
        "providers.*.compat.assistant_after_results",
        "",
        Allowed::Flag,
        "whether a short assistant message is put between results and the next user message; unset, for Mistral only",
    ),
    setting(
        "providers.*.compat.tools_with_history",
        "",
        Allowed::Flag,
        "whether tools are declared, and forbidden, where only the history holds calls; unset, they are not",
    ),
    setting(
        "providers.*.compat.nine_char_ids",
        "",
        Allowed::Flag,
        "whether call ids are nine letters and digits; unset, for Mistral only",
    ),
    setting(
        "summariser.provider",
        "",
        Allowed::Text,
        "a table of [providers] whose model writes summaries; instead of base_url. Without both summaries are made offline, without a model",
    ),
    setting(
        "summariser.base_url",
        "",
        Allowed::Url,
        "where an OpenAI-compatible API begins, up to and including /v1; instead of provider",
    ),
    setting("summariser.model", "", Allowed::Text, "the model's name there; a small one will do"),
    setting(
        "summariser.api_key_env",
        "",
        Allowed::Text,
        "the environment variable that holds the key, so that no key stands in a file; unset for local servers",
    ),
    setting(
        "summariser.timeout_ms",
        MS,
        Allowed::Whole(1),
        "one answer; a minute is long for one chunk, and the extractive summary stands ready",
    ),
    setting(
        "summariser.max_output_tokens",
        TOKENS,
        Allowed::Whole(1),
        "the longest answer; a summary of 16,000 characters with headings fits",
    ),
];
