//! One open session: its inbox, its lock, and the state that a turn works on.

use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, watch};

use crate::canary::SessionLineage;
use crate::engine_manager::EngineManager;
use crate::engine_manager::canary::CanaryRecorder;
use crate::inbox::{Inbox, InboxError};
use crate::memory::NotesState;
use crate::session_locks::{SessionLock, SessionLocks};
use crate::subagent::registry::SubagentTable;
use ctxhost_context::Context;
use ctxhost_dialects::ChatMessage;
use ctxhost_dialects::message::UserMessage;
use ctxhost_engine::IdleMark;
use ctxhost_session::backend::SharedSessionLock;

/// The id of a session. Opaque: never a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    pub(crate) fn new(id: &str) -> SessionId {
        SessionId(id.into())
    }

    /// The id as written in the session file.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// An open session of a runtime.
pub(crate) struct SessionCell {
    /// Queued messages. Accessible while a turn runs.
    pub(crate) inbox: Inbox,
    /// The rest of the session, for the holder of its lock.
    pub(crate) active: Arc<AsyncMutex<ActiveSession>>,
    /// Held while a message is written to the inbox and its turn joins the queue of the session
    /// lock, so that both have the same order.
    enqueue_lock: AsyncMutex<()>,
    /// Counts those that wait for the session lock.
    pub(crate) waiters: WaiterCount,
    /// The lock across machines, for sessions in a shared store.
    pub(crate) store_lock: Option<Arc<dyn SharedSessionLock>>,
}

impl SessionCell {
    pub(crate) fn new(
        inbox: Inbox,
        active: ActiveSession,
        store_lock: Option<Arc<dyn SharedSessionLock>>,
    ) -> SessionCell {
        SessionCell {
            inbox,
            active: Arc::new(AsyncMutex::new(active)),
            enqueue_lock: AsyncMutex::default(),
            waiters: WaiterCount::default(),
            store_lock,
        }
    }

    /// Writes a message to the inbox and joins the queue of the session lock. Returns the message's
    /// inbox id, and a future for the lock.
    pub(crate) async fn enqueue<'a>(
        &self,
        locks: &'a SessionLocks,
        session: &'a SessionId,
        message: &UserMessage,
    ) -> Result<(String, impl Future<Output = SessionLock> + Send + use<'a>), InboxError> {
        let _order = self.enqueue_lock.lock().await;
        let message = ChatMessage::User(message.clone());
        let id = self.inbox.push(&serde_json::to_string(&message).unwrap_or_default())?;
        let mut locking = Box::pin(locks.lock(session.as_str()));
        // The semaphore queues a waiter at its first poll, so the future is polled once while the order is held.
        let first_poll = poll_fn(|context| Poll::Ready(locking.as_mut().poll(context))).await;
        let lock = async move {
            match first_poll {
                Poll::Ready(lock) => lock,
                Poll::Pending => locking.await,
            }
        };
        Ok((id, lock))
    }
}

/// The part of a session that a turn works on, with what it has learned since it was opened.
#[derive(Debug)]
pub(crate) struct ActiveSession {
    /// Between two turns. Before `context`: dropped first, so that the engine never has fewer users than callers.
    pub(crate) idle: Option<IdleMark>,
    pub(crate) context: Context,
    pub(crate) subagents: SubagentTable,
    pub(crate) notes: NotesState,
    /// Decides which canary share the session is in.
    pub(crate) lineage: SessionLineage,
}

/// Exclusive use of a session for a turn, which may call the engine of its context.
pub(crate) struct SessionUse(OwnedMutexGuard<ActiveSession>);

impl SessionUse {
    pub(crate) async fn begin(
        cell: &SessionCell,
        engines: &EngineManager,
    ) -> (SessionUse, Option<CanaryRecorder>) {
        let mut session = cell.active.clone().lock_owned().await;
        // Chosen per turn: the engine may have been replaced since the last one.
        let (engine, recorder) = engines.engine_for(&session.lineage);
        session.idle = None;
        session.context.set_engine(engine);
        (SessionUse(session), recorder)
    }
}

impl Deref for SessionUse {
    type Target = ActiveSession;

    fn deref(&self) -> &ActiveSession {
        &self.0
    }
}

impl DerefMut for SessionUse {
    fn deref_mut(&mut self) -> &mut ActiveSession {
        &mut self.0
    }
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        self.0.idle = Some(self.0.context.engine().idle_mark());
    }
}

/// Counts waiters of a session, so that background work can yield to them.
#[derive(Debug, Default)]
pub(crate) struct WaiterCount(watch::Sender<usize>);

impl WaiterCount {
    /// Counts one waiter until the guard is dropped.
    pub(crate) fn add_waiter(&self) -> impl Drop + '_ {
        self.0.send_modify(|waiters| *waiters += 1);
        WaiterGuard(&self.0)
    }

    /// Returns once there is a waiter.
    pub(crate) async fn wait_for_waiter(&self) {
        // Fails only when the sender is dropped, and `self` owns it.
        let _ = self.0.subscribe().wait_for(|waiters| *waiters > 0).await;
    }
}

struct WaiterGuard<'a>(&'a watch::Sender<usize>);

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiters| *waiters -= 1);
    }
}
