//! A stack: engines in a row in one slot, each going on from what the one before it shows.
//!
//! ```text
//!  session ─► mask ─► law ─► its projection ─► legacy ─► law ─► one plan over the session ─► law
//!               │ refused, failed                │ refused, failed
//!               ▼                                ▼
//!           left out, loudly                 left out, loudly;  no stage left: the bundled engine
//! ```
//!
//! A stack of one is its slot and nothing more. Whoever asks a stack asks as if it were one engine:
//! plans, ranges and ids are those of the session. Compactions are worked out over the session itself
//! and not over what earlier stages show, because they are written down for good, and nothing that a
//! stage only hides for one request may be lost with them.

mod assemble;
mod calls;
pub(super) mod compose;
mod door;
mod reading;
mod retirement;
mod subagents;
mod trial;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctxhost_engine_api::{EngineError, EngineInfo};
use tokio_util::sync::CancellationToken;

use self::reading::{Epochs, Reading};
use self::trial::Trial;
use ctxhost_engine::{
    Clock, EngineSpec, Environment, LEGACY, LiveEngine, MAX_STAGES, OnEngineError, Quarantine,
    QuarantineRecord, RowError, Served, Serving, Slot, SlotError, TroubleCounter, Troubles,
    check_row, joined, versions,
};

pub(super) use assemble::{Bench, OnRefusal, Staged};

/// Sessions whose views a stack remembers. One that is forgotten is read anew at its next request.
const MAX_SESSIONS: usize = 256;

/// Engines in a row in one slot.
#[derive(Debug)]
pub struct Stack {
    /// In a stack of one, its slot. Else that of the bundled engine, for when no stage is left.
    slot: Slot,
    /// Empty in a stack of one.
    stages: Vec<Stage>,
    on_error: OnEngineError,
    quarantine: Quarantine,
    clock: Clock,
    epochs: Epochs,
    sessions: Mutex<Sessions>,
    trial: Trial,
    /// Why this stack serves again, which another one had followed.
    instead_of: Mutex<Option<QuarantineRecord>>,
    /// What went wrong in stages.
    troubles: TroubleCounter,
    /// The stages are to be let go.
    retired: CancellationToken,
}

/// One engine of a stack.
#[derive(Debug)]
struct Stage {
    id: String,
    /// `None` where it did not open.
    engine: Option<Arc<LiveEngine>>,
}

/// A stage that serves, and its place.
#[derive(Clone, Copy, Debug)]
struct Working<'a> {
    number: usize,
    stage: &'a Stage,
    engine: &'a Arc<LiveEngine>,
}

impl Stack {
    /// Opens engines, the first of them the one that reads the session itself; none is the bundled one.
    ///
    /// # Errors
    ///
    /// [`SlotError::Open`] where one does not open and `on_error` is [`OnEngineError::Fail`], or where
    /// the bundled one does not; [`SlotError::Row`] for a row that is too long or holds one twice.
    pub fn open(
        engines: &[EngineSpec],
        legacy: &EngineSpec,
        on_error: OnEngineError,
        environment: &Environment,
    ) -> Result<Stack, SlotError> {
        Stack::open_as(engines, legacy, (on_error, on_error), environment)
    }

    /// Opens engines that are to follow others, which go on where one of these does not open.
    ///
    /// # Errors
    ///
    /// [`SlotError::Open`] where one does not open, [`SlotError::Row`] as for [`Stack::open`].
    pub fn open_successor(
        engines: &[EngineSpec],
        legacy: &EngineSpec,
        on_error: OnEngineError,
        environment: &Environment,
    ) -> Result<Stack, SlotError> {
        Stack::open_as(engines, legacy, (OnEngineError::Fail, on_error), environment)
    }

    /// What is done about an engine that does not open, and about one that fails later.
    fn open_as(
        engines: &[EngineSpec],
        legacy: &EngineSpec,
        (on_opening, on_error): (OnEngineError, OnEngineError),
        environment: &Environment,
    ) -> Result<Stack, SlotError> {
        let only = match engines {
            [] => Some(legacy),
            [only] => Some(only),
            _ => None,
        };
        let chosen = only.unwrap_or(legacy);
        let slot = match on_opening {
            OnEngineError::Fallback => Slot::open(chosen, legacy, on_error, environment)?,
            OnEngineError::Fail => Slot::open_successor(chosen, legacy, on_error, environment)?,
        };
        let mut stack = Stack {
            slot,
            stages: Vec::new(),
            on_error,
            quarantine: Quarantine::with(environment.kept_failures()),
            clock: environment.clock.clone(),
            epochs: Epochs::default(),
            sessions: Mutex::default(),
            trial: Trial::default(),
            instead_of: Mutex::default(),
            troubles: TroubleCounter::default(),
            retired: CancellationToken::new(),
        };
        if only.is_some() {
            return Ok(stack);
        }
        if engines.len() > MAX_STAGES {
            return Err(RowError::TooMany { engines: engines.len() }.into());
        }
        for spec in engines {
            stack.stages.push(stack.open_stage(spec, legacy, on_opening, environment)?);
        }
        // Only now every id is known: a library may have been named by its path.
        let ids: Vec<&str> = stack.stages.iter().map(|stage| stage.id.as_str()).collect();
        check_row(&ids)?;
        Ok(stack)
    }

    fn open_stage(
        &self,
        spec: &EngineSpec,
        legacy: &EngineSpec,
        on_opening: OnEngineError,
        environment: &Environment,
    ) -> Result<Stage, SlotError> {
        if spec.id == LEGACY && spec.source == legacy.source {
            // Two of one id would write over each other's notes.
            return Ok(Stage { id: LEGACY.into(), engine: Some(self.slot.bundled().clone()) });
        }
        match LiveEngine::open(spec, environment) {
            Ok(engine) => Ok(Stage { id: engine.id().into(), engine: Some(Arc::new(engine)) }),
            Err(error) if on_opening == OnEngineError::Fail => Err(error.into()),
            Err(error) => {
                let id = match spec.id.as_str() {
                    "" => spec.source.to_string(),
                    id => id.to_owned(),
                };
                self.put_in_quarantine(&id, "open", &error.to_string());
                Ok(Stage { id, engine: None })
            }
        }
    }

    /// The ids that the slot was asked to hold, as one word.
    pub fn configured(&self) -> String {
        match self.stages.is_empty() {
            true => self.slot.configured().to_owned(),
            false => joined(self.stages.iter().map(|stage| stage.id.as_str())),
        }
    }

    /// What shapes the next request: the ids of the stages that serve as one word, their versions, and
    /// whether the last of them keeps plans within their budget by itself.
    pub fn effective(&self) -> EngineInfo {
        let stack = self.standing();
        let working: Vec<&EngineInfo> = stack.working().map(|it| it.engine.info()).collect();
        let Some(last) = working.last() else { return stack.slot.effective().info().clone() };
        EngineInfo {
            id: joined(working.iter().map(|info| info.id.as_str())),
            name: working.iter().map(|info| info.name.as_str()).collect::<Vec<_>>().join(", "),
            version: versions(working.iter().copied()),
            owns_compaction: last.owns_compaction,
            requires: working.iter().flat_map(|info| info.requires.clone()).collect(),
        }
    }

    /// Which engines of which slot serve the next call: what must be told of a session anew when it
    /// changes.
    pub fn serving(&self) -> Serving {
        let stack = self.standing();
        let stages = stack.working().fold(0, |bits, it| bits | 1 << it.number);
        stack.mark(stages)
    }

    /// Why an engine of it does not serve, the first one's where several do not; `None` where all do.
    pub fn quarantined(&self) -> Option<QuarantineRecord> {
        match self.stages.is_empty() {
            true => self.slot.quarantined(),
            false => self.left_out().next(),
        }
    }

    /// What is done when one of its engines fails.
    pub fn on_error(&self) -> OnEngineError {
        self.on_error
    }

    /// Lets all its engines serve again; answers why the first of them did not.
    pub fn lift_quarantine(&self) -> Option<QuarantineRecord> {
        if self.stages.is_empty() {
            return self.slot.lift_quarantine();
        }
        let lifted: Vec<_> =
            self.stages.iter().filter_map(|stage| self.quarantine.lift(&stage.id)).collect();
        lifted.into_iter().next()
    }

    /// What went wrong since this was asked last.
    pub(super) fn take_troubles(&self) -> Troubles {
        self.slot.take_troubles().and(self.troubles.take())
    }

    /// These stages, or the slot beside them where there is none.
    fn mark(&self, stages: u8) -> Serving {
        let serving = self.slot.serving();
        if stages == 0 { serving } else { serving.by(stages) }
    }

    /// The stages that serve, in order.
    fn working(&self) -> impl DoubleEndedIterator<Item = Working<'_>> {
        self.stages.iter().enumerate().filter_map(|(number, stage)| {
            let engine = stage.engine.as_ref()?;
            let serves = !self.is_retired() && self.quarantine.reason(&stage.id).is_none();
            serves.then_some(Working { number, stage, engine })
        })
    }

    /// Why those that do not serve do not.
    fn left_out(&self) -> impl Iterator<Item = QuarantineRecord> {
        self.stages.iter().filter_map(|stage| self.quarantine.reason(&stage.id))
    }

    /// A stage failed: from here on the stack does without it, unless that is an error.
    fn fail(
        &self,
        stage: &Stage,
        operation: &'static str,
        error: EngineError,
    ) -> Result<(), SlotError> {
        self.troubles.failure();
        self.leave_out(stage, operation, error)
    }

    /// The law refused what a stage answered: the same as if it had failed.
    fn leave_out_illegal(
        &self,
        stage: &Stage,
        operation: &'static str,
        error: EngineError,
    ) -> Result<(), SlotError> {
        self.troubles.illegal();
        self.leave_out(stage, operation, error)
    }

    fn leave_out(
        &self,
        stage: &Stage,
        operation: &'static str,
        mut error: EngineError,
    ) -> Result<(), SlotError> {
        if stage.engine.as_ref().is_some_and(|engine| engine.lost_a_thread()) {
            error.message += "; its thread hangs";
        }
        let engine = stage.engine.as_ref();
        match engine.is_some_and(|engine| engine.lost_one_call(operation, &error)) {
            true => tracing::warn!(engine = stage.id, operation, %error, "a call is lost"),
            false => self.put_in_quarantine(&stage.id, operation, &error.message),
        }
        match self.on_error {
            OnEngineError::Fallback => Ok(()),
            OnEngineError::Fail => Err(SlotError::engine(&stage.id, operation, error)),
        }
    }

    /// Where the operator wants failures and a stage has failed, nobody goes on without it.
    fn refuse_while_quarantined(&self, operation: &'static str) -> Result<(), SlotError> {
        match self.left_out().next().filter(|_| self.on_error == OnEngineError::Fail) {
            Some(record) => {
                let error = EngineError::failed(format!("in quarantine: {}", record.reason));
                Err(SlotError::engine(&record.id, operation, error))
            }
            None => Ok(()),
        }
    }

    /// An answer of these engines, which says who was left out.
    fn served<T>(&self, engines: &[&EngineInfo], value: T, took: Duration) -> Served<T> {
        let why = |record: QuarantineRecord| {
            format!("{} failed in {}: {}", record.id, record.operation, record.reason)
        };
        let left_out: Vec<String> = self.left_out().map(why).collect();
        let answered = |stage: &Stage| engines.iter().any(|info| info.id == stage.id);
        let numbers = self.stages.iter().enumerate().filter(|(_, stage)| answered(stage));
        let stages = numbers.fold(0, |bits, (number, _)| bits | 1 << number);
        Served {
            value,
            serving: Some(self.mark(stages)),
            engine: joined(engines.iter().map(|info| info.id.as_str())),
            version: versions(engines.iter().copied()),
            fallback: (!left_out.is_empty()).then(|| left_out.join("; ")),
            took,
        }
    }

    /// The bundled engine answered, because no stage was left.
    fn stood_in<T>(&self, served: Served<T>) -> Served<T> {
        let said = self.served(&[], (), Duration::ZERO).fallback;
        let let_go = || format!("{} was let go: another engine is in the slot", self.configured());
        let let_go = self.retired.is_cancelled().then(let_go);
        Served { fallback: said.or(served.fallback).or(let_go), ..served }
    }

    fn put_in_quarantine(&self, id: &str, operation: &str, reason: &str) {
        let stage = self.stages.iter().find(|stage| stage.id == id);
        let engine = stage.and_then(|stage| stage.engine.as_ref());
        self.quarantine.put(QuarantineRecord {
            id: id.into(),
            bytes: engine.and_then(|engine| engine.bytes().map(str::to_owned)),
            operation: operation.into(),
            reason: reason.into(),
            failed_at_ms: self.clock.now_ms(),
        });
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each stage has read of a session. Calls of one session follow each other, so whoever has it
    /// has it alone; one that is broken off forgets it, and the session is read anew.
    fn readings(&self, session: &str) -> Vec<Reading> {
        let known = self.sessions().readings.remove(session).map(|(_, readings)| readings);
        known.unwrap_or_else(|| self.stages.iter().map(|_| Reading::default()).collect())
    }

    fn remember(&self, session: &str, readings: Vec<Reading>) {
        let mut sessions = self.sessions();
        sessions.calls += 1;
        let now = sessions.calls;
        sessions.readings.insert(session.to_owned(), (now, readings));
        if sessions.readings.len() > MAX_SESSIONS
            && let Some(oldest) = sessions.oldest()
        {
            sessions.readings.remove(&oldest);
        }
    }
}

/// What the stages have read, by session, with the number of the call that read it last.
#[derive(Debug, Default)]
struct Sessions {
    readings: HashMap<String, (u64, Vec<Reading>)>,
    calls: u64,
}

impl Sessions {
    fn oldest(&self) -> Option<String> {
        let oldest = self.readings.iter().min_by_key(|(_, (call, _))| *call)?;
        Some(oldest.0.clone())
    }
}
