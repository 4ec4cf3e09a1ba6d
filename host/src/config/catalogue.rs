//! Every setting there is: its name, its unit, what it may be, and why its default is what it is.
//!
//! Defaults themselves stand beside the types they belong to; a test holds both against each other,
//! against `docs/configuration.md` and against `examples/ctxhost.toml`.

use super::places::Written;
use crate::provider::DialectName;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its dotted path. `*` stands for a name of the user's: an engine, a model.
    pub key: &'static str,
    /// The unit of a number; empty where there is none.
    pub unit: &'static str,
    /// What it may be.
    pub allowed: Allowed,
    /// What it does, and why its default is what it is.
    pub reason: &'static str,
}

/// What a setting may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowed {
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Text that is not blank.
    Text,
    /// An address.
    Url,
    /// A SHA-256 in hex.
    Digest,
    /// A list of texts.
    List,
    /// A list of rules of a gate.
    Rules,
    /// A whole number of at least this.
    Whole(u64),
    /// A number between these two, both included.
    Number(f64, f64),
    /// A table of texts under names of the user's.
    Texts,
    /// A table that is not ours to read.
    Foreign,
    /// The id of an engine; anything else is no mistake and counts as not written.
    Slot,
}

impl Allowed {
    /// Whether a value may stand here.
    pub(super) fn admits(self, value: &Written) -> bool {
        match (self, value) {
            (Allowed::Slot, _) => true,
            (Allowed::Foreign | Allowed::Texts, Written::Table) => true,
            (Allowed::Flag, Written::Flag(_)) => true,
            (Allowed::Word(words), Written::Text(text)) => words.contains(&text.as_str()),
            (Allowed::Text, Written::Text(text)) => !text.trim().is_empty(),
            (Allowed::Url, Written::Text(text)) => {
                text.starts_with("http://") || text.starts_with("https://")
            }
            (Allowed::Digest, Written::Text(text)) => {
                text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
            }
            (Allowed::List | Allowed::Rules, Written::List { only_text }) => *only_text,
            (Allowed::Whole(least), Written::Whole(Some(number))) => {
                u64::try_from(*number).is_ok_and(|number| number >= least)
            }
            (Allowed::Number(least, most), Written::Number(number)) => {
                (least..=most).contains(number)
            }
            (Allowed::Number(least, most), Written::Whole(Some(number))) => {
                (least..=most).contains(&(*number as f64))
            }
            _ => false,
        }
    }

    /// What is expected, to follow "must be".
    pub(super) fn expectation(self, unit: &str) -> String {
        match self {
            Allowed::Flag => "true or false".into(),
            Allowed::Word(words) => format!("one of {}", quoted(words)),
            Allowed::Text => "text that is not blank".into(),
            Allowed::Url => "an address that begins with http:// or https://".into(),
            Allowed::Digest => "a SHA-256 of 64 hex digits, as `sha256sum` prints it".into(),
            Allowed::List => "a list of texts, such as [\"mask\"]".into(),
            Allowed::Rules => "a list of rules, such as [\"paths >= 0.95\"]".into(),
            Allowed::Whole(least) if unit.is_empty() => {
                format!("a whole number of at least {least}")
            }
            Allowed::Whole(least) => format!("a whole number of {unit}, at least {least}"),
            Allowed::Number(least, most) => format!("a number from {least} to {most}"),
            Allowed::Texts => "a table of texts, such as { NAME = \"value\" }".into(),
            Allowed::Foreign => "a table".into(),
            Allowed::Slot => "the id of an engine, or `none`".into(),
        }
    }
}

/// `"append"` or `"rewrite"`, in the way of a sentence.
pub(super) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

const TOKENS: &str = "provider tokens";
const MS: &str = "ms";
const SHARE: &str = "share";

/// Every setting there is, in the order in which people read about them.
pub const SETTINGS: &[Setting] = &[
    setting(
        "plugins.enabled",
        "",
        Allowed::Flag,
        "false sends every request through `legacy`, quietly: one switch to rule engines out as a cause",
    ),
    setting(
        "plugins.allow",
        "",
        Allowed::List,
        "engines welcome beside the slot's own; empty welcomes all. Never disables the slot: naming an engine there is permission enough",
    ),
    setting(
        "plugins.deny",
        "",
        Allowed::List,
        "engines that are never used; a slot that names one ends at `legacy`",
    ),
    setting(
        "plugins.on_engine_error",
        "",
        Allowed::Word(&["fallback", "fail"]),
        "fallback lets `legacy` shape the request and says so everywhere; fail ends the request. An agent that goes on is worth more than a strict one, so fallback",
    ),
    setting(
        "plugins.engine_dirs",
        "",
        Allowed::List,
        "folders in which installed engines are looked for, relative to this file; none, because loading an engine is running code",
    ),
    setting(
        "plugins.slots.context_engine",
        "",
        Allowed::Slot,
        "who shapes requests. `legacy` holds the four layers; what is blank, no text or \"none\" ends there too",
    ),
    setting(
        "plugins.slots.memory",
        "",
        Allowed::Slot,
        "who remembers across sessions: `notes` keeps dated notes for each working folder; \"none\", because nobody should remember unasked",
    ),
    setting(
        "plugins.entries.*.enabled",
        "",
        Allowed::Flag,
        "false rules this one engine out and keeps its settings",
    ),
    setting(
        "plugins.entries.*.path",
        "",
        Allowed::Text,
        "its library, relative to this file; bundled engines have none. Loading it is running its code",
    ),
    setting(
        "plugins.entries.*.sha256",
        "",
        Allowed::Digest,
        "the digest its library must have, checked on the very bytes that are loaded; unset, any library at that path is taken",
    ),
    setting(
        "plugins.entries.*.isolation",
        "",
        Allowed::Word(&["inline", "lane"]),
        "lane runs it on a thread of its own, so that one that hangs does not stop the host; inline saves the hop and is for bundled engines only",
    ),
    setting(
        "plugins.entries.*.config",
        "",
        Allowed::Foreign,
        "the engine's own settings, handed over unread",
    ),
    setting(
        "budget.reserve_tokens",
        TOKENS,
        Allowed::Whole(1),
        "held free for the answer. 20,000 lets a long answer with a tool call end, and is the least that counts",
    ),
    setting(
        "budget.reserve_max_share",
        SHARE,
        Allowed::Number(0.01, 0.9),
        "the most of the window that the reserve may take; a quarter keeps small windows usable",
    ),
    setting(
        "budget.safety_margin",
        "factor",
        Allowed::Number(1.0, 4.0),
        "estimates are multiplied by this before they meet a window; mixed text is misjudged by up to a fifth",
    ),
    setting(
        "budget.overhead_tokens",
        TOKENS,
        Allowed::Whole(0),
        "system prompt and tools of a replayed session, which recordings do not hold; 0, because a number nobody measured would be invented",
    ),
    setting(
        "law.progress_margin",
        SHARE,
        Allowed::Number(0.0, 0.9),
        "a compaction counts only when it ends this much below its target; 5 % keeps the next request from asking again",
    ),
    setting(
        "law.breaker_failures",
        "failures in a row",
        Allowed::Whole(1),
        "opens the breaker; the third failure of the same kind is no accident",
    ),
    setting(
        "law.breaker_cooldown_ms",
        MS,
        Allowed::Whole(0),
        "how long an open breaker stays open; ten minutes, since what breaks summaries is mostly a provider's bad hour",
    ),
    setting(
        "law.compactions_per_hour",
        "compactions",
        Allowed::Whole(1),
        "more than this in one session is a loop that burns money, not work",
    ),
    setting(
        "law.inserted_text_max_share",
        SHARE,
        Allowed::Number(0.01, 1.0),
        "the most of the budget that text of an engine's own may take; beyond half, the request is the engine's words and not the session's",
    ),
    setting(
        "law.verbatim_max_share",
        "share of the budget",
        Allowed::Number(0.01, 1.0),
        "an entry that must stay is sent word for word up to this size; an engine may shorten a pasted file that leaves no room for an answer, and nothing smaller",
    ),
    setting(
        "timeouts.create_ms",
        MS,
        Allowed::Whole(1),
        "an engine opens its storage here, and the agent's start waits for it",
    ),
    setting(
        "timeouts.bootstrap_ms",
        MS,
        Allowed::Whole(1),
        "an engine reads a whole old session here, once",
    ),
    setting(
        "timeouts.ingest_ms",
        MS,
        Allowed::Whole(1),
        "comes with every new entry, so it has to be quick",
    ),
    setting(
        "timeouts.assemble_ms",
        MS,
        Allowed::Whole(1),
        "comes before every request, while somebody waits",
    ),
    setting(
        "timeouts.compact_ms",
        MS,
        Allowed::Whole(1),
        "counted anew after each sign of progress; a summary of a long session takes minutes",
    ),
    setting(
        "timeouts.compact_cap_ms",
        MS,
        Allowed::Whole(1),
        "whatever progress a compaction shows; a quarter of an hour ends what only pretends to go on",
    ),
    setting(
        "timeouts.after_turn_ms",
        MS,
        Allowed::Whole(1),
        "for what an engine does at the end of a turn; a replay ends none",
    ),
    setting(
        "timeouts.maintain_ms",
        MS,
        Allowed::Whole(1),
        "for an engine's housekeeping between two turns; a replay does none",
    ),
    setting(
        "timeouts.subagent_ms",
        MS,
        Allowed::Whole(1),
        "every hook about sub-agents; a spawn waits for it",
    ),
    setting(
        "timeouts.dispose_ms",
        MS,
        Allowed::Whole(1),
        "an engine's last words; the process ends with or without them",
    ),
    setting(
        "models.*.window_tokens",
        TOKENS,
        Allowed::Whole(1),
        "the window of the model `provider/name`; goes before what the provider says, after --window",
    ),
    setting(
        "model.default_window_tokens",
        TOKENS,
        Allowed::Whole(1),
        "the window of a model that neither this file nor its provider knows; what most large models have",
    ),
    setting(
        "agent.model",
        "",
        Allowed::Text,
        "who answers, as `provider/id`; the provider is a name under [providers]. Only `chat` and programs that embed the runtime need it",
    ),
    setting(
        "agent.fallbacks",
        "",
        Allowed::List,
        "who stands in where it cannot answer, as `provider/id`, in order; never for a request that is too large",
    ),
    setting(
        "agent.system_prompt",
        "",
        Allowed::Text,
        "what every conversation begins with; short, so that it fits every task",
    ),
    setting(
        "agent.thinking",
        "",
        Allowed::Word(&["off", "low", "medium", "high"]),
        "how much the model thinks first; off, since it costs output and not every model can",
    ),
    setting(
        "agent.max_output_tokens",
        TOKENS,
        Allowed::Whole(1),
        "the longest answer, never more than the reserve; room for a long file in one tool call",
    ),
    setting(
        "agent.max_rounds",
        "requests",
        Allowed::Whole(1),
        "requests of one turn that may call tools; longer turns are loops, and `go on` lets a long one continue",
    ),
    setting(
        "agent.concurrent_turns",
        "turns",
        Allowed::Whole(1),
        "sessions that work at the same time, model calls not counted; beyond it a machine is busy with tools",
    ),
    setting(
        "agent.subagents",
        "",
        Allowed::Flag,
        "whether the model is offered `spawn_agent`, which gives a task to a session of its own; false, because each costs a conversation",
    ),
    setting(
        "agent.subagent_depth",
        "levels",
        Allowed::Whole(1),
        "how deep sub-agents may start others, 1 for the agent alone; a task is divided once, and a part of it once more",
    ),
    setting(
        "agent.subagents_live",
        "sub-agents",
        Allowed::Whole(1),
        "so many of one session may live at the same time; more than this nobody keeps in view",
    ),
    setting(
        "agent.subagent_ttl_ms",
        MS,
        Allowed::Whole(1),
        "how long one may live before it is swept up; half an hour is a long task",
    ),
    setting(
        "agent.notes_chars",
        "characters",
        Allowed::Whole(0),
        "the most of the notes of earlier sessions that the system prompt holds, the newest first; some 2,000 tokens in every request",
    ),
    setting(
        "session.sync",
        "",
        Allowed::Word(&["always", "turn", "os"]),
        "when a line is on the disk for certain: before it is acknowledged, at the end of the turn, or when the system likes; always, because what was said should survive a power cut. A compaction waits under `turn` too",
    ),
    setting(
        "compaction.timing",
        "",
        Allowed::Word(&["between-turns", "idle", "ask", "manual"]),
        "when a compaction that would help is made: after a turn, after a pause, when a person agrees, or only by hand; between turns nobody waits for it",
    ),
    setting(
        "compaction.mid_turn",
        "",
        Allowed::Flag,
        "whether one that would help may also come between two rounds of tools; it costs the prompt cache in the middle of a thought",
    ),
    setting(
        "compaction.idle_ms",
        MS,
        Allowed::Whole(1),
        "with `idle`: how long a session must be quiet; a minute without a word is a pause",
    ),
    setting(
        "compaction.precompute_share",
        SHARE,
        Allowed::Number(0.0, 1.0),
        "share of the budget from which on a compaction is worked out ahead, in the background; 0 for never, since it may be work for nothing",
    ),
    setting(
        "compaction.gate",
        "",
        Allowed::Rules,
        "the least that a compaction has to keep, or it is rejected; none, because how much may go is for the person to say",
    ),
    setting(
        "compaction.memory_flush",
        "",
        Allowed::Flag,
        "whether the model is asked for notes before a compaction, for the memory to keep; false, because it is one more request, and without a memory nobody keeps them",
    ),
    setting(
        "compaction.max_live_bytes",
        "bytes",
        Allowed::Whole(0),
        "a larger live transcript is compacted; 0 for never, since tokens are what a window counts",
    ),
    setting(
        "compaction.timeout_share",
        SHARE,
        Allowed::Number(0.1, 1.0),
        "a request that took too long is answered by a compaction above this share of the window; below it, size was not the reason",
    ),
    setting(
        "compaction.timeout_compactions",
        "compactions",
        Allowed::Whole(0),
        "after such timeouts, in one turn; a third would not help either",
    ),
    setting(
        "compaction.wait_ms",
        MS,
        Allowed::Whole(0),
        "how long a program that ends waits for what it does in the background; a summary takes less",
    ),
    setting(
        "failover.throttled_rest_ms",
        MS,
        Allowed::Whole(0),
        "a model that said too much was asked of it; limits count by the minute, and a longer wait that it asks for goes before",
    ),
    setting(
        "failover.troubled_rest_ms",
        MS,
        Allowed::Whole(0),
        "one that was overloaded, failed, or did not answer; the request has been repeated before that already",
    ),
    setting(
        "failover.refused_rest_ms",
        MS,
        Allowed::Whole(0),
        "one that only a person can help (key, bill, name, window); they may be doing so at this moment",
    ),
    setting(
        "failover.same_model_retries",
        "retries",
        Allowed::Whole(0),
        "of an empty or broken answer by the same model; what fails twice in the same way fails a third time",
    ),
    setting(
        "accounting.remembered_counts",
        "counts",
        Allowed::Whole(1),
        "of a model from which its factor is learned; about an hour of work, so that another language is followed",
    ),
    setting(
        "accounting.trusted_counts",
        "counts",
        Allowed::Whole(1),
        "from which on a model's own factor sets limits; one or two may be of one odd text",
    ),
    setting(
        "accounting.limit_quantile",
        SHARE,
        Allowed::Number(0.5, 1.0),
        "of the learned factors for limits; the worst of ten costs one more recovery, the worst ever seen a part of every window",
    ),
    setting(
        "accounting.unknown_factor",
        "",
        Allowed::Number(1.0, 4.0),
        "for limits of a model that is not known yet; estimates are off by up to a fifth",
    ),
    setting(
        "accounting.min_factor",
        "",
        Allowed::Number(0.05, 1.0),
        "below it a count is not believed: the provider has cut the prompt",
    ),
    setting(
        "accounting.max_factor",
        "",
        Allowed::Number(1.0, 16.0),
        "beyond it, what was counted was not the text",
    ),
    setting(
        "accounting.min_request_tokens",
        "estimated tokens",
        Allowed::Whole(1),
        "in smaller requests the provider's own wrapping weighs more than the text, so nothing is learned",
    ),
    setting(
        "store.kind",
        "",
        Allowed::Word(&["files", "postgres"]),
        "what keeps sessions; a database is for many gateways on many machines (docs/stores.md)",
    ),
    setting(
        "store.url",
        "",
        Allowed::Text,
        "the address of the database, as `postgres://user@host/name`; one with a password belongs into url_env",
    ),
    setting(
        "store.url_env",
        "",
        Allowed::Text,
        "the variable that holds the address; goes before url",
    ),
    setting(
        "store.schema",
        "",
        Allowed::Text,
        "the schema that holds the tables; several hosts may share a database in schemas of their own",
    ),
    setting(
        "store.sslmode",
        "",
        Allowed::Word(&["auto", "disable", "require"]),
        "whether the connection is encrypted, and the certificate checked; auto does so to every other machine",
    ),
    setting(
        "store.connections",
        "connections",
        Allowed::Whole(1),
        "at the same time; a statement takes a millisecond, a turn many seconds",
    ),
    setting(
        "store.lease_ms",
        MS,
        Allowed::Whole(100),
        "how long a machine that says nothing keeps its sessions; two renewals may fail in a row, and a person still waits for the next machine",
    ),
    setting(
        "store.wait_ms",
        MS,
        Allowed::Whole(0),
        "how long a turn waits for one on another machine; most turns with tools are shorter",
    ),
    setting(
        "store.timeout_ms",
        MS,
        Allowed::Whole(100),
        "how long a statement may take, with new connections and repetitions; a database that fails over is back by then, and the lease still lives",
    ),
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
    setting(
        "tools.allow",
        "",
        Allowed::List,
        "names or patterns such as `git__*` of tools that the model is offered, those of servers and engines among them; empty offers all",
    ),
    setting(
        "tools.deny",
        "",
        Allowed::List,
        "names or patterns of tools that it is not; goes before `allow`. `shell` here is what keeps an agent to files",
    ),
    setting(
        "tools.timeout_ms",
        MS,
        Allowed::Whole(1),
        "the most that any call may take, whatever the tool or the model says; ten minutes let a long test run end",
    ),
    setting(
        "tools.shell_timeout_ms",
        MS,
        Allowed::Whole(1),
        "a command for which the model asks for no time of its own; two minutes are long for most, and show a hanging one soon",
    ),
    setting(
        "tools.shell_hidden_env",
        "",
        Allowed::List,
        "environment variables that commands do not get, by name or pattern; keys of models are nothing that a command should print",
    ),
    setting(
        "tools.confine",
        "",
        Allowed::Flag,
        "true keeps the file tools in the working folder and `roots`, links followed; false, because `shell` goes everywhere anyway. To confine an agent for good, deny `shell` too, or use a container",
    ),
    setting(
        "tools.roots",
        "",
        Allowed::List,
        "folders beside the working folder that are open to confined file tools, relative to this file",
    ),
    setting(
        "mcp.*.command",
        "",
        Allowed::Text,
        "the program of a server that is started and spoken to over its standard input and output. Starting it is running its code",
    ),
    setting("mcp.*.args", "", Allowed::List, "its arguments"),
    setting(
        "mcp.*.env",
        "",
        Allowed::Texts,
        "its environment, beside PATH, HOME, language and the like: a server gets nothing else of ours. `${NAME}` stands for a variable, so that no key stands in a file",
    ),
    setting(
        "mcp.*.cwd",
        "",
        Allowed::Text,
        "the folder it runs in, relative to this file; unset, that of ctxhost",
    ),
    setting(
        "mcp.*.url",
        "",
        Allowed::Url,
        "the address of a server that speaks streamable HTTP, instead of `command`",
    ),
    setting(
        "mcp.*.headers",
        "",
        Allowed::Texts,
        "what is sent with every request to `url`; `${NAME}` stands for a variable, so that no key stands in a file",
    ),
    setting(
        "mcp.*.connect_timeout_ms",
        MS,
        Allowed::Whole(1),
        "starting a server and shaking hands; half a minute, since a first start may download it. One that does not answer is left out, and said to be",
    ),
    setting(
        "mcp.*.timeout_ms",
        MS,
        Allowed::Whole(1),
        "one call without a sign of progress; with such signs `tools.timeout_ms` is the end",
    ),
];

const fn setting(
    key: &'static str,
    unit: &'static str,
    allowed: Allowed,
    reason: &'static str,
) -> Setting {
    Setting { key, unit, allowed, reason }
}

impl Setting {
    /// The names of its path.
    pub(super) fn path(&self) -> Vec<&'static str> {
        self.key.split('.').collect()
    }
}

/// What may stand at a path.
pub(super) enum Known {
    /// A setting, or something inside a table that is not ours.
    Setting(&'static Setting),
    /// Inside a table that is not ours to read.
    Foreign,
    /// A table of settings.
    Table,
    /// Nothing.
    Nothing,
}

/// What may stand at a path.
pub(super) fn known(path: &[String]) -> Known {
    let is_at =
        |setting: &&Setting| fits(&setting.path(), path) && setting.path().len() == path.len();
    if let Some(setting) = SETTINGS.iter().find(is_at) {
        return Known::Setting(setting);
    }
    let reaches_into = |setting: &Setting| {
        let inner = path.len() > setting.path().len();
        let is_foreign = matches!(
            setting.allowed,
            Allowed::Foreign | Allowed::Texts | Allowed::Slot | Allowed::List | Allowed::Rules
        );
        inner && is_foreign && fits(&setting.path(), path)
    };
    if SETTINGS.iter().any(reaches_into) {
        return Known::Foreign;
    }
    let is_above =
        |setting: &Setting| path.len() < setting.path().len() && fits(&setting.path(), path);
    if SETTINGS.iter().any(is_above) { Known::Table } else { Known::Nothing }
}

/// The names that may stand in a table, without those that are the user's.
pub(super) fn names_in(table: &[String]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for setting in SETTINGS {
        let path = setting.path();
        let Some(name) = path.get(table.len()) else { continue };
        if fits(&path, table) && *name != "*" && !names.contains(name) {
            names.push(*name);
        }
    }
    names
}

/// Whether a pattern and a path agree as far as both go.
fn fits(pattern: &[&str], path: &[String]) -> bool {
    pattern.iter().zip(path).all(|(pattern, name)| *pattern == "*" || pattern == name)
}
