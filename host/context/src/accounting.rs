//! Token accounting: predicts the size of a request in the provider's tokens. Pure: no clock, no file.
//!
//! ```text
//!  last request   [system][tools][ m1 ][ m2 ]          ─► the provider counted 41,200: the anchor
//!  next request   [system][tools][ m1 ][ m2 ][ a ][ m3 ]
//!                 └──── counted: 41,200 ─────┘└ estimates x learned rates ┘
//! ```
//!
//! There are two units. *Estimated tokens* come from the script-aware estimate, which is the same for all models.
//! *Provider tokens* are counted by a model's own tokenizer; windows, limits and usage are in provider tokens. The rates
//! between the two are learned per model from reported usage: an upper quantile for limits, the median for targets.

mod counts;
mod rates;
mod record;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use ctxhost_config::{AccountingSettings, MAX_WINDOW_TOKENS};
use ctxhost_dialects::message::{StopReason, TokenUsage};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_models::ModelName;

use counts::{RecentCounts, TokenSample};
use rates::{TokenRates, share_of};

/// The smallest factor of a count that may lack cached tokens: no estimate errs by more than half.
const MIN_UNPROVEN_FACTOR: f64 = 0.5;

/// A part of a request: the system prompt, the tools, or one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizePart {
    /// A hash of the content.
    fingerprint: u64,
    /// Its size in estimated tokens.
    estimate_tokens: u64,
    /// The share of images and files in it.
    attachment_tokens: u64,
}

impl SizePart {
    /// A part without images and files, with its size in estimated tokens.
    pub fn new(sent: &str, estimate_tokens: u64) -> SizePart {
        let mut hasher = DefaultHasher::new();
        // Not cryptographic: a collision costs one wrong estimate.
        sent.hash(&mut hasher);
        SizePart { fingerprint: hasher.finish(), estimate_tokens, attachment_tokens: 0 }
    }

    /// The part with so many of its estimated tokens in images and files.
    #[must_use]
    pub fn with_attachments(self, attachment_tokens: u64) -> SizePart {
        SizePart { attachment_tokens: attachment_tokens.min(self.estimate_tokens), ..self }
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
        TokenCount::of_parts(&self.parts).estimated_tokens
    }

    /// The share of images and files in it.
    pub fn attachment_tokens(&self) -> u64 {
        TokenCount::of_parts(&self.parts).attachment_tokens
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
    /// The share of images and files in the rest.
    pub attachment_tokens: u64,
}

impl TokenCount {
    /// A size without a counted part, and without images and files.
    pub fn estimated(estimated_tokens: u64) -> TokenCount {
        TokenCount { estimated_tokens, ..TokenCount::default() }
    }

    /// A size without a counted part, of which images and files have this share.
    pub fn estimated_with(estimated_tokens: u64, attachment_share: f64) -> TokenCount {
        let attachment_tokens = share_of(estimated_tokens, attachment_share);
        TokenCount { estimated_tokens, attachment_tokens, ..TokenCount::default() }
    }

    fn of_parts(parts: &[SizePart]) -> TokenCount {
        parts.iter().fold(TokenCount::default(), |sum, part| TokenCount {
            estimated_tokens: sum.estimated_tokens.saturating_add(part.estimate_tokens),
            attachment_tokens: sum.attachment_tokens.saturating_add(part.attachment_tokens),
            ..sum
        })
    }
}

/// What the count of an answer has of tokens that the server had cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachedTokens {
    /// All of them.
    Counted,
    /// None, since nothing of the conversation was sent before.
    NotYet,
    /// Perhaps none: old servers leave them out.
    Unknown,
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
    counts: RecentCounts,
    anchor: Option<CountAnchor>,
    window: Option<LearnedWindow>,
    /// The rates for limits when they were last stored in the session.
    stored_limit: Option<TokenRates>,
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
        TokenCount { counted_tokens, ..TokenCount::of_parts(rest) }
    }

    /// An upper bound in provider tokens, for limits; one request in ten exceeds it.
    pub fn upper_bound(&self, size: TokenCount) -> u64 {
        provider_tokens(size, &self.rates().0)
    }

    /// The expected size in provider tokens, for targets. At most [`upper_bound`](Self::upper_bound).
    pub fn expected(&self, size: TokenCount) -> u64 {
        provider_tokens(size, &self.rates().1)
    }

    /// The estimated tokens that fit into provider tokens if images and files have this share of them: the inverse of
    /// [`upper_bound`](Self::upper_bound).
    pub fn fitting_estimated_tokens(&self, provider_tokens: u64, attachment_share: f64) -> u64 {
        self.rates().0.fitting_tokens(provider_tokens, attachment_share)
    }

    /// Whether the model's counts have shown what images and files cost.
    pub fn knows_attachments(&self) -> bool {
        self.models.get(&self.model).is_some_and(|known| known.counts.knows_attachments())
    }

    /// The rates of the current model: for limits, and the typical ones.
    fn rates(&self) -> (TokenRates, TokenRates) {
        let counts = self.models.get(&self.model).map(|known| &known.counts);
        counts.unwrap_or(&RecentCounts::default()).rates(&self.settings)
    }

    /// Records the usage of an answer. The whole prompt counts, including cached tokens.
    pub fn record_usage(
        &mut self,
        model: &ModelName,
        prompt: &RequestSize,
        usage: &TokenUsage,
        stop: StopReason,
        cached: CachedTokens,
    ) -> CountTrust {
        match stop {
            StopReason::Error | StopReason::Aborted => CountTrust::Ignored,
            _ => {
                // An impossible count is not evidence of a larger window.
                if usage.prompt_tokens() <= MAX_WINDOW_TOKENS {
                    self.discard_exceeded_window(model, usage.prompt_tokens());
                }
                self.record(model, prompt, usage.prompt_tokens(), cached)
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
        self.record(model, prompt, counted_tokens, CachedTokens::Counted)
    }

    fn record(
        &mut self,
        model: &ModelName,
        prompt: &RequestSize,
        counted_tokens: u64,
        cached: CachedTokens,
    ) -> CountTrust {
        let size = TokenCount::of_parts(&prompt.parts);
        if counted_tokens == 0 || size.estimated_tokens == 0 {
            return CountTrust::Ignored;
        }
        let sample = TokenSample {
            text_tokens: size.estimated_tokens.saturating_sub(size.attachment_tokens),
            attachment_tokens: size.attachment_tokens,
            counted_tokens,
        };
        let is_whole = cached == CachedTokens::Counted;
        // So small a count is rather a truncated prompt, or one without its cached part, than a good tokenizer. Of images and files no
        // count is too small.
        let least_factor =
            self.settings.min_factor.max(if is_whole { 0.0 } else { MIN_UNPROVEN_FACTOR });
        let is_too_small = (counted_tokens as f64) < least_factor * sample.text_tokens as f64;
        let is_below_prefix = !is_whole && counted_tokens < self.count(prompt).counted_tokens;
        // Above the largest possible window the count must be wrong.
        if is_too_small || is_below_prefix || counted_tokens > MAX_WINDOW_TOKENS {
            return CountTrust::Doubtful;
        }
        let known = self.models.entry(model.clone()).or_default();
        // A count without cached tokens says how many tokens a text has at least.
        let is_certain = is_whole
            || counted_tokens >= size.estimated_tokens
            || (cached == CachedTokens::NotYet && !sample.is_text());
        // In a small request the fixed overhead of the provider's template dominates.
        if is_certain && size.estimated_tokens >= self.settings.min_request_tokens {
            known.counts.record(sample, &self.settings);
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

/// The size at these rates.
fn provider_tokens(size: TokenCount, rates: &TokenRates) -> u64 {
    let text_tokens = size.estimated_tokens.saturating_sub(size.attachment_tokens);
    // A counted part has the constant part already.
    let hidden_tokens = if size.counted_tokens > 0 { 0 } else { rates.hidden_tokens };
    let estimated = rates.scale(text_tokens, size.attachment_tokens);
    size.counted_tokens.saturating_add(hidden_tokens).saturating_add(estimated)
}
