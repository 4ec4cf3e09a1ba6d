//! Where one call of a C engine puts its result: checked as it comes in, taken out once.
//!
//! A fault does not wait for anybody to look at a status: the first one fails the whole call, so
//! that half of what an engine meant is never taken for all of it.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::fault::{SuccessStatus, record_failure, status};
use super::memory::protocol;
use super::structs::{Status, Str};
use crate::abi::json::from_json;
use crate::error::{EngineError, ErrorKind, Result};
use crate::plan::{Compaction, Plan, PlanExtras};
use crate::request::CompactRequest;
use crate::transcript::Role;

/// The forms in which a call may be answered.
#[derive(Clone, Debug)]
pub(super) enum AnswerForm {
    /// By its status alone.
    Status,
    /// `assemble`: a plan.
    Plan,
    /// `compact`: a plan, a delegation, or nothing. The request is kept for whoever delegates.
    Compaction(Box<CompactRequest>),
    /// A number or JSON.
    CountOrJson,
    /// A text or JSON.
    TextOrJson,
    /// JSON.
    Json,
}

/// What an engine put into its answer.
#[derive(Debug, Default, PartialEq)]
pub(super) enum AnswerContent {
    /// Nothing at all.
    #[default]
    Nothing,
    /// A plan.
    Plan(Plan),
    /// What `compact` says besides a plan.
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
    /// How many entries a plan may name.
    entries: u64,
    state: Mutex<AnswerState>,
}

#[derive(Default)]
struct AnswerState {
    content: AnswerContent,
    /// Whether an operation was put in. A note or an estimate alone is no plan.
    planned: bool,
    error: Option<EngineError>,
    fault: Option<EngineError>,
}

impl CAnswer {
    pub(super) fn new(call: &'static str, form: AnswerForm, entries: u64) -> Self {
        CAnswer { call, form, entries, state: Mutex::default() }
    }

    /// What the engine answered, with the status that its function returned.
    ///
    /// # Errors
    ///
    /// The first fault, else the engine's own error, else the status.
    pub(super) fn finish(self, returned: Status) -> Result<AnswerContent> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.fault.or(state.error) {
            return Err(error);
        }
        if returned != 0 {
            let kind = ErrorKind::from_code(returned);
            let message = format!("{} failed with status {returned} and gave no reason", self.call);
            return Err(EngineError::new(kind, message));
        }
        match state.content {
            AnswerContent::Plan(_) if !state.planned => Ok(AnswerContent::Nothing),
            content => Ok(content),
        }
    }

    /// The request of the compaction that this is the answer of.
    pub(super) fn compact_request(&self) -> Result<CompactRequest> {
        match &self.form {
            AnswerForm::Compaction(request) => Ok(CompactRequest::clone(request)),
            _ => Err(protocol(format!("{} is no compaction to delegate", self.call))),
        }
    }

    /// Takes over what another engine made of the compaction.
    pub(super) fn set_compaction(&self, compaction: Compaction) -> Result<()> {
        match compaction {
            Compaction::Plan(plan) => {
                self.set("delegate_compact", AnswerContent::Plan(plan))?;
                self.state().planned = true;
                Ok(())
            }
            other => self.set("delegate_compact", AnswerContent::Compaction(other)),
        }
    }

    fn state(&self) -> MutexGuard<'_, AnswerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in the one result of the call.
    fn set(&self, setter: &str, content: AnswerContent) -> Result<()> {
        let mut state = self.state();
        if state.content != AnswerContent::Nothing {
            let call = self.call;
            return Err(protocol(format!("{call} was answered twice; {setter} came second")));
        }
        state.content = content;
        Ok(())
    }

    /// Adds an operation to the plan.
    fn operation(&self, work: impl FnOnce(&mut Plan) -> &mut Plan) -> Result<()> {
        self.plan(|plan| {
            work(plan);
        })?;
        self.state().planned = true;
        Ok(())
    }

    /// Says something about the plan.
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

    /// A range that a plan may name.
    fn range(&self, from: u64, to: u64) -> Result<Range<u64>> {
        match from <= to && to <= self.entries {
            true => Ok(from..to),
            false => {
                let (call, entries) = (self.call, self.entries);
                Err(protocol(format!("{call} names {from}..{to} of {entries} entries")))
            }
        }
    }

    fn position(&self, seq: u64) -> Result<u64> {
        self.range(seq, seq.saturating_add(1)).map(|range| range.start)
    }
}

/// Runs a setter. What goes wrong in it fails the call.
fn put(
    answer: Option<&CAnswer>,
    setter: &str,
    allowed: fn(&AnswerForm) -> bool,
    work: impl FnOnce(&CAnswer) -> Result<()>,
) -> Status {
    let Some(answer) = answer else {
        return record_failure(&protocol(format!("{setter}: the answer is NULL")));
    };
    let outcome = status_of(|| {
        if !allowed(&answer.form) {
            return Err(protocol(format!("{setter} is no way to answer {}", answer.call)));
        }
        work(answer)
    });
    if let Err(fault) = &outcome {
        answer.state().fault.get_or_insert_with(|| fault.clone());
    }
    status(|| outcome.map(|()| SuccessStatus::Ok))
}

/// A panic in a setter is a fault as well.
fn status_of(work: impl FnOnce() -> Result<()>) -> Result<()> {
    crate::abi::guard::catch(work).and_then(|answer| answer)
}

fn plans(form: &AnswerForm) -> bool {
    matches!(form, AnswerForm::Plan | AnswerForm::Compaction(_))
}

fn compactions(form: &AnswerForm) -> bool {
    matches!(form, AnswerForm::Compaction(_))
}

fn counts(form: &AnswerForm) -> bool {
    matches!(form, AnswerForm::CountOrJson)
}

fn texts(form: &AnswerForm) -> bool {
    matches!(form, AnswerForm::TextOrJson)
}

fn documents(form: &AnswerForm) -> bool {
    matches!(form, AnswerForm::Json | AnswerForm::CountOrJson | AnswerForm::TextOrJson)
}

pub(super) extern "C" fn plan_keep(a: Option<&CAnswer>, from: u64, to: u64) -> Status {
    put(a, "plan_keep", plans, |answer| {
        let range = answer.range(from, to)?;
        answer.operation(|plan| plan.keep(range))
    })
}

pub(super) extern "C" fn plan_replace_text(a: Option<&CAnswer>, seq: u64, text: Str) -> Status {
    put(a, "plan_replace_text", plans, |answer| {
        let (seq, text) = (answer.position(seq)?, text.text()?);
        answer.operation(|plan| plan.replace_text(seq, text))
    })
}

pub(super) extern "C" fn plan_replace_raw(a: Option<&CAnswer>, seq: u64, raw: Str) -> Status {
    put(a, "plan_replace_raw", plans, |answer| {
        let (seq, raw) = (answer.position(seq)?, raw.text()?);
        answer.operation(|plan| plan.replace_raw(seq, raw))
    })
}

pub(super) extern "C" fn plan_insert(
    a: Option<&CAnswer>,
    role: u32,
    text: Str,
    from: u64,
    to: u64,
) -> Status {
    put(a, "plan_insert", plans, |answer| {
        let (covers, text) = (answer.range(from, to)?, text.text()?);
        let speaker = u8::try_from(role).map_or(Role::Unknown, Role::from_code);
        if !matches!(speaker, Role::User | Role::Assistant) {
            let message = format!("plan_insert: role {role} is neither user nor assistant");
            return Err(protocol(message));
        }
        answer.operation(|plan| plan.insert(speaker, text, covers))
    })
}

pub(super) extern "C" fn plan_leave_out(a: Option<&CAnswer>, from: u64, to: u64) -> Status {
    put(a, "plan_leave_out", plans, |answer| {
        let range = answer.range(from, to)?;
        answer.operation(|plan| plan.leave_out(range))
    })
}

pub(super) extern "C" fn plan_note(a: Option<&CAnswer>, layer: Str, detail: Str) -> Status {
    put(a, "plan_note", plans, |answer| {
        let (layer, detail) = (layer.text()?, detail.text()?);
        answer.plan(|plan| {
            plan.note(layer, detail);
        })
    })
}

pub(super) extern "C" fn plan_estimate(a: Option<&CAnswer>, tokens: u64) -> Status {
    put(a, "plan_estimate", plans, |answer| answer.plan(|plan| plan.estimated_tokens = tokens))
}

pub(super) extern "C" fn plan_extras(a: Option<&CAnswer>, json: Str) -> Status {
    put(a, "plan_extras", plans, |answer| {
        let extras: PlanExtras = from_json(json.text()?)?;
        answer.plan(|plan| plan.extras = extras)
    })
}

pub(super) extern "C" fn compact_delegate(a: Option<&CAnswer>) -> Status {
    put(a, "compact_delegate", compactions, |answer| {
        answer.set("compact_delegate", AnswerContent::Compaction(Compaction::Delegate))
    })
}

pub(super) extern "C" fn compact_nothing(a: Option<&CAnswer>, reason: Str) -> Status {
    put(a, "compact_nothing", compactions, |answer| {
        let reason = reason.text()?.to_owned();
        let nothing = AnswerContent::Compaction(Compaction::Nothing { reason });
        answer.set("compact_nothing", nothing)
    })
}

pub(super) extern "C" fn set_count(a: Option<&CAnswer>, count: u64) -> Status {
    put(a, "set_count", counts, |answer| answer.set("set_count", AnswerContent::Count(count)))
}

pub(super) extern "C" fn set_text(a: Option<&CAnswer>, text: Str) -> Status {
    put(a, "set_text", texts, |answer| {
        answer.set("set_text", AnswerContent::Text(text.text()?.to_owned()))
    })
}

pub(super) extern "C" fn set_result_json(a: Option<&CAnswer>, json: Str) -> Status {
    put(a, "set_result_json", documents, |answer| {
        answer.set("set_result_json", AnswerContent::Json(json.text()?.to_owned()))
    })
}

/// The first error stays: it stands nearest to the cause.
pub(super) extern "C" fn set_error(
    a: Option<&CAnswer>,
    kind: Status,
    message: Str,
    detail_json: Str,
) -> Status {
    let Some(answer) = a else {
        return record_failure(&protocol("set_error: the answer is NULL"));
    };
    let kind = if kind == 0 { ErrorKind::Failed } else { ErrorKind::from_code(kind) };
    let mut message = message.lossy();
    if message.trim().is_empty() {
        message = format!("{} failed with status {} and gave no reason", answer.call, kind.code());
    }
    let detail = detail_json.lossy();
    // Details are for logs: what is no JSON is kept as the text it is.
    let detail = match detail.is_empty() {
        true => Value::Null,
        false => serde_json::from_str(&detail).unwrap_or(Value::String(detail)),
    };
    let error = EngineError::new(kind, message).with_detail(detail);
    answer.state().error.get_or_insert(error);
    kind.code()
}
