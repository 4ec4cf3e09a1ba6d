//! Builds a runtime from a config, from parts of the embedding program, or from both.

mod error;
mod shadows;
mod windows;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::error::BuildError;
use super::Runtime;
use crate::cached_prefixes::CachedPrefixes;
use crate::engine_manager::EngineManager;
use crate::engine_options::{self, EngineOptions, summariser};
use crate::event_bus::EventBus;
use crate::memory::{MemoryNotes, NOTES};
use crate::reload::config_watch::ConfigWatch;
use crate::reload::engine_selection::{EngineSelection, engine_chain, fallback_engine};
use crate::session_locks::SessionLocks;
use crate::state::RuntimeState;
use crate::subagent::running::RunningSubagents;
use crate::workspace::WorkspaceRules;
use ctxhost_blobs::BlobDirs;
use ctxhost_config::Config;
use ctxhost_context::hook::CompactionHook;
use ctxhost_context::{ContextSettings, SessionDirectory};
use ctxhost_engine::store::MemoryStores;
use ctxhost_engine::{EngineSpec, EngineStores, FailureLog, HostClock, state_folder};
use ctxhost_models::failover::Failover;
use ctxhost_models::{ModelName, ModelRegistry};
use ctxhost_provider::{Completer, Embedder, ProviderClient, connect};
use ctxhost_store::SessionStore;
use ctxhost_tools::{Tool, ToolRegistry};

/// Builds a [`Runtime`]. Defaults come from the config.
#[derive(Debug, Default)]
pub struct RuntimeBuilder {
    config: Config,
    models: Option<Vec<String>>,
    window_tokens: Option<u64>,
    query_windows: bool,
    engine: Option<String>,
    spec: Option<EngineSpec>,
    clients: BTreeMap<String, Arc<dyn ProviderClient>>,
    completer: Option<Arc<dyn Completer>>,
    embedder: Option<Arc<dyn Embedder>>,
    hooks: Vec<Arc<dyn CompactionHook>>,
    tools: Vec<Arc<dyn Tool>>,
    without_builtin_tools: bool,
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
    /// A builder with the settings of a config.
    pub fn from_config(config: &Config) -> RuntimeBuilder {
        RuntimeBuilder { config: config.clone(), ..RuntimeBuilder::default() }
    }

    /// Uses this model, as `provider/id`, instead of those of `[agent]`, without fallbacks.
    #[must_use]
    pub fn model(mut self, name: &str) -> Self {
        self.models = Some(vec![name.to_owned()]);
        self
    }

    /// Queries providers for windows that the config does not set, when the runtime is built and for at
    /// most `model.window_query_ms`.
    #[must_use]
    pub fn query_windows(mut self) -> Self {
        self.query_windows = true;
        self
    }

    /// Sets the window of all models, in provider tokens.
    #[must_use]
    pub fn window_tokens(mut self, window_tokens: u64) -> Self {
        self.window_tokens = Some(window_tokens);
        self
    }

    /// Uses this engine instead of the configured one: an id, the path of a library, or a chain such as `mask+legacy`.
    #[must_use]
    pub fn engine(mut self, name: &str) -> Self {
        self.engine = Some(name.to_owned());
        self
    }

    /// Uses an engine of the program.
    #[must_use]
    pub fn engine_spec(mut self, spec: EngineSpec) -> Self {
        self.spec = Some(spec);
        self
    }

    /// Adds a provider of the program, under its own name.
    #[must_use]
    pub fn client(mut self, client: Arc<dyn ProviderClient>) -> Self {
        self.clients.insert(client.name().to_owned(), client);
        self
    }

    /// Sets the completer that writes summaries, instead of `[summariser]`.
    #[must_use]
    pub fn completer(mut self, completer: Arc<dyn Completer>) -> Self {
        self.completer = Some(completer);
        self
    }

    /// Sets the embedder of the engines, instead of `[embedder]`.
    #[must_use]
    pub fn embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }

    /// Adds a compaction hook. Hooks are called in the order in which they were added.
    #[must_use]
    pub fn hook(mut self, hook: Arc<dyn CompactionHook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Disables built-in tools and MCP servers.
    #[must_use]
    pub fn without_builtin_tools(mut self) -> Self {
        self.without_builtin_tools = true;
        self
    }

    /// Sets the folder of the engines' key-value stores; the default keeps them in memory.
    #[must_use]
    pub fn store_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.store_folder = Some(folder.into());
        self
    }

    /// Sets the store of sessions. It also keeps the engines' key-value stores if it supports them.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// Sets the log in which engine failures outlive this process; by default they do not.
    #[must_use]
    pub fn failure_log(mut self, log: FailureLog) -> Self {
        self.failure_log = Some(Arc::new(log));
        self
    }

    /// Sets where sessions store large results and images; the default is a folder beside each session file.
    #[must_use]
    pub fn blob_dirs(mut self, dirs: BlobDirs) -> Self {
        self.blob_dirs = dirs;
        self
    }

    /// Sets the working folder of the sessions; `legacy` repeats its AGENTS.md in summaries.
    #[must_use]
    pub fn workspace(mut self, folder: impl Into<PathBuf>) -> Self {
        self.workspace = Some(folder.into());
        self
    }

    /// Sets the folder of memory notes, instead of one in the user's state folder.
    #[must_use]
    pub fn memory_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.memory_folder = Some(folder.into());
        self
    }

    /// Sets the log file of shadow engines, instead of the one in the user's state folder.
    #[must_use]
    pub fn shadow_log(mut self, path: impl Into<PathBuf>) -> Self {
        self.shadow_log = Some(path.into());
        self
    }

    /// Uses this clock instead of the system's.
    #[must_use]
    pub fn clock(mut self, clock: HostClock) -> Self {
        self.clock = clock;
        self
    }

    /// Watches a config file: a change of its engine slot replaces the engine, and a canary in the host's
    /// state folder `state` gets its share of new sessions.
    #[must_use]
    pub fn watch_config(mut self, config: impl Into<PathBuf>, state: impl Into<PathBuf>) -> Self {
        self.watched_config = Some((config.into(), state.into()));
        self
    }

    /// Builds the runtime and connects MCP servers. Sends nothing to a model.
    pub fn build(self) -> BoxFuture<'static, Result<Runtime, BuildError>> {
        Box::pin(async move {
            let tools = self.tool_registry().await?;
            let config = &self.config;
            let chain = self.model_chain()?;
            let clients = self.clients(&chain)?;
            let windows = self.windows(&chain, &clients).await;
            let cached_prefixes = Arc::new(CachedPrefixes::default());
            let engine_options = self.engine_options(&cached_prefixes)?;
            let sessions = Arc::new(SessionDirectory::new(self.blob_dirs.clone()));
            let workspace_rules = self.workspace_rules();
            let rules = workspace_rules.as_ref();
            let engines = self.engine_chain(rules)?;
            let engine = engine_options.open(&engines, &self.clock, sessions.clone())?;
            let shadows = self.shadows(&engine_options, &sessions, rules)?;
            let (event_bus, background) = (EventBus::new(), TaskTracker::new());
            let shutdown = CancellationToken::new();
            // An error is ignored: the config's slot may name a missing engine where the program has set another one.
            let applied = self
                .watched_config
                .as_ref()
                .and_then(|_| EngineSelection::from_config(config, rules).ok());
            let services = (&event_bus, &background, &shutdown);
            let swap = config.swap.clone();
            let manager = EngineManager::new(engine, &engines, applied, swap, services);
            let watched = self.watched_config.as_ref();
            let context = ContextSettings {
                hooks: self.hooks.clone(),
                sessions,
                clock: self.clock.clone(),
                ..ContextSettings::from_config(config)
            };
            let state = RuntimeState {
                clients,
                settings: config.agent.clone(),
                session: config.session.clone(),
                compaction: config.compaction.clone(),
                tool_timeout: Duration::from_millis(config.tools.timeout_ms),
                models: Arc::new(ModelRegistry::new(config, windows)),
                context: Arc::new(context),
                tools,
                session_locks: SessionLocks::new(config.agent.concurrent_turns),
                cached_prefixes,
                event_bus,
                failover: Mutex::new(Failover::new(config.failover.clone(), chain)),
                engines: manager,
                shadows,
                engine_options,
                blob_dirs: self.blob_dirs.clone(),
                config_watch: watched.map(|(path, state)| ConfigWatch::new(path, state)),
                workspace_rules,
                sessions: Mutex::default(),
                memory_notes: self.memory_notes()?,
                running_subagents: RunningSubagents::default(),
                background,
                shutdown,
            };
            let runtime = Runtime::from_state(Arc::new(state));
            // An active canary serves its share from the first turn on. Errors were logged as events.
            let _ = runtime.reload().await;
            runtime.start_config_watch();
            runtime.watch_session_files();
            Ok(runtime)
        })
    }

    /// The engine of the memory slot.
    fn memory_notes(&self) -> Result<Option<MemoryNotes>, BuildError> {
        let folder = || self.memory_folder.clone().unwrap_or_else(|| state_folder().join("memory"));
        match self.config.memory() {
            Some(id) if id == NOTES => Ok(Some(MemoryNotes::new(folder()))),
            Some(id) => Err(BuildError::UnknownMemory { id }),
            None => {
                if self.config.compaction.memory_flush {
                    tracing::warn!(
                        "compaction.memory_flush has no effect: plugins.slots.memory is \"none\""
                    );
                }
                Ok(None)
            }
        }
    }

    async fn tool_registry(&self) -> Result<ToolRegistry, BuildError> {
        let settings = self.config.tools.clone();
        let settings = settings.hiding_variables(self.config.secret_variables());
        let mut tools = if self.without_builtin_tools {
            ToolRegistry::empty(settings)
        } else {
            let mut tools = ToolRegistry::with_builtins(settings);
            // Not fatal: the agent works without the tools of one server.
            for error in tools.connect(&self.config.mcp).await {
                tracing::error!(%error, "an MCP server is not available");
            }
            tools
        };
        for tool in &self.tools {
            tools.add(tool.clone())?;
        }
        Ok(tools)
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
            // Models of one provider share its client, and a client of the program has priority.
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
            embedder: match &self.embedder {
                Some(embedder) => Some(embedder.clone()),
                None => engine_options::embedder(config)?,
            },
            store_folder: self.store_folder.clone(),
            stores: self.stores(),
            failure_log: self.failure_log.clone(),
            ..EngineOptions::new(config, legacy)
        })
    }

    fn workspace_rules(&self) -> Option<WorkspaceRules> {
        WorkspaceRules::find(self.workspace.as_ref()?.to_str()?)
    }

    /// The engines' key-value stores, unless they are files.
    fn stores(&self) -> Option<Arc<dyn EngineStores>> {
        let shared = self.store.as_ref().and_then(|store| store.engine_stores());
        // Shared by all engines of the runtime, so that a replacement finds its predecessor's data.
        let in_memory = || -> Option<Arc<dyn EngineStores>> {
            self.store_folder.is_none().then(|| Arc::new(MemoryStores::default()) as _)
        };
        shared.or_else(in_memory)
    }

    /// The chain of engines to open.
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
    // Only the first slash separates: ids such as `meta-llama/llama-3` contain more.
    let (provider, id) = name.split_once('/').ok_or_else(bad)?;
    if provider.is_empty() || id.is_empty() {
        return Err(bad());
    }
    Ok(ModelName::new(provider, id))
}
