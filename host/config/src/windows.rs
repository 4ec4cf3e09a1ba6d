//! Looks up the context window of a model, in one place for all commands, the gateway and programs.
//!
//! ```text
//! [models] ─► [model] default_window_tokens, if written ─► provider ─► refusal ─► recording ─► table ─► default
//! ```
//!
//! A size from a refusal overrides the steps before it if it is smaller: the provider's answer is
//! more reliable than a config.

use std::borrow::Cow;

use serde::Serialize;

use super::Config;

/// Context windows by model name prefix, in provider tokens; the first match counts. From the
/// providers' model pages, November 2026. Windows that are not standard (a tier, a self-hosted
/// server) belong in `[models]`. If prompt and answer have separate windows, as in GPT-5 (272,000
/// of 400,000), this is the one of the prompt.
const TABLE: [(&str, u64); 32] = [
    ("claude-fable-5", LONG_TOKENS),
    ("claude-mythos-5", LONG_TOKENS),
    ("claude-opus-4-6", LONG_TOKENS),
    ("claude-opus-4-7", LONG_TOKENS),
    ("claude-opus-4-8", LONG_TOKENS),
    ("claude-opus-5", LONG_TOKENS),
    ("claude-sonnet-4-6", LONG_TOKENS),
    ("claude-sonnet-5", LONG_TOKENS),
    ("claude-", 200_000),
    ("gpt-3.5", 16_385),
    ("gpt-4.1", 1_047_576),
    ("gpt-4.5", 128_000),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4-1106", 128_000),
    ("gpt-4-0125", 128_000),
    ("gpt-4-vision", 128_000),
    ("gpt-4-32k", 32_768),
    ("gpt-4", 8_192),
    ("gpt-5-chat", 128_000),
    ("gpt-5", 272_000),
    ("codex-mini", 200_000),
    ("o1-mini", 128_000),
    ("o1-preview", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("gemini-1.5-pro", 2_097_152),
    ("gemini-", 1_048_576),
    ("gemma-4", 256_000),
    ("gemma-3n", 32_768),
    ("gemma-3", 131_072),
];

/// Models whose answer does not use the window of the prompt, by prefix, each with an exception.
const SEPARATE_OUTPUT: [(&str, Option<&str>); 2] =
    [("gpt-5", Some("gpt-5-chat")), ("gemini-", None)];

/// The long window of Claude models, in provider tokens.
const LONG_TOKENS: u64 = 1_000_000;

/// Largest accepted window, in provider tokens. No model has a thousandth of it; larger numbers are
/// wrong, and products with them would overflow 64 bits.
pub const MAX_WINDOW_TOKENS: u64 = 1_000_000_000;

/// Suffix of a model name that requests the long window, as Claude Code writes it.
pub const LONG_WINDOW_SUFFIX: &str = "[1m]";

/// The source of a window, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowSource {
    /// The built-in `model.default_window_tokens`.
    Default,
    /// The built-in table.
    Table,
    /// The recording of a session.
    Recording,
    /// A refusal of the provider: the limit it named, or the size it refused.
    Refusal,
    /// The provider's description of its model.
    Provider,
    /// `model.default_window_tokens`, set in the config.
    ConfigDefault,
    /// `models."provider/model".window_tokens`.
    Config,
}

impl std::fmt::Display for WindowSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WindowSource::Default => "default",
            WindowSource::Table => "built-in table",
            WindowSource::Recording => "recording",
            WindowSource::Refusal => "refusal",
            WindowSource::Provider => "provider",
            WindowSource::ConfigDefault => "model.default_window_tokens",
            WindowSource::Config => "config",
        })
    }
}

/// A model's window and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ModelWindow {
    /// In provider tokens.
    pub tokens: u64,
    /// The source.
    pub source: WindowSource,
    /// Whether the answer does not use it.
    pub is_prompt_only: bool,
}

/// Information about a window from outside the config, in provider tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowHints {
    /// The provider's model list.
    pub stated_tokens: Option<u64>,
    /// The limit that a refusal named.
    pub limit_tokens: Option<u64>,
    /// A size that was refused without a limit; the window is smaller.
    pub refused_tokens: Option<u64>,
    /// The recording of a session.
    pub recorded_tokens: Option<u64>,
}

impl Config {
    /// Looks up the window of a model, 1 to [`MAX_WINDOW_TOKENS`] provider tokens. Numbers outside
    /// of this range are ignored.
    pub fn window(&self, provider: &str, model: &str, hints: WindowHints) -> ModelWindow {
        let written = self.configured_window(provider, model);
        // A default that was written down is a decision of the operator and overrides the table.
        // The path is split already: each request of the gateway asks for its window.
        let is_default_written =
            self.origin.spans.find(&["model", "default_window_tokens"]).is_some();
        let default = self.model.default_window_tokens;
        let by_rank = [
            (written, WindowSource::Config),
            (is_default_written.then_some(default), WindowSource::ConfigDefault),
            (hints.stated_tokens, WindowSource::Provider),
            (hints.limit_tokens, WindowSource::Refusal),
            (hints.recorded_tokens, WindowSource::Recording),
            (table_window(model), WindowSource::Table),
        ];
        let known = by_rank.into_iter().find_map(|(tokens, source)| {
            Some((tokens.filter(|tokens| is_window(*tokens))?, source))
        });
        let (tokens, source) = known.unwrap_or((default, WindowSource::Default));
        // A refusal is the provider's word on this very model, so the smaller number wins over all
        // other sources.
        let refused = [hints.limit_tokens, hints.refused_tokens];
        let refused = refused.into_iter().flatten().filter(|refused| is_window(*refused)).min();
        let (tokens, source) = match refused.filter(|refused| *refused < tokens) {
            Some(refused) => (refused, WindowSource::Refusal),
            None => (tokens, source),
        };
        // A configured window always includes the answer.
        let is_whole = matches!(source, WindowSource::Config | WindowSource::ConfigDefault);
        ModelWindow { tokens, source, is_prompt_only: !is_whole && has_separate_output(model) }
    }

    /// The window in `[models]`: of this provider's model, of the model name, or of any provider's
    /// model of that name, the smallest if several match.
    fn configured_window(&self, provider: &str, name: &str) -> Option<u64> {
        if self.models.is_empty() {
            return None;
        }
        // An entry without the suffix applies to the model with it as well.
        let plain = name.strip_suffix(LONG_WINDOW_SUFFIX);
        [Some(name), plain].into_iter().flatten().find_map(|name| {
            let own = self.models.get(&format!("{provider}/{name}"));
            let own = own.or_else(|| self.models.get(name)).map(|model| model.window_tokens);
            let has_name =
                |key: &str| key.strip_suffix(name).is_some_and(|provider| provider.ends_with('/'));
            let of_any = self.models.iter().filter(|(key, _)| !name.is_empty() && has_name(key));
            // The smallest: a prompt that is too large fails, one that is too small only compacts
            // earlier.
            own.or_else(|| of_any.map(|(_, model)| model.window_tokens).min())
        })
    }
}

fn is_window(tokens: u64) -> bool {
    (1..=MAX_WINDOW_TOKENS).contains(&tokens)
}

/// The window of a model by name, in provider tokens; `None` if the table does not have it.
/// Provider prefixes (`models/`, `openai/`) are ignored.
pub fn table_window(name: &str) -> Option<u64> {
    let name = bare_model_name(name);
    let is_claude = name.starts_with("claude-");
    if is_claude && name.ends_with(LONG_WINDOW_SUFFIX) {
        return Some(LONG_TOKENS);
    }
    // Some resellers of Claude write versions with dots.
    let name = if is_claude { Cow::Owned(name.replace('.', "-")) } else { Cow::Borrowed(name) };
    TABLE.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, tokens)| *tokens)
}

/// Whether the answer of a model does not use the window of the prompt.
fn has_separate_output(name: &str) -> bool {
    let name = bare_model_name(name);
    SEPARATE_OUTPUT.iter().any(|(begin, exception)| {
        name.starts_with(begin) && exception.is_none_or(|other| !name.starts_with(other))
    })
}

/// The name of a model without provider prefixes.
pub fn bare_model_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_prefixes_come_first() {
        for (at, (name, _)) in TABLE.iter().enumerate() {
            let hidden = TABLE.iter().take(at).find(|(before, _)| name.starts_with(before));
            assert_eq!(hidden, None, "{name}");
        }
    }

    #[test]
    fn models_are_known_by_their_names() {
        for (name, tokens) in [
            ("models/gemini-2.5-pro", Some(1_048_576)),
            ("gpt-4o-2024-08-06", Some(128_000)),
            ("gpt-5.1-codex", Some(272_000)),
            ("gpt-4", Some(8_192)),
            ("gpt-4-0613", Some(8_192)),
            ("gpt-4-0125-preview", Some(128_000)),
            ("gpt-4-1106-vision-preview", Some(128_000)),
            ("gpt-4.5-preview", Some(128_000)),
            ("o1-preview", Some(128_000)),
            ("o1-2024-12-17", Some(200_000)),
            ("google/gemma-4-31b-it", Some(256_000)),
            ("claude-sonnet-4-5-20250929", Some(200_000)),
            ("claude-sonnet-4-5-20250929[1m]", Some(1_000_000)),
            ("claude-opus-4-6", Some(1_000_000)),
            ("anthropic/claude-sonnet-4.6", Some(1_000_000)),
            ("llama-3", None),
            ("llama-3[1m]", None),
        ] {
            assert_eq!(table_window(name), tokens, "{name}");
        }
    }

    #[test]
    fn some_models_have_a_separate_output_window() {
        let apart =
            |name| Config::default().window("p", name, WindowHints::default()).is_prompt_only;
        assert!(apart("gpt-5.1-codex") && apart("models/gemini-2.5-pro"));
        assert!(!apart("gpt-5-chat-latest") && !apart("gpt-4o") && !apart("claude-opus-4-6"));
        let config = Config::parse("c.toml", "[models.gpt-5]\nwindow_tokens = 90000\n").unwrap();
        assert!(!config.window("p", "gpt-5", WindowHints::default()).is_prompt_only);
    }

    #[test]
    fn the_strongest_source_counts() {
        let all = WindowHints {
            stated_tokens: Some(64_000),
            limit_tokens: None,
            refused_tokens: None,
            recorded_tokens: Some(48_000),
        };
        let check = |text: &str, model: &str, hints: WindowHints, expected: (u64, WindowSource)| {
            let window = Config::parse("c.toml", text).unwrap().window("openai", model, hints);
            assert_eq!((window.tokens, window.source), expected, "{text} {model} {hints:?}");
        };
        let models = "[models.\"openai/gpt-4\"]\nwindow_tokens = 9000\n";
        let default = "[model]\ndefault_window_tokens = 50000\n";
        let none = WindowHints::default();
        check("", "gpt-4", none, (8_192, WindowSource::Table));
        check("", "unknown", none, (200_000, WindowSource::Default));
        check(default, "gpt-4", none, (50_000, WindowSource::ConfigDefault));
        check(models, "gpt-4", all, (9_000, WindowSource::Config));
        check(default, "gpt-4", all, (50_000, WindowSource::ConfigDefault));
        check("", "gpt-4", all, (64_000, WindowSource::Provider));
        let recorded = WindowHints { stated_tokens: None, ..all };
        check("", "gpt-4", recorded, (48_000, WindowSource::Recording));
        let named = WindowHints { limit_tokens: Some(32_000), ..recorded };
        check("", "gpt-4", named, (32_000, WindowSource::Refusal));
        check(models, "gpt-4", named, (9_000, WindowSource::Config));
        let refused = WindowHints { refused_tokens: Some(7_000), ..named };
        check(models, "gpt-4", refused, (7_000, WindowSource::Refusal));
        for no_window in [0, MAX_WINDOW_TOKENS + 1, u64::MAX] {
            let absurd = WindowHints {
                stated_tokens: Some(no_window),
                limit_tokens: Some(no_window),
                refused_tokens: Some(no_window),
                recorded_tokens: Some(no_window),
            };
            check("", "unknown", absurd, (200_000, WindowSource::Default));
        }
        let larger = WindowHints { refused_tokens: Some(90_000), ..none };
        check("", "gpt-4", larger, (8_192, WindowSource::Table));
    }

    #[test]
    fn names_are_found_with_and_without_their_provider() {
        let config = Config::parse(
            "c.toml",
            "[models.\"local/qwen3\"]\nwindow_tokens = 20000\n\
             [models.\"other/qwen3\"]\nwindow_tokens = 30000\n\
             [models.plain]\nwindow_tokens = 40000\n\
             [models.claude-sonnet-4-5]\nwindow_tokens = 50000\n\
             [models.\"router/openai/gpt-4o\"]\nwindow_tokens = 60000\n",
        );
        let config = config.unwrap();
        for (provider, name, tokens) in [
            ("other", "qwen3", 30_000),
            ("local", "qwen3", 20_000),
            ("openai", "qwen3", 20_000),
            ("openai", "n3", 200_000),
            ("openai", "plain", 40_000),
            ("anthropic", "claude-sonnet-4-5[1m]", 50_000),
            ("router", "openai/gpt-4o", 60_000),
            ("openai", "gpt-4o", 60_000),
            ("openai", "gpt-4.1", 1_047_576),
            ("", "", 200_000),
        ] {
            let window = config.window(provider, name, WindowHints::default());
            assert_eq!(window.tokens, tokens, "{provider} {name}");
        }
    }
}
