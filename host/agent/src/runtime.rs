//! An agent's runtime: sessions are opened, words are sent, compactions asked for, events heard.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use ctxhost_config::Config;
//! use ctxhost_agent::RuntimeBuilder;
//!
//! let runtime = RuntimeBuilder::of(&Config::load("ctxhost.toml")?).build().await?;
//! let session = runtime.create_session("notes.jsonl".as_ref(), ".".as_ref())?;
//! let reply = runtime.send(&session, "What is in this folder?").await?;
//! println!("{}", reply.message.text());
//! runtime.finish().await;
//! # Ok(())
//! # }
//! ```

mod builder;
mod housekeeping;
mod session_files;
mod sessions;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctxhost_engine_api::{Transcript, Trigger};
use futures_util::future::BoxFuture;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cached_prefixes::CachedPrefixes;
use super::engine_options::EngineOptions;
use super::event::{EventKind, RuntimeEvent};
use super::event_bus::{EventBus, EventListener};
use super::memory::MemoryNotes;
use super::reload::{ConfigWatch, EngineManager};
use super::session_guard::SessionGuard;
use super::session_locks::SessionLocks;
use super::shadow::ShadowEngines;
use super::subagent::RunningSubagents;
use super::turn::{self, AgentTurn, QueuedMessageRef, TurnError, TurnReply};
use super::workspace::WorkspaceRules;
use ctxhost_blobs::BlobDirs;
use ctxhost_config::{AgentSettings, CompactionSettings, SessionSettings};
use ctxhost_context::{CompactionOutcome, ContextSettings};
use ctxhost_dialects::ChatBlock;
use ctxhost_dialects::message::UserMessage;
use ctxhost_engine::{HostClock, OnEngineError, QuarantineRecord};
use ctxhost_history::{HistoryError, UndoReport};
use ctxhost_models::ModelRegistry;
use ctxhost_models::failover::Failover;
use ctxhost_provider::ProviderClient;
use ctxhost_store::SessionStore;
use ctxhost_tools::ToolRegistry;

pub use builder::{BuildError, RuntimeBuilder};
pub(super) use sessions::ActiveSession;
pub(super) use sessions::SessionCell;
pub use sessions::SessionId;

/// An agent's runtime. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Runtime {
    state: Arc<RuntimeState>,
}

/// What a session's window is filled with.
#[derive(Clone, Debug)]
pub struct WindowOccupancy {
    /// The live transcript: what the next request is made of.
    pub view: Transcript,
    /// What it may take, as entries count.
    pub budget_tokens: u64,
    /// The window, in provider tokens.
    pub window_tokens: u64,
    /// What is held free for the answer, in provider tokens.
    pub reserve_tokens: u64,
    /// The engine that would shape it.
    pub engine: String,
    /// The model that would read it, as `provider/id`.
    pub model: String,
}

/// What all sessions of a runtime share.
pub(super) struct RuntimeState {
    pub(super) clients: BTreeMap<String, Arc<dyn ProviderClient>>,
    pub(super) settings: AgentSettings,
    pub(super) session: SessionSettings,
    pub(super) compaction: CompactionSettings,
    pub(super) tool_timeout: Duration,
    /// The windows of models.
    pub(super) models: Arc<ModelRegistry>,
    /// What contexts are made with.
    pub(super) context: Arc<ContextSettings>,
    pub(super) toolbox: ToolRegistry,
    pub(super) session_locks: SessionLocks,
    pub(super) cached_prefixes: Arc<CachedPrefixes>,
    pub(super) event_bus: EventBus,
    failover: Mutex<Failover>,
    pub(super) engines: EngineManager,
    /// Engines that run beside that of the slot.
    pub(super) shadows: Option<ShadowEngines>,
    /// What other engines are opened with.
    pub(super) engine_options: EngineOptions,
    /// Where sessions put away large results.
    blob_dirs: BlobDirs,
    /// The config that is followed.
    pub(super) config_watch: Option<ConfigWatch>,
    /// The rules of the workspace, for engines that take them.
    pub(super) workspace_rules: Option<WorkspaceRules>,
    sessions: Mutex<HashMap<SessionId, Arc<SessionCell>>>,
    /// Where sessions are kept that are opened by their ids.
    store: Option<Arc<dyn SessionStore>>,
    /// The program ends.
    pub(super) shutdown: CancellationToken,
    /// Who remembers across sessions.
    pub(super) memory_notes: Option<MemoryNotes>,
    /// The sub-agents that work.
    pub(super) running_subagents: RunningSubagents,
    pub(super) background: TaskTracker,
}

impl Runtime {
    /// Says something in a session and waits for the final answer.
    ///
    /// Turns of one session follow each other. Words that have to wait are written down first, so that
    /// a process that dies meanwhile delivers them later, once and in order. Dropping the future breaks
    /// the turn off; the session stays valid.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the words are in the session, unless it could not be written.
    pub fn send<'a>(
        &'a self,
        session: &'a SessionId,
        text: &'a str,
    ) -> BoxFuture<'a, Result<TurnReply, TurnError>> {
        Box::pin(async move { self.send_message(session, vec![ChatBlock::text(text)]).await })
    }

    /// [`send`](Self::send) with images beside the text.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn send_message<'a>(
        &'a self,
        session: &'a SessionId,
        content: Vec<ChatBlock>,
    ) -> BoxFuture<'a, Result<TurnReply, TurnError>> {
        Box::pin(async move {
            let outcome = self.state.run_turn(session, content).await;
            if outcome.is_ok() {
                self.spawn_housekeeping(session);
            }
            outcome
        })
    }

    /// Compacts a session by hand. The last outcome says how it ended.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is as it was.
    pub fn compact<'a>(
        &'a self,
        session: &'a SessionId,
        focus: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<CompactionOutcome>, TurnError>> {
        Box::pin(async move {
            let mut turn = AgentTurn::new(self.lock_session(session).await?)?;
            turn.compact(Trigger::Manual, focus).await
        })
    }

    /// Takes the newest compaction of a session back: the model sees again what it folded away. What was
    /// said since stays. Answers whether there was one.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is as it was.
    pub fn undo<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<bool, TurnError>> {
        Box::pin(async move {
            match self.undo_at(session, -1).await {
                Ok(_) => Ok(true),
                Err(TurnError::History(HistoryError::NoCompaction)) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// Takes a compaction of a session back by its number on the branch, from 1 or, below 0, from the
    /// newest; and every newer one with it.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is as it was.
    pub fn undo_at<'a>(
        &'a self,
        session: &'a SessionId,
        number: i64,
    ) -> BoxFuture<'a, Result<UndoReport, TurnError>> {
        Box::pin(async move {
            let mut guard = self.lock_session(session).await?;
            let context = &mut guard.active_mut().context;
            let undone = context.session_mut().undo_compaction(Some(number))?;
            context.invalidate_counts();
            Ok(undone)
        })
    }

    /// Hears all that happens from now on. A listener that lags by more than a thousand events misses
    /// the oldest.
    pub fn subscribe(&self) -> broadcast::Receiver<RuntimeEvent> {
        self.state.event_bus.subscribe()
    }

    /// Has somebody hear all that happens from now on, while it happens. Nothing is missed, and everything
    /// waits for it.
    pub fn add_listener(&self, listener: EventListener) {
        self.state.event_bus.add_listener(listener);
    }

    /// What a session's window is filled with.
    ///
    /// # Errors
    ///
    /// [`TurnError`].
    pub fn occupancy<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<WindowOccupancy, TurnError>> {
        Box::pin(async move {
            let mut turn = AgentTurn::new(self.lock_session(session).await?)?;
            let (target, _) = turn.target(Trigger::Threshold).await;
            let context = &mut turn.guard.active_mut().context;
            let budget = context.budget(&target);
            Ok(WindowOccupancy {
                budget_tokens: budget.tokens,
                reserve_tokens: budget.reserve_tokens,
                window_tokens: context.window_tokens(&target),
                engine: context.engine().serving_info().id,
                model: target.model.to_string(),
                view: context.view(),
            })
        })
    }

    pub(super) fn from_state(shared: Arc<RuntimeState>) -> Runtime {
        Runtime { state: shared }
    }

    pub(super) fn state(&self) -> &Arc<RuntimeState> {
        &self.state
    }

    /// The engine that serves now, where no canary does.
    pub fn engine(&self) -> String {
        self.state.engines.current().serving_info().id
    }

    /// What is done when the engine of the slot fails, as the config says now.
    pub fn on_engine_error(&self) -> OnEngineError {
        self.state.engines.current().on_error()
    }

    /// Why the engine of the slot does not serve; `None` where it does.
    pub fn quarantine(&self) -> Option<QuarantineRecord> {
        self.state.engines.current().quarantine_record()
    }

    /// Ends the runtime: waits for what runs in the background, as long as it makes progress, and disposes
    /// of every engine. What only waits for a pause of the person is given up. Nothing can be sent
    /// afterwards.
    pub fn shutdown<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.state.shutdown.cancel();
            self.state.background.close();
            let wait = Duration::from_millis(self.state.compaction.wait_ms);
            if tokio::time::timeout(wait, self.state.background.wait()).await.is_err() {
                tracing::warn!("housekeeping was still under way after {} ms", wait.as_millis());
            }
            if tokio::time::timeout(wait, self.flush_shadows()).await.is_err() {
                tracing::warn!("engines in the shadow were at work after {} ms", wait.as_millis());
            }
            self.state.engines.dispose().await;
            if let Some(shadows) = &self.state.shadows {
                shadows.dispose().await;
            }
        })
    }

    /// Waits until the engines in the shadow have looked at every request so far and it is written down.
    pub fn flush_shadows<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(shadows) = &self.state.shadows {
                shadows.flush().await;
            }
        })
    }
}

impl RuntimeState {
    /// One turn of a session, from what is said to the final answer. Boxed, because a turn may wait for
    /// that of a sub-agent.
    pub(super) fn run_turn<'a>(
        self: &'a Arc<Self>,
        session: &'a SessionId,
        content: Vec<ChatBlock>,
    ) -> BoxFuture<'a, Result<TurnReply, TurnError>> {
        Box::pin(async move {
            let held = self.session(session)?;
            // Words that nobody could answer are not kept: they would be said by a later turn.
            self.failover().start_turn(self.now_ms()).ok_or(TurnError::NoModel)?;
            let message = UserMessage { content, timestamp: self.clock().now_ms() };
            let (id, lane) = held.enqueue(&self.session_locks, session, &message).await?;
            let waiting = held.waiters.add_waiter();
            let lane = lane.await;
            drop(waiting);
            let lane = self.acquire_lease(session, &held, lane).await?;
            if !held.inbox.is_waiting(&id) {
                return Err(TurnError::AnsweredElsewhere);
            }
            let mut turn = AgentTurn::new(SessionGuard::new(self, &held, lane).await)?;
            let outcome =
                turn::run(&mut turn, QueuedMessageRef { inbox: &held.inbox, id: &id }).await;
            if let Err(error) = &outcome {
                turn.guard.emit(EventKind::TurnFailed { message: error.to_string() });
            }
            turn.guard.measure_turn(outcome.is_err());
            outcome
        })
    }

    pub(super) fn failover(&self) -> MutexGuard<'_, Failover> {
        self.failover.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now, in milliseconds since 1970.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock().now_ms()).unwrap_or(0)
    }

    /// The clock of the host.
    pub(super) fn clock(&self) -> &HostClock {
        &self.context.clock
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("engine", &self.engine())
            .field("settings", &self.state.settings)
            .finish_non_exhaustive()
    }
}
