//! Looks up windows of models, with what providers and refusals have taught.

use std::collections::HashMap;

use crate::learned_windows::LearnedWindows;
use crate::name::ModelName;
use ctxhost_config::{Config, ModelWindow, WindowHints, WindowSource};
use ctxhost_dialects::ProviderError;
use parking_lot::Mutex;

/// A context window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextWindow {
    /// In provider tokens.
    pub tokens: u64,
    /// Whether the config or the provider states it. Otherwise it is a guess, or the size of a
    /// refused request.
    pub is_certain: bool,
    /// Whether the answer takes no space in it.
    pub is_prompt_only: bool,
}

impl ContextWindow {
    fn new(window: ModelWindow, hints: WindowHints) -> ContextWindow {
        let is_certain = match window.source {
            WindowSource::Config | WindowSource::ConfigDefault | WindowSource::Provider => true,
            // A refusal without a limit teaches only the refused size, which is an upper bound.
            WindowSource::Refusal => hints.limit_tokens == Some(window.tokens),
            // The table goes by names, which any provider may reuse.
            WindowSource::Recording | WindowSource::Table | WindowSource::Default => false,
        };
        ContextWindow { tokens: window.tokens, is_certain, is_prompt_only: window.is_prompt_only }
    }
}

/// The windows of models.
#[derive(Debug)]
pub struct ModelRegistry {
    config: Config,
    /// The windows of the agent's own models, in provider tokens.
    agent_windows: Mutex<HashMap<ModelName, u64>>,
    learned: LearnedWindows,
}

impl ModelRegistry {
    /// A registry for a config. `agent_windows` are the windows of the agent's own models, in
    /// provider tokens.
    pub fn new(config: &Config, agent_windows: HashMap<ModelName, u64>) -> ModelRegistry {
        let learned = LearnedWindows::new(&config.gateway);
        ModelRegistry { config: config.clone(), agent_windows: Mutex::new(agent_windows), learned }
    }

    /// The window for prompts of clients.
    pub fn window(&self, model: &ModelName) -> ContextWindow {
        let (window, hints) = self.look_up(model);
        ContextWindow::new(window, hints)
    }

    /// Like [`window`](Self::window), but `None` if only the built-in default is known.
    pub fn known_window(&self, model: &ModelName) -> Option<ContextWindow> {
        let (window, hints) = self.look_up(model);
        (window.source != WindowSource::Default).then(|| ContextWindow::new(window, hints))
    }

    /// The window of one of the agent's own models, in provider tokens; 0 if unknown.
    pub fn agent_window_tokens(&self, model: &ModelName) -> u64 {
        self.agent_windows.lock().get(model).copied().unwrap_or_default()
    }

    /// Lowers the window of one of the agent's own models to what its provider states.
    pub fn lower_agent_window(&self, model: &ModelName, tokens: u64) {
        let mut windows = self.agent_windows.lock();
        let window = windows.entry(model.clone()).or_default();
        // A smaller one is the provider's limit, whatever the config states; a larger one is ignored.
        if (1..*window).contains(&tokens) {
            *window = tokens;
        }
    }

    /// Records the window that a provider states, in provider tokens.
    pub fn record_stated_window(&self, model: &ModelName, tokens: u64) {
        self.learned.record_stated_window(model, tokens);
    }

    /// Records an answered prompt of `counted_tokens`: no window is smaller.
    pub fn record_accepted_prompt(&self, model: &ModelName, counted_tokens: u64) {
        self.learned.record_accepted_prompt(model, counted_tokens);
    }

    /// Records that a session's request of `refused_tokens` was refused as too large by a model
    /// with an assumed window, all in provider tokens.
    pub fn record_refusal(
        &self,
        assumed: (&ModelName, u64),
        session: &str,
        failure: &ProviderError,
        refused_tokens: u64,
    ) {
        self.learned.record_refusal(assumed, session, failure, refused_tokens);
    }

    fn look_up(&self, model: &ModelName) -> (ModelWindow, WindowHints) {
        let hints = self.learned.hints(model);
        (self.config.window(&model.provider, &model.id, hints), hints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(text: &str) -> ModelRegistry {
        ModelRegistry::new(&Config::parse("c.toml", text).unwrap(), HashMap::new())
    }

    #[test]
    fn a_configured_window_is_certain_and_one_by_name_is_a_guess() {
        let check = |text: &str, model: &str, expected: Option<(u64, bool)>| {
            let found = registry(text).known_window(&ModelName::new("openai", model));
            let found = found.map(|window| (window.tokens, window.is_certain));
            assert_eq!(found, expected, "{text} {model}");
        };
        check("", "gpt-4.1", Some((1_047_576, false)));
        check("", "n3", None);
        check("[models.n3]\nwindow_tokens = 20000\n", "n3", Some((20_000, true)));
        let default = "[model]\ndefault_window_tokens = 48000\n";
        check(default, "n3", Some((48_000, true)));
        check(default, "gpt-4.1", Some((48_000, true)));
    }

    #[test]
    fn a_stated_window_precedes_one_by_name() {
        let (models, model) = (registry(""), ModelName::new("openai", "gpt-4"));
        models.record_stated_window(&model, 32_000);
        let window = models.window(&model);
        assert_eq!((window.tokens, window.is_certain), (32_000, true));
    }

    #[test]
    fn an_agent_window_is_only_lowered() {
        let model = ModelName::new("here", "one");
        let windows = HashMap::from([(model.clone(), 64_000)]);
        let models = ModelRegistry::new(&Config::default(), windows);
        models.lower_agent_window(&model, 128_000);
        models.lower_agent_window(&model, 0);
        assert_eq!(models.agent_window_tokens(&model), 64_000);
        models.lower_agent_window(&model, 32_000);
        assert_eq!(models.agent_window_tokens(&model), 32_000);
        assert_eq!(models.agent_window_tokens(&ModelName::new("here", "other")), 0);
    }
}
