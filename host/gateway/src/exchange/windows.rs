//! The window of a client's model: the common lookup, with what refusals have taught the gateway.

use std::borrow::Cow;

use axum::http::HeaderMap;

use ctxhost_config::{
    Config, LONG_MARK, ModelWindow, WindowHints, WindowSource, bare_model_name, table_window,
};
use ctxhost_runtime::Runtime;

/// Models that have a long window where a request asks for it.
const LONG_ON_DEMAND: &str = "claude-sonnet-4";

/// How a request asks for it: a feature in the header `anthropic-beta`.
const LONG_FEATURE: &str = "context-1m-";

/// A window and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// In provider tokens.
    pub tokens: u64,
    /// Whether the config or the provider states it; else it is a guess, or the size of a refused request.
    pub is_certain: bool,
    /// Whether the answer takes no room in it.
    pub is_prompt_only: bool,
}

impl Window {
    fn new(window: ModelWindow, hints: WindowHints) -> Window {
        let is_certain = match window.source {
            WindowSource::Config | WindowSource::ConfigDefault | WindowSource::Provider => true,
            WindowSource::Refusal => hints.limit_tokens == Some(window.tokens),
            WindowSource::Recording | WindowSource::Table | WindowSource::Default => false,
        };
        Window { tokens: window.tokens, is_certain, is_prompt_only: window.is_prompt_only }
    }
}

/// The window that requests for a model are shaped for.
pub(super) fn window(runtime: &Runtime, config: &Config, provider: &str, name: &str) -> Window {
    let (window, hints) = look_up(runtime, config, provider, name);
    Window::new(window, hints)
}

/// The window of a model; `None` where only the built-in default is left.
pub(super) fn known(
    runtime: &Runtime,
    config: &Config,
    provider: &str,
    name: &str,
) -> Option<Window> {
    let (window, hints) = look_up(runtime, config, provider, name);
    (window.source != WindowSource::Default).then(|| Window::new(window, hints))
}

fn look_up(
    runtime: &Runtime,
    config: &Config,
    provider: &str,
    name: &str,
) -> (ModelWindow, WindowHints) {
    let hints = runtime.window_hints(provider, name);
    (config.window(provider, name, hints), hints)
}

/// The name under which a window is looked up and learned: asked for its long window, a model is another
/// one.
pub(super) fn name<'a>(model: &'a str, headers: &HeaderMap) -> Cow<'a, str> {
    let is_long = model.ends_with(LONG_MARK);
    let may = bare_model_name(model).starts_with(LONG_ON_DEMAND) && !is_long;
    let long = || format!("{model}{LONG_MARK}");
    // Newer ones always have it.
    match may && asks_for_long(headers) && table_window(model) != table_window(&long()) {
        true => Cow::Owned(long()),
        false => Cow::Borrowed(model),
    }
}

fn asks_for_long(headers: &HeaderMap) -> bool {
    let values = headers.get_all("anthropic-beta").iter().filter_map(|value| value.to_str().ok());
    let mut features = values.flat_map(|value| value.split(','));
    features.any(|feature| feature.trim().starts_with(LONG_FEATURE))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use ctxhost_runtime::RuntimeBuilder;

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
    async fn what_is_written_is_certain_and_a_name_is_a_guess() {
        let check = async |text: &str, model: &str, expected: Option<(u64, bool)>| {
            let config = Config::parse("c.toml", text).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let builder = RuntimeBuilder::of(&config).store_folder(folder.path());
            let runtime = builder.build().await.unwrap();
            let found = known(&runtime, &config, "openai", model);
            let found = found.map(|window| (window.tokens, window.is_certain));
            assert_eq!(found, expected, "{text} {model}");
        };
        check("", "gpt-4.1", Some((1_047_576, false))).await;
        check("", "n3", None).await;
        check("[models.n3]\nwindow_tokens = 20000\n", "n3", Some((20_000, true))).await;
        let default = "[model]\ndefault_window_tokens = 48000\n";
        check(default, "n3", Some((48_000, true))).await;
        check(default, "gpt-4.1", Some((48_000, true))).await;
    }

    #[tokio::test]
    async fn what_a_provider_states_goes_before_the_name() {
        let config = Config::default();
        let folder = tempfile::tempdir().unwrap();
        let builder = RuntimeBuilder::of(&config).store_folder(folder.path());
        let runtime = builder.build().await.unwrap();
        runtime.state_window("openai", "gpt-4", 32_000);
        let window = window(&runtime, &config, "openai", "gpt-4");
        assert_eq!((window.tokens, window.is_certain), (32_000, true));
    }
}
