//! The slot: the configured engine where it can serve, the bundled one where it cannot, and always
//! the name of the one that did.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ctxhost_engine_api::*;
use serde::{Deserialize, Serialize};

use super::bundled::LEGACY;
use super::environment::Environment;
use super::live::{EngineSpec, LiveEngine, OpenError};
use super::quarantine::{Quarantine, QuarantineRecord};

/// What the host does when the configured engine fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnEngineError {
    /// Quarantine it and let the bundled engine serve, loudly.
    #[default]
    Fallback,
    /// Fail the request.
    Fail,
}

/// Why the slot has no answer.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// The configured engine could not be opened and `on_engine_error` is `fail`; or the bundled one
    /// could not.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An engine failed and `on_engine_error` is `fail`; or the bundled one failed.
    #[error("engine {id:?} failed in {operation}: {error}")]
    Engine {
        /// The engine.
        id: String,
        /// The call.
        operation: &'static str,
        /// What it said.
        error: Box<EngineError>,
    },
    /// The engine said something that the caller acts on: its window is too small, what must stay
    /// does not fit, the call was cancelled.
    #[error("{error}")]
    Answer {
        /// What it said.
        error: Box<EngineError>,
    },
}

impl SlotError {
    /// An engine failed.
    pub fn engine(id: &str, operation: &'static str, error: EngineError) -> Self {
        SlotError::Engine { id: id.into(), operation, error: Box::new(error) }
    }

    fn answer(error: EngineError) -> Self {
        SlotError::Answer { error: Box::new(error) }
    }
}

/// An answer and who gave it.
#[derive(Clone, Debug)]
pub struct Served<T> {
    /// The answer.
    pub value: T,
    /// The id of the engine that gave it.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// Why it was not the configured engine.
    pub fallback: Option<String>,
    /// Time inside engines.
    pub took: Duration,
}

impl<T> Served<T> {
    /// An answer that came from no engine.
    pub fn by(name: &str, value: T) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Served { value, engine: name.into(), version, fallback: None, took: Duration::ZERO }
    }
}

/// One engine in one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    slot: u64,
    engine: String,
}

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
        let bundled = Arc::new(LiveEngine::open(legacy, environment)?);
        let delegate: Weak<LiveEngine> = Arc::downgrade(&bundled);
        environment.delegate_to(delegate);
        let mut slot = Slot {
            number: SLOTS.fetch_add(1, Ordering::Relaxed),
            configured: chosen.id.clone(),
            chosen: None,
            legacy: bundled,
            on_error,
            quarantine: Quarantine::with(environment.failures.clone()),
            clock: environment.clock.clone(),
        };
        if chosen.id == LEGACY && chosen.source == legacy.source {
            return Ok(slot);
        }
        match LiveEngine::open(chosen, environment) {
            Ok(engine) => {
                slot.configured = engine.id().into();
                slot.chosen = Some(Arc::new(engine));
            }
            Err(error) if on_error == OnEngineError::Fail => return Err(error.into()),
            Err(error) => slot.put_in_quarantine("open", &error.to_string()),
        }
        Ok(slot)
    }

    /// The id that the slot was asked to hold.
    pub fn configured(&self) -> &str {
        &self.configured
    }

    /// The engine that serves the next call.
    pub fn effective(&self) -> &LiveEngine {
        match &self.chosen {
            Some(engine) if self.quarantine.reason(engine.id()).is_none() => engine,
            _ => &self.legacy,
        }
    }

    /// Which engine of which slot serves the next call: what must be told of a session anew when it
    /// changes.
    pub fn serving(&self) -> Serving {
        Serving { slot: self.number, engine: self.effective().id().into() }
    }

    /// Why the configured engine does not serve; `None` where it does.
    pub fn quarantined(&self) -> Option<QuarantineRecord> {
        self.quarantine.reason(&self.configured)
    }

    /// Lets the configured engine serve again.
    pub fn lift_quarantine(&self) -> Option<QuarantineRecord> {
        self.quarantine.lift(&self.configured)
    }

    /// A session begins.
    pub async fn bootstrap(
        &self,
        view: &Transcript,
        request: BootstrapRequest,
    ) -> Result<Served<Bootstrapped>, SlotError> {
        self.serve("bootstrap", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.bootstrap(view, request).await }
        })
        .await
    }

    /// New entries.
    pub async fn ingest(
        &self,
        view: &Transcript,
        request: IngestRequest,
    ) -> Result<Served<Ingested>, SlotError> {
        self.serve("ingest", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.ingest(view, request).await }
        })
        .await
    }

    /// What the model sees.
    pub async fn assemble(
        &self,
        view: &Transcript,
        request: AssembleRequest,
    ) -> Result<Served<Plan>, SlotError> {
        self.serve("assemble", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.assemble(view, request).await }
        })
        .await
    }

    /// A turn has ended well.
    pub async fn after_turn(
        &self,
        view: &Transcript,
        request: AfterTurnRequest,
    ) -> Result<Served<()>, SlotError> {
        self.serve("after_turn", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.after_turn(view, request).await }
        })
        .await
    }

    /// A turn is final.
    pub async fn commit_turn(
        &self,
        view: &Transcript,
        request: CommitTurnRequest,
    ) -> Result<Served<Committed>, SlotError> {
        self.serve("commit_turn", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.commit_turn(view, request).await }
        })
        .await
    }

    /// Time for housekeeping.
    pub async fn maintain(
        &self,
        view: &Transcript,
        request: MaintainRequest,
    ) -> Result<Served<Maintained>, SlotError> {
        self.serve("maintain", |engine| {
            let (view, request) = (view.clone(), request.clone());
            async move { engine.maintain(view, request).await }
        })
        .await
    }

    /// The tools that the effective engine offers.
    pub async fn tools(&self, session: SessionRef) -> Result<Served<Vec<ToolSpec>>, SlotError> {
        self.serve("tools", |engine| {
            let session = session.clone();
            async move { engine.tools(session).await }
        })
        .await
    }

    /// The model called a tool of the effective engine. An error goes to the model; nobody stands in.
    pub async fn call_tool(
        &self,
        view: &Transcript,
        request: ToolCallRequest,
    ) -> Result<ToolAnswer> {
        self.effective().call_tool(view.clone(), request).await
    }

    /// A sub-agent is about to start. An error stops the spawn.
    pub async fn prepare_subagent_spawn(
        &self,
        view: &Transcript,
        request: SubagentSpawnRequest,
    ) -> Result<SpawnPrepared> {
        self.effective().prepare_subagent_spawn(view.clone(), request).await
    }

    /// A spawn that was prepared failed.
    pub async fn rollback_subagent_spawn(&self, request: SubagentRollbackRequest) -> Result<()> {
        self.effective().rollback_subagent_spawn(request).await
    }

    /// A sub-agent ended.
    pub async fn on_subagent_ended(
        &self,
        request: SubagentEndedRequest,
    ) -> Result<Served<()>, SlotError> {
        self.serve("on_subagent_ended", |engine| {
            let request = request.clone();
            async move { engine.on_subagent_ended(request).await }
        })
        .await
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
        let engine = self.effective();
        let first = engine.compact(view.clone(), request.clone()).await;
        let (answer, engine) = match first {
            Ok(Compaction::Delegate) if engine.id() != self.legacy.id() => {
                (self.legacy.compact(view.clone(), request).await, &*self.legacy)
            }
            other => (other, engine),
        };
        match answer {
            Ok(value) => Ok(self.served(engine, value, began.elapsed())),
            Err(error) => {
                if is_breakage(error.kind) && engine.id() != self.legacy.id() {
                    self.put_in_quarantine("compact", &error.message);
                }
                Err(SlotError::engine(engine.id(), "compact", error))
            }
        }
    }

    /// The law refused what the configured engine answered: the same as if it had failed.
    ///
    /// # Errors
    ///
    /// [`SlotError::Engine`] where `on_engine_error` is `fail`, or where it was the bundled engine.
    pub fn refuse(
        &self,
        engine: &str,
        operation: &'static str,
        why: &str,
    ) -> Result<(), SlotError> {
        if engine != self.legacy.id() {
            self.put_in_quarantine(operation, why);
            if self.on_error == OnEngineError::Fallback {
                return Ok(());
            }
        }
        Err(SlotError::engine(engine, operation, EngineError::failed(why)))
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
        if let Some(chosen) = self.chosen.as_ref().filter(|_| self.quarantined().is_none()) {
            match ask(chosen.clone()).await {
                Ok(value) => return Ok(self.served(chosen, value, began.elapsed())),
                Err(error) if is_answer(error.kind) => return Err(SlotError::answer(error)),
                Err(mut error) => {
                    if chosen.lost_a_thread() {
                        error.message += "; its thread hangs";
                    }
                    self.put_in_quarantine(operation, &error.message);
                    if self.on_error == OnEngineError::Fail {
                        return Err(SlotError::engine(chosen.id(), operation, error));
                    }
                }
            }
        }
        self.refuse_while_quarantined(operation)?;
        match ask(self.legacy.clone()).await {
            Ok(value) => Ok(self.served(&self.legacy, value, began.elapsed())),
            Err(error) if is_answer(error.kind) => Err(SlotError::answer(error)),
            Err(error) => Err(SlotError::engine(self.legacy.id(), operation, error)),
        }
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

    fn served<T>(&self, engine: &LiveEngine, value: T, took: Duration) -> Served<T> {
        let quarantined = self.quarantined();
        let fallback = quarantined.filter(|_| engine.id() != self.configured).map(|record| {
            format!("{} failed in {}: {}", record.id, record.operation, record.reason)
        });
        let info = engine.info();
        Served { value, engine: info.id.clone(), version: info.version.clone(), fallback, took }
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
