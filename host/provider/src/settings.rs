//! How a provider is reached: `[providers.<name>]`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use ctxhost_dialects::DialectName;
use ctxhost_dialects::failure::{ExtraPhrase, FailureReason};
use ctxhost_dialects::openai_chat::CompatSettings;

ctxhost_engine_api::settings! {
    /// One provider, as the config describes it.
    #[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ProviderSettings required {
        /// How its requests are written and its answers streamed; the long names are those that
        /// sessions hold.
        pub dialect: DialectName, Word(DialectName::NAMES);
        /// Where its API begins; unset, the address of whoever the dialect belongs to.
        #[serde(default)]
        pub base_url: Option<String> = None, Url;
        /// The environment variable that holds the key, so that no key stands in a file. Unset
        /// without base_url, the usual one: OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY;
        /// unset with base_url, none, so that no key goes to a stranger.
        #[serde(default)]
        pub api_key_env: Option<String> = None, Text;
        /// A program that prints the key, and its arguments; run without a shell, once, and again
        /// when the key is refused.
        #[serde(default)]
        pub api_key_command: Vec<String> = Vec::new(), List;
        /// Sent with every request, before those of the dialect; never shown, since keys stand
        /// there too.
        #[serde(default)]
        pub headers: BTreeMap<String, String> = BTreeMap::new(), Texts;
        /// http://, https:// or socks5:// and an address, or `none`; unset, the system's, but none
        /// for this very machine.
        #[serde(default)]
        pub proxy: Option<String> = None, Text;
        /// A connection that takes longer will not come.
        #[serde(default = "default::connect_timeout_ms")]
        pub connect_timeout_ms: u64 = 10_000, Whole(1), "ms";
        /// Until an answer begins; a local model reads a long prompt for minutes, and some think
        /// before they say a word.
        #[serde(default = "default::first_byte_timeout_ms")]
        pub first_byte_timeout_ms: u64 = 300_000, Whole(1), "ms";
        /// Without a single byte in the middle of an answer; there is no limit in all, because long
        /// answers are no failure.
        #[serde(default = "default::idle_timeout_ms")]
        pub idle_timeout_ms: u64 = 300_000, Whole(1), "ms";
        /// Of a request that was throttled, that met an overloaded or failing server, or that
        /// reached nobody; never of one whose answer had begun.
        #[serde(default = "default::retries")]
        pub retries: u64 = 4, Whole(0), "retries";
        /// The first pause; each further one is twice as long, and a random part is added.
        #[serde(default = "default::retry_pause_ms")]
        pub retry_pause_ms: u64 = 1_000, Whole(1), "ms";
        /// The longest pause of our own.
        #[serde(default = "default::retry_pause_max_ms")]
        pub retry_pause_max_ms: u64 = 30_000, Whole(1), "ms";
        /// The longest pause that a provider may ask for; beyond two minutes another model serves
        /// better, so the request ends.
        #[serde(default = "default::retry_after_max_ms")]
        pub retry_after_max_ms: u64 = 120_000, Whole(0), "ms";
        /// anthropic-messages: whether cached prompts live for an hour and not five minutes;
        /// writing them costs 2 times the input price then and not 1.25 times.
        #[serde(default)]
        pub one_hour_cache: bool = false, Flag;
        /// anthropic-messages: whether the provider clears old tool results by itself beyond
        /// 100,000 tokens; off, since the engine does that, and each clearing costs the cache.
        #[serde(default)]
        pub context_editing: bool = false, Flag;
        /// What it writes when a request is too large, beside what ctxhost knows: regular
        /// expressions, without regard to case; the answer is a compaction.
        #[serde(default)]
        pub overflow_phrases: Vec<String> = Vec::new(), List;
        /// What only sounds like that: no compaction follows, whatever else is said.
        #[serde(default)]
        pub never_overflow_phrases: Vec<String> = Vec::new(), List;
        /// Peculiarities of servers that speak nearly OpenAI's chat completions.
        #[serde(default)]
        pub compat: CompatSettings = CompatSettings::default(), Table(CompatSettings::SETTINGS);
    }
}

impl ProviderSettings {
    /// A provider at its usual address, with nothing set.
    pub fn new(dialect: DialectName) -> ProviderSettings {
        ProviderSettings {
            dialect,
            base_url: None,
            api_key_env: None,
            api_key_command: Vec::new(),
            headers: BTreeMap::new(),
            proxy: None,
            connect_timeout_ms: default::connect_timeout_ms(),
            first_byte_timeout_ms: default::first_byte_timeout_ms(),
            idle_timeout_ms: default::idle_timeout_ms(),
            retries: default::retries(),
            retry_pause_ms: default::retry_pause_ms(),
            retry_pause_max_ms: default::retry_pause_max_ms(),
            retry_after_max_ms: default::retry_after_max_ms(),
            one_hour_cache: false,
            context_editing: false,
            overflow_phrases: Vec::new(),
            never_overflow_phrases: Vec::new(),
            compat: CompatSettings::default(),
        }
    }

    /// Where its API begins.
    pub fn base_url(&self) -> &str {
        self.base_url.as_deref().unwrap_or(self.dialect.base_url())
    }

    /// Its own phrases, for the classifier of its refusals.
    pub fn phrases(&self) -> Vec<ExtraPhrase> {
        let of = |patterns: &[String], reason| -> Vec<ExtraPhrase> {
            let phrase = |pattern: &String| ExtraPhrase { pattern: pattern.clone(), reason };
            patterns.iter().map(phrase).collect()
        };
        let mut phrases = of(&self.overflow_phrases, FailureReason::ContextOverflow);
        phrases.extend(of(&self.never_overflow_phrases, FailureReason::Format));
        phrases
    }

    /// The environment variable that holds the key.
    ///
    /// The usual variable counts at the usual address only: a server of the person's own must not be
    /// sent a key that was meant for another.
    pub fn key_variable(&self) -> Option<&str> {
        let usual = || self.base_url.is_none().then(|| self.dialect.key_variable()).flatten();
        self.api_key_env.as_deref().or_else(usual)
    }
}

impl std::fmt::Debug for ProviderSettings {
    /// Without headers, addresses and commands: keys may stand in any of them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderSettings")
            .field("dialect", &self.dialect)
            .field("api_key_env", &self.api_key_env)
            .field("compat", &self.compat)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_key_goes_to_the_usual_address_only() {
        let usual = ProviderSettings::new(DialectName::AnthropicMessages);
        assert_eq!(usual.key_variable(), Some("ANTHROPIC_API_KEY"));
        let elsewhere = ProviderSettings { base_url: Some("http://x".into()), ..usual.clone() };
        assert_eq!(elsewhere.key_variable(), None);
        let named = ProviderSettings { api_key_env: Some("MINE".into()), ..elsewhere };
        assert_eq!(named.key_variable(), Some("MINE"));
    }
}
