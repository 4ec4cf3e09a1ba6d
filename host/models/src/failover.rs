//! Selects the model of each attempt of a turn. It knows no clock and sends nothing.
//!
//! ```text
//! start_turn ─► model ─► answer
//!             │ reason
//!             ├─ the request is at fault (overflow), or was cancelled ─► Stop
//!             ├─ may succeed at once, and the first failure ───────────► Retry
//!             └─ otherwise a cooldown for the model, and the next ─────► Next
//!                                                     no next one ─► Stop ─► FailoverError
//! ```
//!
//! Each model is tried once per turn, except for retries.

mod attempt;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::name::ModelName;
use ctxhost_config::FailoverSettings;
use ctxhost_dialects::{FailureReason, ProviderError};

pub use attempt::{FailoverError, ModelAttempt, advice};

/// The chain of models and their cooldowns. Kept in memory only.
#[derive(Debug)]
pub struct Failover {
    settings: FailoverSettings,
    chain: Vec<ModelName>,
    cooldowns: HashMap<ModelName, ModelCooldown>,
}

/// The cooldown of a model.
#[derive(Clone, Copy, Debug)]
struct ModelCooldown {
    until_ms: u64,
    reason: FailureReason,
}

impl Failover {
    /// A chain, in order of preference. Duplicates count once.
    pub fn new(settings: FailoverSettings, chain: Vec<ModelName>) -> Failover {
        let mut unique: Vec<ModelName> = Vec::with_capacity(chain.len());
        for model in chain {
            if !unique.contains(&model) {
                unique.push(model);
            }
        }
        Failover { settings, chain: unique, cooldowns: HashMap::new() }
    }

    /// Starts a turn with the first model without a cooldown, else with the one whose cooldown ends
    /// first.
    ///
    /// `now_ms` is any monotonic clock. `None` for an empty chain.
    pub fn start_turn(&self, now_ms: u64) -> Option<ModelCursor> {
        let until = |model: &&ModelName| {
            self.active_cooldown(model, now_ms).map_or(0, |cooldown| cooldown.until_ms)
        };
        // `min_by_key` takes the first of equals, which keeps the order of the chain.
        let model = self.chain.iter().min_by_key(until)?.clone();
        Some(ModelCursor::new(model))
    }

    /// Starts a turn with this model if it is in the chain and has no cooldown, else as
    /// [`start_turn`](Self::start_turn).
    pub fn start_turn_with(&self, first: Option<&ModelName>, now_ms: u64) -> Option<ModelCursor> {
        let is_ready = |model: &&ModelName| {
            self.contains(model) && self.active_cooldown(model, now_ms).is_none()
        };
        match first.filter(is_ready) {
            Some(model) => Some(ModelCursor::new(model.clone())),
            None => self.start_turn(now_ms),
        }
    }

    /// Whether the chain has a model.
    pub fn contains(&self, model: &ModelName) -> bool {
        self.chain.contains(model)
    }

    /// Ends the cooldown of a model that answered.
    pub fn record_success(&mut self, model: &ModelName) {
        self.cooldowns.remove(model);
    }

    /// Decides what follows a failed request of this turn.
    pub fn record_failure(
        &mut self,
        cursor: &mut ModelCursor,
        error: &ProviderError,
        now_ms: u64,
    ) -> FailoverDecision {
        let class = classify_reason(error.reason);
        // Another model would get the same request, which is too large, or cancelled.
        if class == ReasonClass::Halt {
            cursor.attempts.push(cursor.failed_attempt(error));
            return FailoverDecision::Stop(stop_for(error.reason));
        }
        if class == ReasonClass::RetrySame && cursor.retries < self.settings.same_model_retries {
            cursor.retries += 1;
            return FailoverDecision::Retry;
        }
        cursor.attempts.push(cursor.failed_attempt(error));
        self.start_cooldown(&cursor.model, class, error, now_ms);
        match self.next_model(cursor, now_ms) {
            Some(model) => {
                cursor.model = model.clone();
                cursor.retries = 0;
                FailoverDecision::Next { model, reason: error.reason }
            }
            None => FailoverDecision::Stop(FailoverStop::ChainExhausted(
                self.exhausted_error(cursor, now_ms),
            )),
        }
    }

    fn start_cooldown(
        &mut self,
        model: &ModelName,
        class: ReasonClass,
        error: &ProviderError,
        now_ms: u64,
    ) {
        let cooldown_ms = match class {
            ReasonClass::Throttled => self.settings.rate_limit_cooldown_ms,
            ReasonClass::Unavailable => self.settings.error_cooldown_ms,
            ReasonClass::Refused => self.settings.refused_cooldown_ms,
            ReasonClass::Halt | ReasonClass::RetrySame | ReasonClass::SkipOnce => return,
        };
        // The provider's own wait counts if it is longer.
        let until_ms = now_ms.saturating_add(cooldown_ms.max(error.retry_after_ms.unwrap_or(0)));
        self.cooldowns.insert(model.clone(), ModelCooldown { until_ms, reason: error.reason });
    }

    /// The next model in the chain, cyclically, that was not tried and has no cooldown.
    fn next_model(&self, cursor: &ModelCursor, now_ms: u64) -> Option<ModelName> {
        let current = self.chain.iter().position(|model| *model == cursor.model).unwrap_or(0);
        // Cyclic, since a turn may start in the middle of the chain.
        let others = self.chain.iter().cycle().skip(current + 1).take(self.chain.len());
        let is_free = |model: &&ModelName| {
            !cursor.has_tried(model) && self.active_cooldown(model, now_ms).is_none()
        };
        others.into_iter().find(is_free).cloned()
    }

    fn exhausted_error(&self, cursor: &ModelCursor, now_ms: u64) -> FailoverError {
        let untried = self.chain.iter().filter(|model| !cursor.has_tried(model));
        let cooling = untried.filter_map(|model| {
            let cooldown = self.active_cooldown(model, now_ms)?;
            let cooldown_ms = cooldown.until_ms.saturating_sub(now_ms);
            Some(ModelAttempt::cooling(model.clone(), cooldown.reason, cooldown_ms))
        });
        FailoverError { attempts: cursor.attempts.iter().cloned().chain(cooling).collect() }
    }

    fn active_cooldown(&self, model: &ModelName, now_ms: u64) -> Option<ModelCooldown> {
        self.cooldowns.get(model).copied().filter(|cooldown| cooldown.until_ms > now_ms)
    }
}

/// The position of a turn in the chain.
#[derive(Clone, Debug)]
pub struct ModelCursor {
    model: ModelName,
    retries: u32,
    attempts: Vec<ModelAttempt>,
}

impl ModelCursor {
    fn new(model: ModelName) -> ModelCursor {
        ModelCursor { model, retries: 0, attempts: Vec::new() }
    }

    /// The current model.
    pub fn model(&self) -> &ModelName {
        &self.model
    }

    /// The failed attempts of this turn.
    pub fn attempts(&self) -> &[ModelAttempt] {
        &self.attempts
    }

    fn has_tried(&self, model: &ModelName) -> bool {
        self.attempts.iter().any(|attempt| attempt.model == *model)
    }

    fn failed_attempt(&self, error: &ProviderError) -> ModelAttempt {
        ModelAttempt::failed(self.model.clone(), error)
    }
}

/// What follows a failed request.
#[derive(Clone, Debug, PartialEq)]
pub enum FailoverDecision {
    /// Use another model. Its window, tools and dialect may differ.
    Next {
        /// The model.
        model: ModelName,
        /// Why the previous one failed.
        reason: FailureReason,
    },
    /// Use the same model again, after the history or the output limit was corrected if the reason
    /// requires that.
    Retry,
    /// Use no model.
    Stop(FailoverStop),
}

/// Why no model is used.
#[derive(Clone, Debug, PartialEq)]
pub enum FailoverStop {
    /// The request is too large. Another window is as likely smaller as larger, so recovery
    /// compacts instead.
    ContextOverflow,
    /// The caller cancelled the request.
    Cancelled,
    /// No model is left.
    ChainExhausted(FailoverError),
}

/// What a failure says about its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReasonClass {
    /// Nothing: the request is at fault or was cancelled.
    Halt,
    /// The same model may succeed at once.
    RetrySame,
    /// It cannot serve this request, but others.
    SkipOnce,
    /// It is throttled.
    Throttled,
    /// It is temporarily unavailable.
    Unavailable,
    /// It is unusable until a user changes something.
    Refused,
}

fn classify_reason(reason: FailureReason) -> ReasonClass {
    match reason {
        FailureReason::ContextOverflow | FailureReason::Cancelled => ReasonClass::Halt,
        // Recovery repairs the history or lowers the limit before the retry.
        FailureReason::MalformedHistory
        | FailureReason::OutputLimit
        | FailureReason::SessionExpired
        | FailureReason::EmptyResponse
        | FailureReason::StreamCut
        | FailureReason::InvalidResponse => ReasonClass::RetrySame,
        // Without a cooldown: the cause may be this request alone.
        FailureReason::Format | FailureReason::Unclassified => ReasonClass::SkipOnce,
        FailureReason::RateLimit => ReasonClass::Throttled,
        FailureReason::Overloaded
        | FailureReason::ServerError
        | FailureReason::Timeout
        | FailureReason::Connection => ReasonClass::Unavailable,
        FailureReason::WindowTooSmall
        | FailureReason::Billing
        | FailureReason::Auth
        | FailureReason::AuthPermanent
        | FailureReason::TlsCertificate
        | FailureReason::ModelNotFound => ReasonClass::Refused,
    }
}

fn stop_for(reason: FailureReason) -> FailoverStop {
    if reason == FailureReason::Cancelled {
        FailoverStop::Cancelled
    } else {
        FailoverStop::ContextOverflow
    }
}
