//! One session of the engine: traces every call and turns panics into faults.

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctxhost_engine_api::border::EngineHandle;
use ctxhost_engine_api::testing::block_on;
use ctxhost_engine_api::{
    AfterTurnRequest, AssembleRequest, BootstrapRequest, CallId, CommitTurnReply,
    CommitTurnRequest, CompactRequest, Compaction, EngineError, ErrorKind, IngestRequest,
    MaintainRequest, ModelRef, Plan, SessionRef, Transcript, Trigger,
};

use super::fault::CheckFault;
use super::harness::CaseHarness;
use super::host::FaultyHost;
use super::settings::SERVICE_CALLS_MAX;
use super::trace::CallTrace;

/// The window in requests, in provider tokens.
const WINDOW_TOKENS: u64 = 200_000;
/// The reserve in requests, in provider tokens.
const RESERVE_TOKENS: u64 = 20_000;
/// The time in requests, in milliseconds since 1970.
const NOW_MS: i64 = 1_767_225_600_000;

/// The name of the call that creates the engine.
pub(super) const CREATE: &str = "create";

/// The result of a call: the outer error is a fault, the inner one a valid reply.
pub(super) type CallAnswer<T> = Result<Result<T, EngineError>, CheckFault>;

/// One session.
pub(super) struct CheckSession {
    pub(super) engine: EngineHandle,
    pub(super) host: FaultyHost,
    pub(super) session: SessionRef,
    trace: Arc<CallTrace>,
    calls: Cell<u64>,
    last_took: Cell<Duration>,
    disposed: Cell<bool>,
}

impl CheckSession {
    pub(super) fn open(
        harness: &CaseHarness<'_>,
        host: FaultyHost,
        session: &str,
    ) -> Result<CheckSession, CheckFault> {
        let scope = harness.trace.start_call(CREATE);
        let created = harness.factory.create(Arc::new(host.clone()), harness.config);
        drop(scope);
        let engine = created.map_err(|error| match error.kind {
            ErrorKind::Panicked => {
                CheckFault::new("panic", format!("the engine {error} in create"))
            }
            // The most common reason: the engine has required settings.
            ErrorKind::Config => CheckFault::new(
                "create",
                format!("create failed: {error}; pass its settings with --config FILE"),
            ),
            _ => CheckFault::new("create", format!("create failed: {error}")),
        })?;
        Ok(CheckSession {
            engine,
            host,
            session: SessionRef { id: session.into(), key: "agent:conformance".into() },
            trace: harness.trace.clone(),
            calls: Cell::new(1),
            last_took: Cell::default(),
            disposed: Cell::new(false),
        })
    }

    /// Another session of the same engine.
    pub(super) fn set_session_id(&mut self, session: &str) {
        self.session.id = session.into();
    }

    pub(super) fn next_call_id(&self) -> CallId {
        CallId(self.calls.replace(self.calls.get() + 1))
    }

    /// The duration of the last call.
    pub(super) fn last_duration(&self) -> Duration {
        self.last_took.get()
    }

    /// Waits for a call. The watchdog ends the process if it does not return.
    pub(super) fn call<T>(
        &self,
        name: &str,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> CallAnswer<T> {
        self.call_sync(name, || block_on(call))
    }

    /// The same for a synchronous call.
    pub(super) fn call_sync<T>(
        &self,
        name: &str,
        call: impl FnOnce() -> Result<T, EngineError>,
    ) -> CallAnswer<T> {
        // The limit of service calls is per call.
        self.host.reset_requests();
        let scope = self.trace.start_call(name);
        let start = Instant::now();
        let answer = call();
        self.last_took.set(start.elapsed());
        drop(scope);
        if self.host.request_count() > SERVICE_CALLS_MAX {
            let message = format!("{name} made more than {SERVICE_CALLS_MAX} service calls");
            return Err(CheckFault::new("greedy", message));
        }
        match answer {
            Err(error) if error.kind == ErrorKind::Panicked => {
                Err(CheckFault::new("panic", format!("the engine {error} in {name}")))
            }
            Err(error) if error.kind == ErrorKind::Protocol => Err(CheckFault::new(
                "protocol",
                format!("{name} returned an unreadable reply: {error}"),
            )),
            answer => Ok(answer),
        }
    }

    /// Bootstraps the session and ingests the whole transcript.
    pub(super) fn bootstrap_and_ingest(&self, view: &Transcript) -> Result<(), CheckFault> {
        self.bootstrap(view)?;
        self.ingest(view, 0..view.len() as u64)
    }

    pub(super) fn bootstrap(&self, view: &Transcript) -> Result<(), CheckFault> {
        expect_ok("bootstrap", self.try_bootstrap(view)?).map(drop)
    }

    pub(super) fn try_bootstrap(&self, view: &Transcript) -> CallAnswer<()> {
        let request = BootstrapRequest { call: self.next_call_id(), session: self.session.clone() };
        let answer = self.call("bootstrap", self.engine.bootstrap(view.clone(), request))?;
        Ok(answer.map(drop))
    }

    pub(super) fn ingest(&self, view: &Transcript, new: Range<u64>) -> Result<(), CheckFault> {
        expect_ok("ingest", self.try_ingest(view, new)?)
    }

    pub(super) fn try_ingest(&self, view: &Transcript, new: Range<u64>) -> CallAnswer<()> {
        let (name, request) = (ingest_name(&new), self.ingest_request(new));
        let answer = match name {
            "ingest" => self.call(name, self.engine.ingest(view.clone(), request))?,
            _ => self.call(name, self.engine.ingest_batch(view.clone(), request))?,
        };
        Ok(answer.map(drop))
    }

    pub(super) fn ingest_request(&self, entries: Range<u64>) -> IngestRequest {
        let session = self.session.clone();
        IngestRequest { call: self.next_call_id(), session, entries, is_heartbeat: false }
    }

    pub(super) fn try_assemble(&self, view: &Transcript, budget: u64) -> CallAnswer<Plan> {
        self.call("assemble", self.engine.assemble(view.clone(), self.assemble_request(budget)))
    }

    /// Assembles; `None` if the engine rightly rejects the budget as too small.
    pub(super) fn assemble(
        &self,
        view: &Transcript,
        budget: u64,
    ) -> Result<Option<Plan>, CheckFault> {
        match self.try_assemble(view, budget)? {
            Ok(plan) => Ok(Some(plan)),
            Err(error) if rejects_budget(&error) && budget < view.total_tokens() => Ok(None),
            Err(error) => {
                let message = format!("assemble failed with a budget of {budget} tokens: {error}");
                Err(CheckFault::new("error", message))
            }
        }
    }

    pub(super) fn assemble_request(&self, budget: u64) -> AssembleRequest {
        AssembleRequest {
            call: self.next_call_id(),
            session: self.session.clone(),
            budget,
            reserve_tokens: RESERVE_TOKENS,
            prompt: String::new(),
            model: model(),
            available_tools: vec!["read".into(), "bash".into()],
            now_ms: NOW_MS,
        }
    }

    /// Compacts; errors are valid.
    pub(super) fn compact(
        &self,
        view: &Transcript,
        budget: u64,
        trigger: Trigger,
    ) -> CallAnswer<Compaction> {
        let request = CompactRequest {
            trigger,
            // As in a host: manual compactions ignore thresholds.
            force: trigger == Trigger::Manual,
            ..self.compact_request(view, budget)
        };
        self.call("compact", self.engine.compact(view.clone(), request))
    }

    pub(super) fn compact_request(&self, view: &Transcript, budget: u64) -> CompactRequest {
        CompactRequest {
            call: self.next_call_id(),
            session: self.session.clone(),
            budget,
            reserve_tokens: RESERVE_TOKENS,
            current_tokens: view.total_tokens(),
            model: model(),
            attempt: 1,
            now_ms: NOW_MS,
            ..CompactRequest::default()
        }
    }

    pub(super) fn after_turn(&self, view: &Transcript, entries: Range<u64>) -> CallAnswer<()> {
        let request = self.after_turn_request(entries);
        self.call("after_turn", self.engine.after_turn(view.clone(), request))
    }

    pub(super) fn after_turn_request(&self, entries: Range<u64>) -> AfterTurnRequest {
        AfterTurnRequest {
            call: self.next_call_id(),
            session: self.session.clone(),
            entries,
            budget: WINDOW_TOKENS / 2,
            provider_tokens: 1_234,
            now_ms: NOW_MS,
            ..AfterTurnRequest::default()
        }
    }

    pub(super) fn commit(&self, view: &Transcript, key: &str) -> CallAnswer<CommitTurnReply> {
        let request = self.commit_request(view, key);
        self.call("commit_turn", self.engine.commit_turn(view.clone(), request))
    }

    pub(super) fn commit_request(&self, view: &Transcript, key: &str) -> CommitTurnRequest {
        let (call, session) = (self.next_call_id(), self.session.clone());
        let entries = 0..view.len() as u64;
        CommitTurnRequest { call, session, advancement_key: key.into(), entries }
    }

    pub(super) fn maintain(&self, view: &Transcript) -> CallAnswer<()> {
        let request = self.maintain_request();
        let answer = self.call("maintain", self.engine.maintain(view.clone(), request))?;
        Ok(answer.map(drop))
    }

    pub(super) fn maintain_request(&self) -> MaintainRequest {
        MaintainRequest {
            call: self.next_call_id(),
            session: self.session.clone(),
            reason: "turn".into(),
        }
    }

    /// Disposes of the engine.
    pub(super) fn dispose(&self) -> Result<(), CheckFault> {
        self.disposed.set(true);
        let disposed = self.call("dispose", self.engine.dispose());
        self.engine.revoke();
        // Background tasks of this engine must not run into the next case.
        self.host.inner.stop_tasks();
        expect_ok("dispose", disposed?)
    }
}

impl Drop for CheckSession {
    fn drop(&mut self) {
        if !self.disposed.get() {
            // Failures of `dispose` are reported by the cases that call it.
            let _ = self.dispose();
        }
    }
}

/// The call for a range of new entries.
fn ingest_name(new: &Range<u64>) -> &'static str {
    // The same rule as in `EngineHandle::call`.
    if new.end.saturating_sub(new.start) > 1 { "ingest_batch" } else { "ingest" }
}

/// Turns any error of a call into a fault.
pub(super) fn expect_ok<T>(name: &str, answer: Result<T, EngineError>) -> Result<T, CheckFault> {
    answer.map_err(|error| CheckFault::new("error", format!("{name} failed: {error}")))
}

fn rejects_budget(error: &EngineError) -> bool {
    matches!(error.kind, ErrorKind::WindowTooSmall | ErrorKind::CannotFit)
}

fn model() -> ModelRef {
    let (provider, id) = ("anthropic".into(), "claude-sonnet-4-5".into());
    ModelRef { provider, id, window_tokens: WINDOW_TOKENS }
}
