//! The trial of new engines: until they have proved themselves, the engines before them stand ready to
//! serve again.
//!
//! ```text
//!  a call ─► the new engines ─┬─ all of them answer ─► served
//!                             └─ one fails ─► told of the session, the engines before them answer
//! ```

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ctxhost_engine_api::border::{EngineCall, OnFailure};
use ctxhost_engine_api::{BootstrapRequest, IngestRequest};

use super::active::ActiveEngine;
use super::error::SlotError;
use super::quarantine::QuarantineRecord;
use super::served::{Served, Serving};
use super::service::{AnswerFuture, EngineContext, EngineService};

/// Whether new engines have proved themselves.
#[derive(Debug, Default)]
pub(super) struct Trial {
    running: Mutex<Option<Running>>,
    lost: OnceLock<LostTrial>,
    /// Why these engines serve again, which others had followed.
    instead_of: Mutex<Option<QuarantineRecord>>,
}

#[derive(Debug)]
struct Running {
    before: Arc<ActiveEngine>,
    /// Requests that they have to shape yet.
    left: u32,
}

/// A trial that new engines lost.
#[derive(Clone, Debug)]
pub struct LostTrial {
    /// The engines that serve again.
    pub before: Arc<ActiveEngine>,
    /// What one of the new ones did.
    pub record: QuarantineRecord,
}

impl EngineService for ActiveEngine {
    /// What engines say that lose their trial meanwhile counts for nothing: those before them answer.
    // Boxed, so that a turn, which waits for many calls, is not as large as all of them together.
    fn call<'a>(&'a self, context: EngineContext<'a>, call: EngineCall) -> AnswerFuture<'a> {
        Box::pin(async move {
            let mut active = self.standing();
            loop {
                let answer = active.answer(context, &call).await;
                let lost = match call.on_failure() {
                    OnFailure::Report => None,
                    OnFailure::Fallback | OnFailure::Caller => active.judge(),
                };
                let Some(lost) = lost else { return answer.map(|served| self.signed(served)) };
                active = lost.before.standing();
                active.catch_up(context, &call).await;
            }
        })
    }
}

impl ActiveEngine {
    /// The engines have to shape so many lawful requests, none of them failing; until they have, `before`
    /// serves again, and answers the call, where one fails. No requests, and there is no trial.
    pub fn begin_trial(&self, before: Arc<ActiveEngine>, requests: u32) {
        *self.trial.running() = (requests > 0).then_some(Running { before, left: requests });
    }

    /// No other engines stand ready any more.
    pub fn end_trial(&self) {
        *self.trial.running() = None;
    }

    /// How they failed on trial; every call is answered by the engines before them then.
    pub fn lost_trial(&self) -> Option<&LostTrial> {
        self.trial.lost.get()
    }

    /// A request that the configured engines shaped is lawful.
    pub fn passed<T>(&self, served: &Served<T>) {
        if served.serving.is_none_or(|serving| self.chain.last_of(serving).is_none()) {
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
    pub fn refuse<T>(
        &self,
        served: &Served<T>,
        operation: &'static str,
        why: &str,
    ) -> Result<(), SlotError> {
        let active = served.serving.and_then(|author| self.find(author)).unwrap_or(self);
        let refused = active.refuse_here(served, operation, why);
        // Where others serve again, they are asked next.
        if active.judge().is_some() { Ok(()) } else { refused }
    }

    /// The engines that answer: these, or those that serve again since a trial was lost.
    pub(super) fn standing(&self) -> &ActiveEngine {
        let mut active = self;
        while let Some(lost) = active.lost_trial() {
            active = &lost.before;
        }
        active
    }

    /// The engines of an answer: these, or others that have served again since.
    fn find(&self, author: Serving) -> Option<&ActiveEngine> {
        let mut active = self;
        while active.chain.serving().chain != author.chain {
            active = &active.lost_trial()?.before;
        }
        Some(active)
    }

    /// An answer that says whom the engines stand in for.
    fn signed<T>(&self, served: Served<T>) -> Served<T> {
        let instead_of = self.standing().trial.instead_of().clone();
        let why = |record: QuarantineRecord| record.to_string();
        Served { fallback: served.fallback.or_else(|| instead_of.map(why)), ..served }
    }

    /// Whether one of the engines has failed on trial, and what serves again then.
    fn judge(&self) -> Option<&LostTrial> {
        let Some(record) = self.quarantined() else { return self.lost_trial() };
        let lost = self.trial.failed(record)?;
        let mut instead_of = lost.before.trial.instead_of();
        if instead_of.is_none() {
            let QuarantineRecord { id, operation, reason, .. } = &lost.record;
            let serving = lost.before.configured();
            let version = lost.before.effective().version;
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
            if let Err(error) = self.answer(context, &call).await {
                // The call itself follows, and says whether the engines are able to answer.
                let engine = self.configured();
                tracing::warn!(engine, %error, "the session could not be told again");
                return;
            }
        }
    }
}

impl Trial {
    /// It failed. What serves instead, where the trial was running or is lost already.
    fn failed(&self, record: QuarantineRecord) -> Option<&LostTrial> {
        let mut running = self.running();
        if let Some(trial) = running.take() {
            // Set once: only a running trial can be lost, and it runs once.
            let _ = self.lost.set(LostTrial { before: trial.before, record });
        }
        self.lost.get()
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn instead_of(&self) -> MutexGuard<'_, Option<QuarantineRecord>> {
        self.instead_of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
