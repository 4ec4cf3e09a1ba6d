//! An agent's runtime: sessions are opened, words are sent, compactions asked for, events heard.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use ctxhost_config::Config;
//! use ctxhost_runtime::RuntimeBuilder;
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

use super::engine_options::EngineOptions;
use super::event::{Event, What};
use super::lane::Lanes;
use super::listeners::{Listener, Listeners};
use super::live_prefix::LivePrefixes;
use super::memory::Notes;
use super::session_guard::SessionGuard;
use super::shadow::Shadows;
use super::subagent::Running;
use super::swap::{Followed, Slots};
use super::turn::{self, Letter, Reply, Turn, TurnError};
use super::workspace::WorkspaceRules;
use ctxhost_config::{AgentSettings, CompactionSettings, SessionSettings};
use ctxhost_context::{CompactionOutcome, ContextSettings};
use ctxhost_dialects::Content;
use ctxhost_dialects::message::UserMessage;
use ctxhost_engine::{Clock, OnEngineError, QuarantineRecord};
use ctxhost_history::{HistoryError, Undone};
use ctxhost_media::MediaHome;
use ctxhost_models::ModelRegistry;
use ctxhost_models::failover::Failover;
use ctxhost_provider::Client;
use ctxhost_store::SessionStore;
use ctxhost_tool::Toolbox;

pub use builder::{BuildError, RuntimeBuilder};
pub(super) use sessions::HeldSession;
pub(super) use sessions::OpenSession;
pub use sessions::SessionId;

/// An agent's runtime. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Runtime {
    shared: Arc<Shared>,
}

/// What a session's window is filled with.
#[derive(Clone, Debug)]
pub struct Occupancy {
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
pub(super) struct Shared {
    pub(super) clients: BTreeMap<String, Arc<dyn Client>>,
    pub(super) settings: AgentSettings,
    pub(super) session: SessionSettings,
    pub(super) compaction: CompactionSettings,
    pub(super) tool_timeout: Duration,
    /// The windows of models.
    pub(super) models: Arc<ModelRegistry>,
    /// What contexts are made with.
    pub(super) context: Arc<ContextSettings>,
    pub(super) toolbox: Toolbox,
    pub(super) lanes: Lanes,
    pub(super) prefixes: Arc<LivePrefixes>,
    pub(super) listeners: Listeners,
    failover: Mutex<Failover>,
    pub(super) slots: Slots,
    /// Engines that run beside that of the slot.
    pub(super) shadows: Option<Shadows>,
    /// What other engines are opened with.
    pub(super) engine_options: EngineOptions,
    /// Where sessions put away large results.
    media: MediaHome,
    /// The config that is followed.
    pub(super) followed: Option<Followed>,
    /// The rules of the workspace, for engines that take them.
    pub(super) rules: Option<WorkspaceRules>,
    sessions: Mutex<HashMap<SessionId, Arc<HeldSession>>>,
    /// Where sessions are kept that are opened by their ids.
    store: Option<Arc<dyn SessionStore>>,
    /// The program ends.
    pub(super) closing: CancellationToken,
    /// Who remembers across sessions.
    pub(super) notes: Option<Notes>,
    /// The sub-agents that work.
    pub(super) running: Running,
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
    ) -> BoxFuture<'a, Result<Reply, TurnError>> {
        Box::pin(async move { self.send_message(session, vec![Content::text(text)]).await })
    }

    /// [`send`](Self::send) with images beside the text.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn send_message<'a>(
        &'a self,
        session: &'a SessionId,
        content: Vec<Content>,
    ) -> BoxFuture<'a, Result<Reply, TurnError>> {
        Box::pin(async move {
            let outcome = self.shared.converse(session, content).await;
            if outcome.is_ok() {
                self.housekeep(session);
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
            let mut turn = Turn::new(self.lock_session(session).await?)?;
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
                Err(TurnError::History(HistoryError::NothingCompacted)) => Ok(false),
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
    ) -> BoxFuture<'a, Result<Undone, TurnError>> {
        Box::pin(async move {
            let mut guard = self.lock_session(session).await?;
            let context = &mut guard.open().context;
            let undone = context.session_mut().undo_compaction(Some(number))?;
            context.forget_counts();
            Ok(undone)
        })
    }

    /// Hears all that happens from now on. A listener that lags by more than a thousand events misses
    /// the oldest.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.shared.listeners.subscribe()
    }

    /// Has somebody hear all that happens from now on, while it happens. Nothing is missed, and everything
    /// waits for it.
    pub fn listen(&self, listener: Listener) {
        self.shared.listeners.listen(listener);
    }

    /// What a session's window is filled with.
    ///
    /// # Errors
    ///
    /// [`TurnError`].
    pub fn occupancy<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<Occupancy, TurnError>> {
        Box::pin(async move {
            let mut turn = Turn::new(self.lock_session(session).await?)?;
            let (target, _) = turn.target(Trigger::Threshold).await;
            let context = &mut turn.guard.open().context;
            let budget = context.budget(&target);
            Ok(Occupancy {
                budget_tokens: budget.tokens,
                reserve_tokens: budget.reserve_tokens,
                window_tokens: context.window_tokens(&target),
                engine: context.engine().effective().id,
                model: target.model.to_string(),
                view: context.view(),
            })
        })
    }

    pub(super) fn of(shared: Arc<Shared>) -> Runtime {
        Runtime { shared }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The engine that serves now, where no canary does.
    pub fn engine(&self) -> String {
        self.shared.slots.current().effective().id
    }

    /// What is done when the engine of the slot fails, as the config says now.
    pub fn on_engine_error(&self) -> OnEngineError {
        self.shared.slots.current().on_error()
    }

    /// Why the engine of the slot does not serve; `None` where it does.
    pub fn quarantined(&self) -> Option<QuarantineRecord> {
        self.shared.slots.current().quarantined()
    }

    /// Ends the runtime: waits for what runs in the background, as long as it makes progress, and disposes
    /// of every engine. What only waits for a pause of the person is given up. Nothing can be sent
    /// afterwards.
    pub fn finish<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.shared.closing.cancel();
            self.shared.background.close();
            let wait = Duration::from_millis(self.shared.compaction.wait_ms);
            if tokio::time::timeout(wait, self.shared.background.wait()).await.is_err() {
                tracing::warn!("housekeeping was still under way after {} ms", wait.as_millis());
            }
            if tokio::time::timeout(wait, self.shadows_settled()).await.is_err() {
                tracing::warn!("engines in the shadow were at work after {} ms", wait.as_millis());
            }
            self.shared.slots.dispose().await;
            if let Some(shadows) = &self.shared.shadows {
                shadows.dispose().await;
            }
        })
    }

    /// Waits until the engines in the shadow have looked at every request so far and it is written down.
    pub fn shadows_settled<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(shadows) = &self.shared.shadows {
                shadows.settled().await;
            }
        })
    }
}

impl Shared {
    /// One turn of a session, from what is said to the final answer. Boxed, because a turn may wait for
    /// that of a sub-agent.
    pub(super) fn converse<'a>(
        self: &'a Arc<Self>,
        session: &'a SessionId,
        content: Vec<Content>,
    ) -> BoxFuture<'a, Result<Reply, TurnError>> {
        Box::pin(async move {
            let held = self.session(session)?;
            // Words that nobody could answer are not kept: they would be said by a later turn.
            self.failover().begin(self.now_ms()).ok_or(TurnError::NoModel)?;
            let message = UserMessage { content, timestamp: self.clock().now_ms() };
            let (id, lane) = held.queue(&self.lanes, session, &message).await?;
            let waiting = held.waiting.begin();
            let lane = lane.await;
            drop(waiting);
            let lane = self.hold(session, &held, lane).await?;
            if !held.inbox.waits(&id) {
                return Err(TurnError::AnsweredElsewhere);
            }
            let mut turn = Turn::new(SessionGuard::new(self, &held, lane).await)?;
            let outcome = turn::run(&mut turn, Letter { inbox: &held.inbox, id: &id }).await;
            if let Err(error) = &outcome {
                turn.guard.tell(What::TurnFailed { message: error.to_string() });
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
    pub(super) fn clock(&self) -> &Clock {
        &self.context.clock
    }
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime")
            .field("engine", &self.engine())
            .field("settings", &self.shared.settings)
            .finish_non_exhaustive()
    }
}
