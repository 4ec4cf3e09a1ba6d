//! The windows of models: one lookup for every driver, with what providers and refusals have taught.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::learned_windows::LearnedWindows;
use crate::name::ModelName;
use ctxhost_config::{Config, ModelWindow, WindowHints, WindowSource};
use ctxhost_dialects::ProviderError;

/// A window and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextWindow {
    /// In provider tokens.
    pub tokens: u64,
    /// Whether the config or the provider states it; else it is a guess, or the size of a refused request.
    pub is_certain: bool,
    /// Whether the answer takes no room in it.
    pub is_prompt_only: bool,
}

impl ContextWindow {
    fn new(window: ModelWindow, hints: WindowHints) -> ContextWindow {
        let is_certain = match window.source {
            WindowSource::Config | WindowSource::ConfigDefault | WindowSource::Provider => true,
            WindowSource::Refusal => hints.limit_tokens == Some(window.tokens),
            WindowSource::Recording | WindowSource::Table | WindowSource::Default => false,
        };
        ContextWindow { tokens: window.tokens, is_certain, is_prompt_only: window.is_prompt_only }
    }
}

/// The windows of models.
#[derive(Debug)]
pub struct ModelRegistry {
    config: Config,
    /// The windows of the agent's own models, in provider tokens: looked up when they were configured, until a provider
    /// says otherwise.
    agent_windows: Mutex<HashMap<ModelName, u64>>,
    learned: LearnedWindows,
}

impl ModelRegistry {
    /// The models of a config; `agent_windows` are those that the agent asks, with their windows in provider tokens.
    pub fn new(config: &Config, own: HashMap<ModelName, u64>) -> ModelRegistry {
        let learned = LearnedWindows::new(&config.gateway);
        ModelRegistry { config: config.clone(), agent_windows: Mutex::new(own), learned }
    }

    /// The window that prompts of clients are prepared for.
    pub fn window(&self, model: &ModelName) -> ContextWindow {
        let (window, hints) = self.look_up(model);
        ContextWindow::new(window, hints)
    }

    /// The same; `None` where only the built-in default is left.
    pub fn known_window(&self, model: &ModelName) -> Option<ContextWindow> {
        let (window, hints) = self.look_up(model);
        (window.source != WindowSource::Default).then(|| ContextWindow::new(window, hints))
    }

    /// The window of one of the agent's own models, in provider tokens; 0 for an unknown one.
    pub fn agent_window_tokens(&self, model: &ModelName) -> u64 {
        self.agent_windows().get(model).copied().unwrap_or_default()
    }

    /// The provider of one of the agent's own models knows its window; the config may not. Only a smaller one is
    /// believed.
    pub fn lower_agent_window(&self, model: &ModelName, tokens: u64) {
        let mut own = self.agent_windows();
        let known = own.entry(model.clone()).or_default();
        if (1..*known).contains(&tokens) {
            *known = tokens;
        }
    }

    /// A provider states the window of a model, in provider tokens.
    pub fn record_stated_window(&self, model: &ModelName, tokens: u64) {
        self.learned.record_stated_window(model, tokens);
    }

    /// A prompt of so many provider tokens was answered: no window is smaller.
    pub fn record_accepted_prompt(&self, model: &ModelName, counted_tokens: u64) {
        self.learned.record_accepted_prompt(model, counted_tokens);
    }

    /// A client's session was told that a request of `refused_tokens` is too large; the model was thought to have
    /// `thought_tokens`. All in provider tokens.
    pub fn record_refusal(
        &self,
        thought: (&ModelName, u64),
        session: &str,
        failure: &ProviderError,
        refused_tokens: u64,
    ) {
        self.learned.record_refusal(thought, session, failure, refused_tokens);
    }

    fn look_up(&self, model: &ModelName) -> (ModelWindow, WindowHints) {
        let hints = self.learned.hints(model);
        (self.config.window(&model.provider, &model.id, hints), hints)
    }

    fn agent_windows(&self) -> MutexGuard<'_, HashMap<ModelName, u64>> {
        self.agent_windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(text: &str) -> ModelRegistry {
        ModelRegistry::new(&Config::parse("c.toml", text).unwrap(), HashMap::new())
    }

    #[test]
    fn what_is_written_is_certain_and_a_name_is_a_guess() {
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
    fn what_a_provider_states_goes_before_the_name() {
        let (models, model) = (registry(""), ModelName::new("openai", "gpt-4"));
        models.record_stated_window(&model, 32_000);
        let window = models.window(&model);
        assert_eq!((window.tokens, window.is_certain), (32_000, true));
    }

    #[test]
    fn a_window_of_its_own_becomes_smaller_and_never_larger() {
        let model = ModelName::new("here", "one");
        let own = HashMap::from([(model.clone(), 64_000)]);
        let models = ModelRegistry::new(&Config::default(), own);
        models.lower_agent_window(&model, 128_000);
        models.lower_agent_window(&model, 0);
        assert_eq!(models.agent_window_tokens(&model), 64_000);
        models.lower_agent_window(&model, 32_000);
        assert_eq!(models.agent_window_tokens(&model), 32_000);
        assert_eq!(models.agent_window_tokens(&ModelName::new("here", "other")), 0);
    }
}
