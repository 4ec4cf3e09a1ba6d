//! How the engines of a run are opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctxhost_config::{Config, EmbedderChoice};
use ctxhost_engine::{
    ActiveEngine, EngineEnvironment, EngineSpec, EngineStores, EngineTimeouts, FailureLog,
    HostClock, OnEngineError, SessionQueries, SlotError,
};
use ctxhost_provider::{
    Completer, CompleterSettings, ConnectError, Embedder, EmbedderError, EndpointEmbedder,
    EndpointSettings, ModelCompleter, PrefixSource, connect, open_model_folder,
};

/// How the engines of a run are opened.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// What the host does when an engine fails.
    pub on_error: OnEngineError,
    /// Whether an engine that does not open is an error in any case, because the user named it. `on_error` applies to
    /// later failures.
    pub must_open: bool,
    pub legacy: EngineSpec,
    /// The time limits of engine calls.
    pub timeouts: EngineTimeouts,
    /// The model for summaries; `None` for the offline summariser.
    pub completer: Option<Arc<dyn Completer>>,
    /// The model for vectors; `None` for none.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// The folder of the engines' key-value stores; `None` keeps them in memory.
    pub store_folder: Option<PathBuf>,
    /// The engines' key-value stores, instead of that folder.
    pub stores: Option<Arc<dyn EngineStores>>,
    /// The log of engine failures on this machine; `None` for none beyond the run.
    pub failure_log: Option<Arc<FailureLog>>,
}

impl EngineOptions {
    /// The options of a config, with `legacy` as the fallback engine. Engines store nothing on disk.
    pub fn new(config: &Config, legacy: EngineSpec) -> EngineOptions {
        EngineOptions {
            on_error: config.plugins.on_engine_error,
            must_open: false,
            legacy,
            timeouts: config.timeouts.clone(),
            completer: None,
            embedder: None,
            store_folder: None,
            stores: None,
            failure_log: None,
        }
    }

    /// Opens an engine or a chain.
    pub fn open(
        &self,
        engines: &(impl AsRef<[EngineSpec]> + ?Sized),
        clock: &HostClock,
        sessions: Arc<dyn SessionQueries>,
    ) -> Result<ActiveEngine, SlotError> {
        // Without the fallback that would hide the error.
        if self.must_open {
            return self.open_successor(engines, clock, sessions);
        }
        let environment = self.host_services(clock, sessions);
        ActiveEngine::open(engines.as_ref(), &self.legacy, self.on_error, &environment)
    }

    /// Opens a replacement for engines that keep serving if it does not open, without a fallback.
    pub fn open_successor(
        &self,
        engines: &(impl AsRef<[EngineSpec]> + ?Sized),
        clock: &HostClock,
        sessions: Arc<dyn SessionQueries>,
    ) -> Result<ActiveEngine, SlotError> {
        let environment = self.host_services(clock, sessions);
        ActiveEngine::open_successor(engines.as_ref(), &self.legacy, self.on_error, &environment)
    }

    /// The services that the host offers to engines.
    pub(super) fn host_services(
        &self,
        clock: &HostClock,
        sessions: Arc<dyn SessionQueries>,
    ) -> EngineEnvironment {
        let mut environment = EngineEnvironment::new(self.timeouts.clone(), clock.clone());
        environment.sessions = Some(sessions);
        environment.completer = self.completer.clone();
        environment.embedder = self.embedder.clone();
        environment.store_folder = self.store_folder.clone();
        environment.stores = self.stores.clone();
        environment.failure_log = self.failure_log.clone();
        environment
    }

    /// Lifts the quarantine of an engine that the user activates.
    pub fn lift_quarantine(&self, id: &str) {
        if let Some(Err(error)) = self.failure_log.as_ref().map(|book| book.clear_failures(id)) {
            tracing::warn!(engine = id, %error, "the engine stays in quarantine: cannot remove its failure record");
        }
    }
}

/// The failure log below a state folder, with the rules of a config.
pub fn failure_log(config: &Config, state: &Path) -> FailureLog {
    FailureLog::new(state, config.plugins.quarantine_rules(), HostClock::default())
}

/// The model for summaries, on the current tokio runtime; `None` if the config sets none. With `prefixes`, its requests
/// extend those that a provider has cached.
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

/// The model for vectors, on the current tokio runtime; `None` if the config names none. The files of a folder are
/// read here, once.
pub fn embedder(config: &Config) -> Result<Option<Arc<dyn Embedder>>, EmbedderError> {
    let settings = &config.embedder;
    let Some(choice) = settings.choice() else { return Ok(None) };
    let runtime = tokio::runtime::Handle::current();
    match choice {
        EmbedderChoice::Folder(path) => {
            let max_bytes = settings.file_mib.saturating_mul(1 << 20);
            open_model_folder(path, max_bytes, runtime).map(Some)
        }
        EmbedderChoice::Endpoint(url, model) => {
            let endpoint = EndpointSettings {
                url: url.to_owned(),
                model: model.to_owned(),
                api_key_env: settings.api_key_env.clone(),
                timeout_ms: settings.timeout_ms,
                batch_texts: usize::try_from(settings.batch_texts).unwrap_or(usize::MAX),
                retries: settings.retries,
            };
            Ok(Some(Arc::new(EndpointEmbedder::new(endpoint, runtime)?)))
        }
    }
}
