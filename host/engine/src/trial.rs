//! The trial layer: until new engines have proved themselves, a failure brings the previous engines
//! back.
//!
//! ```text
//!  a call ─► the new engines ─┬─ all of them answer ─► served
//!                             └─ one fails ─► the previous engines are brought up to date and answer
//! ```

use std::sync::{Arc, OnceLock};

use ctxhost_engine_api::border::{EngineCall, EngineRequest, FailurePolicy};
use ctxhost_engine_api::{BootstrapRequest, IngestRequest};
use parking_lot::Mutex;

use super::active::ActiveEngine;
use super::answer::{EngineAnswer, EngineSet};
use super::error::SlotError;
use super::idle::IdleMark;
use super::quarantine::QuarantineRecord;
use super::service::{EngineContext, SlotResult};

/// The state of a trial.
#[derive(Debug, Default)]
pub(super) struct EngineTrial {
    running: Mutex<Option<TrialRun>>,
    /// Set once nothing calls these engines, and therefore not the previous ones through them. Before `failure`: dropped
    /// first, so that `previous` never has fewer users than callers.
    released: Mutex<Option<IdleMark>>,
    failure: OnceLock<TrialFailure>,
    /// Why these engines serve again, where their successors failed.
    restored_because: Mutex<Option<QuarantineRecord>>,
}

#[derive(Debug)]
struct TrialRun {
    previous: Arc<ActiveEngine>,
    /// Requests that the new engines still have to shape.
    left: u32,
}

/// A failed trial.
#[derive(Clone, Debug)]
pub struct TrialFailure {
    /// The engines that serve again.
    pub previous: Arc<ActiveEngine>,
    /// The failure of one of the new engines.
    pub record: QuarantineRecord,
}

impl ActiveEngine {
    /// Calls the engines with a request. Discards the answer where the trial fails during the call; the
    /// previous engines answer then.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub async fn ask<'a, R: EngineRequest>(
        &self,
        context: impl Into<EngineContext<'a>>,
        request: R,
    ) -> SlotResult<R::Reply> {
        let (context, call) = (context.into(), request.into());
        let mut active = self.current();
        let answer = loop {
            // Boxed, because a turn awaits many calls and its future would contain all of them.
            let answer = Box::pin(active.call_with_fallback(context, &call)).await;
            let failure = match call.on_failure() {
                FailurePolicy::Report => None,
                FailurePolicy::Fallback | FailurePolicy::Caller => active.check_trial(),
            };
            let Some(failure) = failure else { break answer? };
            active = failure.previous.current();
            active.catch_up(context, &call).await;
        };
        let answer = self.with_fallback_reason(answer);
        answer.try_map(R::reply).map_err(SlotError::from_answer)
    }

    /// Begins a trial: until the engines have shaped so many valid requests, a failure brings
    /// `previous` back, which also answers the failed call. 0 requests begin no trial.
    pub fn begin_trial(&self, previous: Arc<ActiveEngine>, requests: u32) {
        *self.trial.running.lock() =
            (requests > 0).then_some(TrialRun { previous, left: requests });
    }

    /// Ends the trial; the previous engines are not needed any more.
    pub fn end_trial(&self) {
        *self.trial.running.lock() = None;
    }

    /// Marks the hold on the engines that serve again as idle, once nothing calls these ones any more.
    pub fn release_previous(&self) {
        let mark = self.trial_failure().map(|failure| failure.previous.idle_mark());
        *self.trial.released.lock() = mark;
    }

    /// The failure of the trial, after which the previous engines answer every call.
    pub fn trial_failure(&self) -> Option<&TrialFailure> {
        self.trial.failure.get()
    }

    /// Counts a valid request that the configured engines shaped.
    pub fn record_success<T>(&self, answer: &EngineAnswer<T>) {
        if answer.serving.is_none_or(|serving| self.chain.last_link(serving).is_none()) {
            return;
        }
        let mut running = self.trial.running.lock();
        if let Some(trial) = running.as_mut() {
            trial.left = trial.left.saturating_sub(1);
        }
        running.take_if(|trial| trial.left == 0);
    }

    /// Handles an answer that violates an invariant like a failure.
    ///
    /// # Errors
    ///
    /// [`SlotError::Engine`] where `on_engine_error` is `fail`, or where the bundled engine answered.
    pub fn reject<T>(
        &self,
        answer: &EngineAnswer<T>,
        operation: &'static str,
        reason: &str,
    ) -> Result<(), SlotError> {
        let active = answer.serving.and_then(|author| self.find_author(author)).unwrap_or(self);
        let refused = active.reject_own(answer, operation, reason);
        // Where the previous engines serve again, they are called next.
        if active.check_trial().is_some() { Ok(()) } else { refused }
    }

    /// The engines that answer: these, or the previous ones after a failed trial.
    pub(super) fn current(&self) -> &ActiveEngine {
        let mut active = self;
        while let Some(failure) = active.trial_failure() {
            active = &failure.previous;
        }
        active
    }

    /// The engines that gave an answer: these, or previous ones.
    fn find_author(&self, author: EngineSet) -> Option<&ActiveEngine> {
        let mut active = self;
        while active.chain.serving().chain != author.chain {
            active = &active.trial_failure()?.previous;
        }
        Some(active)
    }

    /// Adds the reason why these engines serve instead of their successors.
    fn with_fallback_reason<T>(&self, answer: EngineAnswer<T>) -> EngineAnswer<T> {
        let restored_because = self.current().trial.restored_because.lock().clone();
        let reason = || restored_because.map(|record| record.to_string());
        EngineAnswer { fallback: answer.fallback.or_else(reason), ..answer }
    }

    /// Ends the trial where an engine is in quarantine; returns its failure.
    fn check_trial(&self) -> Option<&TrialFailure> {
        let Some(record) = self.quarantine_record() else { return self.trial_failure() };
        let failure = self.trial.record_failure(record)?;
        let mut restored_because = failure.previous.trial.restored_because.lock();
        if restored_because.is_none() {
            let QuarantineRecord { id, operation, reason, .. } = &failure.record;
            let serving = failure.previous.configured_id();
            let version = failure.previous.serving_info().version;
            tracing::error!(
                engine = id,
                operation,
                reason,
                serving,
                serving_version = version,
                "engine rolled back"
            );
            *restored_because = Some(failure.record.clone());
        }
        Some(failure)
    }

    /// Replays a session to engines that serve again, before they are called for it.
    async fn catch_up(&self, context: EngineContext<'_>, call: &EngineCall) {
        let Some(session) = call.session() else { return };
        let bootstrap =
            BootstrapRequest { session: session.clone(), ..BootstrapRequest::default() };
        let ingest = IngestRequest {
            session: session.clone(),
            entries: 0..context.transcript.len() as u64,
            ..IngestRequest::default()
        };
        for call in [EngineCall::Bootstrap(bootstrap), EngineCall::Ingest(ingest)] {
            if let Err(error) = self.call_with_fallback(context, &call).await {
                // Not an error: the call itself follows, and shows whether the engines answer.
                let engine = self.configured_id();
                tracing::warn!(engine, %error, "the session could not be replayed to the engine");
                return;
            }
        }
    }
}

impl EngineTrial {
    /// Fails the trial, if one is running; returns the failure of this or an earlier one.
    fn record_failure(&self, record: QuarantineRecord) -> Option<&TrialFailure> {
        let mut running = self.running.lock();
        if let Some(trial) = running.take() {
            // Set once: a trial runs only once.
            let _ = self.failure.set(TrialFailure { previous: trial.previous, record });
        }
        self.failure.get()
    }
}
