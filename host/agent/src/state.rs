//! The state behind a `Runtime`: what its sessions share, and the table of open sessions.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cached_prefixes::CachedPrefixes;
use crate::canary::SessionLineage;
use crate::engine_manager::EngineManager;
use crate::engine_options::EngineOptions;
use crate::error::TurnError;
use crate::event::EventKind;
use crate::event_bus::EventBus;
use crate::inbox::{Inbox, InboxError};
use crate::memory::{MemoryNotes, NotesState};
use crate::reload::config_watch::ConfigWatch;
use crate::session_cell::{ActiveSession, SessionCell, SessionId};
use crate::session_locks::{SessionLock, SessionLocks};
use crate::shadow::ShadowEngines;
use crate::subagent::registry::SubagentTable;
use crate::subagent::running::RunningSubagents;
use crate::workspace::WorkspaceRules;
use ctxhost_blobs::{BlobDirs, ImageStore};
use ctxhost_config::{AgentSettings, CompactionSettings, ImageStorage, SessionSettings};
use ctxhost_context::{Context, ContextSettings};
use ctxhost_engine::HostClock;
use ctxhost_models::ModelRegistry;
use ctxhost_models::failover::Failover;
use ctxhost_provider::ProviderClient;
use ctxhost_session::Session;
use ctxhost_tools::ToolRegistry;

/// What all sessions of a runtime share.
pub(crate) struct RuntimeState {
    pub(crate) clients: BTreeMap<String, Arc<dyn ProviderClient>>,
    pub(crate) settings: AgentSettings,
    pub(crate) session: SessionSettings,
    pub(crate) compaction: CompactionSettings,
    pub(crate) tool_timeout: Duration,
    /// Looks up the windows of models.
    pub(crate) models: Arc<ModelRegistry>,
    /// Settings of every session's `Context`.
    pub(crate) context: Arc<ContextSettings>,
    pub(crate) tools: ToolRegistry,
    pub(crate) session_locks: SessionLocks,
    pub(crate) cached_prefixes: Arc<CachedPrefixes>,
    pub(crate) event_bus: EventBus,
    pub(crate) failover: Mutex<Failover>,
    pub(crate) engines: EngineManager,
    /// Engines that observe requests without effect.
    pub(crate) shadows: Option<ShadowEngines>,
    /// Options for engines that are opened later.
    pub(crate) engine_options: EngineOptions,
    /// Where sessions store large results and images.
    pub(crate) blob_dirs: BlobDirs,
    /// The config file that is watched for changes.
    pub(crate) config_watch: Option<ConfigWatch>,
    /// The rules of the workspace, for engines that repeat them.
    pub(crate) workspace_rules: Option<WorkspaceRules>,
    pub(crate) sessions: Mutex<HashMap<SessionId, Arc<SessionCell>>>,
    /// Cancelled when the runtime shuts down.
    pub(crate) shutdown: CancellationToken,
    /// Notes that outlive a session, if the memory slot is filled.
    pub(crate) memory_notes: Option<MemoryNotes>,
    pub(crate) running_subagents: RunningSubagents,
    pub(crate) background: TaskTracker,
}

impl RuntimeState {
    /// Finds an open session.
    pub(crate) fn session(&self, id: &SessionId) -> Result<Arc<SessionCell>, TurnError> {
        let cell = self.sessions.lock().get(id).cloned();
        cell.ok_or_else(|| TurnError::NoSession { id: id.to_string() })
    }

    /// Waits for the lock of a session. Background work of the session yields to the caller.
    pub(crate) async fn lock_cell(
        &self,
        session: &SessionId,
        cell: &SessionCell,
    ) -> Result<SessionLock, TurnError> {
        let _waiter = cell.waiters.add_waiter();
        let lock = self.session_locks.lock(session.as_str()).await;
        self.acquire_lease(session, cell, lock).await
    }

    /// Locks a session against other machines and loads what they wrote.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`] if the session was closed while the caller waited for its lock.
    pub(crate) async fn acquire_lease(
        &self,
        session: &SessionId,
        cell: &SessionCell,
        lock: SessionLock,
    ) -> Result<SessionLock, TurnError> {
        if !self.is_open(session, cell) {
            return Err(TurnError::NoSession { id: session.to_string() });
        }
        let Some(store_lock) = &cell.store_lock else { return Ok(lock) };
        // Without the global permit: a turn of another machine may take minutes.
        let lease = lock.yield_permit_during(store_lock.acquire()).await?;
        let mut active = cell.active.lock().await;
        let active = &mut *active;
        if active.context.session_mut().refresh()? {
            let session = active.context.session().session();
            // These derive from records that other machines may have extended.
            active.subagents = active.subagents.refreshed(session);
            self.cached_prefixes.forget(session.header().id());
        }
        // After the session: a message that is in it by now must not be delivered again.
        cell.inbox.refresh(active.context.session().session())?;
        Ok(lock.with_lease(lease))
    }

    /// Whether this very cell is open under the id: the session may have been closed and reopened.
    pub(crate) fn is_open(&self, id: &SessionId, cell: &SessionCell) -> bool {
        self.sessions.lock().get(id).is_some_and(|open| std::ptr::eq(&**open, cell))
    }

    /// Removes a session from the table. The caller holds its lock.
    pub(crate) fn close(&self, id: &str) {
        self.sessions.lock().retain(|session, _| session.as_str() != id);
        // The cached request keeps the whole conversation in memory.
        self.cached_prefixes.forget(id);
    }

    /// Adds a session to the table. A sub-agent's session gets the lineage of its agent.
    pub(crate) fn register(
        &self,
        session: Session,
        lineage: Option<&SessionLineage>,
    ) -> Result<SessionId, InboxError> {
        self.register_synced(session.with_sync(self.session.sync), lineage)
    }

    /// Like [`register`](Self::register), but keeps the sync policy of the session.
    pub(crate) fn register_synced(
        &self,
        mut session: Session,
        lineage: Option<&SessionLineage>,
    ) -> Result<SessionId, InboxError> {
        // Before the live transcript is built, which must include a recovered compaction.
        session.recover_compaction();
        let id = SessionId::new(session.header().id());
        let inbox = Inbox::open(&session)?;
        let store_lock = session.shared_lock();
        let images = self.image_store(&session);
        let cwd = session.header().cwd();
        let read = |notes: &MemoryNotes| notes.read_newest(cwd, self.settings.notes_chars);
        let earlier_notes = self.memory_notes.as_ref().map(read).unwrap_or_default();
        let began_ms = session.header().timestamp_ms();
        let own_lineage = || SessionLineage { id: id.to_string(), began_ms };
        let subagents = SubagentTable::from_session(&session);
        let mut context = Context::new(session, self.engines.current(), self.context.clone());
        context.session_mut().set_images(images);
        let active = ActiveSession {
            lineage: lineage.cloned().unwrap_or_else(own_lineage),
            notes: NotesState::new(earlier_notes),
            subagents,
            idle: Some(context.engine().idle_mark()),
            context,
        };
        let cell = SessionCell::new(inbox, active, store_lock);
        self.sessions.lock().insert(id.clone(), Arc::new(cell));
        Ok(id)
    }

    /// Where a session stores images: nowhere if it is in memory; a fork also reads its parent's.
    pub(crate) fn image_store(&self, session: &Session) -> ImageStore {
        let Some(path) = session.path() else { return ImageStore::default() };
        let own = self.blob_dirs.session_blobs(path);
        let blobs = match session.header().parent_session() {
            // A fork references images of its parent without copying them.
            Some(parent) => own.with_fallback(self.blob_dirs.session_blobs(Path::new(parent))),
            None => own,
        };
        match self.session.media {
            ImageStorage::Inline => ImageStore::new_inline(blobs),
            ImageStorage::Store => ImageStore::new_stored(blobs, self.session.media_inline_bytes),
        }
    }

    /// Emits an event of a session.
    pub(crate) fn emit(&self, session: &str, kind: EventKind) {
        self.event_bus.emit(session, kind);
    }

    /// The current time in milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.clock().now_ms()).unwrap_or(0)
    }

    pub(crate) fn clock(&self) -> &HostClock {
        &self.context.clock
    }
}
