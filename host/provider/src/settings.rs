//! How a provider is reached: `[providers.<name>]`. Why each number is what it is stands in the
//! catalogue of the config.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use ctxhost_dialects::DialectName;
use ctxhost_dialects::failure::{ExtraPhrase, Reason};
use ctxhost_dialects::openai_chat::CompatSettings;

/// One provider, as the config describes it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSettings {
    /// How it writes and streams.
    pub dialect: DialectName,
    /// Where its API begins; `None` for the address of whoever the dialect belongs to.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The environment variable that holds the key. `None` at the dialect's own address stands for
    /// [`DialectName::key_variable`], and at any other for no key.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// A program that prints the key, and its arguments; empty for none.
    #[serde(default)]
    pub api_key_command: Vec<String>,
    /// Headers that every request has; they go before those of the dialect.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// A proxy; `none` for none at all, `None` for that of the system.
    #[serde(default)]
    pub proxy: Option<String>,
    /// How long a connection may take to open.
    #[serde(default = "default::connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// How long an answer may take to begin.
    #[serde(default = "default::first_byte_timeout_ms")]
    pub first_byte_timeout_ms: u64,
    /// How long an answer may stand still.
    #[serde(default = "default::idle_timeout_ms")]
    pub idle_timeout_ms: u64,
    /// How often a request is repeated that was not answered.
    #[serde(default = "default::retries")]
    pub retries: u64,
    /// The first pause before a repetition; each further one is twice as long.
    #[serde(default = "default::retry_pause_ms")]
    pub retry_pause_ms: u64,
    /// The longest such pause.
    #[serde(default = "default::retry_pause_max_ms")]
    pub retry_pause_max_ms: u64,
    /// The longest pause that a provider may ask for; a longer one ends the request.
    #[serde(default = "default::retry_after_max_ms")]
    pub retry_after_max_ms: u64,
    /// Whether cached prompts live for an hour; Anthropic's dialect alone.
    #[serde(default)]
    pub one_hour_cache: bool,
    /// Whether the provider clears old tool results by itself; Anthropic's dialect alone.
    #[serde(default)]
    pub context_editing: bool,
    /// What it writes when a request is too large, beside what ctxhost knows: regular expressions.
    #[serde(default)]
    pub overflow_phrases: Vec<String>,
    /// What only sounds like that.
    #[serde(default)]
    pub never_overflow_phrases: Vec<String>,
    /// Peculiarities of servers that speak nearly OpenAI's chat completions.
    #[serde(default)]
    pub compat: CompatSettings,
}

/// The values of settings that are not written.
mod default {
    pub(super) const fn connect_timeout_ms() -> u64 {
        10_000
    }
    pub(super) const fn first_byte_timeout_ms() -> u64 {
        300_000
    }
    pub(super) const fn idle_timeout_ms() -> u64 {
        300_000
    }
    pub(super) const fn retries() -> u64 {
        4
    }
    pub(super) const fn retry_pause_ms() -> u64 {
        1_000
    }
    pub(super) const fn retry_pause_max_ms() -> u64 {
        30_000
    }
    pub(super) const fn retry_after_max_ms() -> u64 {
        120_000
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
        let mut phrases = of(&self.overflow_phrases, Reason::ContextOverflow);
        phrases.extend(of(&self.never_overflow_phrases, Reason::Format));
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
