//! A runtime put together: from a config, from a program's own parts, or from both.

mod error;
mod shadows;
mod windows;

use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::error::BuildError;
use super::{Runtime, RuntimeState};
use crate::cached_prefixes::CachedPrefixes;
use crate::engine_options::{EngineOptions, summariser};
use crate::event_bus::EventBus;
use crate::memory::{MemoryNotes, NOTES};
use crate::reload::{ConfigWatch, EngineManager, EngineSelection, engine_chain, fallback_engine};
use crate::session_locks::SessionLocks;
use crate::subagent::RunningSubagents;
use crate::workspace::WorkspaceRules;
use ctxhost_blobs::BlobDirs;
use ctxhost_config::Config;
use ctxhost_context::hook::CompactionHook;
use ctxhost_context::{ContextSettings, SessionDirectory};
use ctxhost_engine::store::MemoryStores;
use ctxhost_engine::{EngineSpec, EngineStores, FailureLog, HostClock, state_folder};
use ctxhost_models::failover::Failover;
use ctxhost_models::{ModelName, ModelRegistry};
use ctxhost_provider::{Completer, ProviderClient, connect};
use ctxhost_store::SessionStore;
use ctxhost_tools::{Tool, ToolRegistry};

/// Puts a runtime together. What is not said comes from the config.
#[derive(Debug)]
pub struct RuntimeBuilder {
    config: Config,
    models: Option<Vec<String>>,
    window_tokens: Option<u64>,
    query_windows: bool,
    engine: Option<String>,
    spec: Option<EngineSpec>,
    clients: BTreeMap<String, Arc<dyn ProviderClient>>,
    completer: Option<Arc<dyn Completer>>,
    hooks: Vec<Arc<dyn CompactionHook>>,
    tools: Vec<Arc<dyn Tool>>,
    builtin_tools: bool,
    blob_dirs: BlobDirs,
    store_folder: Option<PathBuf>,
    store: Option<Arc<dyn SessionStore>>,
    failure_log: Option<Arc<FailureLog>>,
    memory_folder: Option<PathBuf>,
    shadow_log: Option<PathBuf>,
    workspace: Option<PathBuf>,
    clock: HostClock,
    watched_config: Option<(PathBuf, PathBuf)>,
}

impl RuntimeBuilder {
    /// As the config says.
    pub fn from_config(config: &Config) -> RuntimeBuilder {
        RuntimeBuilder {
            config: config.clone(),
            models: None,
            window_tokens: None,
            query_windows: false,
            engine: None,
            spec: None,
            clients: BTreeMap::new(),
            completer: None,
            hooks: Vec::new(),
            tools: Vec::new(),
            builtin_tools: true,
            blob_dirs: BlobDirs::default(),
            store_folder: None,
            store: None,
            failure_log: None,
            memory_folder: None,
            shadow_log: None,
            workspace: None,
            clock: HostClock::default(),
            watched_config: None,
        }
    }

    /// This model, as `provider/id`, instead of that of `[runtime]`; nobody stands in for it.
    #[must_use]
    pub fn model(mut self, name: &str) -> Self {
        self.models = Some(vec![name.to_owned()]);
        self
    }

    /// Asks providers for the windows of their models when the runtime is built, for
    /// `model.window_query_ms` at the most, where the config does not say them.
    #[must_use]
    pub fn query_windows(mut self) -> Self {
        self.query_windows = true;
        self
    }

    /// This window for all models, in provider tokens.
    #[must_use]
    pub fn window_tokens(mut self, window_tokens: u64) -> Self {
        self.window_tokens = Some(window_tokens);
        self
    }

    /// This engine of the config's, by id or by the path of its library, instead of that of the slot;
    /// several in a row as `mask+legacy`.
    #[must_use]
    pub fn engine(mut self, name: &str) -> Self {
        self.engine = Some(name.to_owned());
        self
    }

    /// An engine that the program brings along.
    #[must_use]
    pub fn engine_spec(mut self, spec: EngineSpec) -> Self {
        self.spec = Some(spec);
        self
    }

    /// A provider that the program brings along, under its own name.
    #[must_use]
    pub fn client(mut self, client: Arc<dyn ProviderClient>) -> Self {
        self.clients.insert(client.name().to_owned(), client);
        self
    }

    /// Who writes summaries, instead of `[summariser]`.
    #[must_use]
    pub fn completer(mut self, completer: Arc<dyn Completer>) -> Self {
        self.completer = Some(completer);
        self
    }

    /// Somebody who wants to know of compactions; asked in the order in which they were named.
    #[must_use]
    pub fn hook(mut self, hook: Arc<dyn CompactionHook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// A tool beside the built-in ones.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// No built-in tool, and no MCP server.
    #[must_use]
    pub fn without_builtin_tools(mut self) -> Self {
        self.builtin_tools = false;
        self
    }

    /// The folder below which engines keep what they store; without it they forget it with the process.
    #[must_use]
    pub fn store_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.store_folder = Some(folder.into());
        self
    }

    /// Where sessions are kept that are opened by their ids, and what engines keep if it takes that too.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// The book in which failures of engines outlive this process; without it, they do not.
    #[must_use]
    pub fn failure_log(mut self, book: FailureLog) -> Self {
        self.failure_log = Some(Arc::new(book));
        self
    }

    /// Where sessions put away large results and images; without it, each in a folder beside its file.
    #[must_use]
    pub fn blob_dirs(mut self, home: BlobDirs) -> Self {
        self.blob_dirs = home;
        self
    }

    /// The folder that sessions work in: its AGENTS.md closes the summaries of `legacy`.
    #[must_use]
    pub fn workspace(mut self, folder: impl Into<PathBuf>) -> Self {
        self.workspace = Some(folder.into());
        self
    }

    /// The folder for the notes of the memory, instead of one in the user's state folder.
    #[must_use]
    pub fn memory_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.memory_folder = Some(folder.into());
        self
    }

    /// The file in which it is written down what engines in the shadow saw, instead of the one in the
    /// user's state folder.
    #[must_use]
    pub fn shadow_log(mut self, path: impl Into<PathBuf>) -> Self {
        self.shadow_log = Some(path.into());
        self
    }

    /// Another clock than the system's.
    #[must_use]
    pub fn clock(mut self, clock: HostClock) -> Self {
        self.clock = clock;
        self
    }

    /// Follows a config file while it runs: what changes of the slot there becomes a swap, and a canary that
    /// is told of below `state`, the state folder of the host, gets its share of new sessions.
    #[must_use]
    pub fn watch_config(mut self, config: impl Into<PathBuf>, state: impl Into<PathBuf>) -> Self {
        self.watched_config = Some((config.into(), state.into()));
        self
    }

    /// Puts it together. Connects MCP servers; nothing is sent to a model yet.
    ///
    /// # Errors
    ///
    /// [`BuildError`].
    pub fn build(self) -> BoxFuture<'static, Result<Runtime, BuildError>> {
        Box::pin(async move {
            let toolbox = self.toolbox().await?;
            let config = &self.config;
            let chain = self.model_chain()?;
            let clients = self.clients(&chain)?;
            let windows = self.windows(&chain, &clients).await;
            let prefixes = Arc::new(CachedPrefixes::default());
            let options = self.engine_options(&prefixes)?;
            let sessions = Arc::new(SessionDirectory::new(self.blob_dirs.clone()));
            let rules = self.workspace_rules();
            let engines = self.engine_chain(rules.as_ref())?;
            let slot = options.open(&engines, &self.clock, sessions.clone())?;
            let shadows = self.shadows(&options, &sessions, rules.as_ref())?;
            let (listeners, background) = (EventBus::new(), TaskTracker::new());
            let closing = CancellationToken::new();
            // What the slot names need not be there where the program has named another engine.
            let applied = self
                .watched_config
                .as_ref()
                .and_then(|_| EngineSelection::from_config(config, rules.as_ref()).ok());
            let around = (&listeners, &background, &closing);
            let slots = EngineManager::new(slot, &engines, applied, config.swap.clone(), around);
            let followed =
                self.watched_config.as_ref().map(|(path, state)| ConfigWatch::new(path, state));
            let context = ContextSettings {
                hooks: self.hooks.clone(),
                sessions,
                clock: self.clock.clone(),
                ..ContextSettings::from_config(config)
            };
            let shared = RuntimeState {
                clients,
                settings: config.agent.clone(),
                session: config.session.clone(),
                compaction: config.compaction.clone(),
                tool_timeout: Duration::from_millis(config.tools.timeout_ms),
                models: Arc::new(ModelRegistry::new(config, windows)),
                context: Arc::new(context),
                toolbox,
                session_locks: SessionLocks::new(config.agent.concurrent_turns),
                cached_prefixes: prefixes,
                event_bus: listeners,
                failover: Mutex::new(Failover::new(config.failover.clone(), chain)),
                engines: slots,
                shadows,
                engine_options: options,
                blob_dirs: self.blob_dirs.clone(),
                config_watch: followed,
                workspace_rules: rules,
                sessions: Mutex::default(),
                memory_notes: self.memory_notes()?,
                store: self.store.clone(),
                running_subagents: RunningSubagents::default(),
                background,
                shutdown: closing,
            };
            let runtime = Runtime { state: Arc::new(shared) };
            // A canary that is on has its sessions from the first turn on. What is wrong with it is logged.
            let _ = runtime.reload().await;
            runtime.start_config_watch();
            runtime.watch_session_files();
            Ok(runtime)
        })
    }

    /// Who fills the memory slot.
    fn memory_notes(&self) -> Result<Option<MemoryNotes>, BuildError> {
        let folder = || self.memory_folder.clone().unwrap_or_else(|| state_folder().join("memory"));
        match self.config.memory() {
            Some(id) if id == NOTES => Ok(Some(MemoryNotes::new(folder()))),
            Some(id) => Err(BuildError::UnknownMemory { id }),
            None => {
                if self.config.compaction.memory_flush {
                    tracing::warn!(
                        "compaction.memory_flush is true, and plugins.slots.memory is empty"
                    );
                }
                Ok(None)
            }
        }
    }

    async fn toolbox(&self) -> Result<ToolRegistry, BuildError> {
        let settings = self.config.tools.clone();
        let mut toolbox = match self.builtin_tools {
            true => ToolRegistry::with_builtins(settings),
            false => ToolRegistry::empty(settings),
        };
        if self.builtin_tools {
            for error in toolbox.connect(&self.config.mcp).await {
                tracing::error!(%error, "an MCP server does not serve");
            }
        }
        for tool in &self.tools {
            toolbox.add(tool.clone())?;
        }
        Ok(toolbox)
    }

    fn model_chain(&self) -> Result<Vec<ModelName>, BuildError> {
        let agent = &self.config.agent;
        let configured = || agent.model.iter().chain(&agent.fallbacks).cloned().collect();
        let names: Vec<String> = self.models.clone().unwrap_or_else(configured);
        names.iter().map(|name| model_name(name)).collect()
    }

    fn clients(
        &self,
        chain: &[ModelName],
    ) -> Result<BTreeMap<String, Arc<dyn ProviderClient>>, BuildError> {
        let mut clients = self.clients.clone();
        for model in chain {
            let provider = &model.provider;
            if clients.contains_key(provider) {
                continue;
            }
            let settings = self.config.provider(provider).ok_or_else(|| {
                BuildError::NoProvider { provider: provider.clone(), model: model.to_string() }
            })?;
            clients.insert(provider.clone(), connect(provider, settings)?);
        }
        Ok(clients)
    }

    fn engine_options(&self, prefixes: &Arc<CachedPrefixes>) -> Result<EngineOptions, BuildError> {
        let config = &self.config;
        let completer = match &self.completer {
            Some(completer) => Some(completer.clone()),
            None => summariser(config, Some(prefixes.clone()))?,
        };
        let legacy = fallback_engine(config, self.workspace_rules().as_ref());
        Ok(EngineOptions {
            completer,
            store_folder: self.store_folder.clone(),
            stores: self.stores(),
            failure_log: self.failure_log.clone(),
            ..EngineOptions::new(config, legacy)
        })
    }

    fn workspace_rules(&self) -> Option<WorkspaceRules> {
        WorkspaceRules::find(self.workspace.as_ref()?.to_str()?)
    }

    /// Where engines keep what they store, where that is not in files. What is kept in memory outlives each
    /// engine too, so that the next one finds it.
    fn stores(&self) -> Option<Arc<dyn EngineStores>> {
        let shared = self.store.as_ref().and_then(|store| store.engine_stores());
        let in_memory = || -> Option<Arc<dyn EngineStores>> {
            self.store_folder.is_none().then(|| Arc::new(MemoryStores::default()) as _)
        };
        shared.or_else(in_memory)
    }

    /// The engines of the slot.
    fn engine_chain(&self, rules: Option<&WorkspaceRules>) -> Result<Vec<EngineSpec>, BuildError> {
        if let Some(spec) = &self.spec {
            return Ok(vec![spec.clone()]);
        }
        let slot = self.config.slot();
        let name = self.engine.as_deref().unwrap_or(&slot.engine);
        Ok(engine_chain(&self.config, name, rules)?)
    }
}

fn model_name(name: &str) -> Result<ModelName, BuildError> {
    let bad = || BuildError::InvalidModel { name: name.to_owned() };
    let (provider, id) = name.split_once('/').ok_or_else(bad)?;
    match provider.is_empty() || id.is_empty() {
        true => Err(bad()),
        false => Ok(ModelName::new(provider, id)),
    }
}
