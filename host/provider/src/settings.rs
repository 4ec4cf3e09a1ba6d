//! The settings of a provider: `[providers.<name>]`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use ctxhost_dialects::DialectName;
use ctxhost_dialects::failure::{ExtraPhrase, FailureReason};
use ctxhost_dialects::openai_chat::CompatSettings;

ctxhost_engine_api::settings! {
    /// One provider in the config.
    #[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ProviderSettings required {
        /// The dialect of its API; the long names are those in sessions.
        pub dialect: DialectName, Word(DialectName::NAMES);
        /// The base URL of its API; unset, that of the dialect's owner.
        #[serde(default)]
        pub base_url: Option<String> = None, Url;
        /// Environment variable with the key. Unset: OPENAI_API_KEY, ANTHROPIC_API_KEY or
        /// GEMINI_API_KEY; with base_url none, so that no key goes to another provider.
        #[serde(default)]
        pub api_key_env: Option<String> = None, Variable;
        /// Program that prints the key, and its arguments; run without a shell, once, and again
        /// when the key is refused.
        #[serde(default)]
        pub api_key_command: Vec<String> = Vec::new(), List;
        /// Sent with every request, before those of the dialect; never shown, since they may hold
        /// keys.
        #[serde(default)]
        pub headers: BTreeMap<String, String> = BTreeMap::new(), Texts;
        /// Proxy as a URL with http://, https:// or socks5://, or `none`; unset, the system's,
        /// except for loopback addresses.
        #[serde(default)]
        pub proxy: Option<String> = None, Text;
        /// Timeout of connecting.
        #[serde(default = "default::connect_timeout_ms")]
        pub connect_timeout_ms: u64 = 10_000, Whole(1), "ms";
        /// Timeout until an answer starts; a local model reads a long prompt for minutes, and some
        /// think first.
        #[serde(default = "default::first_byte_timeout_ms")]
        pub first_byte_timeout_ms: u64 = 300_000, Whole(1), "ms";
        /// Timeout without a byte within an answer; there is no total limit, because long answers
        /// are valid.
        #[serde(default = "default::idle_timeout_ms")]
        pub idle_timeout_ms: u64 = 300_000, Whole(1), "ms";
        /// Retries of a request that was throttled, met a failing server or could not connect;
        /// never after an answer has started.
        #[serde(default = "default::retries")]
        pub retries: u64 = 4, Whole(0), "retries";
        /// The first pause; each further one is twice as long, plus a random part.
        #[serde(default = "default::retry_pause_ms")]
        pub retry_pause_ms: u64 = 1_000, Whole(1), "ms";
        /// The longest pause between two attempts.
        #[serde(default = "default::retry_pause_max_ms")]
        pub retry_pause_max_ms: u64 = 30_000, Whole(1), "ms";
        /// Longest wait that a provider may ask for; beyond it the request ends, so that another
        /// model can serve it.
        #[serde(default = "default::retry_after_max_ms")]
        pub retry_after_max_ms: u64 = 120_000, Whole(0), "ms";
        /// Anthropic-messages: whether cached prompts live for an hour instead of five minutes;
        /// writing them costs 2 times the input price instead of 1.25.
        #[serde(default)]
        pub one_hour_cache: bool = false, Flag;
        /// Anthropic-messages: whether the provider clears old tool results beyond 100,000 tokens;
        /// off, since the engine does, and each clearing invalidates the cache.
        #[serde(default)]
        pub context_editing: bool = false, Flag;
        /// Regular expressions of refusals that mean overflow, beside the built-in ones, ignoring
        /// case; they lead to a compaction.
        #[serde(default)]
        pub overflow_phrases: Vec<String> = Vec::new(), List;
        /// Those that do not mean overflow, whatever else the refusal contains.
        #[serde(default)]
        pub never_overflow_phrases: Vec<String> = Vec::new(), List;
        /// Options of servers with an API like OpenAI's chat completions.
        #[serde(default)]
        pub compat: CompatSettings = CompatSettings::default(), Table(CompatSettings::SETTINGS);
    }
}

impl ProviderSettings {
    /// A provider at its usual address, with defaults.
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

    /// The base URL of the API.
    pub fn base_url(&self) -> &str {
        self.base_url.as_deref().unwrap_or(self.dialect.base_url())
    }

    /// Its extra phrases, for the classifier of its refusals.
    pub fn phrases(&self) -> Vec<ExtraPhrase> {
        let of = |patterns: &[String], reason| -> Vec<ExtraPhrase> {
            let phrase = |pattern: &String| ExtraPhrase { pattern: pattern.clone(), reason };
            patterns.iter().map(phrase).collect()
        };
        let mut phrases = of(&self.overflow_phrases, FailureReason::ContextOverflow);
        phrases.extend(of(&self.never_overflow_phrases, FailureReason::Format));
        phrases
    }

    /// Environment variable with the key. Unset: OPENAI_API_KEY, ANTHROPIC_API_KEY or
    /// GEMINI_API_KEY; with base_url none, so that no key goes to another provider.
    pub fn key_variable(&self) -> Option<&str> {
        // The usual variable counts only at the usual address: another server must not get a key
        // that was meant for the dialect's owner.
        let usual = || self.base_url.is_none().then(|| self.dialect.key_variable()).flatten();
        self.api_key_env.as_deref().or_else(usual)
    }
}

impl std::fmt::Debug for ProviderSettings {
    /// Omits headers, addresses and commands, which may hold keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderSettings")
            .field("dialect", &self.dialect)
            .field("api_key_env", &self.api_key_env)
            .field("compat", &self.compat)
            .finish_non_exhaustive()
    }
}

/// A setting with which a provider cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The environment variable of the key is not set, or blank.
    #[error("the key for {provider} is missing: {variable} is not set")]
    KeyNotSet {
        /// The provider.
        provider: String,
        /// The variable.
        variable: String,
    },
    /// Two sources of the key.
    #[error("{provider} has api_key_env and api_key_command; keep one of them")]
    TwoKeys {
        /// The provider.
        provider: String,
    },
    /// An invalid setting.
    #[error("{setting} of {provider} cannot be used: {problem}")]
    Setting {
        /// The provider.
        provider: String,
        /// The setting.
        setting: &'static str,
        /// The problem; never with the value, which may hold a key.
        problem: String,
    },
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
