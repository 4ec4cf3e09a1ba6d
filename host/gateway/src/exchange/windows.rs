//! The windows of models: as configured, as learned, as known, or as nobody knows.
//!
//! Whoever wants to know one asks here, so that a list of models tells what requests are shaped for.

use std::borrow::Cow;

use axum::http::HeaderMap;

use ctxhost_config::Config;
use ctxhost_runtime::Runtime;

/// The windows of models by how their names begin, in provider tokens; the first row that fits counts.
/// From the providers' own pages of models, as of November 2026: a window that is not standard (a tier, a
/// server of one's own) belongs into `[models]`. Where a window holds the answer apart from the prompt, as
/// that of GPT-5 does (272,000 of 400,000), it is what the prompt may take.
const KNOWN: [(&str, u64); 32] = [
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

/// The long window of Claude models, in provider tokens.
const LONG_TOKENS: u64 = 1_000_000;

/// Models that have the long one where a request asks for it. Those that always have it stand above.
const LONG_ON_DEMAND: &str = "claude-sonnet-4";

/// How a request asks for it: a feature in the header `anthropic-beta`.
const LONG_FEATURE: &str = "context-1m-";

/// What stands behind the name of a model that is asked for its long window, as Claude Code writes it.
const LONG_MARK: &str = "[1m]";

/// A window and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// In provider tokens.
    pub tokens: u64,
    /// Whether somebody said so: the config, or the provider by a refusal.
    pub is_certain: bool,
}

/// The window of a model, for whoever has to work with one.
pub(super) fn window(runtime: &Runtime, config: &Config, provider: &str, name: &str) -> Window {
    let default = || Window { tokens: config.model.default_window_tokens, is_certain: false };
    told(runtime, config, provider, name).unwrap_or_else(default)
}

/// The window of a model; `None` for one that nobody knows. What the provider has refused with counts where
/// it is smaller than what was believed.
pub(super) fn told(
    runtime: &Runtime,
    config: &Config,
    provider: &str,
    name: &str,
) -> Option<Window> {
    let written = written(config, provider, name);
    let certain = |tokens| Window { tokens, is_certain: true };
    let guess = || Some(Window { tokens: known(name)?, is_certain: false });
    let believed = written.map(certain).or_else(guess);
    let tokens = believed.map_or(config.model.default_window_tokens, |it| it.tokens);
    let learned = runtime.learned_window_tokens(provider, name).filter(|it| *it < tokens);
    learned.map(certain).or(believed)
}

/// What the config says: of this provider's model, of the model, or of any provider's model of that name,
/// the smallest where several have one.
fn written(config: &Config, provider: &str, name: &str) -> Option<u64> {
    if config.models.is_empty() {
        return None;
    }
    let plain = name.strip_suffix(LONG_MARK);
    [Some(name), plain].into_iter().flatten().find_map(|name| {
        let own = config.models.get(&format!("{provider}/{name}"));
        let own = own.or_else(|| config.models.get(name)).map(|it| it.window_tokens);
        let is_it = |of: &str| of.strip_suffix(name).is_some_and(|owner| owner.ends_with('/'));
        let of_any = config.models.iter().filter(|(of, _)| is_it(of));
        own.or_else(|| of_any.map(|(_, it)| it.window_tokens).min())
    })
}

/// What is known of a model by its name; providers' prefixes (`models/`, `openai/`) do not count.
pub(super) fn known(name: &str) -> Option<u64> {
    let name = bare(name);
    let is_claude = name.starts_with("claude-");
    if is_claude && name.ends_with(LONG_MARK) {
        return Some(LONG_TOKENS);
    }
    // Some who sell Claude write its versions with dots.
    let name = if is_claude { Cow::Owned(name.replace('.', "-")) } else { Cow::Borrowed(name) };
    KNOWN.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, tokens)| *tokens)
}

/// The name under which a window is looked up and learned: asked for its long window, a model is another
/// one.
pub(super) fn name<'a>(model: &'a str, headers: &HeaderMap) -> Cow<'a, str> {
    let may = bare(model).starts_with(LONG_ON_DEMAND) && known(model) != Some(LONG_TOKENS);
    match may && asks_for_long(headers) {
        true => Cow::Owned(format!("{model}{LONG_MARK}")),
        false => Cow::Borrowed(model),
    }
}

fn asks_for_long(headers: &HeaderMap) -> bool {
    let values = headers.get_all("anthropic-beta").iter().filter_map(|value| value.to_str().ok());
    let mut features = values.flat_map(|value| value.split(','));
    features.any(|feature| feature.trim().starts_with(LONG_FEATURE))
}

fn bare(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use ctxhost_runtime::RuntimeBuilder;

    #[test]
    fn the_longest_name_that_fits_stands_first() {
        for (at, (name, _)) in KNOWN.iter().enumerate() {
            let hidden = KNOWN.iter().take(at).find(|(before, _)| name.starts_with(before));
            assert_eq!(hidden, None, "{name}");
        }
    }

    #[test]
    fn models_are_known_by_their_names() {
        for (name, tokens) in [
            ("models/gemini-2.5-pro", Some(1_048_576)),
            ("gpt-4o-2024-08-06", Some(128_000)),
            ("gpt-5.1-codex", Some(272_000)),
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
            assert_eq!(known(name), tokens, "{name}");
        }
    }

    #[test]
    fn a_long_window_is_that_of_requests_that_ask_for_it() {
        let check = |model: &str, features: &[&'static str], expected: &str| {
            let mut headers = HeaderMap::new();
            for value in features {
                headers.append("anthropic-beta", HeaderValue::from_static(value));
            }
            assert_eq!(name(model, &headers), expected, "{model} {features:?}");
        };
        let asking = ["oauth-2025-04-20", "token-counting-2024-11-01, context-1m-2025-08-07"];
        check("claude-sonnet-4-5", &asking, "claude-sonnet-4-5[1m]");
        check("claude-sonnet-4-20250514", &asking, "claude-sonnet-4-20250514[1m]");
        check("claude-sonnet-4-5", &asking[..1], "claude-sonnet-4-5");
        check("claude-opus-4-1", &asking, "claude-opus-4-1");
        check("claude-sonnet-4-6", &asking, "claude-sonnet-4-6");
        check("claude-sonnet-4-5[1m]", &asking, "claude-sonnet-4-5[1m]");
    }

    #[tokio::test]
    async fn the_config_goes_before_what_is_known() {
        let config = Config::parse(
            "c.toml",
            "[models.\"local/qwen3\"]\nwindow_tokens = 20000\n\
             [models.\"other/qwen3\"]\nwindow_tokens = 30000\n\
             [models.plain]\nwindow_tokens = 40000\n\
             [models.claude-sonnet-4-5]\nwindow_tokens = 50000\n\
             [models.\"router/openai/gpt-4o\"]\nwindow_tokens = 60000\n",
        );
        let config = config.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let builder = RuntimeBuilder::of(&config).store_folder(folder.path());
        let runtime = builder.build().await.unwrap();
        let certain = |tokens| Some(Window { tokens, is_certain: true });
        for (provider, name, window) in [
            ("other", "qwen3", certain(30_000)),
            ("local", "qwen3", certain(20_000)),
            ("openai", "qwen3", certain(20_000)),
            ("openai", "n3", None),
            ("openai", "plain", certain(40_000)),
            ("anthropic", "claude-sonnet-4-5[1m]", certain(50_000)),
            ("router", "openai/gpt-4o", certain(60_000)),
            ("openai", "gpt-4o", certain(60_000)),
            ("openai", "gpt-4.1", Some(Window { tokens: 1_047_576, is_certain: false })),
        ] {
            assert_eq!(told(&runtime, &config, provider, name), window, "{provider} {name}");
        }
        let default = Window { tokens: 200_000, is_certain: false };
        assert_eq!(super::window(&runtime, &config, "openai", "n3"), default);
    }
}
