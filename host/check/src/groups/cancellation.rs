//! `cancellation`: a call that is given up at any of its waits leaves an engine that still works.
//!
//! The host stops waiting when a person aborts or a deadline passes: it drops the future where it stands.
//! A lock that was held there, a thread that waits by itself, half a note: all of them show in the next call.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ctxhost_engine_api::{CompactRequest, EngineError, Transcript, Trigger};

use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::host::HostBehaviour;
use crate::plan_check::check_plan;
use crate::provider::ProviderFamily;
use crate::session::CheckSession;
use crate::settings::AWAITS_MAX;
use crate::workload;

/// The calls that are given up.
const CALLS: [&str; 7] =
    ["bootstrap", "ingest_batch", "assemble", "compact", "after_turn", "commit_turn", "maintain"];

/// Each call, on a host without a model and on one with it.
pub(super) const CASES: u64 = CALLS.len() as u64 * 2;

/// How long a future rests between two polls.
const REST: Duration = Duration::from_micros(200);

fn call_of(case: u64) -> (&'static str, bool) {
    let at = usize::try_from(case.saturating_sub(1)).unwrap_or(0);
    (CALLS.get(at % CALLS.len()).copied().unwrap_or("assemble"), at >= CALLS.len())
}

pub(super) fn name(case: u64) -> String {
    match call_of(case) {
        (call, true) => format!("{call}, with a model"),
        (call, false) => call.to_owned(),
    }
}

pub(super) fn run(case: u64, bench: &CaseHarness<'_>) -> CaseOutcome {
    let (call, with_model) = call_of(case);
    let view = workload::session(12).transcript();
    let mut checks = 0;
    for at in 0..AWAITS_MAX {
        let host = if with_model { bench.host_with_model() } else { bench.host() };
        let stage = bench.open(host)?;
        stage.bootstrap_and_ingest(&view)?;
        stage.host.set_behaviour(HostBehaviour::PendingAt(at));
        let given_up = give_up(&stage, call, &view)?;
        stage.host.set_behaviour(HostBehaviour::Correct);
        still_works(&stage, call, &view)?;
        stage.dispose()?;
        checks += 1;
        if !given_up {
            // It asks for less than that; there is no later wait.
            break;
        }
    }
    Ok(CaseStats::with_checks(checks))
}

/// Makes the call until it waits for the service that never answers, and drops it there. `false` where
/// it answered before.
fn give_up(stage: &CheckSession, call: &str, view: &Transcript) -> Result<bool, CheckFault> {
    let (engine, view, len) = (&stage.engine, view.clone(), view.len() as u64);
    match call {
        "bootstrap" => {
            let request = ctxhost_engine_api::BootstrapRequest {
                call: stage.next_call_id(),
                session: stage.session.clone(),
            };
            until_stuck(stage, call, engine.bootstrap(view, request))
        }
        "ingest_batch" => {
            until_stuck(stage, call, engine.ingest_batch(view, stage.ingest_request(0..len)))
        }
        "assemble" => {
            let budget = view.total_tokens() / 3;
            until_stuck(stage, call, engine.assemble(view, stage.assemble_request(budget)))
        }
        "compact" => {
            let request = stage.compact_request(&view, view.total_tokens() / 3);
            let request = CompactRequest { trigger: Trigger::Overflow, ..request };
            until_stuck(stage, call, engine.compact(view, request))
        }
        "after_turn" => {
            until_stuck(stage, call, engine.after_turn(view, stage.after_turn_request(0..len)))
        }
        "commit_turn" => {
            let request = stage.commit_request(&view, "given-up");
            until_stuck(stage, call, engine.commit_turn(view, request))
        }
        _ => until_stuck(stage, call, engine.maintain(view, stage.maintain_request())),
    }
}

fn until_stuck<T>(
    stage: &CheckSession,
    name: &str,
    call: impl Future<Output = Result<T, EngineError>>,
) -> Result<bool, CheckFault> {
    let mut stuck = false;
    let mut call = pin!(call);
    // A call that neither answers nor waits for the host is the business of the watch.
    let answer = stage.call_sync(name, || {
        loop {
            if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                return answer.map(drop);
            }
            if stage.host.is_stuck() {
                stuck = true;
                return Ok(());
            }
            std::thread::sleep(REST);
        }
    })?;
    drop(answer);
    Ok(stuck)
}

/// Every later call answers, and a request is sound.
fn still_works(stage: &CheckSession, call: &str, view: &Transcript) -> Result<(), CheckFault> {
    let after = |fault: CheckFault| {
        CheckFault::new("after-cancel", format!("after {call} was given up: {}", fault.message))
    };
    stage.ingest(view, 0..view.len() as u64).map_err(after)?;
    let budget = view.total_tokens() / 2;
    if let Some(plan) = stage.assemble(view, budget).map_err(after)? {
        check_plan("assemble", view, &plan, budget, ProviderFamily::Anthropic).map_err(after)?;
    }
    let _ = stage.compact(view, budget, Trigger::Overflow).map_err(after)?;
    let _ = stage.commit(view, "after").map_err(after)?;
    Ok(())
}
