//! The trial of new engines: until they have proved themselves, the engines before them stand ready to
//! serve again.
//!
//! ```text
//!  a call ─► the new engines ─┬─ all of them answer ─► served
//!                             └─ one fails ─► told of the session, the engines before them answer
//! ```

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ctxhost_engine_api::border::{EngineCall, FailurePolicy};
use ctxhost_engine_api::{BootstrapRequest, IngestRequest};

use super::active::ActiveEngine;
use super::answer::{EngineAnswer, EngineSet};
use super::error::SlotError;
use super::quarantine::QuarantineRecord;
use super::service::{EngineContext, EngineService, SlotFuture};

/// Whether new engines have proved themselves.
#[derive(Debug, Default)]
pub(super) struct EngineTrial {
    running: Mutex<Option<TrialRun>>,
    lost: OnceLock<TrialFailure>,
    /// Why these engines serve again, which others had followed.
    instead_of: Mutex<Option<QuarantineRecord>>,
}

#[derive(Debug)]
struct TrialRun {
    previous: Arc<ActiveEngine>,
    /// Requests that they have to shape yet.
    left: u32,
}

/// A trial that new engines lost.
#[derive(Clone, Debug)]
pub struct TrialFailure {
    /// The engines that serve again.
    pub previous: Arc<ActiveEngine>,
    /// What one of the new ones did.
    pub record: QuarantineRecord,
}

impl EngineService for ActiveEngine {
    /// What engines say that lose their trial meanwhile counts for nothing: those before them answer.
    // Boxed, so that a turn, which waits for many calls, is not as large as all of them together.
    fn call<'a>(&'a self, context: EngineContext<'a>, call: EngineCall) -> SlotFuture<'a> {
        Box::pin(async move {
            let mut active = self.current();
            loop {
                let answer = active.call_with_fallback(context, &call).await;
                let lost = match call.on_failure() {
                    FailurePolicy::Report => None,
                    FailurePolicy::Fallback | FailurePolicy::Caller => active.check_trial(),
                };
                let Some(lost) = lost else {
                    return answer.map(|served| self.with_fallback_reason(served));
                };
                active = lost.previous.current();
                active.catch_up(context, &call).await;
            }
        })
    }
}

impl ActiveEngine {
    /// The engines have to shape so many lawful requests, none of them failing; until they have, `previous`
    /// serves again, and answers the call, where one fails. No requests, and there is no trial.
    pub fn begin_trial(&self, before: Arc<ActiveEngine>, requests: u32) {
        *self.trial.running() =
            (requests > 0).then_some(TrialRun { previous: before, left: requests });
    }

    /// No other engines stand ready any more.
    pub fn end_trial(&self) {
        *self.trial.running() = None;
    }

    /// How they failed on trial; every call is answered by the engines before them then.
    pub fn trial_failure(&self) -> Option<&TrialFailure> {
        self.trial.lost.get()
    }

    /// A request that the configured engines shaped is lawful.
    pub fn record_success<T>(&self, served: &EngineAnswer<T>) {
        if served.serving.is_none_or(|serving| self.chain.last_link(serving).is_none()) {
            return;
        }
        let mut running = self.trial.running();
        if let Some(trial) = running.as_mut() {
            trial.left = trial.left.saturating_sub(1);
        }
        running.take_if(|trial| trial.left == 0);
    }

    /// The law refused what was answered: the same as if an engine had failed.
    ///
    /// # Errors
    ///
    /// [`SlotError::Engine`] where `on_engine_error` is `fail`, or where the bundled engine answered.
    pub fn reject<T>(
        &self,
        served: &EngineAnswer<T>,
        operation: &'static str,
        why: &str,
    ) -> Result<(), SlotError> {
        let active = served.serving.and_then(|author| self.find_author(author)).unwrap_or(self);
        let refused = active.reject_own(served, operation, why);
        // Where others serve again, they are asked next.
        if active.check_trial().is_some() { Ok(()) } else { refused }
    }

    /// The engines that answer: these, or those that serve again since a trial was lost.
    pub(super) fn current(&self) -> &ActiveEngine {
        let mut active = self;
        while let Some(lost) = active.trial_failure() {
            active = &lost.previous;
        }
        active
    }

    /// The engines of an answer: these, or others that have served again since.
    fn find_author(&self, author: EngineSet) -> Option<&ActiveEngine> {
        let mut active = self;
        while active.chain.serving().chain != author.chain {
            active = &active.trial_failure()?.previous;
        }
        Some(active)
    }

    /// An answer that says whom the engines stand in for.
    fn with_fallback_reason<T>(&self, served: EngineAnswer<T>) -> EngineAnswer<T> {
        let instead_of = self.current().trial.instead_of().clone();
        let why = |record: QuarantineRecord| record.to_string();
        EngineAnswer { fallback: served.fallback.or_else(|| instead_of.map(why)), ..served }
    }

    /// Whether one of the engines has failed on trial, and what serves again then.
    fn check_trial(&self) -> Option<&TrialFailure> {
        let Some(record) = self.quarantine_record() else { return self.trial_failure() };
        let lost = self.trial.record_failure(record)?;
        let mut instead_of = lost.previous.trial.instead_of();
        if instead_of.is_none() {
            let QuarantineRecord { id, operation, reason, .. } = &lost.record;
            let serving = lost.previous.configured_id();
            let version = lost.previous.serving_info().version;
            tracing::error!(
                engine = id,
                operation,
                reason,
                serving,
                serving_version = version,
                "engine rolled back"
            );
            *instead_of = Some(lost.record.clone());
        }
        Some(lost)
    }

    /// Tells engines that serve again of a session, before they are asked about it.
    async fn catch_up(&self, context: EngineContext<'_>, call: &EngineCall) {
        let Some(session) = call.session() else { return };
        let begin = BootstrapRequest { session: session.clone(), ..BootstrapRequest::default() };
        let hear = IngestRequest {
            session: session.clone(),
            entries: 0..context.transcript.len() as u64,
            ..IngestRequest::default()
        };
        for call in [EngineCall::Bootstrap(begin), EngineCall::Ingest(hear)] {
            if let Err(error) = self.call_with_fallback(context, &call).await {
                // The call itself follows, and says whether the engines are able to answer.
                let engine = self.configured_id();
                tracing::warn!(engine, %error, "the session could not be told again");
                return;
            }
        }
    }
}

impl EngineTrial {
    /// It failed. What serves instead, where the trial was running or is lost already.
    fn record_failure(&self, record: QuarantineRecord) -> Option<&TrialFailure> {
        let mut running = self.running();
        if let Some(trial) = running.take() {
            // Set once: only a running trial can be lost, and it runs once.
            let _ = self.lost.set(TrialFailure { previous: trial.previous, record });
        }
        self.lost.get()
    }

    fn running(&self) -> MutexGuard<'_, Option<TrialRun>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instead_of(&self) -> MutexGuard<'_, Option<QuarantineRecord>> {
        self.instead_of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
