//! What the engines of a run are opened with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctxhost_config::Config;
use ctxhost_engine::{
    ActiveEngine, EngineEnvironment, EngineSpec, EngineStores, EngineTimeouts, FailureLog,
    HostClock, OnEngineError, SessionQueries, SlotError,
};
use ctxhost_provider::{
    Completer, CompleterSettings, ConnectError, ModelCompleter, PrefixSource, connect,
};

/// What the engines of a run are opened with.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// What to do when the engine fails.
    pub on_error: OnEngineError,
    /// Whether a run ends where the engine does not even open, whatever `on_error` says of later failures: the user
    /// asked for this very engine.
    pub must_open: bool,
    /// The engine that serves where the asked one cannot.
    pub legacy: EngineSpec,
    /// How long engine calls may take.
    pub timeouts: EngineTimeouts,
    /// The model for summaries; `None` for the offline summariser.
    pub completer: Option<Arc<dyn Completer>>,
    /// The folder below which engines keep what they store; `None` forgets it with the process.
    pub store_folder: Option<PathBuf>,
    /// Where engines keep what they store, instead of that folder.
    pub stores: Option<Arc<dyn EngineStores>>,
    /// What engines did to hosts of this machine; `None` remembers nothing beyond the run.
    pub failure_log: Option<Arc<FailureLog>>,
}

impl EngineOptions {
    /// As a config says, with this engine as the fallback; nothing is stored on a disk.
    pub fn new(config: &Config, legacy: EngineSpec) -> EngineOptions {
        EngineOptions {
            on_error: config.plugins.on_engine_error,
            must_open: false,
            legacy,
            timeouts: config.timeouts.clone(),
            completer: None,
            store_folder: None,
            stores: None,
            failure_log: None,
        }
    }

    /// Opens an engine, or a chain of several.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub fn open(
        &self,
        engines: &(impl AsRef<[EngineSpec]> + ?Sized),
        clock: &HostClock,
        sessions: Arc<dyn SessionQueries>,
    ) -> Result<ActiveEngine, SlotError> {
        if self.must_open {
            return self.open_successor(engines, clock, sessions);
        }
        let environment = self.host_services(clock, sessions);
        ActiveEngine::open(engines.as_ref(), &self.legacy, self.on_error, &environment)
    }

    /// Opens engines that are to follow others, which go on where one of these does not open.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub fn open_successor(
        &self,
        engines: &(impl AsRef<[EngineSpec]> + ?Sized),
        clock: &HostClock,
        sessions: Arc<dyn SessionQueries>,
    ) -> Result<ActiveEngine, SlotError> {
        let environment = self.host_services(clock, sessions);
        ActiveEngine::open_successor(engines.as_ref(), &self.legacy, self.on_error, &environment)
    }

    /// What the engines share.
    pub(super) fn host_services(
        &self,
        clock: &HostClock,
        sessions: Arc<dyn SessionQueries>,
    ) -> EngineEnvironment {
        let mut environment = EngineEnvironment::new(self.timeouts.clone(), clock.clone());
        environment.sessions = Some(sessions);
        environment.completer = self.completer.clone();
        environment.store_folder = self.store_folder.clone();
        environment.stores = self.stores.clone();
        environment.failure_log = self.failure_log.clone();
        environment
    }

    /// Lifts the quarantine of an engine that the user swaps in.
    pub fn lift_quarantine(&self, id: &str) {
        if let Some(Err(error)) = self.failure_log.as_ref().map(|book| book.clear_failures(id)) {
            tracing::warn!(engine = id, %error, "still in quarantine: its record cannot be struck out");
        }
    }
}

/// The book of failures below a state folder, with the rules of a config.
pub fn failure_log(config: &Config, state: &Path) -> FailureLog {
    FailureLog::new(state, config.plugins.quarantine_rules(), HostClock::default())
}

/// The model for summaries, on the current tokio runtime; `None` where the config names none. It may go
/// on from what sessions' models have read.
///
/// # Errors
///
/// [`ConnectError`].
pub fn summariser(
    config: &Config,
    prefixes: Option<Arc<dyn PrefixSource>>,
) -> Result<Option<Arc<dyn Completer>>, ConnectError> {
    let (Some(summariser), Some((name, provider))) =
        (&config.summariser, config.summariser_provider())
    else {
        return Ok(None);
    };
    let settings = CompleterSettings {
        model: summariser.model.clone(),
        timeout_ms: summariser.timeout_ms,
        max_output_tokens: summariser.max_output_tokens,
    };
    let client = connect(&name, &provider)?;
    let runtime = tokio::runtime::Handle::current();
    let completer = ModelCompleter::new(client, settings, runtime);
    Ok(Some(Arc::new(match prefixes {
        Some(prefixes) => completer.with_prefixes(prefixes),
        None => completer,
    })))
}
