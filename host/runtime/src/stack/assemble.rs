//! One request through all stages: each plan passes the law, becomes what the next stage reads, and
//! ends in one plan over the session.

use std::ops::Range;
use std::time::Instant;

use ctxhost_engine_api::{
    Action, AssembleRequest, EngineError, EngineInfo, ErrorKind, IngestRequest, Note, Op, Plan,
    Transcript,
};

use super::compose::{Shown, compose};
use super::reading::Reading;
use super::{Stack, Working};
use ctxhost_engine::{Served, Serving, SlotError, is_answer};
use ctxhost_law::{self as law, Anchors, LawSettings, Repair};

/// What plans are held against between the stages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bench<'a> {
    /// Where what must stay is in the session's transcript.
    pub(crate) anchors: &'a Anchors,
    /// What the finished request must fit into, in tokens as entries count them.
    pub(crate) budget_tokens: u64,
    /// The numbers of the law.
    pub(crate) law: &'a LawSettings,
    /// What becomes of a row when the law refuses the plan of one of its engines.
    pub(crate) on_refusal: OnRefusal,
}

/// What becomes of a row when the law refuses the plan of one of its engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnRefusal {
    /// As when it fails: it is in quarantine, and the others go on where that is allowed.
    LeaveOut,
    /// [`SlotError::Refused`], and the engine is asked again next time.
    Tell,
}

/// A plan over the session that has passed the law at every stage but the last.
#[derive(Debug)]
pub(crate) struct Staged {
    /// The plan and who made it.
    pub(crate) served: Served<Plan>,
    /// What the law mended on the way, in positions of the session.
    pub(crate) repairs: Vec<Repair>,
    /// Plans that the law refused on the way.
    pub(crate) refused: u64,
}

impl Stack {
    /// What the model sees. Every stage has the whole budget; only what the last one shows must fit.
    ///
    /// # Errors
    ///
    /// [`SlotError`].
    pub(super) async fn assemble_here(
        &self,
        view: &Transcript,
        request: AssembleRequest,
        bench: Bench<'_>,
    ) -> Result<Staged, SlotError> {
        let mut refused = 0;
        if self.stages.is_empty() {
            let served = self.slot.assemble(view, request).await?;
            return Ok(Staged { served, repairs: Vec::new(), refused });
        }
        self.refuse_while_quarantined("assemble")?;
        let began = Instant::now();
        let mut readings = self.readings(&request.session.id);
        let mut course =
            Course { view, plan: Plan::keep_all(view.len()), repairs: Vec::new(), by: Vec::new() };
        let last = self.working().last().map(|it| it.number);
        let working: Vec<Working<'_>> = self.working().collect();
        for working in working {
            let Some(reading) = readings.get_mut(working.number) else { continue };
            let is_last = Some(working.number) == last;
            match self.step(working, reading, &mut course, &request, bench, is_last).await? {
                Step::Taken | Step::PassedOn => {}
                Step::Failed(operation, error) => self.fail(working.stage, operation, error)?,
                Step::Refused(violation) if bench.on_refusal == OnRefusal::Tell => {
                    self.remember(&request.session.id, readings);
                    let (id, reason) = (working.stage.id.clone(), violation.to_string());
                    return Err(SlotError::Refused { id, reason });
                }
                Step::Refused(violation) => {
                    refused += 1;
                    let error = EngineError::failed(violation.to_string());
                    self.leave_out_illegal(working.stage, "assemble", error)?;
                }
            }
        }
        self.remember(&request.session.id, readings);
        let Course { plan, repairs, by, .. } = course;
        if by.is_empty() {
            let served = self.stood_in(self.slot.assemble(view, request).await?);
            return Ok(Staged { served, repairs: Vec::new(), refused });
        }
        Ok(Staged { served: self.served(&by, plan, began.elapsed()), repairs, refused })
    }

    /// The law refused what this stack answered. Each stage but the last had passed it, so the last of
    /// those that answered is at fault.
    pub(super) fn refuse_here<T>(
        &self,
        served: &Served<T>,
        operation: &'static str,
        why: &str,
    ) -> Result<(), SlotError> {
        let by = served.serving.map_or(0, Serving::stages);
        let newest = self.stages.iter().enumerate().rfind(|(number, _)| by >> number & 1 == 1);
        match newest {
            Some((_, stage)) => self.leave_out_illegal(stage, operation, EngineError::failed(why)),
            None => self.slot.refuse(served, operation, why),
        }
    }

    async fn step<'s>(
        &'s self,
        working: Working<'s>,
        reading: &mut Reading,
        course: &mut Course<'s, '_>,
        request: &AssembleRequest,
        bench: Bench<'_>,
        is_last: bool,
    ) -> Result<Step, SlotError> {
        let engine = working.engine;
        let own = match working.number {
            0 => course.view.clone(),
            _ => {
                let own = reading.through(course.plan.clone(), course.view, &self.epochs);
                let news = IngestRequest {
                    session: request.session.clone(),
                    entries: reading.news(&own),
                    ..IngestRequest::default()
                };
                if !news.entries.is_empty()
                    && let Err(error) = engine.ingest(own.clone(), news).await
                {
                    return Ok(Step::Failed("ingest", error));
                }
                own
            }
        };
        let plan = match engine.assemble(own.clone(), request.clone()).await {
            Ok(plan) => plan,
            // What does not fit here may fit behind the next stage.
            Err(error) if error.kind == ErrorKind::CannotFit && !is_last => {
                return Ok(Step::PassedOn);
            }
            Err(error) if is_answer(error.kind) => return Err(SlotError::answer(error)),
            Err(error) => return Ok(Step::Failed("assemble", error)),
        };
        Ok(match course.take(engine.info(), &own, plan, bench, is_last) {
            Ok(()) => Step::Taken,
            Err(violation) => Step::Refused(violation),
        })
    }
}

/// What came of one stage.
enum Step {
    /// It shaped the request.
    Taken,
    /// It had nothing to say to it.
    PassedOn,
    /// It failed, in this operation.
    Failed(&'static str, EngineError),
    /// The law refused its plan.
    Refused(law::Violation),
}

/// How far a request has come.
struct Course<'s, 'v> {
    view: &'v Transcript,
    /// What the stages so far show of the session.
    plan: Plan,
    repairs: Vec<Repair>,
    by: Vec<&'s EngineInfo>,
}

impl<'s> Course<'s, '_> {
    /// Goes on with the plan of a stage for what it read.
    fn take(
        &mut self,
        engine: &'s EngineInfo,
        own: &Transcript,
        plan: Plan,
        bench: Bench<'_>,
        is_last: bool,
    ) -> Result<(), law::Violation> {
        let lawful = law::enforce(own, plan, bench.budget_tokens, bench.law)?;
        let shown = Shown::by(&self.plan);
        let mut repairs: Vec<Repair> =
            lawful.repairs.iter().map(|repair| over_session(repair, &shown)).collect();
        let signed = signed(lawful.plan, &engine.id, own.len() as u64);
        let mut composed = compose(&self.plan, signed);
        if !is_last {
            let Bench { anchors, budget_tokens, law, .. } = bench;
            let whole = law::enforce_with(anchors, self.view, composed, budget_tokens, law)?;
            composed = whole.plan;
            repairs.extend(whole.repairs);
        }
        self.plan = composed;
        self.repairs.extend(repairs);
        self.by.push(engine);
        Ok(())
    }
}

/// A repair in positions of the session.
fn over_session(repair: &Repair, shown: &Shown<'_>) -> Repair {
    let range = |entries: &Range<u64>| shown.origin(entries);
    let one = |seq: u64| shown.origin(&(seq..seq.saturating_add(1))).start;
    match repair {
        Repair::WidenedCut { entries } => Repair::WidenedCut { entries: range(entries) },
        Repair::PutBack { entries, because } => {
            Repair::PutBack { entries: range(entries), because: *because }
        }
        Repair::RestoredWords { seq, because } => {
            Repair::RestoredWords { seq: one(*seq), because: *because }
        }
        Repair::LeftOutOrphan { seq } => Repair::LeftOutOrphan { seq: one(*seq) },
        Repair::LeftOutAborted { seq } => Repair::LeftOutAborted { seq: one(*seq) },
        Repair::MovedResult { seq } => Repair::MovedResult { seq: one(*seq) },
        Repair::AddedMissingResult { seq, call_id } => {
            Repair::AddedMissingResult { seq: one(*seq), call_id: call_id.clone() }
        }
    }
}

/// The plan with its engine's name at all that it did without a word, so that a report can tell whose
/// work it was.
fn signed(plan: Plan, engine: &str, len: u64) -> Plan {
    let note = |detail: &str| Some(Note::new(engine, detail));
    let mut ops = Vec::with_capacity(plan.ops.len());
    let mut reached = 0;
    for mut op in plan.ops {
        let range = op.action.range();
        if range.start > reached {
            let action = Action::Drop(reached..range.start);
            ops.push(Op { action, note: note("left out") });
        }
        reached = reached.max(range.end);
        op.note = op.note.or_else(|| match &op.action {
            Action::Keep(_) => None,
            Action::Drop(_) => note("left out"),
            Action::Insert { .. } => note("put in"),
            _ => note("changed"),
        });
        ops.push(op);
    }
    if reached < len {
        ops.push(Op { action: Action::Drop(reached..len), note: note("left out") });
    }
    Plan { ops, ..plan }
}
