//! One session of an engine on a scripted host. Its calls turn faults into messages.

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{ContractOptions, plan_fault};
use crate::border::{EngineFactory, EngineHandle};
use crate::error::{EngineError, ErrorKind};
use crate::plan::{Compaction, Plan};
use crate::request::*;
use crate::testing::{ScriptedHost, block_on_within};
use crate::transcript::Transcript;

/// The window in requests, in provider tokens.
const WINDOW_TOKENS: u64 = 200_000;

/// The reserve in requests, in provider tokens.
const RESERVE_TOKENS: u64 = 20_000;

/// One session of a running engine.
pub(super) struct ContractSession {
    pub(super) engine: EngineHandle,
    pub(super) host: ScriptedHost,
    pub(super) session: SessionRef,
    limit: Duration,
    calls: Cell<u64>,
    guard: Arc<DisposeGuard>,
}

/// Disposes of the engine when its last session is dropped.
struct DisposeGuard {
    engine: EngineHandle,
    host: ScriptedHost,
    limit: Duration,
}

/// The result of a call: the outer error is a fault, the inner one the engine's own.
pub(super) type ContractAnswer<T> = Result<Result<T, EngineError>, String>;

impl ContractSession {
    pub(super) fn open(
        factory: EngineFactory,
        options: &ContractOptions,
    ) -> Result<ContractSession, String> {
        ContractSession::open_on(ScriptedHost::new(), factory, options)
    }

    pub(super) fn open_on(
        host: ScriptedHost,
        factory: EngineFactory,
        options: &ContractOptions,
    ) -> Result<ContractSession, String> {
        // An engine may wait for its background tasks, so they have to run.
        host.run_tasks_on_threads();
        options.completion.iter().for_each(|text| host.answer_always(text));
        let engine = factory
            .create(Arc::new(host.clone()), &options.config)
            .map_err(|error| format!("create failed: {error}"))?;
        let limit = options.call_limit;
        let life = Arc::new(DisposeGuard { engine: engine.clone(), host: host.clone(), limit });
        let session = session("contract");
        Ok(ContractSession { engine, host, session, limit, calls: Cell::new(1), guard: life })
    }

    /// Another session of the same engine.
    pub(super) fn with_session(&self, id: &str, first_call: u64) -> ContractSession {
        ContractSession {
            engine: self.engine.clone(),
            host: self.host.clone(),
            session: session(id),
            limit: self.limit,
            calls: Cell::new(first_call),
            guard: self.guard.clone(),
        }
    }

    /// The id of the next call.
    pub(super) fn next_call_id(&self) -> CallId {
        CallId(self.calls.replace(self.calls.get() + 1))
    }

    /// Waits for a call. Panics, unreadable replies and timeouts are faults; other errors are not.
    pub(super) fn wait<T>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> ContractAnswer<T> {
        match block_on_within(self.limit, call) {
            None => Err(format!("{what} took longer than {:?}", self.limit)),
            Some(answer) => check_error_kind(what, answer),
        }
    }

    /// Bootstraps the session and ingests the whole transcript as one batch.
    pub(super) fn bootstrap_and_ingest(&self, transcript: &Transcript) -> Result<(), String> {
        let request = BootstrapRequest { call: self.next_call_id(), session: self.session.clone() };
        let call = self.engine.bootstrap(transcript.clone(), request);
        expect_ok("bootstrap", self.wait("bootstrap", call)?)?;
        self.ingest(transcript, 0..transcript.len() as u64)
    }

    /// Ingests a range.
    pub(super) fn ingest(&self, transcript: &Transcript, new: Range<u64>) -> Result<(), String> {
        let call = self.engine.ingest_batch(transcript.clone(), self.ingest_request(new.clone()));
        let taken = expect_ok("ingest_batch", self.wait("ingest_batch", call)?)?;
        if taken.entries <= new.end - new.start {
            Ok(())
        } else {
            Err(format!("ingest_batch reported {} entries of {new:?}", taken.entries))
        }
    }

    pub(super) fn ingest_request(&self, entries: Range<u64>) -> IngestRequest {
        let session = self.session.clone();
        IngestRequest { call: self.next_call_id(), session, entries, is_heartbeat: false }
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
            now_ms: 1_767_225_600_000,
        }
    }

    /// Assembles and validates the plan; `None` if the engine rejects the budget as too small.
    pub(super) fn assemble(
        &self,
        transcript: &Transcript,
        budget: u64,
    ) -> Result<Option<Plan>, String> {
        let call = self.engine.assemble(transcript.clone(), self.assemble_request(budget));
        match self.wait("assemble", call)? {
            Ok(plan) => match plan_fault(&plan, transcript) {
                Some(fault) => Err(format!("{fault}; budget {budget}")),
                None => Ok(Some(plan)),
            },
            // Rejecting a budget that fits everything is a fault.
            Err(error) if rejects_budget(&error) && budget < transcript.total_tokens() => Ok(None),
            Err(error) => Err(format!("assemble failed with budget {budget}: {error}")),
        }
    }

    pub(super) fn compact_request(&self, transcript: &Transcript, budget: u64) -> CompactRequest {
        CompactRequest {
            call: self.next_call_id(),
            session: self.session.clone(),
            budget,
            reserve_tokens: RESERVE_TOKENS,
            current_tokens: transcript.total_tokens(),
            model: model(),
            attempt: 1,
            now_ms: 1_767_225_600_000,
            ..CompactRequest::default()
        }
    }

    /// Compacts; an error of the engine is a valid result.
    pub(super) fn compact(
        &self,
        transcript: &Transcript,
        request: CompactRequest,
    ) -> ContractAnswer<Compaction> {
        self.wait("compact", self.engine.compact(transcript.clone(), request))
    }
}

impl Drop for DisposeGuard {
    fn drop(&mut self) {
        // Failures are ignored here: the check `dispose: calls after it` tests this.
        let _ = block_on_within(self.limit, self.engine.dispose());
        // Also after a failed dispose, so that tasks of the engine cannot reach the host of the
        // next check.
        self.engine.revoke();
        self.host.stop_tasks();
    }
}

pub(super) fn session(id: &str) -> SessionRef {
    SessionRef { id: id.into(), key: "agent:contract".into() }
}

/// Turns any error of a call into a fault.
pub(super) fn expect_ok<T>(what: &str, answer: Result<T, EngineError>) -> Result<T, String> {
    answer.map_err(|error| format!("{what} failed: {error}"))
}

/// Turns panics and unreadable replies into faults; other errors are valid.
pub(super) fn check_error_kind<T>(what: &str, answer: Result<T, EngineError>) -> ContractAnswer<T> {
    match answer {
        Err(error) if matches!(error.kind, ErrorKind::Panicked | ErrorKind::Protocol) => {
            Err(format!("{what}: {error}"))
        }
        answer => Ok(answer),
    }
}

fn rejects_budget(error: &EngineError) -> bool {
    matches!(error.kind, ErrorKind::WindowTooSmall | ErrorKind::CannotFit)
}

fn model() -> ModelRef {
    let (provider, id) = ("scripted".into(), "scripted-1".into());
    ModelRef { provider, id, window_tokens: WINDOW_TOKENS }
}
