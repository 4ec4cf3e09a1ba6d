//! Learns windows from clients' refusals, for all sessions.
//!
//! A refusal is recognised by its text, which may quote a client. So a session applies its own
//! refusals to itself only, until a code or a second session confirms them.

use std::collections::HashMap;

use crate::name::ModelName;
use ctxhost_config::{GatewaySettings, WindowHints};
use ctxhost_dialects::ProviderError;
use parking_lot::Mutex;

/// The windows learned so far.
#[derive(Debug)]
pub(crate) struct LearnedWindows {
    min_tokens: u64,
    min_share: f64,
    max_models: usize,
    models: Mutex<HashMap<ModelName, WindowEvidence>>,
}

/// What is known of one model, in provider tokens.
#[derive(Debug, Default)]
struct WindowEvidence {
    /// The window for all sessions.
    window_tokens: Option<u64>,
    /// The window that the provider states.
    stated_tokens: Option<u64>,
    /// The smallest prompt that was refused with a code and without a limit.
    refused_tokens: Option<u64>,
    /// A limit named to only one session so far, and the session.
    pending_limit: Option<(u64, String)>,
    /// The largest window that was assumed.
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

    /// The hints for all sessions of a model.
    pub(crate) fn hints(&self, model: &ModelName) -> WindowHints {
        let models = self.models.lock();
        let Some(evidence) = models.get(model) else { return WindowHints::default() };
        WindowHints {
            stated_tokens: evidence.stated_tokens,
            limit_tokens: evidence.window_tokens,
            refused_tokens: evidence.refused_tokens,
            recorded_tokens: None,
        }
    }

    /// Records the window that a provider states, in provider tokens.
    pub(crate) fn record_stated_window(&self, model: &ModelName, tokens: u64) {
        if tokens >= self.min_tokens {
            self.update(model, |evidence| evidence.stated_tokens = Some(tokens));
        }
    }

    /// Records that a session's request of `refused_tokens` was refused as too large by a model
    /// with an assumed window of `assumed_tokens`, all in provider tokens.
    pub(crate) fn record_refusal(
        &self,
        (model, assumed_tokens): (&ModelName, u64),
        session: &str,
        failure: &ProviderError,
        refused_tokens: u64,
    ) {
        if failure.limit_tokens.is_none() && failure.has_overflow_code() {
            return self.record_unbounded_refusal(model, assumed_tokens, refused_tokens);
        }
        let Some(tokens) = failure.limit_tokens.filter(|tokens| *tokens >= self.min_tokens) else {
            return;
        };
        let is_code = failure.has_overflow_code();
        let is_shown = failure.observed_tokens.is_some_and(|observed| observed > tokens);
        // A text alone may be quoted; the larger size beside the limit makes that unlikely.
        if !is_code && !is_shown {
            return;
        }
        self.update(model, |evidence| {
            if tokens < self.min_plausible_tokens(evidence, assumed_tokens) {
                return;
            }
            let earlier = evidence.pending_limit.replace((tokens, session.to_owned()));
            let is_confirmed = earlier.is_some_and(|(limit, of)| limit == tokens && of != session);
            if is_code || is_confirmed {
                evidence.window_tokens = Some(tokens);
            }
        });
    }

    /// Records a refusal with a code and without a limit: prompts of other sessions stay below its
    /// size.
    fn record_unbounded_refusal(
        &self,
        model: &ModelName,
        assumed_tokens: u64,
        refused_tokens: u64,
    ) {
        if refused_tokens < self.min_tokens {
            return;
        }
        self.update(model, |evidence| {
            if refused_tokens >= self.min_plausible_tokens(evidence, assumed_tokens) {
                let smallest_tokens = evidence.refused_tokens.unwrap_or(u64::MAX);
                evidence.refused_tokens = Some(smallest_tokens.min(refused_tokens));
            }
        });
    }

    /// The smallest window that a refusal may teach: a share of the largest assumed one, and no
    /// less than an answered prompt.
    fn min_plausible_tokens(&self, evidence: &mut WindowEvidence, assumed_tokens: u64) -> u64 {
        evidence.assumed_tokens = evidence.assumed_tokens.max(assumed_tokens);
        let min_tokens = (evidence.assumed_tokens as f64 * self.min_share) as u64;
        min_tokens.max(evidence.answered_tokens)
    }

    /// Records an answered prompt of `counted_tokens`: no window is smaller.
    pub(crate) fn record_accepted_prompt(&self, model: &ModelName, counted_tokens: u64) {
        self.update(model, |evidence| {
            evidence.answered_tokens = evidence.answered_tokens.max(counted_tokens);
            // An answered prompt disproves every smaller limit.
            evidence.window_tokens =
                evidence.window_tokens.filter(|tokens| *tokens >= counted_tokens);
            evidence.refused_tokens =
                evidence.refused_tokens.filter(|tokens| *tokens >= counted_tokens);
        });
    }

    /// Updates a model's evidence.
    fn update(&self, model: &ModelName, change: impl FnOnce(&mut WindowEvidence)) {
        // Without a name, one conversation's model would teach all others.
        if model.id.is_empty() {
            return;
        }
        let mut models = self.models.lock();
        if let Some(evidence) = models.get_mut(model) {
            return change(evidence);
        }
        // Clients choose the names of models, so their number is unlimited. At the limit, models that
        // have taught nothing are dropped; if all have, new ones are ignored.
        if models.len() >= self.max_models {
            let has_taught = |evidence: &WindowEvidence| {
                evidence
                    .window_tokens
                    .or(evidence.refused_tokens)
                    .or(evidence.stated_tokens)
                    .is_some()
            };
            models.retain(|_, evidence| has_taught(evidence));
        }
        if models.len() < self.max_models {
            change(models.entry(model.clone()).or_default());
        }
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

    /// The window after sessions were limits a limit, for a model with an assumed window of 200,000.
    fn after(
        windows: &LearnedWindows,
        limits: &[(&str, u64)],
        code: &str,
        suffix: &str,
    ) -> Option<u64> {
        for (session, limit) in limits {
            let message = format!("maximum context length is {limit} tokens{suffix}");
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

    /// A refusal without a limit.
    fn refuse(windows: &LearnedWindows, code: &str, refused_tokens: u64) {
        let message = "Your input exceeds the context window of this model.";
        let body = serde_json::json!({"error": {"message": message, "code": code}}).to_string();
        let refusal = parse_refusal(Some(400), &body);
        let classified = Classifier::for_phrases(&[]).unwrap().classify(&refusal);
        let failure = classified.into_error("openai", "m", refusal, None);
        windows.record_refusal((&model(), 200_000), "a", &failure, refused_tokens);
    }

    #[test]
    fn a_refused_size_limits_prompts_without_a_named_limit() {
        let windows = windows();
        refuse(&windows, "invalid_value", 90_000);
        let refused = || windows.hints(&model()).refused_tokens;
        assert_eq!(refused(), None, "a text alone is not evidence for others");
        refuse(&windows, CODE, 90_000);
        refuse(&windows, CODE, 95_000);
        assert_eq!(refused(), Some(90_000));
        refuse(&windows, CODE, 2_000);
        assert_eq!(refused(), Some(90_000), "less than a sixteenth is implausible");
        windows.record_accepted_prompt(&model(), 91_000);
        assert_eq!(refused(), None, "a larger prompt was answered");
    }

    #[test]
    fn a_limit_counts_after_two_sessions_and_with_a_code_at_once() {
        let check = |limits: &[(&str, u64)], code, suffix| after(&windows(), limits, code, suffix);
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
    fn an_implausible_limit_is_ignored() {
        for limit in [5, 1_000, 12_000] {
            assert_eq!(after(&windows(), &[("a", limit)], CODE, ""), None, "{limit}");
        }
        assert_eq!(after(&windows(), &[("a", 13_000)], CODE, ""), Some(13_000));
    }

    #[test]
    fn an_answered_prompt_outweighs_a_smaller_limit() {
        let windows = windows();
        windows.record_accepted_prompt(&model(), 40_000);
        assert_eq!(after(&windows, &[("a", 32_000)], CODE, ""), None);
        assert_eq!(after(&windows, &[("a", 64_000)], CODE, ""), Some(64_000));
        windows.record_accepted_prompt(&model(), 65_000);
        assert_eq!(named(&windows), None);
    }

    #[test]
    fn a_model_without_a_name_teaches_nothing() {
        let (windows, unnamed) = (windows(), ModelName::new("openai", ""));
        windows.record_stated_window(&unnamed, 64_000);
        windows.record_accepted_prompt(&unnamed, 64_000);
        assert_eq!(windows.hints(&unnamed).limit_tokens, None);
        assert!(windows.models.lock().is_empty());
    }

    #[test]
    fn made_up_names_displace_nothing() {
        let windows = windows();
        assert_eq!(after(&windows, &[("a", 64_000)], CODE, ""), Some(64_000));
        for n in 0..100 {
            windows.record_accepted_prompt(&ModelName::new("openai", n.to_string()), 1);
            assert!(windows.models.lock().len() <= 3);
        }
        assert_eq!(named(&windows), Some(64_000));
    }
}
