//! What all engines of a host share: a clock, folders, limits, sessions, a model, somebody to delegate to.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use ctxhost_engine_api::{HistoryPage, HistoryRequest, PromptCache, SessionRef, capability};

use super::instance::EngineInstance;
use super::quarantine::failure_log::FailureLog;
use super::store::{EngineStore, EngineStores, FileStore, MemoryStore, SessionBlobStore};
use super::timeouts::EngineTimeouts;
use ctxhost_blobs::SessionBlobs;
use ctxhost_provider::Completer;

/// The host's clock: the system's, or one that a replay sets to recorded time.
#[derive(Clone, Debug, Default)]
pub struct HostClock {
    recorded_ms: Option<Arc<AtomicI64>>,
}

impl HostClock {
    /// A clock that stands where it is set.
    pub fn recorded() -> Self {
        HostClock { recorded_ms: Some(Arc::default()) }
    }

    /// Sets a recorded clock; the system's cannot be set.
    pub fn set(&self, now_ms: i64) {
        if let Some(recorded) = &self.recorded_ms {
            recorded.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Whether it stands where it is set.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorded_ms.is_some()
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        match &self.recorded_ms {
            Some(recorded) => recorded.load(Ordering::Relaxed),
            None => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
            }
        }
    }
}

/// What engines may know of sessions beside their live transcript. Implemented above this room.
pub trait SessionQueries: Send + Sync {
    /// A page of the whole session, compactions or not.
    fn history(&self, request: &HistoryRequest) -> HistoryPage;
    /// What is known of the provider's cache.
    fn prompt_cache(&self, session: &SessionRef) -> PromptCache;
    /// Where a session keeps what engines put away; `None` for one that is on no disk.
    fn blobs(&self, session: &str) -> Option<SessionBlobs>;
}

/// What all engines of a host share.
#[derive(Clone)]
pub struct EngineEnvironment {
    /// The folder for the private copies of libraries while they are being loaded.
    pub copies_folder: PathBuf,
    /// The folder below which engines keep what they store; `None` forgets it with the process.
    pub store_folder: Option<PathBuf>,
    /// Where engines keep what they store, instead of that folder.
    pub stores: Option<Arc<dyn EngineStores>>,
    /// How long calls may take.
    pub timeouts: EngineTimeouts,
    /// The clock.
    pub clock: HostClock,
    /// What can be asked of sessions.
    pub sessions: Option<Arc<dyn SessionQueries>>,
    /// The model for summaries; `None` where none is configured.
    pub completer: Option<Arc<dyn Completer>>,
    /// What engines did to hosts of this machine, and where what they do is written down; `None`
    /// forgets it with the process.
    pub failure_log: Option<Arc<FailureLog>>,
    /// Whether engines fail for themselves: the book holds them and learns of hosts that they took down,
    /// but not of calls that failed.
    pub log_only_crashes: bool,
    delegate: Arc<OnceLock<Weak<EngineInstance>>>,
}

impl EngineEnvironment {
    /// An environment without stores on disk, without a model and without sessions.
    pub fn new(timeouts: EngineTimeouts, clock: HostClock) -> Self {
        EngineEnvironment {
            copies_folder: state_folder().join("engines").join("cache"),
            store_folder: None,
            stores: None,
            timeouts,
            clock,
            sessions: None,
            completer: None,
            failure_log: None,
            log_only_crashes: false,
            delegate: Arc::default(),
        }
    }

    /// Names the engine that compacts for those that delegate. The first call counts.
    pub(super) fn set_delegate(&self, delegate: Weak<EngineInstance>) {
        let _ = self.delegate.set(delegate);
    }

    /// The engine that compacts for those that delegate, while it lives.
    pub(super) fn delegate(&self) -> Option<Arc<EngineInstance>> {
        self.delegate.get().and_then(Weak::upgrade)
    }

    /// Where failed calls are written down; `None` forgets them with the process.
    pub fn call_failure_log(&self) -> Option<Arc<FailureLog>> {
        self.failure_log.clone().filter(|_| !self.log_only_crashes)
    }

    /// What this host can do.
    pub fn capabilities(&self) -> Vec<String> {
        let always = [capability::KV, capability::BLOB, capability::DELEGATE_COMPACT];
        let with_sessions = [capability::HISTORY, capability::PROMPT_CACHE];
        let mut names: Vec<String> = always.map(str::to_owned).to_vec();
        names.push(capability::SPAWN.into());
        if self.sessions.is_some() {
            names.extend(with_sessions.map(str::to_owned));
        }
        if self.completer.is_some() {
            names.push(capability::COMPLETE.into());
        }
        names
    }

    pub(super) fn open_store(&self, id: &str) -> Arc<dyn EngineStore> {
        let values: Arc<dyn EngineStore> = match (&self.stores, &self.store_folder) {
            (Some(stores), _) => stores.open_store(id),
            (None, Some(folder)) => Arc::new(FileStore::new(folder, id)),
            (None, None) => Arc::new(MemoryStore::default()),
        };
        match &self.sessions {
            Some(sessions) => Arc::new(SessionBlobStore { values, sessions: sessions.clone() }),
            None => values,
        }
    }
}

impl fmt::Debug for EngineEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("store_folder", &self.store_folder)
            .field("capabilities", &self.capabilities())
            .finish_non_exhaustive()
    }
}

/// Where the host keeps its own files: `CTXHOST_STATE_DIR`, else the user's state folder. Not the
/// system's temporary folder, which may forbid execution.
pub fn state_folder() -> PathBuf {
    let named = std::env::var_os("CTXHOST_STATE_DIR").map(PathBuf::from);
    let usual = || {
        let folders = directories::ProjectDirs::from("", "", "ctxhost")?;
        Some(folders.state_dir().unwrap_or(folders.data_local_dir()).to_owned())
    };
    named.or_else(usual).unwrap_or_else(|| std::env::temp_dir().join("ctxhost"))
}
