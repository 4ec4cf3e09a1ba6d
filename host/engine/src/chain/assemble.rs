//! One request through all engines of a chain: each plan passes the law, becomes what the next engine
//! reads, and ends in one plan over the session.

use std::ops::Range;
use std::time::Instant;

use ctxhost_engine_api::border::EngineReply;
use ctxhost_engine_api::*;
use ctxhost_invariants::{self as invariants, InvariantSettings, PinnedEntries, Repair};

use super::calls::ingest_new_entries;
use super::compose::{PlanProjection, compose};
use super::view::LinkView;
use super::{ChainOutcome, EngineChain, ServingLink, UnansweredCall};
use crate::answer::EngineAnswer;
use crate::error::{SlotError, is_caller_error};
use crate::service::{AssembleContext, EngineContext, OnRefusal};

impl EngineChain {
    /// What the model sees. Every engine has the whole budget; only what the last one shows must fit.
    pub(super) async fn assemble(
        &self,
        context: EngineContext<'_>,
        request: &AssembleRequest,
    ) -> Result<ChainOutcome, SlotError> {
        if let Some(checks) = context.assemble {
            return self.assemble_within(context.transcript, request, checks).await;
        }
        let (anchors, law) =
            (PinnedEntries::from_transcript(context.transcript), InvariantSettings::default());
        let (budget_tokens, on_refusal) = (request.budget, OnRefusal::Quarantine);
        let checks =
            AssembleContext { pinned: &anchors, budget_tokens, invariants: &law, on_refusal };
        self.assemble_within(context.transcript, request, checks).await
    }

    async fn assemble_within(
        &self,
        transcript: &Transcript,
        request: &AssembleRequest,
        checks: AssembleContext<'_>,
    ) -> Result<ChainOutcome, SlotError> {
        let began = Instant::now();
        let session = Some(&request.session);
        let mut views = self.views.take(session, self.links.len());
        let mut run = ChainRun::new(transcript, checks);
        let working: Vec<ServingLink<'_>> = self.serving_links().collect();
        let last = working.last().map(|working| working.link.number);
        let mut refused = 0;
        for working in working {
            let Some(view) = views.get_mut(working.link.number) else { continue };
            let is_last = Some(working.link.number) == last;
            match self.assemble_link(working, view, &mut run, request, is_last).await? {
                LinkOutcome::Shaped | LinkOutcome::Skipped => {}
                LinkOutcome::Failed(operation, error) => {
                    self.handle_failure(working.link, operation, error)?;
                }
                LinkOutcome::Refused(violation) if checks.on_refusal == OnRefusal::Report => {
                    self.views.store(session, views);
                    let (id, reason) = (working.link.id.clone(), violation.to_string());
                    return Err(SlotError::Refused { id, reason });
                }
                LinkOutcome::Refused(violation) => {
                    refused += 1;
                    self.quarantine_invalid(working.link, "assemble", &violation.to_string())?;
                }
            }
        }
        self.views.store(session, views);
        if run.by.is_empty() {
            return Ok(ChainOutcome::Unanswered(UnansweredCall {
                lost_call: None,
                refused_plans: refused,
            }));
        }
        let plan = EngineReply::Assemble(run.plan);
        let served = self.attribute(&run.by, plan, began.elapsed());
        Ok(ChainOutcome::Answered(Box::new(EngineAnswer {
            repairs: run.repairs,
            refused_plans: refused,
            ..served
        })))
    }

    /// One engine of the chain.
    async fn assemble_link<'s>(
        &'s self,
        working: ServingLink<'s>,
        view: &mut LinkView,
        run: &mut ChainRun<'s, '_>,
        request: &AssembleRequest,
        is_last: bool,
    ) -> Result<LinkOutcome, SlotError> {
        let own = match working.link.number {
            0 => run.transcript.clone(),
            _ => {
                let own = self.views.project(view, run.plan.clone(), run.transcript);
                let told = ingest_new_entries(working, view, &own, Some(&request.session)).await;
                if let Err(error) = told {
                    return Ok(LinkOutcome::Failed("ingest", error));
                }
                own
            }
        };
        let plan = match working.engine.ask(&own, request.clone()).await {
            Ok(plan) => plan,
            // What does not fit here may fit behind the next engine.
            Err(error) if error.kind == ErrorKind::CannotFit && !is_last => {
                return Ok(LinkOutcome::Skipped);
            }
            Err(error) if is_caller_error(error.kind) => return Err(SlotError::from_answer(error)),
            Err(error) => return Ok(LinkOutcome::Failed("assemble", error)),
        };
        Ok(match run.apply_plan(working, &own, plan, is_last) {
            Ok(()) => LinkOutcome::Shaped,
            Err(violation) => LinkOutcome::Refused(violation),
        })
    }
}

/// What came of one engine.
enum LinkOutcome {
    /// It shaped the request.
    Shaped,
    /// It had nothing to say to it.
    Skipped,
    /// It failed, in this operation.
    Failed(&'static str, EngineError),
    /// The law refused its plan.
    Refused(invariants::PlanViolation),
}

/// How far a request has come.
struct ChainRun<'s, 'v> {
    transcript: &'v Transcript,
    checks: AssembleContext<'v>,
    /// What the engines so far show of the session.
    plan: Plan,
    repairs: Vec<Repair>,
    by: Vec<ServingLink<'s>>,
}

impl<'s, 'v> ChainRun<'s, 'v> {
    fn new(transcript: &'v Transcript, checks: AssembleContext<'v>) -> Self {
        let plan = Plan::keep_all(transcript.len());
        ChainRun { transcript, checks, plan, repairs: Vec::new(), by: Vec::new() }
    }

    /// Goes on with the plan of an engine for what it read.
    fn apply_plan(
        &mut self,
        working: ServingLink<'s>,
        own: &Transcript,
        plan: Plan,
        is_last: bool,
    ) -> Result<(), invariants::PlanViolation> {
        let AssembleContext { pinned: anchors, budget_tokens, invariants: law, .. } = self.checks;
        let lawful = invariants::enforce(own, plan, budget_tokens, law)?;
        let shown = PlanProjection::new(&self.plan);
        let mut repairs: Vec<Repair> =
            lawful.repairs.iter().map(|repair| to_session_positions(repair, &shown)).collect();
        let signed = annotate(lawful.plan, &working.link.id, own.len() as u64);
        let mut composed = compose(&self.plan, signed);
        if !is_last {
            let whole =
                invariants::enforce_with(anchors, self.transcript, composed, budget_tokens, law)?;
            composed = whole.plan;
            repairs.extend(whole.repairs);
        }
        self.plan = composed;
        self.repairs.extend(repairs);
        self.by.push(working);
        Ok(())
    }
}

/// A repair in positions of the session.
fn to_session_positions(repair: &Repair, shown: &PlanProjection<'_>) -> Repair {
    let range = |entries: &Range<u64>| shown.origin_range(entries);
    let one = |seq: u64| shown.origin_range(&(seq..seq.saturating_add(1))).start;
    match repair {
        Repair::WidenedCut { entries } => Repair::WidenedCut { entries: range(entries) },
        Repair::Reinserted { entries, because } => {
            Repair::Reinserted { entries: range(entries), because: *because }
        }
        Repair::RestoredText { seq, because } => {
            Repair::RestoredText { seq: one(*seq), because: *because }
        }
        Repair::DroppedOrphan { seq } => Repair::DroppedOrphan { seq: one(*seq) },
        Repair::DroppedAborted { seq } => Repair::DroppedAborted { seq: one(*seq) },
        Repair::MovedResult { seq } => Repair::MovedResult { seq: one(*seq) },
        Repair::AddedMissingResult { seq, call_id } => {
            Repair::AddedMissingResult { seq: one(*seq), call_id: call_id.clone() }
        }
    }
}

/// The plan with its engine's name at all that it did without a word, so that a report can tell whose
/// work it was.
fn annotate(plan: Plan, engine: &str, len: u64) -> Plan {
    let note = |detail: &str| Some(PlanNote::new(engine, detail));
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
