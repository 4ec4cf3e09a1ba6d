//! The answer of one call of a C engine, filled through setters that check every value.
//!
//! The first fault fails the whole call, even if the engine ignores the status of the setter.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::fault::{SuccessStatus, record_failure, status};
use super::memory::protocol;
use super::structs::{CStatus, Str};
use crate::abi::json::from_json;
use crate::error::{EngineError, ErrorKind, Result};
use crate::json_levels::check_text_levels;
use crate::plan::{Compaction, Plan, PlanExtras};
use crate::request::CompactRequest;
use crate::transcript::Role;

/// The kinds of answer a call accepts.
#[derive(Clone, Debug)]
pub(super) enum AnswerForm {
    /// The status only.
    Status,
    /// `assemble`: a plan.
    Plan,
    /// `compact`: a plan, a delegation, or nothing. Holds the request for `delegate_compact`.
    Compaction(Box<CompactRequest>),
    /// A number or JSON.
    CountOrJson,
    /// A text or JSON.
    TextOrJson,
    /// JSON.
    Json,
}

/// The content of an answer.
#[derive(Debug, Default, PartialEq)]
pub(super) enum AnswerContent {
    /// Nothing yet.
    #[default]
    Nothing,
    /// A plan.
    Plan(Plan),
    /// A result of `compact` other than a plan.
    Compaction(Compaction),
    /// A number.
    Count(u64),
    /// A text.
    Text(String),
    /// JSON.
    Json(String),
}

/// The answer of one call.
pub(crate) struct CAnswer {
    call: &'static str,
    form: AnswerForm,
    /// The number of entries in the transcript of the call.
    entries: u64,
    state: Mutex<AnswerState>,
}

#[derive(Default)]
struct AnswerState {
    content: AnswerContent,
    /// Whether the plan has an operation. Notes and estimates alone do not make a plan.
    has_ops: bool,
    error: Option<EngineError>,
    fault: Option<EngineError>,
}

impl CAnswer {
    pub(super) fn new(call: &'static str, form: AnswerForm, entries: u64) -> Self {
        CAnswer { call, form, entries, state: Mutex::default() }
    }

    /// Returns the content, given the status that the engine's function returned.
    ///
    /// # Errors
    ///
    /// The first fault of a setter, else the engine's own error, else the returned status.
    pub(super) fn finish(self, returned: CStatus) -> Result<AnswerContent> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        // The fault first: an engine that reports an error after a rejected setter reports a consequence.
        if let Some(error) = state.fault.or(state.error) {
            return Err(error);
        }
        if returned != 0 {
            let kind = ErrorKind::from_code(returned);
            let message = format!("{} failed with status {returned} and gave no reason", self.call);
            return Err(EngineError::new(kind, message));
        }
        match state.content {
            // A plan without operations would drop the whole transcript; the engine forgot to answer.
            AnswerContent::Plan(_) if !state.has_ops => Ok(AnswerContent::Nothing),
            content => Ok(content),
        }
    }

    /// The compact request that this answer belongs to.
    pub(super) fn compact_request(&self) -> Result<CompactRequest> {
        match &self.form {
            AnswerForm::Compaction(request) => Ok(CompactRequest::clone(request)),
            _ => Err(protocol(format!("delegate_compact is not available in {}", self.call))),
        }
    }

    /// Sets the compaction that the bundled engine returned.
    pub(super) fn set_compaction(&self, compaction: Compaction) -> Result<()> {
        match compaction {
            Compaction::Plan(plan) => {
                self.set("delegate_compact", AnswerContent::Plan(plan))?;
                self.state().has_ops = true;
                Ok(())
            }
            other => self.set("delegate_compact", AnswerContent::Compaction(other)),
        }
    }

    fn state(&self) -> MutexGuard<'_, AnswerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the content, which a call can do once.
    fn set(&self, setter: &str, content: AnswerContent) -> Result<()> {
        let mut state = self.state();
        // A second result fails the call, because the host cannot know which one was meant.
        if state.content != AnswerContent::Nothing {
            let call = self.call;
            return Err(protocol(format!("{call} was answered twice; {setter} came second")));
        }
        state.content = content;
        Ok(())
    }

    /// Appends an operation to the plan.
    fn push_op(&self, work: impl FnOnce(&mut Plan) -> &mut Plan) -> Result<()> {
        self.plan(|plan| {
            work(plan);
        })?;
        self.state().has_ops = true;
        Ok(())
    }

    /// Edits the plan, creating it if the answer is empty.
    fn plan(&self, work: impl FnOnce(&mut Plan)) -> Result<()> {
        let mut state = self.state();
        if state.content == AnswerContent::Nothing {
            state.content = AnswerContent::Plan(Plan::default());
        }
        match &mut state.content {
            AnswerContent::Plan(plan) => {
                work(plan);
                Ok(())
            }
            _ => Err(protocol(format!("{} was answered already; no plan may follow", self.call))),
        }
    }

    /// Checks that a range is within the transcript.
    fn range(&self, from: u64, to: u64) -> Result<Range<u64>> {
        if from <= to && to <= self.entries {
            return Ok(from..to);
        }
        let (call, entries) = (self.call, self.entries);
        Err(protocol(format!("{call} names {from}..{to} of {entries} entries")))
    }

    fn position(&self, seq: u64) -> Result<u64> {
        self.range(seq, seq.saturating_add(1)).map(|range| range.start)
    }
}

/// Runs a setter and records its first error as the fault of the call.
fn run_setter(
    answer: Option<&CAnswer>,
    setter: &str,
    allowed: fn(&AnswerForm) -> bool,
    work: impl FnOnce(&CAnswer) -> Result<()>,
) -> CStatus {
    let Some(answer) = answer else {
        return record_failure(&protocol(format!("{setter}: the answer is NULL")));
    };
    let outcome = catch_fault(|| {
        if !allowed(&answer.form) {
            return Err(protocol(format!("{setter} does not answer {}", answer.call)));
        }
        work(answer)
    });
    if let Err(fault) = &outcome {
        // Kept although the setter returns it: many engines ignore the status of setters.
        answer.state().fault.get_or_insert_with(|| fault.clone());
    }
    status(|| outcome.map(|()| SuccessStatus::Ok))
}

/// Runs a setter; a panic becomes an error.
fn catch_fault(work: impl FnOnce() -> Result<()>) -> Result<()> {
    crate::abi::guard::catch_panic(work).and_then(|answer| answer)
}

fn accepts_plan(form: &AnswerForm) -> bool {
    matches!(form, AnswerForm::Plan | AnswerForm::Compaction(_))
}

fn accepts_compaction(form: &AnswerForm) -> bool {
    matches!(form, AnswerForm::Compaction(_))
}

fn accepts_count(form: &AnswerForm) -> bool {
    matches!(form, AnswerForm::CountOrJson)
}

fn accepts_text(form: &AnswerForm) -> bool {
    matches!(form, AnswerForm::TextOrJson)
}

fn accepts_json(form: &AnswerForm) -> bool {
    // JSON is accepted where a shorter setter exists, because it is the only way to set all fields.
    matches!(form, AnswerForm::Json | AnswerForm::CountOrJson | AnswerForm::TextOrJson)
}

pub(super) extern "C" fn plan_keep(a: Option<&CAnswer>, from: u64, to: u64) -> CStatus {
    run_setter(a, "plan_keep", accepts_plan, |answer| {
        let range = answer.range(from, to)?;
        answer.push_op(|plan| plan.keep(range))
    })
}

pub(super) extern "C" fn plan_replace_text(a: Option<&CAnswer>, seq: u64, text: Str) -> CStatus {
    run_setter(a, "plan_replace_text", accepts_plan, |answer| {
        let (seq, text) = (answer.position(seq)?, text.text()?);
        answer.push_op(|plan| plan.replace_text(seq, text))
    })
}

pub(super) extern "C" fn plan_replace_raw(a: Option<&CAnswer>, seq: u64, raw: Str) -> CStatus {
    run_setter(a, "plan_replace_raw", accepts_plan, |answer| {
        let (seq, raw) = (answer.position(seq)?, raw.text()?);
        answer.push_op(|plan| plan.replace_raw(seq, raw))
    })
}

pub(super) extern "C" fn plan_insert(
    a: Option<&CAnswer>,
    role: u32,
    text: Str,
    from: u64,
    to: u64,
) -> CStatus {
    run_setter(a, "plan_insert", accepts_plan, |answer| {
        let (covers, text) = (answer.range(from, to)?, text.text()?);
        let inserted_role = u8::try_from(role).map_or(Role::Unknown, Role::from_code);
        // Checked here as well as by the host's invariants, so that the message names the setter.
        if !matches!(inserted_role, Role::User | Role::Assistant) {
            let message = format!("plan_insert: role {role} is neither user nor assistant");
            return Err(protocol(message));
        }
        answer.push_op(|plan| plan.insert(inserted_role, text, covers))
    })
}

pub(super) extern "C" fn plan_leave_out(a: Option<&CAnswer>, from: u64, to: u64) -> CStatus {
    run_setter(a, "plan_leave_out", accepts_plan, |answer| {
        let range = answer.range(from, to)?;
        answer.push_op(|plan| plan.leave_out(range))
    })
}

pub(super) extern "C" fn plan_note(a: Option<&CAnswer>, layer: Str, detail: Str) -> CStatus {
    run_setter(a, "plan_note", accepts_plan, |answer| {
        let (layer, detail) = (layer.text()?, detail.text()?);
        answer.plan(|plan| {
            plan.note(layer, detail);
        })
    })
}

pub(super) extern "C" fn plan_estimate(a: Option<&CAnswer>, tokens: u64) -> CStatus {
    run_setter(a, "plan_estimate", accepts_plan, |answer| {
        answer.plan(|plan| plan.estimated_tokens = tokens)
    })
}

pub(super) extern "C" fn plan_extras(a: Option<&CAnswer>, json: Str) -> CStatus {
    run_setter(a, "plan_extras", accepts_plan, |answer| {
        let json = json.text()?;
        check_text_levels("the JSON of plan_extras", json)?;
        let extras: PlanExtras = from_json(json)?;
        answer.plan(|plan| plan.extras = extras)
    })
}

pub(super) extern "C" fn compact_delegate(a: Option<&CAnswer>) -> CStatus {
    run_setter(a, "compact_delegate", accepts_compaction, |answer| {
        answer.set("compact_delegate", AnswerContent::Compaction(Compaction::Delegate))
    })
}

pub(super) extern "C" fn compact_nothing(a: Option<&CAnswer>, reason: Str) -> CStatus {
    run_setter(a, "compact_nothing", accepts_compaction, |answer| {
        let reason = reason.text()?.to_owned();
        let nothing = AnswerContent::Compaction(Compaction::Nothing { reason });
        answer.set("compact_nothing", nothing)
    })
}

pub(super) extern "C" fn set_count(a: Option<&CAnswer>, count: u64) -> CStatus {
    run_setter(a, "set_count", accepts_count, |answer| {
        answer.set("set_count", AnswerContent::Count(count))
    })
}

pub(super) extern "C" fn set_text(a: Option<&CAnswer>, text: Str) -> CStatus {
    run_setter(a, "set_text", accepts_text, |answer| {
        answer.set("set_text", AnswerContent::Text(text.text()?.to_owned()))
    })
}

pub(super) extern "C" fn set_result_json(a: Option<&CAnswer>, json: Str) -> CStatus {
    run_setter(a, "set_result_json", accepts_json, |answer| {
        let json = json.text()?;
        check_text_levels("the JSON of set_result_json", json)?;
        answer.set("set_result_json", AnswerContent::Json(json.to_owned()))
    })
}

/// Records the engine's error.
pub(super) extern "C" fn set_error(
    a: Option<&CAnswer>,
    kind: CStatus,
    message: Str,
    detail_json: Str,
) -> CStatus {
    let Some(answer) = a else {
        return record_failure(&protocol("set_error: the answer is NULL"));
    };
    // An engine that reports an error with the code of success still failed.
    let kind = if kind == 0 { ErrorKind::Failed } else { ErrorKind::from_code(kind) };
    let mut message = message.lossy();
    if message.trim().is_empty() {
        message = format!("{} failed with status {} and gave no reason", answer.call, kind.code());
    }
    let detail = detail_json.lossy();
    // Details are only logged, so text that does not parse as JSON is kept as a string.
    let detail = if detail.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&detail).unwrap_or(Value::String(detail))
    };
    let error = EngineError::new(kind, message).with_detail(detail);
    // The first error wins: later ones are often consequences of it.
    answer.state().error.get_or_insert(error);
    kind.code()
}
