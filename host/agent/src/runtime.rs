//! The public entry point of an agent: sends messages, compacts, undoes, reports events.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use ctxhost_agent::RuntimeBuilder;
//! use ctxhost_config::Config;
//!
//! let runtime = RuntimeBuilder::from_config(&Config::load("ctxhost.toml")?).build().await?;
//! let session = runtime.create_session("notes.jsonl".as_ref(), ".".as_ref())?;
//! let reply = runtime.send(&session, "What is in this folder?").await?;
//! println!("{}", reply.message.text());
//! runtime.shutdown().await;
//! # Ok(())
//! # }
//! ```

pub(crate) mod builder;
mod housekeeping;
mod session_files;
mod sessions;
pub(crate) mod slot_status;

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::Trigger;
use futures_util::future::BoxFuture;
use tokio::sync::broadcast;

use crate::error::TurnError;
use crate::event::RuntimeEvent;
use crate::event_bus::EventListener;
use crate::session_cell::SessionId;
use crate::state::RuntimeState;
use crate::turn::TurnReply;
use crate::turn::agent_turn::AgentTurn;
use ctxhost_context::{CompactionOutcome, CompactionPolicy, PromptPreview};
use ctxhost_dialects::ChatBlock;
use ctxhost_engine::{OnEngineError, QuarantineRecord};
use ctxhost_history::{HistoryError, UndoReport};

/// An agent's runtime. Cheap to clone; clones share their state.
#[derive(Clone)]
pub struct Runtime {
    state: Arc<RuntimeState>,
}

/// How full a session's window is.
#[derive(Clone, Debug)]
pub struct WindowOccupancy {
    /// What the next request would be.
    pub preview: PromptPreview,
    /// When the host may compact for it.
    pub compaction: CompactionPolicy,
    /// The window, in provider tokens.
    pub window_tokens: u64,
    /// The model that would receive it, as `provider/id`.
    pub model: String,
}

impl Runtime {
    /// Sends a message to a session and waits for the final answer.
    ///
    /// Turns of one session run one after the other. The message is written to the session's inbox
    /// first: if the process dies, it is delivered later, once and in order. Dropping the future
    /// cancels the turn; the session stays valid.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the message is in the session, unless that could not be written.
    pub fn send<'a>(
        &'a self,
        session: &'a SessionId,
        text: &'a str,
    ) -> BoxFuture<'a, Result<TurnReply, TurnError>> {
        Box::pin(async move { self.send_message(session, vec![ChatBlock::text(text)]).await })
    }

    /// [`send`](Self::send) with images as well as text.
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
                // After the reply: the user does not wait for a compaction.
                self.spawn_housekeeping(session);
            }
            outcome
        })
    }

    /// Compacts a session on the user's request. The last outcome is the result; earlier ones are rejected attempts.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is unchanged.
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

    /// Reverts the newest compaction of a session; later messages stay. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is unchanged.
    pub fn undo<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<bool, TurnError>> {
        Box::pin(async move {
            match self.undo_at(session, -1).await {
                Ok(_) => Ok(true),
                Err(TurnError::History(HistoryError::NoCompaction)) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// Reverts a compaction and all newer ones. `number` counts from 1 on the branch, or from the newest if negative.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is unchanged.
    pub fn undo_at<'a>(
        &'a self,
        session: &'a SessionId,
        number: i64,
    ) -> BoxFuture<'a, Result<UndoReport, TurnError>> {
        Box::pin(async move {
            let mut guard = self.lock_session(session).await?;
            let context = &mut guard.active_mut().context;
            let report = context.session_mut().undo_compaction(Some(number))?;
            // The counts are of prompts with the summary.
            context.invalidate_counts();
            Ok(report)
        })
    }

    /// Subscribes to events. A receiver that lags by more than 1,024 events misses the oldest.
    pub fn subscribe(&self) -> broadcast::Receiver<RuntimeEvent> {
        self.state.event_bus.subscribe()
    }

    /// Adds a listener that is called synchronously for every event. It must return quickly.
    pub fn add_listener(&self, listener: EventListener) {
        self.state.event_bus.add_listener(listener);
    }

    /// How full a session's window is.
    pub fn occupancy<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<WindowOccupancy, TurnError>> {
        Box::pin(async move {
            let mut turn = AgentTurn::new(self.lock_session(session).await?)?;
            let (target, _) = turn.target(Trigger::Threshold).await;
            let context = &mut turn.guard.active_mut().context;
            Ok(WindowOccupancy {
                preview: context.preview(&target).await?,
                window_tokens: context.window_tokens(&target),
                compaction: target.compaction,
                model: target.model.to_string(),
            })
        })
    }

    pub(crate) fn from_state(state: Arc<RuntimeState>) -> Runtime {
        Runtime { state }
    }

    pub(crate) fn state(&self) -> &Arc<RuntimeState> {
        &self.state
    }

    /// The engine that serves sessions outside a canary.
    pub fn engine(&self) -> String {
        self.state.engines.current().serving_info().id
    }

    /// What the host does when the active engine fails, by the current config.
    pub fn on_engine_error(&self) -> OnEngineError {
        self.state.engines.current().on_error()
    }

    /// Why the active engine is in quarantine; `None` if it serves.
    pub fn quarantine(&self) -> Option<QuarantineRecord> {
        self.state.engines.current().quarantine_record()
    }

    /// Shuts the runtime down: waits for background work, at most `compaction.wait_ms`, and disposes of every engine.
    /// Work that waits for an idle session is cancelled. Nothing can be sent afterwards.
    pub fn shutdown<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.state.shutdown.cancel();
            self.state.background.close();
            let limit_ms = self.state.compaction.wait_ms;
            let limit = Duration::from_millis(limit_ms);
            if tokio::time::timeout(limit, self.state.background.wait()).await.is_err() {
                tracing::warn!(
                    limit_ms,
                    "shutdown: housekeeping did not finish in time (compaction.wait_ms)"
                );
            }
            if tokio::time::timeout(limit, self.flush_shadows()).await.is_err() {
                tracing::warn!(
                    limit_ms,
                    "shutdown: shadow engines did not finish in time (compaction.wait_ms)"
                );
            }
            // Last: housekeeping and shadows may still call engines.
            self.state.engines.dispose().await;
            if let Some(shadows) = &self.state.shadows {
                shadows.dispose().await;
            }
        })
    }

    /// Waits until the shadow engines have processed and logged every request so far.
    pub fn flush_shadows<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(shadows) = &self.state.shadows {
                shadows.flush().await;
            }
        })
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
