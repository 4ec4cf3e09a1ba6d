//! The sessions of a runtime: each file open once, each found by its id.

use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::future::poll_fn;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Mutex as AsyncMutex;

use super::{Runtime, RuntimeState};
use crate::canary::SessionLineage;
use crate::inbox::{Inbox, InboxError};
use crate::memory::{MemoryNotes, NotesState};
use crate::precompute::WaiterCount;
use crate::session_locks::{SessionLock, SessionLocks};
use crate::subagent::SubagentTable;
use crate::turn::TurnError;
use ctxhost_blobs::ImageStore;
use ctxhost_config::ImageStorage;
use ctxhost_context::{Context, LiveSession};
use ctxhost_dialects::ChatMessage;
use ctxhost_dialects::message::UserMessage;
use ctxhost_session::backend::SharedSessionLock;
use ctxhost_session::{Session, SessionHeader};
use ctxhost_store::SessionStore;

/// The id of a session. Opaque: never a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// As it stands in the session file.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A session of a runtime.
pub(crate) struct SessionCell {
    /// What was said to it and waits; written to without waiting for a turn to end.
    pub(super) inbox: Inbox,
    /// Everything else, for whoever has its lane.
    pub(crate) active: Arc<AsyncMutex<ActiveSession>>,
    /// Held while words are written down and queue up, so that they are answered in the order in which
    /// they stand in the inbox.
    enqueue_lock: AsyncMutex<()>,
    /// Who waits for its lane.
    pub(crate) waiters: WaiterCount,
    /// Its lane across machines, where it may be on several.
    store_lock: Option<Arc<dyn SharedSessionLock>>,
}

impl SessionCell {
    /// Writes words down and queues up for their turn; answers the id of the letter, and the lane when
    /// it is free.
    pub(super) async fn enqueue<'a>(
        &self,
        lanes: &'a SessionLocks,
        session: &'a SessionId,
        message: &UserMessage,
    ) -> Result<(String, impl Future<Output = SessionLock> + Send + use<'a>), InboxError> {
        let _alone = self.enqueue_lock.lock().await;
        let id = self.inbox.push(&json_of(&ChatMessage::User(message.clone())))?;
        let mut entering = Box::pin(lanes.lock(session.as_str()));
        // A future of the lane has its place in the queue once it was asked for it.
        let entered = poll_fn(|context| Poll::Ready(entering.as_mut().poll(context))).await;
        let lane = async move {
            match entered {
                Poll::Ready(lane) => lane,
                Poll::Pending => entering.await,
            }
        };
        Ok((id, lane))
    }
}

fn json_of(message: &ChatMessage) -> String {
    serde_json::to_string(message).unwrap_or_default()
}

/// A session as a turn has it, with what was learned while it is open.
#[derive(Debug)]
pub(crate) struct ActiveSession {
    pub(crate) context: Context,
    pub(crate) subagents: SubagentTable,
    pub(crate) notes: NotesState,
    /// Whose session it is, as far as canaries go.
    pub(crate) lineage: SessionLineage,
}

impl Runtime {
    /// How many sessions are open.
    pub fn open_sessions(&self) -> usize {
        self.state().sessions().len()
    }

    /// Opens a session file. What was said to it and not heard, because a process died, waits for its
    /// next turn; a compaction that was worked out and not recorded yet is recorded now.
    ///
    /// # Errors
    ///
    /// As [`Session::active`], or where the inbox beside it cannot be read.
    pub fn open_session(&self, path: &Path) -> Result<SessionId, TurnError> {
        self.adopt_session(Session::open(path)?)
    }

    /// Begins a session in a file that is not there yet. Tools work in `cwd`.
    ///
    /// # Errors
    ///
    /// As [`Session::create`].
    pub fn create_session(&self, path: &Path, cwd: &Path) -> Result<SessionId, TurnError> {
        let cwd = std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
        self.adopt_session(Session::create(path, &cwd.display().to_string(), None)?)
    }

    /// Opens a session of the store by its id. Other machines may have it open too; a turn waits for
    /// theirs.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoStore`], or as [`SessionStore::active`].
    pub fn open_stored_session(&self, id: &str) -> Result<SessionId, TurnError> {
        self.adopt_session(self.store()?.open(id)?)
    }

    /// Begins a session in the store. Tools work in `cwd`.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoStore`], or as [`SessionStore::create`].
    pub fn create_stored_session(&self, cwd: &Path) -> Result<SessionId, TurnError> {
        let cwd = std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
        let now_ms = self.state.clock().now_ms();
        let header = SessionHeader::new(None, &cwd.display().to_string(), now_ms);
        self.adopt_session(self.store()?.create(header)?)
    }

    fn store(&self) -> Result<&dyn SessionStore, TurnError> {
        self.state.store.as_deref().ok_or(TurnError::NoStore)
    }

    /// Takes over a session that is open already, such as one in memory.
    ///
    /// # Errors
    ///
    /// Where the inbox beside it cannot be read.
    pub fn adopt_session(&self, session: Session) -> Result<SessionId, TurnError> {
        Ok(self.state.register(session, None)?)
    }

    /// Closes a session once its turns have ended. Its file can be opened again afterwards.
    pub fn close_session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Ok(held) = self.state.session(session) else { return };
            let _waiting = held.waiters.add_waiter();
            // Nothing is written, so it is closed whether other machines are at work in it or not.
            let _lane = self.state.session_locks.lock(session.as_str()).await;
            if self.state.is_open(session, &held) {
                self.state.close(session.as_str());
            }
        })
    }

    /// Looks at a session between two turns.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`].
    pub async fn with_session<T>(
        &self,
        session: &SessionId,
        look: impl FnOnce(&LiveSession) -> T,
    ) -> Result<T, TurnError> {
        let held = self.state.session(session)?;
        let open = held.active.lock().await;
        Ok(look(open.context.session()))
    }
}

impl RuntimeState {
    pub(crate) fn session(&self, id: &SessionId) -> Result<Arc<SessionCell>, TurnError> {
        let open = self.sessions().get(id).cloned();
        open.ok_or_else(|| TurnError::NoSession { id: id.to_string() })
    }

    /// Waits for the lane of a session. What only uses the time between two turns gives way.
    pub(crate) async fn lock_cell(
        &self,
        session: &SessionId,
        held: &SessionCell,
    ) -> Result<SessionLock, TurnError> {
        let _waiting = held.waiters.add_waiter();
        let lane = self.session_locks.lock(session.as_str()).await;
        self.acquire_lease(session, held, lane).await
    }

    /// Holds a session against other machines and catches up with what they wrote.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`] where it was closed while its lane was waited for.
    pub(crate) async fn acquire_lease(
        &self,
        session: &SessionId,
        held: &SessionCell,
        lane: SessionLock,
    ) -> Result<SessionLock, TurnError> {
        if !self.is_open(session, held) {
            return Err(TurnError::NoSession { id: session.to_string() });
        }
        let Some(shared_lane) = &held.store_lock else { return Ok(lane) };
        let hold = lane.yield_permit_during(shared_lane.acquire()).await?;
        let mut open = held.active.lock().await;
        let open = &mut *open;
        if open.context.session_mut().refresh()? {
            let session = open.context.session().session();
            open.subagents = open.subagents.refreshed(session);
            self.cached_prefixes.forget(session.header().id());
        }
        held.inbox.refresh(open.context.session().session())?;
        Ok(lane.with_lease(hold))
    }

    /// Whether this is the session that is open under its id: it may have been closed, and opened again.
    fn is_open(&self, id: &SessionId, held: &SessionCell) -> bool {
        self.sessions().get(id).is_some_and(|open| std::ptr::eq(&**open, held))
    }

    /// Closes a session that nobody is at work in.
    pub(crate) fn close(&self, id: &str) {
        self.sessions().retain(|session, _| session.as_str() != id);
        self.cached_prefixes.forget(id);
    }

    /// Takes over a session; that of a sub-agent belongs to the family of its agent.
    pub(crate) fn register(
        &self,
        session: Session,
        family: Option<&SessionLineage>,
    ) -> Result<SessionId, InboxError> {
        self.register_synced(session.with_sync(self.session.sync), family)
    }

    /// The same for a session whose appends last when it says so, whatever the config says.
    pub(crate) fn register_synced(
        &self,
        mut session: Session,
        family: Option<&SessionLineage>,
    ) -> Result<SessionId, InboxError> {
        session.recover_compaction();
        let id = SessionId(session.header().id().into());
        let inbox = Inbox::open(&session)?;
        let shared_lane = session.shared_lock();
        let images = self.image_store(&session);
        let cwd = session.header().cwd();
        let recall = |notes: &MemoryNotes| notes.read_newest(cwd, self.settings.notes_chars);
        let recalled = self.memory_notes.as_ref().map(recall).unwrap_or_default();
        let began_ms = session.header().timestamp_ms();
        let own = || SessionLineage { id: id.to_string(), began_ms };
        let children = SubagentTable::from_session(&session);
        let mut context = Context::new(session, self.engines.current(), self.context.clone());
        context.session_mut().set_images(images);
        let open = ActiveSession {
            lineage: family.cloned().unwrap_or_else(own),
            notes: NotesState::new(recalled),
            subagents: children,
            context,
        };
        let open = Arc::new(AsyncMutex::new(open));
        let (queueing, waiting) = (AsyncMutex::new(()), WaiterCount::default());
        let held = SessionCell {
            inbox,
            active: open,
            enqueue_lock: queueing,
            waiters: waiting,
            store_lock: shared_lane,
        };
        self.sessions().insert(id.clone(), Arc::new(held));
        Ok(id)
    }

    /// A session on no disk has no place to put images.
    pub(crate) fn image_store(&self, session: &Session) -> ImageStore {
        let Some(path) = session.path() else { return ImageStore::default() };
        let home = &self.blob_dirs;
        let own = home.session_blobs(path);
        let blobs = match session.header().parent_session() {
            Some(parent) => own.with_fallback(home.session_blobs(Path::new(parent))),
            None => own,
        };
        match self.session.media {
            ImageStorage::Inline => ImageStore::new_inline(blobs),
            ImageStorage::Store => ImageStore::new_stored(blobs, self.session.media_inline_bytes),
        }
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<SessionCell>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
