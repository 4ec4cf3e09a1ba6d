//! A live engine: created, on its lane, called with deadlines.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use ctxhost_engine_api::border::{BoxFuture, EngineDoor, EngineHandle};
use ctxhost_engine_api::*;
use serde_json::Value;

use super::bundled::bundled;
use super::calls::{CallGuard, Calls, Limit};
use super::environment::{Delegate, Environment};
use super::lane::{Isolation, Lane};
use super::library::{Inspected, LoadError, inspect_pinned};
use super::quarantine::book::KeptRecord;
use super::services::Services;
use super::timeouts::Timeouts;
use super::watch::Watch;

/// Where an engine comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Linked into the host.
    Bundled,
    /// Linked into the program that embeds the host.
    Linked(LinkedEngine),
    /// Loaded from a file.
    File(PathBuf),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Bundled => f.write_str("bundled"),
            Source::Linked(_) => f.write_str("linked"),
            Source::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// An engine that a program brings along. Two are the same where their ids are.
#[derive(Clone, Copy)]
pub struct LinkedEngine {
    id: &'static str,
    door: EngineDoor,
}

impl PartialEq for LinkedEngine {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for LinkedEngine {}

impl std::fmt::Debug for LinkedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkedEngine").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What to open.
#[derive(Clone, Debug)]
pub struct EngineSpec {
    /// The id it must have; empty to take whatever the file says.
    pub id: String,
    /// Where it comes from.
    pub source: Source,
    /// SHA-256 the file must have, in hex.
    pub sha256: Option<String>,
    /// Why the file must not be loaded, whatever it holds; `None` where nothing speaks against it.
    pub distrust: Option<String>,
    /// How far it is kept from the host.
    pub isolation: Isolation,
    /// Its own settings.
    pub config: Value,
}

impl EngineSpec {
    /// A bundled engine with its own settings.
    pub fn bundled(id: &str, config: Value) -> Self {
        EngineSpec {
            id: id.into(),
            source: Source::Bundled,
            sha256: None,
            distrust: None,
            isolation: Isolation::Inline,
            config,
        }
    }

    /// An engine that the embedding program brings along, on a lane of its own.
    pub fn linked<E: ContextEngine>(config: Value) -> Self {
        let linked = LinkedEngine { id: E::INFO.id, door: EngineDoor::linked::<E>() };
        EngineSpec {
            id: E::INFO.id.into(),
            source: Source::Linked(linked),
            sha256: None,
            distrust: None,
            isolation: Isolation::Lane,
            config,
        }
    }

    /// An engine in a file, on a lane of its own.
    pub fn file(id: &str, path: &Path, config: Value) -> Self {
        EngineSpec {
            id: id.into(),
            source: Source::File(path.into()),
            sha256: None,
            distrust: None,
            isolation: Isolation::Lane,
            config,
        }
    }
}

impl EngineSpec {
    /// Reads the file that would be loaded and holds it against what is demanded of it; nothing of it
    /// is run. `None` for an engine that is linked in.
    ///
    /// # Errors
    ///
    /// [`OpenError`], as opening it would answer.
    pub fn read(&self) -> Result<Option<Inspected>, OpenError> {
        match &self.source {
            Source::Bundled | Source::Linked(_) => Ok(None),
            Source::File(path) => checked(self, path).map(Some),
        }
    }
}

/// Why an engine could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No engine of that name is linked in.
    #[error("no bundled engine is called {id:?}")]
    NotBundled {
        /// The name.
        id: String,
    },
    /// The file did not become an engine.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The file holds another engine.
    #[error(
        "{} holds engine {found:?}, but the config calls it {configured:?}; an engine has one id everywhere: write [plugins.entries.{found}] and, in the slot, {found:?}",
        path.display()
    )]
    OtherId {
        /// The file.
        path: PathBuf,
        /// The name in the config.
        configured: String,
        /// The name in the file.
        found: String,
    },
    /// The operator wants it refused.
    #[error("engine {id:?} is not loaded: {reason}")]
    Distrusted {
        /// The engine.
        id: String,
        /// Why, and what would change it.
        reason: String,
    },
    /// It failed before, perhaps in another process.
    #[error("engine {id:?} is in quarantine: {}; `ctxhost engines release {id}` lets it serve again", record.story())]
    Held {
        /// The engine.
        id: String,
        /// What is known against it.
        record: Box<KeptRecord>,
    },
    /// It needs what this host does not have.
    #[error("engine {id:?} needs the host to have {}, which it does not here", missing.join(", "))]
    Missing {
        /// The engine.
        id: String,
        /// The capabilities.
        missing: Vec<String>,
    },
    /// Its `create` failed.
    #[error("engine {id:?} could not be created: {error}")]
    Create {
        /// The engine.
        id: String,
        /// What it said.
        error: Box<EngineError>,
    },
    /// The system gave it no threads.
    #[error("no threads for engine {id:?}: {source}")]
    Threads {
        /// The engine.
        id: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// An engine that can be called.
pub struct LiveEngine {
    info: EngineInfo,
    source: Source,
    handle: EngineHandle,
    lane: Lane,
    calls: Arc<Calls>,
    timeouts: Timeouts,
    /// Last, so that it is dropped after everything that runs the engine.
    watch: Watch,
}

impl LiveEngine {
    /// Opens an engine: finds its door, checks its name and needs, creates it.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(spec: &EngineSpec, environment: &Environment) -> Result<LiveEngine, OpenError> {
        let (door, watch) = open_door(spec, environment)?;
        let failed = |error| OpenError::Create { id: spec.id.clone(), error: Box::new(error) };
        let info = door.info().map_err(failed)?;
        let missing: Vec<String> = {
            let offered = environment.capabilities();
            info.requires.iter().filter(|need| !offered.contains(need)).cloned().collect()
        };
        if !missing.is_empty() {
            return Err(OpenError::Missing { id: info.id, missing });
        }
        let lane = Lane::open(&info.id, spec.isolation, &watch)
            .map_err(|source| OpenError::Threads { id: info.id.clone(), source })?;
        let calls = Arc::new(Calls::default());
        let services = Services::new(&info.id, environment, calls.clone());
        let limit = Duration::from_millis(environment.timeouts.create_ms);
        let handle = create_within(limit, door, services, spec.config.clone(), &watch)
            .inspect_err(|error| watch.failed("create", error, environment))
            .map_err(|error| OpenError::Create { id: info.id.clone(), error: Box::new(error) })?;
        watch.begins("calls");
        let timeouts = environment.timeouts.clone();
        Ok(LiveEngine { info, source: spec.source.clone(), handle, lane, calls, timeouts, watch })
    }

    /// Which build it is: the SHA-256 of its file in hex, or `bundled <version>`. `None` where nobody
    /// is to remember its failures.
    pub fn bytes(&self) -> Option<&str> {
        self.watch.bytes()
    }

    /// What it is.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.info.id
    }

    /// Where it came from.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Whether one of its threads hangs in a call that was given up.
    pub fn lost_a_thread(&self) -> bool {
        self.lane.lost_a_thread()
    }

    /// A session begins in it.
    pub async fn bootstrap(
        &self,
        view: Transcript,
        mut request: BootstrapRequest,
    ) -> Result<Bootstrapped> {
        let call = self.begin(self.timeouts.bootstrap_ms, &view).in_session(&request.session);
        request.call = call.id;
        self.lane.run(&call, self.handle.bootstrap(view, request)).await
    }

    /// New entries.
    pub async fn ingest(&self, view: Transcript, mut request: IngestRequest) -> Result<Ingested> {
        let call = self.begin(self.timeouts.ingest_ms, &view).in_session(&request.session);
        request.call = call.id;
        if request.entries.end.saturating_sub(request.entries.start) > 1 {
            self.lane.run(&call, self.handle.ingest_batch(view, request)).await
        } else {
            self.lane.run(&call, self.handle.ingest(view, request)).await
        }
    }

    /// What the model sees.
    pub async fn assemble(&self, view: Transcript, mut request: AssembleRequest) -> Result<Plan> {
        let call = self.begin(self.timeouts.assemble_ms, &view).in_session(&request.session);
        request.call = call.id;
        self.lane.run(&call, self.handle.assemble(view, request)).await
    }

    /// A smaller transcript.
    pub async fn compact(
        &self,
        view: Transcript,
        mut request: CompactRequest,
    ) -> Result<Compaction> {
        let limit = Limit {
            patience: Duration::from_millis(self.timeouts.compact_ms),
            cap: Duration::from_millis(self.timeouts.compact_cap_ms),
        };
        let call = self.calls.begin(limit, Some(view.clone())).in_session(&request.session);
        request.call = call.id;
        self.lane.run(&call, self.handle.compact(view, request)).await
    }

    /// A turn has ended well.
    pub async fn after_turn(&self, view: Transcript, mut request: AfterTurnRequest) -> Result<()> {
        let call = self.begin(self.timeouts.after_turn_ms, &view).in_session(&request.session);
        request.call = call.id;
        self.lane.run(&call, self.handle.after_turn(view, request)).await
    }

    /// A turn is final.
    pub async fn commit_turn(
        &self,
        view: Transcript,
        mut request: CommitTurnRequest,
    ) -> Result<Committed> {
        let call = self.begin(self.timeouts.after_turn_ms, &view).in_session(&request.session);
        request.call = call.id;
        self.lane.run(&call, self.handle.commit_turn(view, request)).await
    }

    /// Time for housekeeping.
    pub async fn maintain(
        &self,
        view: Transcript,
        mut request: MaintainRequest,
    ) -> Result<Maintained> {
        let call = self.begin(self.timeouts.maintain_ms, &view).in_session(&request.session);
        request.call = call.id;
        self.lane.run(&call, self.handle.maintain(view, request)).await
    }

    /// A sub-agent is about to start.
    pub async fn prepare_subagent_spawn(
        &self,
        view: Transcript,
        mut request: SubagentSpawnRequest,
    ) -> Result<SpawnPrepared> {
        let call = self.begin(self.timeouts.subagent_ms, &view).in_session(&request.parent);
        request.call = call.id;
        self.lane.run(&call, self.handle.prepare_subagent_spawn(view, request)).await
    }

    /// A spawn that was prepared failed.
    pub async fn rollback_subagent_spawn(
        &self,
        mut request: SubagentRollbackRequest,
    ) -> Result<()> {
        let limit = Limit::fixed(Duration::from_millis(self.timeouts.subagent_ms));
        let call = self.calls.begin(limit, None);
        request.call = call.id;
        self.lane.run(&call, self.handle.rollback_subagent_spawn(request)).await
    }

    /// A sub-agent ended.
    pub async fn on_subagent_ended(&self, mut request: SubagentEndedRequest) -> Result<()> {
        let limit = Limit::fixed(Duration::from_millis(self.timeouts.subagent_ms));
        let call = self.calls.begin(limit, None);
        request.call = call.id;
        self.lane.run(&call, self.handle.on_subagent_ended(request)).await
    }

    /// The tools it offers to the model of a session.
    pub async fn tools(&self, session: SessionRef) -> Result<Vec<ToolSpec>> {
        let limit = Limit::fixed(Duration::from_millis(self.timeouts.subagent_ms));
        let call = self.calls.begin(limit, None).in_session(&session);
        let handle = self.handle.clone();
        self.lane.run(&call, async move { handle.tools(&session) }).await
    }

    /// The model called one of its tools.
    pub async fn call_tool(
        &self,
        view: Transcript,
        mut request: ToolCallRequest,
    ) -> Result<ToolAnswer> {
        let call = self.begin(self.timeouts.after_turn_ms, &view).in_session(&request.session);
        request.call = call.id;
        self.lane.run(&call, self.handle.call_tool(view, request)).await
    }

    /// What it says of itself.
    pub async fn status(&self) -> Result<EngineStatus> {
        let limit = Limit::fixed(Duration::from_millis(self.timeouts.subagent_ms));
        let call = self.calls.begin(limit, None);
        let handle = self.handle.clone();
        self.lane.run(&call, async move { handle.status() }).await
    }

    /// Lets it go, within its time limit, and takes the services away.
    pub async fn dispose(self) {
        let limit = Limit::fixed(Duration::from_millis(self.timeouts.dispose_ms));
        let call = self.calls.begin(limit, None);
        if let Err(error) = self.lane.run(&call, self.handle.dispose()).await {
            tracing::warn!(engine = self.info.id, %error, "dispose failed");
        }
    }

    fn begin(&self, limit_ms: u64, view: &Transcript) -> CallGuard {
        self.calls.begin(Limit::fixed(Duration::from_millis(limit_ms)), Some(view.clone()))
    }
}

impl Delegate for LiveEngine {
    fn compact(
        self: Arc<Self>,
        view: Transcript,
        request: CompactRequest,
    ) -> BoxFuture<Result<Compaction>> {
        Box::pin(async move { LiveEngine::compact(&self, view, request).await })
    }
}

impl Drop for LiveEngine {
    fn drop(&mut self) {
        self.handle.revoke();
    }
}

impl std::fmt::Debug for LiveEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveEngine")
            .field("id", &self.info.id)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

fn open_door(
    spec: &EngineSpec,
    environment: &Environment,
) -> Result<(EngineDoor, Watch), OpenError> {
    let path = match &spec.source {
        Source::Bundled => {
            let door = bundled(&spec.id);
            let door = door.ok_or_else(|| OpenError::NotBundled { id: spec.id.clone() })?;
            return Ok((door, Watch::bundled(&spec.id, environment)?));
        }
        Source::Linked(linked) => return Ok((linked.door, Watch::default())),
        Source::File(path) => path,
    };
    let inspected = checked(spec, path)?;
    let watch = Watch::file(&inspected, environment)?;
    let door = watch.inside("load", || inspected.load(&environment.copies_folder))?;
    Ok((door, watch))
}

/// Reads the file of an engine that may be loaded, and that is the one it should be.
fn checked(spec: &EngineSpec, path: &Path) -> Result<Inspected, OpenError> {
    if let Some(reason) = &spec.distrust {
        return Err(OpenError::Distrusted { id: spec.id.clone(), reason: reason.clone() });
    }
    let inspected = inspect_pinned(path, spec.sha256.as_deref())?;
    if spec.id.is_empty() || spec.id == inspected.meta.id {
        return Ok(inspected);
    }
    Err(OpenError::OtherId {
        path: inspected.path,
        configured: spec.id.clone(),
        found: inspected.meta.id,
    })
}

/// `create` is a plain function, so only a thread of its own can be left behind when it hangs.
fn create_within(
    limit: Duration,
    door: EngineDoor,
    services: Services,
    config: Value,
    watch: &Watch,
) -> Result<EngineHandle> {
    let (send, receive) = mpsc::channel();
    let thread = std::thread::Builder::new().name("engine-create".into());
    watch.begins("create");
    let on_thread = watch.of_thread();
    let spawned = thread.spawn(move || {
        let handle = on_thread.inside(|| door.create(Arc::new(services), &config));
        let _ = send.send(handle);
    });
    spawned.map_err(|error| EngineError::failed(format!("no thread to create it on: {error}")))?;
    receive.recv_timeout(limit).unwrap_or_else(|_| {
        let message = format!("it took longer than {} ms", limit.as_millis());
        Err(EngineError::new(ErrorKind::Deadline, message))
    })
}
