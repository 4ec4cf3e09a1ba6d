//! One request through all engines of a chain: each plan passes the law, becomes what the next engine
//! reads, and ends in one plan over the session.

use std::ops::Range;
use std::time::Instant;

use ctxhost_engine_api::border::EngineReply;
use ctxhost_engine_api::*;
use ctxhost_law::{self as law, Anchors, LawSettings, Repair};

use super::calls::tell_news;
use super::compose::{Shown, compose};
use super::view::LinkView;
use super::{Chain, Outcome, Unanswered, Working};
use crate::error::{SlotError, is_answer};
use crate::served::Served;
use crate::service::{AssembleContext, EngineContext, OnRefusal};

impl Chain {
    /// What the model sees. Every engine has the whole budget; only what the last one shows must fit.
    pub(super) async fn assemble(
        &self,
        context: EngineContext<'_>,
        request: &AssembleRequest,
    ) -> Result<Outcome, SlotError> {
        if let Some(checks) = context.assemble {
            return self.assemble_within(context.transcript, request, checks).await;
        }
        let (anchors, law) = (Anchors::of(context.transcript), LawSettings::default());
        let (budget_tokens, on_refusal) = (request.budget, OnRefusal::LeaveOut);
        let checks = AssembleContext { anchors: &anchors, budget_tokens, law: &law, on_refusal };
        self.assemble_within(context.transcript, request, checks).await
    }

    async fn assemble_within(
        &self,
        transcript: &Transcript,
        request: &AssembleRequest,
        checks: AssembleContext<'_>,
    ) -> Result<Outcome, SlotError> {
        let began = Instant::now();
        let session = Some(&request.session);
        let mut views = self.views.take(session, self.links.len());
        let mut run = ChainRun::new(transcript, checks);
        let working: Vec<Working<'_>> = self.working().collect();
        let last = working.last().map(|working| working.link.number);
        let mut refused = 0;
        for working in working {
            let Some(view) = views.get_mut(working.link.number) else { continue };
            let is_last = Some(working.link.number) == last;
            match self.pass(working, view, &mut run, request, is_last).await? {
                LinkOutcome::Shaped | LinkOutcome::PassedOn => {}
                LinkOutcome::Failed(operation, error) => {
                    self.fail(working.link, operation, error)?;
                }
                LinkOutcome::Refused(violation) if checks.on_refusal == OnRefusal::Report => {
                    self.views.remember(session, views);
                    let (id, reason) = (working.link.id.clone(), violation.to_string());
                    return Err(SlotError::Refused { id, reason });
                }
                LinkOutcome::Refused(violation) => {
                    refused += 1;
                    self.leave_out_illegal(working.link, "assemble", &violation.to_string())?;
                }
            }
        }
        self.views.remember(session, views);
        if run.by.is_empty() {
            return Ok(Outcome::Unanswered(Unanswered { lost: None, refused }));
        }
        let plan = EngineReply::Assemble(run.plan);
        let served = self.served(&run.by, plan, began.elapsed());
        Ok(Outcome::Served(Box::new(Served { repairs: run.repairs, refused, ..served })))
    }

    /// One engine of the chain.
    async fn pass<'s>(
        &'s self,
        working: Working<'s>,
        view: &mut LinkView,
        run: &mut ChainRun<'s, '_>,
        request: &AssembleRequest,
        is_last: bool,
    ) -> Result<LinkOutcome, SlotError> {
        let own = match working.link.number {
            0 => run.transcript.clone(),
            _ => {
                let own = self.views.through(view, run.plan.clone(), run.transcript);
                let told = tell_news(working, view, &own, Some(&request.session)).await;
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
                return Ok(LinkOutcome::PassedOn);
            }
            Err(error) if is_answer(error.kind) => return Err(SlotError::answer(error)),
            Err(error) => return Ok(LinkOutcome::Failed("assemble", error)),
        };
        Ok(match run.take(working, &own, plan, is_last) {
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
    PassedOn,
    /// It failed, in this operation.
    Failed(&'static str, EngineError),
    /// The law refused its plan.
    Refused(law::Violation),
}

/// How far a request has come.
struct ChainRun<'s, 'v> {
    transcript: &'v Transcript,
    checks: AssembleContext<'v>,
    /// What the engines so far show of the session.
    plan: Plan,
    repairs: Vec<Repair>,
    by: Vec<Working<'s>>,
}

impl<'s, 'v> ChainRun<'s, 'v> {
    fn new(transcript: &'v Transcript, checks: AssembleContext<'v>) -> Self {
        let plan = Plan::keep_all(transcript.len());
        ChainRun { transcript, checks, plan, repairs: Vec::new(), by: Vec::new() }
    }

    /// Goes on with the plan of an engine for what it read.
    fn take(
        &mut self,
        working: Working<'s>,
        own: &Transcript,
        plan: Plan,
        is_last: bool,
    ) -> Result<(), law::Violation> {
        let AssembleContext { anchors, budget_tokens, law, .. } = self.checks;
        let lawful = law::enforce(own, plan, budget_tokens, law)?;
        let shown = Shown::by(&self.plan);
        let mut repairs: Vec<Repair> =
            lawful.repairs.iter().map(|repair| over_session(repair, &shown)).collect();
        let signed = signed(lawful.plan, &working.link.id, own.len() as u64);
        let mut composed = compose(&self.plan, signed);
        if !is_last {
            let whole = law::enforce_with(anchors, self.transcript, composed, budget_tokens, law)?;
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
