//! The group `cancellation`: drops each call at each of its awaits and checks that the engine still works.
//!
//! A host drops the future of a call when the user aborts or a time limit passes. Locks held across an await,
//! blocked threads and partial writes show up in the next call.

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

/// The calls that are cancelled.
const CALLS: [&str; 7] =
    ["bootstrap", "ingest_batch", "assemble", "compact", "after_turn", "commit_turn", "maintain"];

/// Each call, on a host without a model and on one with it.
pub(super) const CASES: u64 = CALLS.len() as u64 * 2;

/// Pause between two polls.
const PAUSE: Duration = Duration::from_micros(200);

fn case_call(case: u64) -> (&'static str, bool) {
    let at = usize::try_from(case.saturating_sub(1)).unwrap_or(0);
    (CALLS.get(at % CALLS.len()).copied().unwrap_or("assemble"), at >= CALLS.len())
}

pub(super) fn name(case: u64) -> String {
    match case_call(case) {
        (call, true) => format!("{call}, with a model"),
        (call, false) => call.to_owned(),
    }
}

pub(super) fn run(case: u64, harness: &CaseHarness<'_>) -> CaseOutcome {
    let (call, with_model) = case_call(case);
    let view = workload::session(12).transcript();
    let mut checks = 0;
    // One new engine for each await: a cancelled call may break the instance.
    for at in 0..AWAITS_MAX {
        let host = if with_model { harness.host_with_model() } else { harness.host() };
        let target = harness.open(host)?;
        target.bootstrap_and_ingest(&view)?;
        target.host.set_behaviour(HostBehaviour::PendingAt(at));
        let cancelled = cancel(&target, call, &view)?;
        // The pending service stays pending; later requests succeed.
        target.host.set_behaviour(HostBehaviour::Correct);
        expect_working(&target, call, &view)?;
        target.dispose()?;
        checks += 1;
        if !cancelled {
            // The call made fewer service requests than `at`, so it has no later await.
            break;
        }
    }
    Ok(CaseStats::with_checks(checks))
}

/// Makes the call until it waits for the service that never completes, and drops it there. `false` if it
/// returned before.
fn cancel(target: &CheckSession, call: &str, view: &Transcript) -> Result<bool, CheckFault> {
    let (engine, view, len) = (&target.engine, view.clone(), view.len() as u64);
    match call {
        "bootstrap" => {
            let request = ctxhost_engine_api::BootstrapRequest {
                call: target.next_call_id(),
                session: target.session.clone(),
            };
            poll_until_stuck(target, call, engine.bootstrap(view, request))
        }
        "ingest_batch" => {
            poll_until_stuck(target, call, engine.ingest_batch(view, target.ingest_request(0..len)))
        }
        "assemble" => {
            let budget = view.total_tokens() / 3;
            poll_until_stuck(target, call, engine.assemble(view, target.assemble_request(budget)))
        }
        "compact" => {
            let request = target.compact_request(&view, view.total_tokens() / 3);
            let request = CompactRequest { trigger: Trigger::Overflow, ..request };
            poll_until_stuck(target, call, engine.compact(view, request))
        }
        "after_turn" => poll_until_stuck(
            target,
            call,
            engine.after_turn(view, target.after_turn_request(0..len)),
        ),
        "commit_turn" => {
            let request = target.commit_request(&view, "given-up");
            poll_until_stuck(target, call, engine.commit_turn(view, request))
        }
        _ => poll_until_stuck(target, call, engine.maintain(view, target.maintain_request())),
    }
}

fn poll_until_stuck<T>(
    target: &CheckSession,
    name: &str,
    call: impl Future<Output = Result<T, EngineError>>,
) -> Result<bool, CheckFault> {
    let mut stuck = false;
    let mut call = pin!(call);
    // The watchdog ends the process if the call neither returns nor waits for the host.
    let answer = target.call_sync(name, || {
        loop {
            // Polled without a waker, because the pending service never wakes anything.
            if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                return answer.map(drop);
            }
            // The engine may use threads of its own, so the service can be requested between two
            // polls.
            if target.host.is_stuck() {
                stuck = true;
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    })?;
    drop(answer);
    Ok(stuck)
}

/// Checks that later calls return and that the plan is valid.
fn expect_working(target: &CheckSession, call: &str, view: &Transcript) -> Result<(), CheckFault> {
    let after = |fault: CheckFault| {
        CheckFault::new("after-cancel", format!("after {call} was cancelled: {}", fault.message))
    };
    target.ingest(view, 0..view.len() as u64).map_err(after)?;
    let budget = view.total_tokens() / 2;
    if let Some(plan) = target.assemble(view, budget).map_err(after)? {
        check_plan("assemble", view, &plan, budget, ProviderFamily::Anthropic).map_err(after)?;
    }
    let _ = target.compact(view, budget, Trigger::Overflow).map_err(after)?;
    let _ = target.commit(view, "after").map_err(after)?;
    Ok(())
}
