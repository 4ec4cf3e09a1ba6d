//! The windows of models: as configured, as learned, as known, or as nobody knows.

use ctxhost_engine_api::ModelRef;

use crate::config::{Config, WindowSource};
use crate::runtime::Runtime;

/// The windows of models by how their names begin, in provider tokens; the first row that fits counts.
/// From the providers' own lists of models, as of 2025: a window that is not standard (a beta, a tier)
/// belongs into `[models]`.
const KNOWN: [(&str, u64); 17] = [
    ("claude-", 200_000),
    ("gpt-3.5", 16_385),
    ("gpt-4.1", 1_047_576),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4-32k", 32_768),
    ("gpt-4", 8_192),
    ("gpt-5-chat", 128_000),
    ("gpt-5", 400_000),
    ("codex-mini", 200_000),
    ("o1-mini", 128_000),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("gemini-1.5-pro", 2_097_152),
    ("gemini-", 1_048_576),
    ("gemma-3", 131_072),
];

/// A window and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// In provider tokens.
    pub(super) tokens: u64,
    /// Whether somebody said so: the config, or the provider by a refusal.
    pub(super) is_certain: bool,
}

/// The window of a model.
pub(super) fn window(runtime: &Runtime, config: &Config, provider: &str, model: &str) -> Window {
    let guess = ModelRef {
        provider: provider.into(),
        id: model.into(),
        window_tokens: known(model).unwrap_or_default(),
    };
    let (tokens, source) = config.window_of(&guess);
    let learned = runtime.learned_window_tokens(provider, model).filter(|it| *it < tokens);
    let is_certain = source == WindowSource::Config || learned.is_some();
    Window { tokens: learned.unwrap_or(tokens), is_certain }
}

/// What is known of a model by its name; providers' prefixes (`models/`, `openai/`) do not count.
pub(super) fn known(model: &str) -> Option<u64> {
    let name = model.rsplit('/').next().unwrap_or(model);
    KNOWN.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, tokens)| *tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_that_fits_stands_first() {
        for (at, (name, _)) in KNOWN.iter().enumerate() {
            let hidden = KNOWN.iter().take(at).find(|(before, _)| name.starts_with(before));
            assert_eq!(hidden, None, "{name}");
        }
        assert_eq!(known("models/gemini-2.5-pro"), Some(1_048_576));
        assert_eq!(known("gpt-4o-2024-08-06"), Some(128_000));
        assert_eq!(known("llama-3"), None);
    }
}
