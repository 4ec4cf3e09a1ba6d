//! How large a request is, in the tokens of the provider that will count it. Pure: no clock, no file.
//!
//! ```text
//!  last request   [system][tools][ m1 ][ m2 ]          ─► the provider counted 41,200: the anchor
//!  next request   [system][tools][ m1 ][ m2 ][ a ][ m3 ]
//!                 └──── counted: 41,200 ─────┘└ estimates x learned factor ┘
//! ```
//!
//! Two units occur. *Estimated tokens* are what the script-aware estimate gives for a text, the same
//! for each model. *Provider tokens* are what a model's own tokenizer counts; windows, limits and
//! usages are in them. The factor between the two is learned for each model from what its provider
//! counted: an upper quantile of it where something must fit, the median where a size is aimed at.

mod factor;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use ctxhost_config::{AccountingSettings, MAX_WINDOW_TOKENS};
use ctxhost_dialects::message::{StopReason, TokenUsage};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_models::ModelName;
use factor::TokenFactor;

/// A piece of a request: the system prompt, the tools, or one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizePart {
    /// What tells it from other pieces.
    fingerprint: u64,
    /// Its size in estimated tokens.
    estimate_tokens: u64,
}

impl SizePart {
    /// A piece as it is sent, with its size in estimated tokens.
    pub fn new(sent: &str, estimate_tokens: u64) -> SizePart {
        let mut hasher = DefaultHasher::new();
        sent.hash(&mut hasher);
        SizePart { fingerprint: hasher.finish(), estimate_tokens }
    }

    /// A piece of text, estimated here.
    pub fn from_text(sent: &str) -> SizePart {
        SizePart::new(sent, tokens::estimate(sent))
    }
}

/// A request as far as its size goes: its pieces in the order in which they are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestSize {
    parts: Vec<SizePart>,
    /// Compactions before it.
    generation: u64,
}

impl RequestSize {
    /// All of it, in estimated tokens.
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

/// The size of a request, part of it counted by the provider and part of it estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCount {
    /// What the provider counted, in provider tokens.
    pub counted_tokens: u64,
    /// What it has not counted yet, in estimated tokens.
    pub estimated_tokens: u64,
}

impl TokenCount {
    /// A size of which nothing was counted.
    pub fn estimated(estimated_tokens: u64) -> TokenCount {
        TokenCount { counted_tokens: 0, estimated_tokens }
    }
}

/// What was made of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountTrust {
    /// It was learned from, and requests that begin like this one are counted from it.
    Anchored,
    /// It was learned from; a compaction has come since, so that no request begins like it.
    LearnedOnly,
    /// It is far below the estimate: the provider has probably cut the prompt and said nothing.
    Doubtful,
    /// It says nothing: no count, or an answer that broke off.
    Ignored,
}

/// A window that is smaller than it was said to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedWindow {
    /// In provider tokens.
    pub tokens: u64,
    /// Whether the provider said so in a refusal; else it only looks so by what it has counted.
    pub is_stated: bool,
}

/// The account of one session.
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
}

/// A count of the provider, and of what.
#[derive(Clone, Debug)]
struct CountAnchor {
    parts: usize,
    digest: u64,
    /// In provider tokens.
    counted_tokens: u64,
}

impl TokenAccounting {
    /// An account for a model with a window of so many provider tokens; 0 for an unknown one.
    pub fn new(
        settings: AccountingSettings,
        model: ModelName,
        window_tokens: u64,
    ) -> TokenAccounting {
        TokenAccounting { settings, model, window_tokens, generation: 0, models: HashMap::new() }
    }

    /// The model that is accounted for.
    pub fn model(&self) -> &ModelName {
        &self.model
    }

    /// Its window, in provider tokens; 0 for an unknown one.
    pub fn window_tokens(&self) -> u64 {
        self.window_tokens
    }

    /// Another model answers from here on, with its own window, factor and counts. What was learned
    /// of the one before is kept for its return.
    pub fn use_model(&mut self, model: ModelName, window_tokens: u64) {
        self.model = model;
        self.window_tokens = window_tokens;
    }

    /// The window of a model as this session has learned it, where that is so.
    pub fn learned_window(&self, model: &ModelName) -> Option<LearnedWindow> {
        self.models.get(model)?.window
    }

    /// A model has no more than this window, as far as this session goes.
    pub fn learn_window(&mut self, model: &ModelName, window: LearnedWindow) {
        self.models.entry(model.clone()).or_default().window = Some(window);
    }

    /// A compaction was applied: no count from before it is used for a size any more.
    pub fn invalidate_anchors(&mut self) {
        self.generation += 1;
        self.models.values_mut().for_each(|known| known.anchor = None);
    }

    /// A request that is about to be sent: system prompt and tools first, then its messages.
    pub fn request_size(&self, parts: impl IntoIterator<Item = SizePart>) -> RequestSize {
        RequestSize { parts: parts.into_iter().collect(), generation: self.generation }
    }

    /// The size of a request: what it has in common with the last one that the provider counted is
    /// taken from there, the rest is estimated.
    pub fn count(&self, prompt: &RequestSize) -> TokenCount {
        let anchor = self.models.get(&self.model).and_then(|known| known.anchor.as_ref());
        let fitting = anchor.filter(|anchor| {
            prompt.generation == self.generation
                && prompt.digest(anchor.parts) == Some(anchor.digest)
        });
        let (counted_tokens, parts) = fitting.map_or((0, 0), |at| (at.counted_tokens, at.parts));
        let rest = prompt.parts.get(parts..).unwrap_or_default();
        TokenCount { counted_tokens, estimated_tokens: estimate(rest) }
    }

    /// What a request is not larger than, in provider tokens, but for one in ten: for limits.
    pub fn upper_bound(&self, size: TokenCount) -> u64 {
        size.counted_tokens.saturating_add(scaled(size.estimated_tokens, self.limit_factor()))
    }

    /// What a request will probably be counted as, in provider tokens: for targets. Never above
    /// [`upper_bound`](Self::upper).
    pub fn expected(&self, size: TokenCount) -> u64 {
        size.counted_tokens.saturating_add(scaled(size.estimated_tokens, self.usual_factor()))
    }

    /// The estimated tokens that fit into so many provider tokens: the other way around from
    /// [`upper_bound`](Self::upper).
    pub fn fitting_estimated_tokens(&self, provider_tokens: u64) -> u64 {
        let factor = self.limit_factor();
        let mut fitting = (provider_tokens as f64 / factor) as u64;
        // Floating point may end a little above.
        while fitting > 0 && scaled(fitting, factor) > provider_tokens {
            fitting -= (fitting >> 50).max(1);
        }
        fitting
    }

    /// The provider tokens of one estimated token, for limits.
    pub fn limit_factor(&self) -> f64 {
        let of_model = |known: &ModelAccount| known.factor.upper_bound(&self.settings);
        self.models
            .get(&self.model)
            .map_or_else(|| TokenFactor::default().upper_bound(&self.settings), of_model)
    }

    /// The provider tokens of one estimated token, as usual with this model.
    pub fn usual_factor(&self) -> f64 {
        let usual = self.models.get(&self.model).map_or(1.0, |known| known.factor.median());
        usual.min(self.limit_factor())
    }

    /// A model answered a request and said what it counted.
    ///
    /// The whole prompt counts, each token once: what came from a cache is part of it.
    pub fn record_usage(
        &mut self,
        model: &ModelName,
        prompt: &RequestSize,
        usage: &TokenUsage,
        stop: StopReason,
    ) -> CountTrust {
        match stop {
            StopReason::Error | StopReason::Aborted => CountTrust::Ignored,
            _ => {
                // What no prompt can be outgrows nothing.
                if usage.prompt_tokens() <= MAX_WINDOW_TOKENS {
                    self.discard_exceeded_window(model, usage.prompt_tokens());
                }
                self.record_count(model, prompt, usage.prompt_tokens())
            }
        }
    }

    /// A window that a prompt was larger than is none.
    fn discard_exceeded_window(&mut self, model: &ModelName, counted_tokens: u64) {
        if let Some(known) = self.models.get_mut(model) {
            known.window = known.window.filter(|window| window.tokens >= counted_tokens);
        }
    }

    /// A provider counted a request, asked to do so. In provider tokens, without any output.
    pub fn record_count(
        &mut self,
        model: &ModelName,
        prompt: &RequestSize,
        counted_tokens: u64,
    ) -> CountTrust {
        let estimate_tokens = prompt.estimate_tokens();
        if counted_tokens == 0 || estimate_tokens == 0 {
            return CountTrust::Ignored;
        }
        let factor = counted_tokens as f64 / estimate_tokens as f64;
        // No prompt is larger than any window.
        if factor < self.settings.min_factor || counted_tokens > MAX_WINDOW_TOKENS {
            return CountTrust::Doubtful;
        }
        let known = self.models.entry(model.clone()).or_default();
        if estimate_tokens >= self.settings.min_request_tokens {
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

/// Rounded up; casting a float saturates.
fn scaled(estimated_tokens: u64, factor: f64) -> u64 {
    (estimated_tokens as f64 * factor).ceil() as u64
}
