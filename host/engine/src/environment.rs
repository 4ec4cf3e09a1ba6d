//! What all engines of a host share: clock, folders, limits, stores, sessions, a model for summaries.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Once, OnceLock, Weak};

use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::{CompactRequest, Compaction, Result, Transcript, capability};
use ctxhost_provider::{Completer, Embedder};

use super::clock::HostClock;
use super::quarantine::failure_log::FailureLog;
use super::session_queries::SessionQueries;
use super::store::{EngineStore, EngineStores, FileStore, MemoryStore};
use super::timeouts::EngineTimeouts;

/// The engine that compacts for engines that delegate their compactions.
pub(super) trait CompactionDelegate: Send + Sync {
    /// Compacts a transcript.
    fn compact_for(
        self: Arc<Self>,
        view: Transcript,
        request: CompactRequest,
    ) -> BoxFuture<Result<Compaction>>;
}

/// What all engines of a host share.
#[derive(Clone)]
pub struct EngineEnvironment {
    /// The folder for private copies of libraries while they are loaded.
    pub copies_folder: PathBuf,
    /// The folder below which engines store values; `None` keeps them in memory.
    pub store_folder: Option<PathBuf>,
    /// The store of all engines; takes precedence over `store_folder`.
    pub stores: Option<Arc<dyn EngineStores>>,
    /// The time limits of calls.
    pub timeouts: EngineTimeouts,
    /// The clock.
    pub clock: HostClock,
    /// Queries about sessions.
    pub sessions: Option<Arc<dyn SessionQueries>>,
    /// The model for summaries; `None` where none is configured.
    pub completer: Option<Arc<dyn Completer>>,
    /// The model for vectors; `None` where none is configured.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// The failures and crashes of engines on this machine; `None` keeps quarantine in memory.
    pub failure_log: Option<Arc<FailureLog>>,
    /// Whether only crashes go into the log, and failed calls do not: for shadow engines.
    pub log_only_crashes: bool,
    // Weak, because the delegate holds this environment itself.
    delegate: Arc<OnceLock<Weak<dyn CompactionDelegate>>>,
}

impl EngineEnvironment {
    /// An environment with stores in memory, without a model and without sessions.
    pub fn new(timeouts: EngineTimeouts, clock: HostClock) -> Self {
        EngineEnvironment {
            copies_folder: state_folder().join("engines").join("cache"),
            store_folder: None,
            stores: None,
            timeouts,
            clock,
            sessions: None,
            completer: None,
            embedder: None,
            failure_log: None,
            log_only_crashes: false,
            delegate: Arc::default(),
        }
    }

    /// Sets the engine that compacts for those that delegate. Only the first call has an effect.
    pub(super) fn set_delegate(&self, delegate: Weak<dyn CompactionDelegate>) {
        let _ = self.delegate.set(delegate);
    }

    /// The engine that compacts for those that delegate, while it is open.
    pub(super) fn delegate(&self) -> Option<Arc<dyn CompactionDelegate>> {
        self.delegate.get().and_then(Weak::upgrade)
    }

    /// The log for failed calls; `None` keeps them in memory.
    pub fn call_failure_log(&self) -> Option<Arc<FailureLog>> {
        self.failure_log.clone().filter(|_| !self.log_only_crashes)
    }

    /// The capabilities of this host.
    pub fn capabilities(&self) -> Vec<String> {
        let mut names =
            vec![capability::KV, capability::BLOB, capability::DELEGATE_COMPACT, capability::SPAWN];
        if self.sessions.is_some() {
            names.extend([capability::HISTORY, capability::PROMPT_CACHE]);
        }
        if self.completer.is_some() {
            names.push(capability::COMPLETE);
        }
        if self.embedder.is_some() {
            names.push(capability::EMBED);
        }
        names.into_iter().map(str::to_owned).collect()
    }

    pub(super) fn open_store(&self, id: &str) -> Arc<dyn EngineStore> {
        match (&self.stores, &self.store_folder) {
            (Some(stores), _) => stores.open_store(id),
            (None, Some(folder)) => Arc::new(FileStore::new(folder, id)),
            (None, None) => Arc::new(MemoryStore::default()),
        }
    }
}

impl fmt::Debug for EngineEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineEnvironment")
            .field("store_folder", &self.store_folder)
            .field("capabilities", &self.capabilities())
            .finish_non_exhaustive()
    }
}

/// The host's state folder: `CTXHOST_STATE_DIR`, else the user's.
pub fn state_folder() -> PathBuf {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let of_user = || {
        let folders = directories::ProjectDirs::from("", "", "ctxhost")?;
        Some(folders.state_dir().unwrap_or(folders.data_local_dir()).to_owned())
    };
    let named = variable("CTXHOST_STATE_DIR").or_else(of_user);
    choose_state_folder(named, variable("XDG_STATE_HOME"))
}

/// `named`, else the one below `state_home`: `directories` ignores that variable if the account has no home
/// folder, as that of a service may.
fn choose_state_folder(named: Option<PathBuf>, state_home: Option<PathBuf>) -> PathBuf {
    let state_home = state_home.filter(|folder| folder.is_absolute());
    let below_home = || state_home.map(|folder| folder.join("ctxhost"));
    named.or_else(below_home).unwrap_or_else(|| {
        static WARNING: Once = Once::new();
        // Last, because it may be emptied at any time and is often mounted noexec, and libraries are loaded from here.
        let folder = std::env::temp_dir().join("ctxhost");
        WARNING.call_once(|| {
            tracing::warn!(
                folder = %folder.display(),
                "the account has no home folder: sessions are in the temporary folder; set CTXHOST_STATE_DIR"
            );
        });
        folder
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_home_folder_the_state_is_where_the_environment_says() {
        let chosen = |named: Option<&str>, home: Option<&str>| {
            choose_state_folder(named.map(PathBuf::from), home.map(PathBuf::from))
        };
        let temporary = std::env::temp_dir().join("ctxhost");
        assert_eq!(chosen(Some("/a"), Some("/b")), PathBuf::from("/a"));
        assert_eq!(chosen(None, Some("/var/lib/b")), PathBuf::from("/var/lib/b/ctxhost"));
        assert_eq!(chosen(None, Some("relative")), temporary);
        assert_eq!(chosen(None, None), temporary);
    }
}
