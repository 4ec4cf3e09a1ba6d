//! What refusals teach of windows to all sessions of clients: more than one of them must say it, or a code.
//!
//! A refusal is known by its text, and a text may quote what a client wrote. So a session believes its own
//! refusals and no others ([`Accounting::learned_window`](ctxhost_context::accounting::Accounting::learned_window)),
//! until there is more than words.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::name::ModelName;
use ctxhost_config::{GatewaySettings, WindowHints};
use ctxhost_dialects::ProviderError;

/// What was learned of windows.
#[derive(Debug)]
pub(crate) struct LearnedWindows {
    min_tokens: u64,
    min_share: f64,
    max_models: usize,
    models: Mutex<HashMap<ModelName, WindowEvidence>>,
}

/// What was heard of one model, in provider tokens.
#[derive(Debug, Default)]
struct WindowEvidence {
    /// What counts for all.
    window_tokens: Option<u64>,
    /// What its provider states.
    stated_tokens: Option<u64>,
    /// The smallest prompt that was refused with a code and without a limit, less one.
    refused_tokens: Option<u64>,
    /// What one session was told, and which.
    pending_limit: Option<(u64, String)>,
    /// The largest window that it was thought to have.
    assumed_tokens: u64,
    /// The largest prompt that was answered.
    answered_tokens: u64,
}

impl LearnedWindows {
    pub(crate) fn new(settings: &GatewaySettings) -> LearnedWindows {
        LearnedWindows {
            min_tokens: settings.learned_min_tokens,
            min_share: settings.learned_min_share,
            max_models: settings.learned_models,
            models: Mutex::default(),
        }
    }

    /// What counts for all sessions of a model.
    pub(crate) fn hints(&self, model: &ModelName) -> WindowHints {
        let models = self.models();
        let Some(known) = models.get(model) else { return WindowHints::default() };
        WindowHints {
            stated_tokens: known.stated_tokens,
            limit_tokens: known.window_tokens,
            refused_tokens: known.refused_tokens,
            recorded_tokens: None,
        }
    }

    /// The provider states the window of a model, in provider tokens.
    pub(crate) fn record_stated_window(&self, model: &ModelName, tokens: u64) {
        if tokens >= self.min_tokens {
            self.update(model, |known| known.stated_tokens = Some(tokens));
        }
    }

    /// A session was told that a request of `refused_tokens` is too large; the model was thought to have
    /// `assumed_tokens`. All in provider tokens.
    pub(crate) fn record_refusal(
        &self,
        (model, thought_tokens): (&ModelName, u64),
        session: &str,
        failure: &ProviderError,
        refused_tokens: u64,
    ) {
        if failure.limit_tokens.is_none() && failure.has_overflow_code() {
            return self.record_unbounded_refusal(model, thought_tokens, refused_tokens);
        }
        let Some(tokens) = failure.limit_tokens.filter(|tokens| *tokens >= self.min_tokens) else {
            return;
        };
        let is_code = failure.has_overflow_code();
        let is_shown = failure.observed_tokens.is_some_and(|observed| observed > tokens);
        if !is_code && !is_shown {
            return;
        }
        self.update(model, |known| {
            known.assumed_tokens = known.assumed_tokens.max(thought_tokens);
            let least_tokens = (known.assumed_tokens as f64 * self.min_share) as u64;
            if tokens < least_tokens.max(known.answered_tokens) {
                return;
            }
            let told = known.pending_limit.replace((tokens, session.to_owned()));
            if is_code || told.is_some_and(|(said, of)| said == tokens && of != session) {
                known.window_tokens = Some(tokens);
            }
        });
    }

    /// A code says that a prompt was too large, and no limit was named: others are made smaller than it.
    fn record_unbounded_refusal(
        &self,
        model: &ModelName,
        thought_tokens: u64,
        refused_tokens: u64,
    ) {
        if refused_tokens < self.min_tokens {
            return;
        }
        self.update(model, |known| {
            known.assumed_tokens = known.assumed_tokens.max(thought_tokens);
            let least_tokens = (known.assumed_tokens as f64 * self.min_share) as u64;
            if refused_tokens >= least_tokens.max(known.answered_tokens) {
                let before_tokens = known.refused_tokens.unwrap_or(u64::MAX);
                known.refused_tokens = Some(before_tokens.min(refused_tokens));
            }
        });
    }

    /// A prompt of so many provider tokens was answered: no window is smaller.
    pub(crate) fn record_accepted_prompt(&self, model: &ModelName, counted_tokens: u64) {
        self.update(model, |known| {
            known.answered_tokens = known.answered_tokens.max(counted_tokens);
            known.window_tokens = known.window_tokens.filter(|tokens| *tokens >= counted_tokens);
            known.refused_tokens = known.refused_tokens.filter(|tokens| *tokens >= counted_tokens);
        });
    }

    /// The names of models are the clients', and there is no end of them. Where all places are taken,
    /// those go that have taught nothing; where none has, nothing more is learned.
    fn update(&self, model: &ModelName, note: impl FnOnce(&mut WindowEvidence)) {
        let mut models = self.models();
        if let Some(known) = models.get_mut(model) {
            return note(known);
        }
        if models.len() >= self.max_models {
            let is_taught = |known: &WindowEvidence| {
                known.window_tokens.or(known.refused_tokens).or(known.stated_tokens).is_some()
            };
            models.retain(|_, known| is_taught(known));
        }
        if models.len() < self.max_models {
            note(models.entry(model.clone()).or_default());
        }
    }

    fn models(&self) -> MutexGuard<'_, HashMap<ModelName, WindowEvidence>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctxhost_dialects::failure::{Classifier, parse_refusal};

    const CODE: &str = "context_length_exceeded";

    fn windows() -> LearnedWindows {
        LearnedWindows::new(&GatewaySettings { learned_models: 3, ..GatewaySettings::default() })
    }

    fn model() -> ModelName {
        ModelName::new("openai", "m")
    }

    /// What is known after sessions were told a limit, of a model that is thought to have 200,000.
    fn after(
        windows: &LearnedWindows,
        told: &[(&str, u64)],
        code: &str,
        words: &str,
    ) -> Option<u64> {
        for (session, limit) in told {
            let message = format!("maximum context length is {limit} tokens{words}");
            let body = serde_json::json!({"error": {"message": message, "code": code}}).to_string();
            let refusal = parse_refusal(Some(400), &body);
            let classified = Classifier::for_phrases(&[]).unwrap().classify(&refusal);
            let failure = classified.into_error("openai", "m", refusal, None);
            windows.record_refusal((&model(), 200_000), session, &failure, 90_000);
        }
        named(windows)
    }

    fn named(windows: &LearnedWindows) -> Option<u64> {
        windows.hints(&model()).limit_tokens
    }

    /// A refusal that names no limit.
    fn refuse(windows: &LearnedWindows, code: &str, refused_tokens: u64) {
        let message = "Your input exceeds the context window of this model.";
        let body = serde_json::json!({"error": {"message": message, "code": code}}).to_string();
        let refusal = parse_refusal(Some(400), &body);
        let classified = Classifier::for_phrases(&[]).unwrap().classify(&refusal);
        let failure = classified.into_error("openai", "m", refusal, None);
        windows.record_refusal((&model(), 200_000), "a", &failure, refused_tokens);
    }

    #[test]
    fn a_refused_size_is_a_limit_where_none_is_named() {
        let windows = windows();
        refuse(&windows, "invalid_value", 90_000);
        let refused = || windows.hints(&model()).refused_tokens;
        assert_eq!(refused(), None, "a text alone says nothing for others");
        refuse(&windows, CODE, 90_000);
        refuse(&windows, CODE, 95_000);
        assert_eq!(refused(), Some(90_000));
        refuse(&windows, CODE, 2_000);
        assert_eq!(refused(), Some(90_000), "less than a sixteenth is not believed");
        windows.record_accepted_prompt(&model(), 91_000);
        assert_eq!(refused(), None, "a larger prompt was answered");
    }

    #[test]
    fn words_count_when_two_sessions_hear_them_and_codes_at_once() {
        let check = |told: &[(&str, u64)], code, words| after(&windows(), told, code, words);
        let shown = ". However, your messages resulted in 90000 tokens.";
        let other = "invalid_value";
        assert_eq!(check(&[("a", 32_000)], other, shown), None);
        assert_eq!(check(&[("a", 32_000), ("a", 32_000)], other, shown), None);
        assert_eq!(check(&[("a", 32_000), ("b", 31_000)], other, shown), None);
        assert_eq!(check(&[("a", 32_000), ("b", 32_000)], other, shown), Some(32_000));
        assert_eq!(check(&[("a", 32_000), ("b", 32_000)], other, ""), None);
        assert_eq!(check(&[("a", 32_000)], CODE, ""), Some(32_000));
    }

    #[test]
    fn what_can_hardly_be_is_not_believed() {
        for limit in [5, 1_000, 12_000] {
            assert_eq!(after(&windows(), &[("a", limit)], CODE, ""), None, "{limit}");
        }
        assert_eq!(after(&windows(), &[("a", 13_000)], CODE, ""), Some(13_000));
    }

    #[test]
    fn an_answer_to_a_larger_prompt_is_a_proof() {
        let windows = windows();
        windows.record_accepted_prompt(&model(), 40_000);
        assert_eq!(after(&windows, &[("a", 32_000)], CODE, ""), None);
        assert_eq!(after(&windows, &[("a", 64_000)], CODE, ""), Some(64_000));
        windows.record_accepted_prompt(&model(), 65_000);
        assert_eq!(named(&windows), None);
    }

    #[test]
    fn names_that_somebody_makes_up_take_no_room() {
        let windows = windows();
        assert_eq!(after(&windows, &[("a", 64_000)], CODE, ""), Some(64_000));
        for n in 0..100 {
            windows.record_accepted_prompt(&ModelName::new("openai", n.to_string()), 1);
            assert!(windows.models().len() <= 3);
        }
        assert_eq!(named(&windows), Some(64_000));
    }
}
