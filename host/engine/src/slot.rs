//! The slot: the configured engine where it can serve, the bundled one where it cannot, and always
//! the name of the one that did.
//!
//! ```text
//!  a call ─► configured engine ─┬─ answers ─► served
//!                               └─ fails ─► quarantine, the bundled engine serves
//! ```

mod calls;
mod error;
mod retirement;
mod served;
mod troubles;

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use ctxhost_engine_api::*;
use tokio_util::sync::CancellationToken;

pub use self::error::{OnEngineError, SlotError};
pub use self::served::{Served, Serving};
pub use self::troubles::{TroubleCounter, Troubles};

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
            quarantine: Quarantine::with(environment.kept_failures()),
            clock: environment.clock.clone(),
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
        self.at_work()
    }

    /// The bundled engine, whether it serves or waits to.
    pub fn bundled(&self) -> &Arc<LiveEngine> {
        &self.legacy
    }

    /// Which engine of which slot serves the next call: what must be told of a session anew when it
    /// changes.
    pub fn serving(&self) -> Serving {
        self.mark(self.at_work())
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
        self.refuse_while_quarantined("compact")?;
        let engine = self.at_work();
        let first = match self.is_bundled(engine) {
            true => None,
            false => self.unless_retired(engine.compact(view.clone(), request.clone())).await,
        };
        let (answer, engine) = match first {
            // None: it is the bundled one, or it was let go under the call.
            None | Some(Ok(Compaction::Delegate)) => {
                (self.legacy.compact(view.clone(), request).await, &self.legacy)
            }
            Some(other) => (other, engine),
        };
        let error = match answer {
            Ok(value) => return Ok(self.served(engine, value, began.elapsed())),
            Err(error) => error,
        };
        self.blame(engine, "compact", &error);
        Err(SlotError::engine(engine.id(), "compact", error))
    }

    /// An engine failed a call whose error goes to the caller: the next call goes to the bundled one.
    fn blame(&self, engine: &LiveEngine, operation: &'static str, error: &EngineError) {
        if !is_breakage(error.kind) || self.is_bundled(engine) {
            return;
        }
        self.troubles.failure();
        if !engine.lost_one_call(operation, error) {
            self.put_in_quarantine(operation, &error.message);
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
        if served.serving.is_some_and(|it| self.is_author(it)) {
            self.troubles.illegal();
            self.put_in_quarantine(operation, why);
            if self.on_error == OnEngineError::Fallback {
                return Ok(());
            }
        }
        Err(SlotError::engine(&served.engine, operation, EngineError::failed(why)))
    }

    /// Whether it was the configured engine of this very slot that answered.
    pub fn is_author(&self, serving: Serving) -> bool {
        serving.slot == self.number && !serving.is_bundled
    }

    /// Asks the effective engine and, where that fails and the operator allows it, the bundled one.
    async fn serve<T, F>(
        &self,
        operation: &'static str,
        ask: impl Fn(Arc<LiveEngine>) -> F,
    ) -> Result<Served<T>, SlotError>
    where
        F: Future<Output = Result<T>>,
    {
        let began = Instant::now();
        let mut lost = None;
        if let Some(chosen) = self.chosen_at_work() {
            match self.unless_retired(ask(chosen.clone())).await {
                // It was let go under the call; the bundled engine answers.
                None => {}
                Some(Ok(value)) => return Ok(self.served(chosen, value, began.elapsed())),
                Some(Err(error)) if is_answer(error.kind) => return Err(SlotError::answer(error)),
                Some(Err(mut error)) => {
                    if chosen.lost_a_thread() {
                        error.message += "; its thread hangs";
                    }
                    self.troubles.failure();
                    if chosen.lost_one_call(operation, &error) {
                        tracing::warn!(engine = chosen.id(), operation, %error, "a call is lost");
                        lost = Some(format!("{} lost {operation}: {}", chosen.id(), error.message));
                    } else {
                        self.put_in_quarantine(operation, &error.message);
                    }
                    if self.on_error == OnEngineError::Fail {
                        return Err(SlotError::engine(chosen.id(), operation, error));
                    }
                }
            }
        }
        self.refuse_while_quarantined(operation)?;
        match ask(self.legacy.clone()).await {
            Ok(value) => {
                let served = self.served(&self.legacy, value, began.elapsed());
                Ok(Served { fallback: lost.or(served.fallback), ..served })
            }
            Err(error) if is_answer(error.kind) => Err(SlotError::answer(error)),
            Err(error) => Err(SlotError::engine(self.legacy.id(), operation, error)),
        }
    }

    /// The engine that serves.
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
        Serving { slot: self.number, is_bundled: self.is_bundled(engine), stages: 0 }
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
        self.quarantine.put(QuarantineRecord {
            id: self.configured.clone(),
            bytes: self.chosen.as_ref().and_then(|engine| engine.bytes().map(str::to_owned)),
            operation: operation.into(),
            reason: reason.into(),
            failed_at_ms: self.clock.now_ms(),
        });
    }
}

/// What the caller acts on; no engine is to blame for it.
pub fn is_answer(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WindowTooSmall | ErrorKind::CannotFit | ErrorKind::Cancelled)
}

/// Whether a call whose error goes to the caller, a compaction or the start of a sub-agent, failed by the
/// engine's own doing. That its model answered nothing, or that it does not offer the call, is not.
pub fn is_breakage(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Failed
            | ErrorKind::Panicked
            | ErrorKind::Deadline
            | ErrorKind::Protocol
            | ErrorKind::Dead
    )
}
