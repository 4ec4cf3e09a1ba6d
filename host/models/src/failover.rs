//! Which model is asked when one gives no answer. Pure: no clock, no request.
//!
//! ```text
//!  begin ─► model ─► answer
//!             │ reason
//!             ├─ the request is at fault (overflow), or nobody waits for it ─► Stop
//!             ├─ may be different next time, and it is the first time ───────► Retry
//!             └─ otherwise the model rests, and the next one is asked ───────► Next
//!                                                       no next one ─► Stop ─► AllModelsFailed
//! ```
//!
//! A context overflow never walks the chain: the next model would be asked the same, with a window
//! that is as likely smaller as larger. Each model is left once per turn and not asked again in it.

mod attempt;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::name::ModelName;
use ctxhost_config::FailoverSettings;
use ctxhost_dialects::{FailureReason, ProviderError};

pub use attempt::{FailoverError, ModelAttempt, advice};

/// The chain of models and which of them rest. Lives as long as the process and is kept nowhere.
#[derive(Debug)]
pub struct Failover {
    settings: FailoverSettings,
    chain: Vec<ModelName>,
    cooldowns: HashMap<ModelName, ModelCooldown>,
}

/// Why a model is passed over for a while.
#[derive(Clone, Copy, Debug)]
struct ModelCooldown {
    until_ms: u64,
    reason: FailureReason,
}

impl Failover {
    /// A chain, the model to be asked first in front. A model that stands in it twice counts once.
    pub fn new(settings: FailoverSettings, chain: Vec<ModelName>) -> Failover {
        let mut once: Vec<ModelName> = Vec::with_capacity(chain.len());
        for model in chain {
            if !once.contains(&model) {
                once.push(model);
            }
        }
        Failover { settings, chain: once, cooldowns: HashMap::new() }
    }

    /// Begins a turn with the first model that does not rest, or else with the one whose rest ends
    /// first: a turn always asks somebody.
    ///
    /// `now_ms` is any clock that does not go back. `None` for an empty chain.
    pub fn start_turn(&self, now_ms: u64) -> Option<ModelCursor> {
        let until = |model: &&ModelName| {
            self.active_cooldown(model, now_ms).map_or(0, |rest| rest.until_ms)
        };
        // Of equals the first is taken, which keeps the order of the chain.
        let model = self.chain.iter().min_by_key(until)?.clone();
        Some(ModelCursor { model, retries: 0, attempts: Vec::new() })
    }

    /// Begins with this model where the chain has it and it does not rest, else as [`start_turn`](Self::begin).
    pub fn start_turn_with(&self, first: Option<&ModelName>, now_ms: u64) -> Option<ModelCursor> {
        let is_ready = |model: &&ModelName| {
            self.contains(model) && self.active_cooldown(model, now_ms).is_none()
        };
        match first.filter(is_ready) {
            Some(model) => {
                Some(ModelCursor { model: model.clone(), retries: 0, attempts: Vec::new() })
            }
            None => self.start_turn(now_ms),
        }
    }

    /// Whether a model stands in the chain.
    pub fn contains(&self, model: &ModelName) -> bool {
        self.chain.contains(model)
    }

    /// A model answered: it need not rest any more.
    pub fn record_success(&mut self, model: &ModelName) {
        self.cooldowns.remove(model);
    }

    /// Decides what follows a failed request of this turn.
    pub fn record_failure(
        &mut self,
        walk: &mut ModelCursor,
        error: &ProviderError,
        now_ms: u64,
    ) -> FailoverDecision {
        let course = classify_reason(error.reason);
        if course == ReasonClass::Halt {
            walk.attempts.push(walk.failed_attempt(error));
            return FailoverDecision::Stop(stop_for(error.reason));
        }
        if course == ReasonClass::RetrySame && walk.retries < self.settings.same_model_retries {
            walk.retries += 1;
            return FailoverDecision::Retry;
        }
        walk.attempts.push(walk.failed_attempt(error));
        self.start_cooldown(&walk.model, course, error, now_ms);
        match self.next_model(walk, now_ms) {
            Some(model) => {
                walk.model = model.clone();
                walk.retries = 0;
                FailoverDecision::Next { model, reason: error.reason }
            }
            None => FailoverDecision::Stop(FailoverStop::ChainExhausted(
                self.exhausted_error(walk, now_ms),
            )),
        }
    }

    fn start_cooldown(
        &mut self,
        model: &ModelName,
        course: ReasonClass,
        error: &ProviderError,
        now_ms: u64,
    ) {
        let rest_ms = match course {
            ReasonClass::Throttled => self.settings.rate_limit_cooldown_ms,
            ReasonClass::Unavailable => self.settings.error_cooldown_ms,
            ReasonClass::Refused => self.settings.refused_cooldown_ms,
            ReasonClass::Halt | ReasonClass::RetrySame | ReasonClass::SkipOnce => return,
        };
        let until_ms = now_ms.saturating_add(rest_ms.max(error.retry_after_ms.unwrap_or(0)));
        self.cooldowns.insert(model.clone(), ModelCooldown { until_ms, reason: error.reason });
    }

    /// The next model after the current one, around the end of the chain, that was not asked yet.
    fn next_model(&self, walk: &ModelCursor, now_ms: u64) -> Option<ModelName> {
        let here = self.chain.iter().position(|model| *model == walk.model).unwrap_or(0);
        let around = self.chain.iter().cycle().skip(here + 1).take(self.chain.len());
        let is_free = |model: &&ModelName| {
            !walk.has_tried(model) && self.active_cooldown(model, now_ms).is_none()
        };
        around.into_iter().find(is_free).cloned()
    }

    fn exhausted_error(&self, walk: &ModelCursor, now_ms: u64) -> FailoverError {
        let passed_over = self.chain.iter().filter(|model| !walk.has_tried(model));
        let resting = passed_over.filter_map(|model| {
            let rest = self.active_cooldown(model, now_ms)?;
            let rest_ms = rest.until_ms.saturating_sub(now_ms);
            Some(ModelAttempt::cooling(model.clone(), rest.reason, rest_ms))
        });
        FailoverError { attempts: walk.attempts.iter().cloned().chain(resting).collect() }
    }

    fn active_cooldown(&self, model: &ModelName, now_ms: u64) -> Option<ModelCooldown> {
        self.cooldowns.get(model).copied().filter(|rest| rest.until_ms > now_ms)
    }
}

/// One turn on its way along the chain.
#[derive(Clone, Debug)]
pub struct ModelCursor {
    model: ModelName,
    retries: u32,
    attempts: Vec<ModelAttempt>,
}

impl ModelCursor {
    /// The model to ask now.
    pub fn model(&self) -> &ModelName {
        &self.model
    }

    /// What was tried in vain in this turn.
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
    /// Ask another model. Its window, tools and dialect may differ: read them again.
    Next {
        /// The model.
        model: ModelName,
        /// Why the one before was left.
        reason: FailureReason,
    },
    /// Ask the same model once more, after the history or the output limit was put right where the
    /// reason says so.
    Retry,
    /// Ask nobody.
    Stop(FailoverStop),
}

/// Why nobody is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum FailoverStop {
    /// The request is too large: recovery's matter.
    ContextOverflow,
    /// Whoever asked gave up.
    Cancelled,
    /// There is no model left.
    ChainExhausted(FailoverError),
}

/// What a reason says about the model that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReasonClass {
    /// Nothing: the request or the person is at fault.
    Halt,
    /// The same model may well answer next time.
    RetrySame,
    /// It cannot answer this, and is asked other things as before.
    SkipOnce,
    /// It rests as long as a limit lasts.
    Throttled,
    /// It rests as long as trouble lasts.
    Unavailable,
    /// It rests until a person may have done something.
    Refused,
}

fn classify_reason(reason: FailureReason) -> ReasonClass {
    match reason {
        FailureReason::ContextOverflow | FailureReason::Cancelled => ReasonClass::Halt,
        FailureReason::MalformedHistory
        | FailureReason::OutputLimit
        | FailureReason::SessionExpired
        | FailureReason::EmptyResponse
        | FailureReason::StreamCut
        | FailureReason::InvalidResponse => ReasonClass::RetrySame,
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
