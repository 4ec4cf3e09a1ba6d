//! A live engine: created, in its seat, called with deadlines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::transcript::mirror::Mirror;
use ctxhost_engine_api::*;

use super::calls::{CallGuard, Calls, Limit};
use super::environment::{Delegate, Environment};
use super::lane::{Isolation, LETTING_GO, TOO_LATE};
use super::opening::{self, OpenError};
use super::question::Question;
use super::seat::Seat;
use super::spec::{EngineSpec, Source};
use super::timeouts::Timeouts;
use super::watch::Watch;
use super::worker::WorkerFacts;

/// An engine that can be called.
pub struct LiveEngine {
    info: EngineInfo,
    source: Source,
    isolation: Isolation,
    seat: Arc<Seat>,
    calls: Arc<Calls>,
    timeouts: Timeouts,
    is_disposed: AtomicBool,
    /// Last, so that it is dropped after everything that runs the engine.
    watch: Arc<Watch>,
}

impl LiveEngine {
    /// Opens an engine: finds its door, checks its name and needs, creates it.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(spec: &EngineSpec, environment: &Environment) -> Result<LiveEngine, OpenError> {
        let calls = Arc::new(Calls::default());
        let (info, seat, watch) = opening::seat(spec, environment, &calls)?;
        let (source, isolation) = (spec.source.clone(), spec.isolation);
        let timeouts = environment.timeouts.clone();
        let (seat, watch) = (Arc::new(seat), Arc::new(watch));
        let is_disposed = AtomicBool::new(false);
        Ok(LiveEngine { info, source, isolation, seat, calls, timeouts, is_disposed, watch })
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

    /// How far it is kept from the host.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The process it sits in; `None` for one that is in this process.
    pub fn worker(&self) -> Option<WorkerFacts> {
        self.seat.worker()
    }

    /// Whether this error is the end of one call and not of the engine: its process died over what is
    /// not asked twice, and another one takes over.
    pub fn lost_one_call(&self, operation: &str, error: &EngineError) -> bool {
        let is_asked_once =
            matches!(operation, "compact" | "after_turn" | "maintain" | "on_subagent_ended");
        is_asked_once && error.kind == ErrorKind::Dead && self.seat.may_start_another()
    }

    /// Whether one of this process's threads hangs in a call of it that was given up.
    pub fn lost_a_thread(&self) -> bool {
        self.seat.lost_a_thread()
    }

    /// A session begins in it.
    pub async fn bootstrap(
        &self,
        view: Transcript,
        mut request: BootstrapRequest,
    ) -> Result<Bootstrapped> {
        let call = self.begin(self.timeouts.bootstrap_ms, &view).in_session(&request.session);
        request.call = call.id;
        let answer = self.seat.ask(&call, view, Question::Bootstrap(request)).await;
        answer.map_err(|error| within(error, self.timeouts.bootstrap_ms, "bootstrap_ms"))
    }

    /// New entries.
    pub async fn ingest(&self, view: Transcript, mut request: IngestRequest) -> Result<Ingested> {
        let call = self.begin(self.timeouts.ingest_ms, &view).in_session(&request.session);
        request.call = call.id;
        let answer = self.seat.ask(&call, view, Question::Ingest(request)).await;
        answer.map_err(|error| within(error, self.timeouts.ingest_ms, "ingest_ms"))
    }

    /// What the model sees.
    pub async fn assemble(&self, view: Transcript, mut request: AssembleRequest) -> Result<Plan> {
        let call = self.begin(self.timeouts.assemble_ms, &view).in_session(&request.session);
        request.call = call.id;
        let answer = self.seat.ask(&call, view, Question::Assemble(request)).await;
        answer.map_err(|error| within(error, self.timeouts.assemble_ms, "assemble_ms"))
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
        let began = Instant::now();
        let answer = self.seat.ask(&call, view, Question::Compact(request)).await;
        let (limit_ms, setting) = match began.elapsed() >= limit.cap {
            true => (self.timeouts.compact_cap_ms, "compact_cap_ms"),
            false => (self.timeouts.compact_ms, "compact_ms"),
        };
        answer.map_err(|error| within(error, limit_ms, setting))
    }

    /// A turn has ended well.
    pub async fn after_turn(&self, view: Transcript, mut request: AfterTurnRequest) -> Result<()> {
        let call = self.begin(self.timeouts.after_turn_ms, &view).in_session(&request.session);
        request.call = call.id;
        let answer = self.seat.ask(&call, view, Question::AfterTurn(request)).await;
        answer.map_err(|error| within(error, self.timeouts.after_turn_ms, "after_turn_ms"))
    }

    /// A turn is final.
    pub async fn commit_turn(
        &self,
        view: Transcript,
        mut request: CommitTurnRequest,
    ) -> Result<Committed> {
        let call = self.begin(self.timeouts.after_turn_ms, &view).in_session(&request.session);
        request.call = call.id;
        let answer = self.seat.ask(&call, view, Question::CommitTurn(request)).await;
        answer.map_err(|error| within(error, self.timeouts.after_turn_ms, "after_turn_ms"))
    }

    /// Time for housekeeping.
    pub async fn maintain(
        &self,
        view: Transcript,
        mut request: MaintainRequest,
    ) -> Result<Maintained> {
        let call = self.begin(self.timeouts.maintain_ms, &view).in_session(&request.session);
        request.call = call.id;
        let answer = self.seat.ask(&call, view, Question::Maintain(request)).await;
        answer.map_err(|error| within(error, self.timeouts.maintain_ms, "maintain_ms"))
    }

    /// A sub-agent is about to start.
    pub async fn prepare_subagent_spawn(
        &self,
        view: Transcript,
        mut request: SubagentSpawnRequest,
    ) -> Result<SpawnPrepared> {
        let call = self.begin(self.timeouts.subagent_ms, &view).in_session(&request.parent);
        request.call = call.id;
        let answer = self.seat.ask(&call, view, Question::PrepareSpawn(request)).await;
        answer.map_err(|error| within(error, self.timeouts.subagent_ms, "subagent_ms"))
    }

    /// A spawn that was prepared failed.
    pub async fn rollback_subagent_spawn(
        &self,
        mut request: SubagentRollbackRequest,
    ) -> Result<()> {
        let limit = Limit::fixed(Duration::from_millis(self.timeouts.subagent_ms));
        let call = self.calls.begin(limit, None);
        request.call = call.id;
        let answer = self.seat.ask(&call, no_view(), Question::RollbackSpawn(request)).await;
        answer.map_err(|error| within(error, self.timeouts.subagent_ms, "subagent_ms"))
    }

    /// A sub-agent ended.
    pub async fn on_subagent_ended(&self, mut request: SubagentEndedRequest) -> Result<()> {
        let limit = Limit::fixed(Duration::from_millis(self.timeouts.subagent_ms));
        let call = self.calls.begin(limit, None);
        request.call = call.id;
        let answer = self.seat.ask(&call, no_view(), Question::SubagentEnded(request)).await;
        answer.map_err(|error| within(error, self.timeouts.subagent_ms, "subagent_ms"))
    }

    /// The tools it offers to the model of a session.
    pub async fn tools(&self, session: SessionRef) -> Result<Vec<ToolSpec>> {
        let limit = Limit::fixed(Duration::from_millis(self.timeouts.subagent_ms));
        let call = self.calls.begin(limit, None).in_session(&session);
        let answer = self.seat.ask(&call, no_view(), Question::Tools(session)).await;
        answer.map_err(|error| within(error, self.timeouts.subagent_ms, "subagent_ms"))
    }

    /// The model called one of its tools.
    pub async fn call_tool(
        &self,
        view: Transcript,
        mut request: ToolCallRequest,
    ) -> Result<ToolAnswer> {
        let call = self.begin(self.timeouts.after_turn_ms, &view).in_session(&request.session);
        request.call = call.id;
        let answer = self.seat.ask(&call, view, Question::CallTool(request)).await;
        answer.map_err(|error| within(error, self.timeouts.after_turn_ms, "after_turn_ms"))
    }

    /// What it says of itself.
    pub async fn status(&self) -> Result<EngineStatus> {
        let limit = Limit::fixed(Duration::from_millis(self.timeouts.subagent_ms));
        let call = self.calls.begin(limit, None);
        self.seat.ask(&call, no_view(), Question::Status).await
    }

    /// Calls `dispose` of the engine, within its time limit, and takes the services away. No call may
    /// follow. Only the first of these calls does anything; an engine that is dropped without one is
    /// disposed of then.
    pub async fn dispose(&self) {
        if let Some(disposal) = self.disposal() {
            disposal.run().await;
        }
    }

    /// What `dispose` takes; `None` where it has begun already.
    fn disposal(&self) -> Option<Disposal> {
        let is_first = !self.is_disposed.swap(true, Ordering::AcqRel);
        is_first.then(|| Disposal {
            id: self.info.id.clone(),
            seat: self.seat.clone(),
            calls: self.calls.clone(),
            limit: Duration::from_millis(self.timeouts.dispose_ms),
            _watch: self.watch.clone(),
        })
    }

    fn begin(&self, limit_ms: u64, view: &Transcript) -> CallGuard {
        self.calls.begin(Limit::fixed(Duration::from_millis(limit_ms)), Some(view.clone()))
    }
}

/// An error that says which limit a call exceeded, and where that is set.
fn within(mut error: EngineError, limit_ms: u64, setting: &str) -> EngineError {
    if error.kind == ErrorKind::Deadline
        && let Some(rest) = error.message.strip_prefix(TOO_LATE)
    {
        let limit = grouped(limit_ms);
        error.message = format!("exceeded {limit} ms (timeouts.{setting}){rest}");
    }
    error
}

/// A number with a comma for each thousand.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The last call of an engine, which may outlive its [`LiveEngine`].
struct Disposal {
    id: String,
    seat: Arc<Seat>,
    calls: Arc<Calls>,
    limit: Duration,
    _watch: Arc<Watch>,
}

impl Disposal {
    async fn run(self) {
        let call = self.calls.begin(Limit::fixed(self.limit), None);
        let disposed: Result<()> = self.seat.ask(&call, no_view(), Question::Dispose).await;
        if let Err(error) = disposed {
            tracing::warn!(engine = self.id, %error, "dispose failed");
        }
        self.seat.revoke();
    }

    /// Runs to its end for a caller that cannot wait asynchronously: on a thread of its own, since the
    /// caller may be a thread of an async runtime, which cannot start another one.
    fn run_blocking(self) {
        let limit = self.limit;
        let (ended, end) = mpsc::channel();
        let name = format!("dispose-{}", self.id);
        let id = self.id.clone();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            match runtime {
                Ok(runtime) => runtime.block_on(self.run()),
                Err(error) => tracing::warn!(engine = self.id, %error, "dispose was not called"),
            }
            // Best effort: nobody listens once the time is up.
            let _ = ended.send(());
        };
        match std::thread::Builder::new().name(name).spawn(work) {
            // A call that ignores its deadline, inline on that thread, is left to it.
            Ok(_) => _ = end.recv_timeout(limit.saturating_add(LETTING_GO)),
            Err(error) => tracing::warn!(engine = id, %error, "dispose was not called"),
        }
    }
}

impl Drop for LiveEngine {
    fn drop(&mut self) {
        if let Some(disposal) = self.disposal() {
            disposal.run_blocking();
        }
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

impl std::fmt::Debug for LiveEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveEngine")
            .field("id", &self.info.id)
            .field("source", &self.source)
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}

/// For questions that come without a transcript.
fn no_view() -> Transcript {
    Mirror::new().snapshot(0)
}
