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
use ctxhost_dialects::{ProviderError, Reason};

pub use attempt::{AllModelsFailed, Attempt, advice};

/// The chain of models and which of them rest. Lives as long as the process and is kept nowhere.
#[derive(Debug)]
pub struct Failover {
    settings: FailoverSettings,
    chain: Vec<ModelName>,
    rests: HashMap<ModelName, Rest>,
}

/// Why a model is passed over for a while.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until_ms: u64,
    reason: Reason,
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
        Failover { settings, chain: once, rests: HashMap::new() }
    }

    /// Begins a turn with the first model that does not rest, or else with the one whose rest ends
    /// first: a turn always asks somebody.
    ///
    /// `now_ms` is any clock that does not go back. `None` for an empty chain.
    pub fn begin(&self, now_ms: u64) -> Option<Walk> {
        let until = |model: &&ModelName| self.rest(model, now_ms).map_or(0, |rest| rest.until_ms);
        // Of equals the first is taken, which keeps the order of the chain.
        let model = self.chain.iter().min_by_key(until)?.clone();
        Some(Walk { model, retries: 0, left: Vec::new() })
    }

    /// Begins with this model where the chain has it and it does not rest, else as [`begin`](Self::begin).
    pub fn begin_with(&self, first: Option<&ModelName>, now_ms: u64) -> Option<Walk> {
        let is_ready = |model: &&ModelName| self.knows(model) && self.rest(model, now_ms).is_none();
        match first.filter(is_ready) {
            Some(model) => Some(Walk { model: model.clone(), retries: 0, left: Vec::new() }),
            None => self.begin(now_ms),
        }
    }

    /// Whether a model stands in the chain.
    pub fn knows(&self, model: &ModelName) -> bool {
        self.chain.contains(model)
    }

    /// A model answered: it need not rest any more.
    pub fn answered(&mut self, model: &ModelName) {
        self.rests.remove(model);
    }

    /// Decides what follows a failed request of this turn.
    pub fn failed(&mut self, walk: &mut Walk, error: &ProviderError, now_ms: u64) -> Decision {
        let course = course(error.reason);
        if course == Course::Halt {
            walk.left.push(walk.attempt(error));
            return Decision::Stop(halting(error.reason));
        }
        if course == Course::Again && walk.retries < self.settings.same_model_retries {
            walk.retries += 1;
            return Decision::Retry;
        }
        walk.left.push(walk.attempt(error));
        self.let_rest(&walk.model, course, error, now_ms);
        match self.next(walk, now_ms) {
            Some(model) => {
                walk.model = model.clone();
                walk.retries = 0;
                Decision::Next { model, why: error.reason }
            }
            None => Decision::Stop(Stop::NoModelLeft(self.all_failed(walk, now_ms))),
        }
    }

    fn let_rest(&mut self, model: &ModelName, course: Course, error: &ProviderError, now_ms: u64) {
        let rest_ms = match course {
            Course::Throttled => self.settings.throttled_rest_ms,
            Course::Troubled => self.settings.troubled_rest_ms,
            Course::Refused => self.settings.refused_rest_ms,
            Course::Halt | Course::Again | Course::OnlyThis => return,
        };
        let until_ms = now_ms.saturating_add(rest_ms.max(error.retry_after_ms.unwrap_or(0)));
        self.rests.insert(model.clone(), Rest { until_ms, reason: error.reason });
    }

    /// The next model after the current one, around the end of the chain, that was not asked yet.
    fn next(&self, walk: &Walk, now_ms: u64) -> Option<ModelName> {
        let here = self.chain.iter().position(|model| *model == walk.model).unwrap_or(0);
        let around = self.chain.iter().cycle().skip(here + 1).take(self.chain.len());
        let is_free = |model: &&ModelName| !walk.left(model) && self.rest(model, now_ms).is_none();
        around.into_iter().find(is_free).cloned()
    }

    fn all_failed(&self, walk: &Walk, now_ms: u64) -> AllModelsFailed {
        let passed_over = self.chain.iter().filter(|model| !walk.left(model));
        let resting = passed_over.filter_map(|model| {
            let rest = self.rest(model, now_ms)?;
            let rest_ms = rest.until_ms.saturating_sub(now_ms);
            Some(Attempt::resting(model.clone(), rest.reason, rest_ms))
        });
        AllModelsFailed { attempts: walk.left.iter().cloned().chain(resting).collect() }
    }

    fn rest(&self, model: &ModelName, now_ms: u64) -> Option<Rest> {
        self.rests.get(model).copied().filter(|rest| rest.until_ms > now_ms)
    }
}

/// One turn on its way along the chain.
#[derive(Clone, Debug)]
pub struct Walk {
    model: ModelName,
    retries: u32,
    left: Vec<Attempt>,
}

impl Walk {
    /// The model to ask now.
    pub fn model(&self) -> &ModelName {
        &self.model
    }

    /// What was tried in vain in this turn.
    pub fn attempts(&self) -> &[Attempt] {
        &self.left
    }

    fn left(&self, model: &ModelName) -> bool {
        self.left.iter().any(|attempt| attempt.model == *model)
    }

    fn attempt(&self, error: &ProviderError) -> Attempt {
        Attempt::failed(self.model.clone(), error)
    }
}

/// What follows a failed request.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Ask another model. Its window, tools and dialect may differ: read them again.
    Next {
        /// The model.
        model: ModelName,
        /// Why the one before was left.
        why: Reason,
    },
    /// Ask the same model once more, after the history or the output limit was put right where the
    /// reason says so.
    Retry,
    /// Ask nobody.
    Stop(Stop),
}

/// Why nobody is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// The request is too large: recovery's matter.
    ContextOverflow,
    /// Whoever asked gave up.
    Cancelled,
    /// There is no model left.
    NoModelLeft(AllModelsFailed),
}

/// What a reason says about the model that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// Nothing: the request or the person is at fault.
    Halt,
    /// The same model may well answer next time.
    Again,
    /// It cannot answer this, and is asked other things as before.
    OnlyThis,
    /// It rests as long as a limit lasts.
    Throttled,
    /// It rests as long as trouble lasts.
    Troubled,
    /// It rests until a person may have done something.
    Refused,
}

fn course(reason: Reason) -> Course {
    match reason {
        Reason::ContextOverflow | Reason::Cancelled => Course::Halt,
        Reason::MalformedHistory
        | Reason::OutputLimit
        | Reason::SessionExpired
        | Reason::EmptyResponse
        | Reason::StreamCut
        | Reason::Nonsense => Course::Again,
        Reason::Format | Reason::Unclassified => Course::OnlyThis,
        Reason::RateLimit => Course::Throttled,
        Reason::Overloaded | Reason::ServerError | Reason::Timeout | Reason::Connection => {
            Course::Troubled
        }
        Reason::WindowTooSmall
        | Reason::Billing
        | Reason::Auth
        | Reason::AuthPermanent
        | Reason::TlsCertificate
        | Reason::ModelNotFound => Course::Refused,
    }
}

fn halting(reason: Reason) -> Stop {
    if reason == Reason::Cancelled { Stop::Cancelled } else { Stop::ContextOverflow }
}
