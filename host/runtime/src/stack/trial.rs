//! A new stack on trial: until it has proved itself, the stack before it stands ready to serve again.
//!
//! ```text
//!  a call ─► the new stack ─┬─ all its engines answer ─► served
//!                           └─ one of them fails ─► told of the session, the stack before it answers
//! ```

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ctxhost_engine_api::{BootstrapRequest, IngestRequest, SessionRef, Transcript};

use super::Stack;
use ctxhost_engine::{QuarantineRecord, Served, Serving, SlotError};

/// A session and its transcript, for engines that have to hear of them anew.
pub(super) type Scene<'a> = Option<(&'a Transcript, &'a SessionRef)>;

/// Whether the engines of a stack have proved themselves.
#[derive(Debug, Default)]
pub(super) struct Trial {
    running: Mutex<Option<Running>>,
    lost: OnceLock<LostTrial>,
}

#[derive(Debug)]
struct Running {
    before: Arc<Stack>,
    /// Requests that they have to shape yet.
    left: u32,
}

/// A trial that a new stack lost.
#[derive(Clone, Debug)]
pub(crate) struct LostTrial {
    /// The stack that serves again.
    pub(crate) before: Arc<Stack>,
    /// What an engine of the new one did.
    pub(crate) record: QuarantineRecord,
}

impl Trial {
    /// It failed. The stack that serves instead, where the trial was running or is lost already.
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
}

impl Stack {
    /// The engines have to shape so many lawful requests, none of them failing; until they have, `before`
    /// serves again, and answers the call, where one fails. No requests, and there is no trial.
    pub(crate) fn begin_trial(&self, before: Arc<Stack>, requests: u32) {
        *self.trial.running() = (requests > 0).then_some(Running { before, left: requests });
    }

    /// Nobody stands ready any more.
    pub(crate) fn end_trial(&self) {
        *self.trial.running() = None;
    }

    /// How it failed on trial; every call is answered by the stack before it then.
    pub(crate) fn lost_trial(&self) -> Option<&LostTrial> {
        self.trial.lost.get()
    }

    /// A request that the configured engines shaped is lawful.
    pub(crate) fn passed<T>(&self, served: &Served<T>) {
        if !served.serving.is_some_and(|it| self.slot.is_author(it)) {
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
    /// [`SlotError::Engine`] where `on_engine_error` is `fail`, or where it was the bundled engine that
    /// stood in.
    pub(crate) fn refuse<T>(
        &self,
        served: &Served<T>,
        operation: &'static str,
        why: &str,
    ) -> Result<(), SlotError> {
        let stack = served.serving.and_then(|author| self.find(author)).unwrap_or(self);
        let refused = stack.refuse_here(served, operation, why);
        // Where another stack serves again, it is asked next.
        if stack.judge().is_some() { Ok(()) } else { refused }
    }

    /// Asks the stack that serves. What one says that loses its trial meanwhile counts for nothing: the one
    /// before it answers.
    pub(super) async fn serve<'s, T, F>(
        &'s self,
        scene: Scene<'_>,
        ask: impl Fn(&'s Stack) -> F,
    ) -> Result<T, SlotError>
    where
        F: Future<Output = Result<T, SlotError>>,
    {
        let mut stack = self.standing();
        loop {
            // Boxed, so that a turn, which waits for many calls, is not as large as all of them together.
            let answer = match stack.unless_retired(Box::pin(ask(stack))).await {
                Some(answer) => answer,
                // Its stages were let go under the call; the bundled engine answers.
                None => Box::pin(ask(stack)).await,
            };
            let Some(lost) = stack.judge() else { return answer };
            stack = lost.before.standing();
            Box::pin(stack.catch_up(scene)).await;
        }
    }

    /// An answer that says whom this stack stands in for.
    pub(super) fn signed<T>(&self, served: Served<T>) -> Served<T> {
        let instead_of = self.standing().instead_of().clone();
        let told =
            |it: QuarantineRecord| format!("{} failed in {}: {}", it.id, it.operation, it.reason);
        Served { fallback: served.fallback.or_else(|| instead_of.map(told)), ..served }
    }

    /// The stack that answers: this one, or the one that serves again since a trial was lost.
    pub(super) fn standing(&self) -> &Stack {
        let mut stack = self;
        while let Some(lost) = stack.lost_trial() {
            stack = &lost.before;
        }
        stack
    }

    /// The stack of an answer: this one, or one that has served again since.
    fn find(&self, author: Serving) -> Option<&Stack> {
        let mut stack = self;
        while !stack.slot.serving().is_beside(author) {
            stack = &stack.lost_trial()?.before;
        }
        Some(stack)
    }

    /// Whether an engine of it has failed on trial, and what serves again then.
    fn judge(&self) -> Option<&LostTrial> {
        let Some(record) = self.quarantined() else { return self.lost_trial() };
        let lost = self.trial.failed(record)?;
        let mut instead_of = lost.before.instead_of();
        if instead_of.is_none() {
            let QuarantineRecord { id, operation, reason, .. } = &lost.record;
            let serving = lost.before.configured();
            // The plain slot: what a row of engines serves with needs this trial to be settled.
            let version = lost.before.slot.effective().info().version.clone();
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

    fn instead_of(&self) -> MutexGuard<'_, Option<QuarantineRecord>> {
        self.instead_of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the engines that serve again of a session, before they are asked about it.
    async fn catch_up(&self, scene: Scene<'_>) {
        let Some((view, session)) = scene else { return };
        let begin = BootstrapRequest { session: session.clone(), ..BootstrapRequest::default() };
        let hear = IngestRequest {
            session: session.clone(),
            entries: 0..view.len() as u64,
            ..IngestRequest::default()
        };
        let told = match self.bootstrap_here(view, begin).await {
            Ok(_) => self.ingest_here(view, hear).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = told {
            // The call itself follows, and says whether the engines are able to answer.
            let engine = self.configured();
            tracing::warn!(engine, %error, "the session could not be told again");
        }
    }
}
