//! Token accounting: predicts the size of a request in the provider's tokens. Pure: no clock, no file.
//!
//! ```text
//!  last request   [system][tools][ m1 ][ m2 ]          ─► the provider counted 41,200: the anchor
//!  next request   [system][tools][ m1 ][ m2 ][ a ][ m3 ]
//!                 └──── counted: 41,200 ─────┘└ estimates x learned factor ┘
//! ```
//!
//! There are two units. *Estimated tokens* come from the script-aware estimate, which is the same for all models.
//! *Provider tokens* are counted by a model's own tokenizer; windows, limits and usage are in provider tokens. The factor
//! between the two is learned per model from reported usage: an upper quantile for limits, the median for targets.

mod factor;
mod record;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use ctxhost_config::{AccountingSettings, MAX_WINDOW_TOKENS};
use ctxhost_dialects::message::{StopReason, TokenUsage};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_models::ModelName;
use factor::TokenFactor;

/// The smallest factor of a count that may lack cached tokens: no estimate errs by more than half.
const MIN_UNPROVEN_FACTOR: f64 = 0.5;

/// A part of a request: the system prompt, the tools, or one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizePart {
    /// A hash of the content.
    fingerprint: u64,
    /// Its size in estimated tokens.
    estimate_tokens: u64,
}

impl SizePart {
    /// A part with its size in estimated tokens.
    pub fn new(sent: &str, estimate_tokens: u64) -> SizePart {
        let mut hasher = DefaultHasher::new();
        // Not cryptographic: a collision costs one wrong estimate.
        sent.hash(&mut hasher);
        SizePart { fingerprint: hasher.finish(), estimate_tokens }
    }

    /// A text part, estimated here.
    pub fn from_text(sent: &str) -> SizePart {
        SizePart::new(sent, tokens::estimate(sent))
    }
}

/// The size of a request: its parts in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSize {
    parts: Vec<SizePart>,
    /// The number of compactions before it.
    generation: u64,
}

impl RequestSize {
    /// The total, in estimated tokens.
    pub fn estimate_tokens(&self) -> u64 {
        estimate(&self.parts)
    }

    fn digest(&self, parts: usize) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        for part in self.parts.get(..parts)? {
            hasher.write_u64(part.fingerprint);
        }
        Some(hasher.finish())
    }
}

/// The size of a request, partly counted by the provider and partly estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCount {
    /// The counted part, in provider tokens.
    pub counted_tokens: u64,
    /// The rest, in estimated tokens.
    pub estimated_tokens: u64,
}

impl TokenCount {
    /// A size without a counted part.
    pub fn estimated(estimated_tokens: u64) -> TokenCount {
        TokenCount { counted_tokens: 0, estimated_tokens }
    }
}

/// How a count was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountTrust {
    /// As the anchor of requests that start like this one, and for the factor if no cached tokens can be missing.
    Anchored,
    /// For the factor only: a compaction has changed the conversation since.
    LearnedOnly,
    /// Not at all: it is far below the estimate, so the provider has probably truncated the prompt or left out what it
    /// had cached.
    Doubtful,
    /// Not at all: the count is missing, or the answer was aborted.
    Ignored,
}

/// A window that is smaller than configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedWindow {
    /// In provider tokens.
    pub tokens: u64,
    /// Whether the provider stated it in a refusal; otherwise it follows from token counts.
    pub is_stated: bool,
    /// The window that was known when it was learned, in provider tokens. It bounds no other one: that is another server, or
    /// a correction by the user.
    pub known_tokens: u64,
}

/// The token accounting of one session.
#[derive(Clone, Debug)]
pub struct TokenAccounting {
    settings: AccountingSettings,
    model: ModelName,
    window_tokens: u64,
    generation: u64,
    models: HashMap<ModelName, ModelAccount>,
}

/// What is known of a model.
#[derive(Clone, Debug, Default)]
struct ModelAccount {
    factor: TokenFactor,
    anchor: Option<CountAnchor>,
    window: Option<LearnedWindow>,
    /// The factor for limits when it was last stored in the session.
    stored_limit: Option<f64>,
    /// The stated window that the session stores.
    stored_window: Option<LearnedWindow>,
}

/// A count of the provider for the start of a request.
#[derive(Clone, Debug)]
struct CountAnchor {
    parts: usize,
    digest: u64,
    counted_tokens: u64,
}

impl TokenAccounting {
    /// Accounting for a model and its window in provider tokens, 0 if unknown.
    pub fn new(
        settings: AccountingSettings,
        model: ModelName,
        window_tokens: u64,
    ) -> TokenAccounting {
        TokenAccounting { settings, model, window_tokens, generation: 0, models: HashMap::new() }
    }

    /// The current model.
    pub fn model(&self) -> &ModelName {
        &self.model
    }

    /// Its window in provider tokens, 0 if unknown.
    pub fn window_tokens(&self) -> u64 {
        self.window_tokens
    }

    /// Switches to another model with its own window, factor and counts. Those of other models are kept.
    pub fn use_model(&mut self, model: ModelName, window_tokens: u64) {
        self.model = model;
        self.window_tokens = window_tokens;
    }

    /// The learned window of a model that is otherwise known with `known_tokens`, as when it was learned.
    pub fn learned_window(&self, model: &ModelName, known_tokens: u64) -> Option<LearnedWindow> {
        // A window that was configured since is newer, also a smaller one.
        self.models.get(model)?.window.filter(|window| window.known_tokens == known_tokens)
    }

    /// Records a learned window for this session.
    pub fn learn_window(&mut self, model: &ModelName, window: LearnedWindow) {
        self.models.entry(model.clone()).or_default().window = Some(window);
    }

    /// Discards the anchors after a compaction.
    pub fn invalidate_anchors(&mut self) {
        self.generation += 1;
        self.models.values_mut().for_each(|known| known.anchor = None);
    }

    /// The size of a request of these parts: system prompt and tools first, then the messages.
    pub fn request_size(&self, parts: impl IntoIterator<Item = SizePart>) -> RequestSize {
        RequestSize { parts: parts.into_iter().collect(), generation: self.generation }
    }

    /// Splits a request into the prefix that the provider has counted and the estimated rest.
    pub fn count(&self, prompt: &RequestSize) -> TokenCount {
        let anchor = self.models.get(&self.model).and_then(|known| known.anchor.as_ref());
        let matching = anchor.filter(|anchor| {
            // A request prepared before a compaction has another history.
            prompt.generation == self.generation
                && prompt.digest(anchor.parts) == Some(anchor.digest)
        });
        let (counted_tokens, parts) =
            matching.map_or((0, 0), |anchor| (anchor.counted_tokens, anchor.parts));
        let rest = prompt.parts.get(parts..).unwrap_or_default();
        TokenCount { counted_tokens, estimated_tokens: estimate(rest) }
    }

    /// An upper bound in provider tokens, for limits; one request in ten exceeds it.
    pub fn upper_bound(&self, size: TokenCount) -> u64 {
        size.counted_tokens.saturating_add(scaled(size.estimated_tokens, self.limit_factor()))
    }

    /// The expected size in provider tokens, for targets. At most [`upper_bound`](Self::upper_bound).
    pub fn expected(&self, size: TokenCount) -> u64 {
        size.counted_tokens.saturating_add(scaled(size.estimated_tokens, self.usual_factor()))
    }

    /// The estimated tokens that fit into provider tokens: the inverse of [`upper_bound`](Self::upper_bound).
    pub fn fitting_estimated_tokens(&self, provider_tokens: u64) -> u64 {
        let factor = self.limit_factor();
        let mut fitting = (provider_tokens as f64 / factor) as u64;
        // Rounding may exceed the limit by a little.
        while fitting > 0 && scaled(fitting, factor) > provider_tokens {
            fitting -= (fitting >> 50).max(1);
        }
        fitting
    }

    /// Provider tokens per estimated token, for limits.
    pub fn limit_factor(&self) -> f64 {
        let model_factor = |known: &ModelAccount| known.factor.upper_bound(&self.settings);
        self.models
            .get(&self.model)
            .map_or_else(|| TokenFactor::default().upper_bound(&self.settings), model_factor)
    }

    /// Provider tokens per estimated token, typical for this model.
    pub fn usual_factor(&self) -> f64 {
        let typical = self.models.get(&self.model).map_or(1.0, |known| known.factor.median());
        // `expected` must not exceed `upper_bound`, whatever quantile is configured.
        typical.min(self.limit_factor())
    }

    /// Records the usage of an answer. The whole prompt counts, including cached tokens, where the server is known to
    /// count these.
    pub fn record_usage(
        &mut self,
        model: &ModelName,
        prompt: &RequestSize,
        usage: &TokenUsage,
        stop: StopReason,
        counts_cached: bool,
    ) -> CountTrust {
        match stop {
            StopReason::Error | StopReason::Aborted => CountTrust::Ignored,
            _ => {
                // An impossible count is not evidence of a larger window.
                if usage.prompt_tokens() <= MAX_WINDOW_TOKENS {
                    self.discard_exceeded_window(model, usage.prompt_tokens());
                }
                self.record(model, prompt, usage.prompt_tokens(), counts_cached)
            }
        }
    }

    /// Discards a learned window that an accepted prompt exceeds.
    fn discard_exceeded_window(&mut self, model: &ModelName, counted_tokens: u64) {
        if let Some(known) = self.models.get_mut(model) {
            known.window = known.window.filter(|window| window.tokens >= counted_tokens);
        }
    }

    /// Records a provider's count of a prompt, without output.
    pub fn record_count(
        &mut self,
        model: &ModelName,
        prompt: &RequestSize,
        counted_tokens: u64,
    ) -> CountTrust {
        self.record(model, prompt, counted_tokens, true)
    }

    /// Records a count, of which `is_whole` is whether no cached tokens can be missing.
    fn record(
        &mut self,
        model: &ModelName,
        prompt: &RequestSize,
        counted_tokens: u64,
        is_whole: bool,
    ) -> CountTrust {
        let estimate_tokens = prompt.estimate_tokens();
        if counted_tokens == 0 || estimate_tokens == 0 {
            return CountTrust::Ignored;
        }
        let factor = counted_tokens as f64 / estimate_tokens as f64;
        // So small a count is rather a truncated prompt, or one without its cached part, than a good tokenizer.
        let least_factor =
            self.settings.min_factor.max(if is_whole { 0.0 } else { MIN_UNPROVEN_FACTOR });
        let is_below_prefix = !is_whole && counted_tokens < self.count(prompt).counted_tokens;
        // Above the largest possible window the count must be wrong.
        if factor < least_factor || is_below_prefix || counted_tokens > MAX_WINDOW_TOKENS {
            return CountTrust::Doubtful;
        }
        let known = self.models.entry(model.clone()).or_default();
        // A count without cached tokens says how many tokens a text has at least.
        let is_certain = is_whole || factor >= 1.0;
        // In a small request the fixed overhead of the provider's template dominates.
        if is_certain && estimate_tokens >= self.settings.min_request_tokens {
            known.factor.record(factor, &self.settings);
        }
        if prompt.generation != self.generation {
            return CountTrust::LearnedOnly;
        }
        let parts = prompt.parts.len();
        let anchor =
            prompt.digest(parts).map(|digest| CountAnchor { parts, digest, counted_tokens });
        known.anchor = anchor;
        CountTrust::Anchored
    }
}

fn estimate(parts: &[SizePart]) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(part.estimate_tokens))
}

/// Rounds up; casting a float saturates.
fn scaled(estimated_tokens: u64, factor: f64) -> u64 {
    (estimated_tokens as f64 * factor).ceil() as u64
}
