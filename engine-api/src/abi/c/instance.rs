//! An instance of a C engine: converts each request to C and its answer to Rust.

use std::ffi::c_void;

use serde::de::DeserializeOwned;

use super::answer::{AnswerContent, AnswerForm, CAnswer};
use super::memory::protocol;
use super::requests::*;
use super::services::CHost;
use super::structs::*;
use super::tables::{API, PlainCall, TranscriptCall};
use super::validate::EngineTable;
use super::view::CTranscript;
use crate::abi::guard::catch_panic;
use crate::abi::json::from_json;
use crate::error::{EngineError, ErrorKind, Result};
use crate::plan::{Compaction, Plan};
use crate::request::*;
use crate::transcript::Transcript;

/// The pointer that `create` returned and the functions of the engine. `dispose` runs on drop: every call
/// holds a reference to the instance, so the last call has ended by then.
pub(super) struct CInstance {
    engine: *mut c_void,
    checked: &'static EngineTable,
}

// SAFETY: rule 4 of the header: functions of an engine may be called from any thread.
unsafe impl Send for CInstance {}
// SAFETY: and at the same time only where the engine says that they may; see `CallLock`.
unsafe impl Sync for CInstance {}

impl CInstance {
    /// Creates the engine.
    pub(super) fn create(
        checked: &'static EngineTable,
        host: &'static CHost,
        config_json: &str,
    ) -> Result<CInstance> {
        let create = checked.table.create.ok_or_else(|| protocol("create is NULL"))?;
        let host = std::ptr::from_ref(host).cast_mut();
        // NULL is valid: an engine without state does not write it.
        let mut engine = std::ptr::null_mut();
        run("create", AnswerForm::Status, 0, |answer| {
            // SAFETY: the table was checked and its library is never unloaded; the arguments outlive
            // the call, the API and the host live as long as the process.
            unsafe { create(&raw const API, host, Str::of(config_json), &mut engine, answer) }
        })?;
        Ok(CInstance { engine, checked })
    }

    pub(super) fn assemble(&self, view: Transcript, request: &AssembleRequest) -> Result<Plan> {
        let method = self.checked.table.assemble.ok_or_else(|| protocol("assemble is NULL"))?;
        let is_empty = view.is_empty();
        // Bound to a variable because the request points into it until the call returns.
        let tools: Vec<Str> = request.available_tools.iter().map(|name| Str::of(name)).collect();
        let request = assemble(request, &tools);
        match self.with_view("assemble", AnswerForm::Plan, method, view, &request)? {
            AnswerContent::Plan(plan) => Ok(plan),
            // An empty transcript needs no operation.
            _ if is_empty => Ok(Plan::default()),
            _ => Err(protocol("assemble answered nothing; call plan_keep or set_error")),
        }
    }

    pub(super) fn compact(&self, view: Transcript, request: &CompactRequest) -> Result<Compaction> {
        // `validate` accepts a NULL only with CTXHOST_DELEGATES_COMPACTION.
        let Some(method) = self.checked.table.compact else { return Ok(Compaction::Delegate) };
        let c_request = compact(request);
        let form = AnswerForm::Compaction(Box::new(request.clone()));
        match self.with_view("compact", form, method, view, &c_request)? {
            AnswerContent::Plan(plan) => Ok(Compaction::Plan(plan)),
            AnswerContent::Compaction(compaction) => Ok(compaction),
            _ => Err(protocol(
                "compact answered nothing; call plan_keep, compact_delegate, compact_nothing or set_error",
            )),
        }
    }

    pub(super) fn bootstrap(
        &self,
        view: Transcript,
        request: &BootstrapRequest,
    ) -> Result<BootstrapReply> {
        let Some(method) = self.checked.table.bootstrap else {
            return Ok(BootstrapReply::default());
        };
        let request = bootstrap(request);
        match self.with_view("bootstrap", AnswerForm::CountOrJson, method, view, &request)? {
            AnswerContent::Count(imported) => Ok(BootstrapReply { imported, reason: None }),
            content => document("bootstrap", content),
        }
    }

    pub(super) fn ingest(&self, view: Transcript, request: &IngestRequest) -> Result<IngestReply> {
        self.ingest_by("ingest", self.checked.table.ingest, view, request)
    }

    pub(super) fn ingest_batch(
        &self,
        view: Transcript,
        request: &IngestRequest,
    ) -> Result<IngestReply> {
        match self.checked.table.ingest_batch {
            // One `ingest` for the whole range: the contract allows ranges of any length.
            None => self.ingest(view, request),
            method => self.ingest_by("ingest_batch", method, view, request),
        }
    }

    fn ingest_by(
        &self,
        call: &'static str,
        method: Option<TranscriptCall<CIngest>>,
        view: Transcript,
        request: &IngestRequest,
    ) -> Result<IngestReply> {
        let Some(method) = method else { return Ok(IngestReply::default()) };
        match self.with_view(call, AnswerForm::CountOrJson, method, view, &ingest(request))? {
            AnswerContent::Count(entries) => Ok(IngestReply { entries }),
            AnswerContent::Nothing => Ok(IngestReply::default()),
            _ => Err(protocol(format!("{call} expects a number; call set_count"))),
        }
    }

    pub(super) fn after_turn(&self, view: Transcript, request: &AfterTurnRequest) -> Result<()> {
        let Some(method) = self.checked.table.after_turn else { return Ok(()) };
        self.with_view("after_turn", AnswerForm::Status, method, view, &after_turn(request))
            .map(drop)
    }

    pub(super) fn commit_turn(
        &self,
        view: Transcript,
        request: &CommitTurnRequest,
    ) -> Result<CommitTurnReply> {
        let Some(method) = self.checked.table.commit_turn else {
            return Ok(CommitTurnReply::default());
        };
        let request = commit_turn(request);
        document(
            "commit_turn",
            self.with_view("commit_turn", AnswerForm::Json, method, view, &request)?,
        )
    }

    pub(super) fn maintain(
        &self,
        view: Transcript,
        request: &MaintainRequest,
    ) -> Result<MaintainReply> {
        let Some(method) = self.checked.table.maintain else { return Ok(MaintainReply::default()) };
        let request = maintain(request);
        document("maintain", self.with_view("maintain", AnswerForm::Json, method, view, &request)?)
    }

    pub(super) fn prepare_subagent_spawn(
        &self,
        view: Transcript,
        request: &SubagentSpawnRequest,
    ) -> Result<SubagentSpawnReply> {
        let Some(method) = self.checked.table.prepare_subagent_spawn else {
            return Ok(SubagentSpawnReply::default());
        };
        let (call, request) = ("prepare_subagent_spawn", spawn(request));
        match self.with_view(call, AnswerForm::TextOrJson, method, view, &request)? {
            AnswerContent::Text(token) => Ok(SubagentSpawnReply { token }),
            content => document(call, content),
        }
    }

    pub(super) fn rollback_subagent_spawn(&self, request: &SubagentRollbackRequest) -> Result<()> {
        let Some(method) = self.checked.table.rollback_subagent_spawn else { return Ok(()) };
        let call = "rollback_subagent_spawn";
        self.without_view(call, AnswerForm::Status, method, &rollback(request)).map(drop)
    }

    pub(super) fn on_subagent_ended(&self, request: &SubagentEndedRequest) -> Result<()> {
        let Some(method) = self.checked.table.on_subagent_ended else { return Ok(()) };
        self.without_view("on_subagent_ended", AnswerForm::Status, method, &spawn_end(request))
            .map(drop)
    }

    pub(super) fn tools(&self, of: &SessionRef) -> Result<Vec<ToolSpec>> {
        let Some(method) = self.checked.table.tools else { return Ok(Vec::new()) };
        document("tools", self.without_view("tools", AnswerForm::Json, method, &session(of))?)
    }

    pub(super) fn call_tool(
        &self,
        view: Transcript,
        request: &ToolCallRequest,
    ) -> Result<ToolAnswer> {
        let Some(method) = self.checked.table.call_tool else {
            let id = &self.checked.info.id;
            let message = format!("engine {id} has no tool {:?}", request.name);
            return Err(EngineError::new(ErrorKind::Unsupported, message));
        };
        let arguments = request.arguments.to_string();
        let request = tool_request(request, &arguments);
        match self.with_view("call_tool", AnswerForm::TextOrJson, method, view, &request)? {
            AnswerContent::Text(text) => Ok(ToolAnswer { text, is_error: false }),
            AnswerContent::Nothing => {
                Err(protocol("call_tool answered nothing; call set_text or set_error"))
            }
            content => document("call_tool", content),
        }
    }

    pub(super) fn status(&self) -> Result<EngineStatus> {
        let Some(method) = self.checked.table.status else { return Ok(EngineStatus::default()) };
        let content = run("status", AnswerForm::TextOrJson, 0, |answer| {
            // SAFETY: as in `with_view`.
            unsafe { method(self.engine, answer) }
        })?;
        match content {
            AnswerContent::Text(summary) => Ok(EngineStatus { summary, ..EngineStatus::default() }),
            content => document("status", content),
        }
    }

    fn with_view<R>(
        &self,
        call: &'static str,
        form: AnswerForm,
        method: TranscriptCall<R>,
        view: Transcript,
        request: &R,
    ) -> Result<AnswerContent> {
        // Setters check positions against the length, so they do not need the transcript.
        let entries = view.len() as u64;
        let transcript = CTranscript::new(view);
        run(call, form, entries, |answer| {
            // SAFETY: the function comes from a checked table of a library that is never unloaded,
            // `engine` was returned by its `create` and not disposed of, and transcript, request
            // and answer outlive the call.
            unsafe { method(self.engine, &raw const transcript, request, answer) }
        })
    }

    fn without_view<R>(
        &self,
        call: &'static str,
        form: AnswerForm,
        method: PlainCall<R>,
        request: &R,
    ) -> Result<AnswerContent> {
        run(call, form, 0, |answer| {
            // SAFETY: as in `with_view`.
            unsafe { method(self.engine, request, answer) }
        })
    }
}

impl Drop for CInstance {
    fn drop(&mut self) {
        if let Some(dispose) = self.checked.table.dispose {
            // SAFETY: as in `with_view`; `drop` has the only reference, so no other call runs.
            let _ = catch_panic(|| unsafe { dispose(self.engine) });
        }
    }
}

/// Runs a function of the engine and returns its answer.
fn run(
    call: &'static str,
    form: AnswerForm,
    entries: u64,
    function: impl FnOnce(*mut CAnswer) -> CStatus,
) -> Result<AnswerContent> {
    let answer = CAnswer::new(call, form, entries);
    // The cast removes `const` only: the mutable parts of an answer are behind its mutex.
    let returned = catch_panic(|| function((&raw const answer).cast_mut()))?;
    answer.finish(returned)
}

/// Parses a result in JSON; the default if there is none.
fn document<T: DeserializeOwned + Default>(call: &str, content: AnswerContent) -> Result<T> {
    match content {
        AnswerContent::Nothing => Ok(T::default()),
        AnswerContent::Json(json) => from_json(&json)
            .map_err(|error| protocol(format!("{call} answered with {}", error.message))),
        _ => Err(protocol(format!("{call} expects JSON; call set_result_json"))),
    }
}
