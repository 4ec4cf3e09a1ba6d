//! The slot: the configured engine where it can serve, the bundled one where it cannot, and always
//! the name of the one that did.
//!
//! ```text
//!  a call ─► configured engine ─┬─ answers ─► served
//!                               └─ fails ─┬─ on trial ─► the slot before this one serves again
//!                                         └─ else ─► quarantine, the bundled engine serves
//! ```

mod calls;
mod error;
mod retirement;
mod served;
mod trial;
mod troubles;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use ctxhost_engine_api::*;
use tokio_util::sync::CancellationToken;

pub use self::error::{OnEngineError, SlotError};
pub use self::served::{Served, Serving};
pub use self::trial::LostTrial;
pub use self::troubles::Troubles;

use self::calls::Scene;
use self::retirement::let_go;
use self::trial::Trial;
use self::troubles::TroubleCounter;
use super::environment::Environment;
use super::live::LiveEngine;
use super::quarantine::{Quarantine, QuarantineRecord};
use super::spec::EngineSpec;

/// Slots opened so far by this process.
static SLOTS: AtomicU64 = AtomicU64::new(0);

/// The context-engine slot of a host.
#[derive(Debug)]
pub struct Slot {
    /// Which slot of this process it is.
    number: u64,
    configured: String,
    /// `None` where the bundled engine itself is configured, or the configured one did not open.
    chosen: Option<Arc<LiveEngine>>,
    legacy: Arc<LiveEngine>,
    on_error: OnEngineError,
    quarantine: Quarantine,
    clock: super::Clock,
    trial: Trial,
    /// Why this slot serves again, which another one had followed.
    instead_of: Mutex<Option<QuarantineRecord>>,
    troubles: TroubleCounter,
    /// The configured engine is to be let go.
    retired: CancellationToken,
}

impl Slot {
    /// Opens the configured engine and, beside it, the bundled one.
    ///
    /// # Errors
    ///
    /// [`SlotError::Open`] where the configured engine does not open and `on_error` is
    /// [`OnEngineError::Fail`], or where the bundled engine does not open.
    pub fn open(
        chosen: &EngineSpec,
        legacy: &EngineSpec,
        on_error: OnEngineError,
        environment: &Environment,
    ) -> Result<Slot, SlotError> {
        let mut slot = Slot::with_bundled(chosen, legacy, on_error, environment)?;
        match slot.choose(chosen, legacy, environment) {
            Err(error) if on_error == OnEngineError::Fail => return Err(error),
            Err(error) => slot.put_in_quarantine("open", &error.to_string()),
            Ok(()) => {}
        }
        Ok(slot)
    }

    /// Opens an engine that is to follow another one, which goes on where this one does not open.
    ///
    /// # Errors
    ///
    /// [`SlotError::Open`] where either engine does not open.
    pub fn open_successor(
        chosen: &EngineSpec,
        legacy: &EngineSpec,
        on_error: OnEngineError,
        environment: &Environment,
    ) -> Result<Slot, SlotError> {
        let mut slot = Slot::with_bundled(chosen, legacy, on_error, environment)?;
        slot.choose(chosen, legacy, environment)?;
        Ok(slot)
    }

    fn with_bundled(
        chosen: &EngineSpec,
        legacy: &EngineSpec,
        on_error: OnEngineError,
        environment: &Environment,
    ) -> Result<Slot, SlotError> {
        let bundled = Arc::new(LiveEngine::open(legacy, environment)?);
        let delegate: Weak<LiveEngine> = Arc::downgrade(&bundled);
        environment.delegate_to(delegate);
        Ok(Slot {
            number: SLOTS.fetch_add(1, Ordering::Relaxed),
            configured: chosen.id.clone(),
            chosen: None,
            legacy: bundled,
            on_error,
            quarantine: Quarantine::with(environment.failures.clone()),
            clock: environment.clock.clone(),
            trial: Trial::default(),
            instead_of: Mutex::default(),
            troubles: TroubleCounter::default(),
            retired: CancellationToken::new(),
        })
    }

    fn choose(
        &mut self,
        chosen: &EngineSpec,
        legacy: &EngineSpec,
        environment: &Environment,
    ) -> Result<(), SlotError> {
        if chosen.id == legacy.id && chosen.source == legacy.source {
            return Ok(());
        }
        let engine = LiveEngine::open(chosen, environment)?;
        self.configured = engine.id().into();
        self.chosen = Some(Arc::new(engine));
        Ok(())
    }

    /// The id that the slot was asked to hold.
    pub fn configured(&self) -> &str {
        &self.configured
    }

    /// The engine that serves the next call.
    pub fn effective(&self) -> &LiveEngine {
        self.standing().at_work()
    }

    /// Which engine of which slot serves the next call: what must be told of a session anew when it
    /// changes.
    pub fn serving(&self) -> Serving {
        let slot = self.standing();
        slot.mark(slot.at_work())
    }

    /// The engine has to shape so many lawful requests; until it has, `before` serves again, and answers
    /// the call, where it fails.
    pub fn begin_trial(&self, before: Arc<Slot>, requests: u32) {
        self.trial.begin(before, requests);
    }

    /// Nobody stands ready any more.
    pub fn end_trial(&self) {
        self.trial.end();
    }

    /// How its engine failed on trial; every call is answered by the slot before it then.
    pub fn lost_trial(&self) -> Option<&LostTrial> {
        self.trial.lost()
    }

    /// A request that the configured engine shaped is lawful.
    pub fn passed<T>(&self, served: &Served<T>) {
        if served.serving.is_some_and(|it| it.slot == self.number && !it.is_bundled) {
            self.trial.passed();
        }
    }

    /// Somebody has chosen what serves here: it stands in for nobody any more.
    pub fn confirm(&self) {
        *self.instead_of.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What went wrong since this was asked last.
    pub fn take_troubles(&self) -> Troubles {
        self.troubles.take()
    }

    /// Why the configured engine does not serve; `None` where it does.
    pub fn quarantined(&self) -> Option<QuarantineRecord> {
        self.quarantine.reason(&self.configured)
    }

    /// Lets the configured engine serve again.
    pub fn lift_quarantine(&self) -> Option<QuarantineRecord> {
        self.quarantine.lift(&self.configured)
    }

    /// A smaller transcript. An engine that delegates is answered for by the bundled one.
    ///
    /// # Errors
    ///
    /// Every error goes to the caller: a second, silent compaction would hide it. An engine that
    /// broke, rather than declined, is in quarantine for the next call.
    pub async fn compact(
        &self,
        view: &Transcript,
        request: CompactRequest,
    ) -> Result<Served<Compaction>, SlotError> {
        let began = Instant::now();
        let mut slot = self.standing();
        loop {
            slot.refuse_while_quarantined("compact")?;
            let engine = slot.at_work();
            let first = slot.unless_retired(engine.compact(view.clone(), request.clone())).await;
            let (answer, engine) = match first.unwrap_or_else(|| Err(let_go())) {
                Ok(Compaction::Delegate) if !slot.is_bundled(engine) => {
                    (slot.legacy.compact(view.clone(), request.clone()).await, &slot.legacy)
                }
                other => (other, engine),
            };
            let error = match answer {
                Ok(value) => return Ok(slot.served(engine, value, began.elapsed())),
                Err(error) => error,
            };
            if is_breakage(error.kind) && !slot.is_bundled(engine) {
                slot.troubles.failure();
                if let Some(lost) = slot.failed("compact", &error.message) {
                    slot = lost.before.standing();
                    slot.catch_up(Some((view, &request.session))).await;
                    continue;
                }
            }
            return Err(SlotError::engine(engine.id(), "compact", error));
        }
    }

    /// The law refused what the configured engine answered: the same as if it had failed.
    ///
    /// # Errors
    ///
    /// [`SlotError::Engine`] where `on_engine_error` is `fail`, or where it was the bundled engine.
    pub fn refuse<T>(
        &self,
        served: &Served<T>,
        operation: &'static str,
        why: &str,
    ) -> Result<(), SlotError> {
        let author = served.serving.filter(|it| !it.is_bundled);
        if let Some(slot) = author.and_then(|author| self.find(author)) {
            slot.troubles.illegal();
            let steps_back = slot.failed(operation, why).is_some();
            if steps_back || slot.on_error == OnEngineError::Fallback {
                return Ok(());
            }
        }
        Err(SlotError::engine(&served.engine, operation, EngineError::failed(why)))
    }

    /// Asks the effective engine and, where that fails, the slot before this one or, if the operator
    /// allows it, the bundled engine.
    async fn serve<T, F>(
        &self,
        scene: Scene<'_>,
        operation: &'static str,
        ask: impl Fn(Arc<LiveEngine>) -> F,
    ) -> Result<Served<T>, SlotError>
    where
        F: Future<Output = Result<T>>,
    {
        let began = Instant::now();
        let mut slot = self.standing();
        while let Some(chosen) = slot.chosen_at_work() {
            let mut error = match slot.unless_retired(ask(chosen.clone())).await {
                // It was let go under the call; the bundled engine answers.
                None => break,
                Some(Ok(value)) => return Ok(slot.served(chosen, value, began.elapsed())),
                Some(Err(error)) if is_answer(error.kind) => return Err(SlotError::answer(error)),
                Some(Err(error)) => error,
            };
            if chosen.lost_a_thread() {
                error.message += "; its thread hangs";
            }
            slot.troubles.failure();
            if let Some(lost) = slot.failed(operation, &error.message) {
                slot = lost.before.standing();
                slot.catch_up(scene).await;
            } else if slot.on_error == OnEngineError::Fail {
                return Err(SlotError::engine(chosen.id(), operation, error));
            }
        }
        slot.refuse_while_quarantined(operation)?;
        match ask(slot.legacy.clone()).await {
            Ok(value) => Ok(slot.served(&slot.legacy, value, began.elapsed())),
            Err(error) if is_answer(error.kind) => Err(SlotError::answer(error)),
            Err(error) => Err(SlotError::engine(slot.legacy.id(), operation, error)),
        }
    }

    /// The slot that answers: this one, or the one that serves again since a trial was lost.
    fn standing(&self) -> &Slot {
        let mut slot = self;
        while let Some(lost) = slot.trial.lost() {
            slot = &lost.before;
        }
        slot
    }

    /// The slot of an answer: this one, or one that has served again since.
    fn find(&self, author: Serving) -> Option<&Slot> {
        let mut slot = self;
        while slot.number != author.slot {
            slot = &slot.trial.lost()?.before;
        }
        Some(slot)
    }

    /// The engine of this very slot that serves.
    fn at_work(&self) -> &Arc<LiveEngine> {
        self.chosen_at_work().unwrap_or(&self.legacy)
    }

    fn chosen_at_work(&self) -> Option<&Arc<LiveEngine>> {
        let serves = |_: &&Arc<LiveEngine>| !self.is_retired() && self.quarantined().is_none();
        self.chosen.as_ref().filter(serves)
    }

    fn is_bundled(&self, engine: &LiveEngine) -> bool {
        std::ptr::eq(engine, &*self.legacy)
    }

    fn mark(&self, engine: &LiveEngine) -> Serving {
        Serving { slot: self.number, is_bundled: self.is_bundled(engine) }
    }

    /// The configured engine failed: another slot serves again, or it is in quarantine.
    fn failed(&self, operation: &str, why: &str) -> Option<&LostTrial> {
        let record = self.record(operation, why);
        let Some(lost) = self.trial.failed(&record) else {
            self.quarantine.put(record);
            return None;
        };
        let mut instead_of = lost.before.instead_of.lock().unwrap_or_else(PoisonError::into_inner);
        if instead_of.is_none() {
            let QuarantineRecord { id, operation, reason, .. } = &lost.record;
            let serving = lost.before.configured.as_str();
            tracing::error!(engine = id, operation, reason, serving, "engine rolled back");
            *instead_of = Some(lost.record.clone());
        }
        Some(lost)
    }

    /// Where the operator wants failures and the configured engine has failed, nobody stands in.
    fn refuse_while_quarantined(&self, operation: &'static str) -> Result<(), SlotError> {
        match self.quarantined().filter(|_| self.on_error == OnEngineError::Fail) {
            Some(record) => {
                let error = EngineError::failed(format!("in quarantine: {}", record.reason));
                Err(SlotError::engine(&record.id, operation, error))
            }
            None => Ok(()),
        }
    }

    fn put_in_quarantine(&self, operation: &str, reason: &str) {
        self.quarantine.put(self.record(operation, reason));
    }

    fn record(&self, operation: &str, reason: &str) -> QuarantineRecord {
        QuarantineRecord {
            id: self.configured.clone(),
            bytes: self.chosen.as_ref().and_then(|engine| engine.bytes().map(str::to_owned)),
            operation: operation.into(),
            reason: reason.into(),
            failed_at_ms: self.clock.now_ms(),
        }
    }
}

/// What the caller acts on; no engine is to blame for it.
fn is_answer(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WindowTooSmall | ErrorKind::CannotFit | ErrorKind::Cancelled)
}

/// Whether a failed compaction says that the engine is broken, not merely that it could not.
fn is_breakage(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Panicked | ErrorKind::Deadline | ErrorKind::Protocol | ErrorKind::Dead
    )
}
