//! One request through a chain: each plan is checked and projected for the next engine, and all
//! become one plan over the session.

use std::ops::Range;
use std::time::Instant;

use ctxhost_engine_api::border::EngineReply;
use ctxhost_engine_api::*;
use ctxhost_invariants::{
    InvariantSettings, PinnedEntries, PlanViolation, Repair, enforce, enforce_with,
};

use super::calls::ingest_new_entries;
use super::compose::{PlanProjection, compose};
use super::view::LinkView;
use super::{ChainOutcome, EngineChain, ServingLink, UnansweredCall};
use crate::answer::EngineAnswer;
use crate::error::{SlotError, is_caller_error};
use crate::service::{AssembleContext, EngineContext, OnRefusal};

impl EngineChain {
    /// Assembles a prompt. Every engine has the whole budget; only the plan of the last one must
    /// fit.
    pub(super) async fn assemble(
        &self,
        context: EngineContext<'_>,
        request: &AssembleRequest,
    ) -> Result<ChainOutcome, SlotError> {
        if let Some(checks) = context.assemble {
            return self.assemble_within(context.transcript, request, checks).await;
        }
        let checks = AssembleContext {
            pinned: &PinnedEntries::from_transcript(context.transcript),
            budget_tokens: request.budget,
            invariants: &InvariantSettings::default(),
            on_refusal: OnRefusal::Quarantine,
        };
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
        let serving: Vec<ServingLink<'_>> = self.serving_links().collect();
        let last = serving.last().map(|serving| serving.link.number);
        let mut refused = 0;
        let mut lost_call = None;
        for serving in serving {
            let Some(view) = views.get_mut(serving.link.number) else { continue };
            let is_last = Some(serving.link.number) == last;
            match self.assemble_link(serving, view, &mut run, request, is_last).await? {
                LinkOutcome::Shaped | LinkOutcome::Skipped => {}
                LinkOutcome::Declined(message) => lost_call = Some(message),
                LinkOutcome::Failed(operation, error) => {
                    self.handle_failure(serving.link, operation, error)?;
                }
                LinkOutcome::Refused(violation) if checks.on_refusal == OnRefusal::Report => {
                    self.views.store(session, views);
                    let (id, reason) = (serving.link.id.clone(), violation.to_string());
                    return Err(SlotError::Refused { id, reason });
                }
                LinkOutcome::Refused(violation) => {
                    refused += 1;
                    self.quarantine_invalid(serving.link, "assemble", &violation.to_string())?;
                }
            }
        }
        self.views.store(session, views);
        if run.by.is_empty() {
            return Ok(ChainOutcome::Unanswered(UnansweredCall {
                lost_call,
                refused_plans: refused,
            }));
        }
        let plan = EngineReply::Assemble(run.plan);
        let answer = self.attribute(&run.by, plan, began.elapsed());
        Ok(ChainOutcome::Answered(Box::new(EngineAnswer {
            repairs: run.repairs,
            refused_plans: refused,
            ..answer
        })))
    }

    /// Assembles with one engine.
    async fn assemble_link<'s>(
        &'s self,
        serving: ServingLink<'s>,
        view: &mut LinkView,
        run: &mut ChainRun<'s, '_>,
        request: &AssembleRequest,
        is_last: bool,
    ) -> Result<LinkOutcome, SlotError> {
        let projected = if serving.link.number == 0 {
            run.transcript.clone()
        } else {
            let projected = self.views.project(view, run.plan.clone(), run.transcript);
            let session = Some(&request.session);
            if let Err(error) = ingest_new_entries(serving, view, &projected, session).await {
                return Ok(LinkOutcome::Failed("ingest", error));
            }
            projected
        };
        let plan = match serving.engine.ask(&projected, request.clone()).await {
            Ok(plan) => plan,
            // A later engine may still make it fit.
            Err(error) if !is_caller_error(error.kind) => {
                return Ok(LinkOutcome::Failed("assemble", error));
            }
            // Another engine may still make it fit.
            Err(error) if error.kind == ErrorKind::CannotFit && !is_last => {
                return Ok(LinkOutcome::Skipped);
            }
            Err(error) => {
                return self.decline(serving.link, "assemble", error).map(LinkOutcome::Declined);
            }
        };
        Ok(match run.apply_plan(serving, &projected, plan, is_last) {
            Ok(()) => LinkOutcome::Shaped,
            Err(violation) => LinkOutcome::Refused(violation),
        })
    }
}

/// The outcome of one engine.
enum LinkOutcome {
    /// It shaped the request.
    Shaped,
    /// It left the request to a later engine.
    Skipped,
    /// It declined, with a message for the case that no other engine shapes the request.
    Declined(String),
    /// It failed in an operation.
    Failed(&'static str, EngineError),
    /// Its plan violates an invariant.
    Refused(PlanViolation),
}

/// The state of a request on its way through the chain.
struct ChainRun<'s, 'v> {
    transcript: &'v Transcript,
    checks: AssembleContext<'v>,
    /// The plan of the engines so far, over the session.
    plan: Plan,
    repairs: Vec<Repair>,
    by: Vec<ServingLink<'s>>,
}

impl<'s, 'v> ChainRun<'s, 'v> {
    fn new(transcript: &'v Transcript, checks: AssembleContext<'v>) -> Self {
        let plan = Plan::keep_all(transcript.len());
        ChainRun { transcript, checks, plan, repairs: Vec::new(), by: Vec::new() }
    }

    /// Checks the plan of an engine and composes it with the plan so far.
    fn apply_plan(
        &mut self,
        serving: ServingLink<'s>,
        projected: &Transcript,
        plan: Plan,
        is_last: bool,
    ) -> Result<(), PlanViolation> {
        let AssembleContext { pinned, budget_tokens, invariants, .. } = self.checks;
        let enforced = enforce(projected, plan, budget_tokens, invariants)?;
        let projection = PlanProjection::new(&self.plan);
        let repairs = enforced.repairs.iter();
        let mut repairs: Vec<Repair> =
            repairs.map(|repair| to_session_positions(repair, &projection)).collect();
        let annotated = annotate(enforced.plan, &serving.link.id, projected.len() as u64);
        // Composed at once, so that the next engine's plan is always over one projection of the
        // session.
        let mut composed = compose(&self.plan, annotated);
        // The caller checks the plan of the last engine over the session itself.
        if !is_last {
            let whole = enforce_with(pinned, self.transcript, composed, budget_tokens, invariants)?;
            composed = whole.plan;
            repairs.extend(whole.repairs);
        }
        self.plan = composed;
        self.repairs.extend(repairs);
        self.by.push(serving);
        Ok(())
    }
}

/// Translates a repair into positions of the session.
fn to_session_positions(repair: &Repair, projection: &PlanProjection<'_>) -> Repair {
    let range = |entries: &Range<u64>| projection.origin_range(entries);
    let one = |seq: u64| projection.origin_range(&(seq..seq.saturating_add(1))).start;
    match repair {
        Repair::WidenedCut { entries } => Repair::WidenedCut { entries: range(entries) },
        Repair::Reinserted { entries, reason } => {
            Repair::Reinserted { entries: range(entries), reason: *reason }
        }
        Repair::RestoredText { seq, reason } => {
            Repair::RestoredText { seq: one(*seq), reason: *reason }
        }
        Repair::MovedInsert { before } => Repair::MovedInsert { before: one(*before) },
        Repair::DroppedOrphan { seq } => Repair::DroppedOrphan { seq: one(*seq) },
        Repair::DroppedAborted { seq } => Repair::DroppedAborted { seq: one(*seq) },
        Repair::MovedResult { seq } => Repair::MovedResult { seq: one(*seq) },
        Repair::AddedMissingResult { seq, call_id } => {
            Repair::AddedMissingResult { seq: one(*seq), call_id: call_id.clone() }
        }
    }
}

/// Adds the engine's name to every operation without a note, so that a report attributes it.
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
