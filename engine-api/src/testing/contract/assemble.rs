//! Checks of `assemble`: valid and deterministic plans for every transcript and budget.

use std::task::{Context, Waker};

use super::session::ContractSession;
use super::{ContractOptions, ContractSuite, ContractVerdict, cases};
use crate::border::EngineFactory;
use crate::plan::Plan;
use crate::testing::{ScriptedHost, TranscriptBuilder};
use crate::transcript::Transcript;

/// Work rounds of the growing session.
const GROWTH_ROUNDS: u64 = 24;

/// The budget of the growing session, in tokens: exceeded after a few rounds.
const GROWTH_BUDGET_TOKENS: u64 = 1_500;

pub(super) fn run(suite: &mut ContractSuite<'_>) {
    for case in cases::all() {
        let rule = "a sound plan, whatever the budget";
        suite.check(format!("assemble: {}", case.name), rule, |factory, options| {
            every_budget(factory, options, &case.transcript)
        });
    }
    suite.check("assemble: the same again", "the same input makes the same plan", same_again);
    suite.check("assemble: re-ingest", "a range that comes again changes nothing", re_ingest);
    suite.check("assemble: another instance", "the same calls make the same plans", same_elsewhere);
    suite.check("assemble: growth", "sound plans while the transcript grows", growth);
    suite.check("assemble: a new epoch", "sound plans after positions changed", new_epoch);
    suite.check("assemble: two sessions", "sessions at the same time do not mix", two_sessions);
    suite.check(
        "assemble: bare host",
        "sound plans from a host that offers only what the engine requires",
        bare_host,
    );
    suite.check("assemble: dropped half-way", "a dropped call does no harm", dropped);
    suite.check("assemble: cancelled", "a cancelled call answers", cancelled);
}

fn every_budget(
    factory: EngineFactory,
    options: &ContractOptions,
    transcript: &Transcript,
) -> ContractVerdict {
    let target = ContractSession::open(factory, options)?;
    target.bootstrap_and_ingest(transcript)?;
    for budget in cases::budgets(transcript) {
        target.assemble(transcript, budget)?;
    }
    Ok(())
}

fn same_again(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let target = ContractSession::open(factory, options)?;
    let transcript = cases::working(60).transcript();
    target.bootstrap_and_ingest(&transcript)?;
    for budget in cases::budgets(&transcript) {
        let first = target.assemble(&transcript, budget)?;
        let second = target.assemble(&transcript, budget)?;
        same(&first, &second, &format!("twice in a row with budget {budget}"))?;
    }
    Ok(())
}

fn re_ingest(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let target = ContractSession::open(factory, options)?;
    let transcript = cases::working(60).transcript();
    let budget = transcript.total_tokens() / 2;
    target.bootstrap_and_ingest(&transcript)?;
    let before = target.assemble(&transcript, budget)?;
    // All entries, a part of them, and the last one alone, as after a lost reply.
    for again in [0..60, 20..40, 59..60] {
        target.ingest(&transcript, again.clone())?;
        let after = target.assemble(&transcript, budget)?;
        same(&before, &after, &format!("before and after {again:?} came again"))?;
    }
    Ok(())
}

fn same_elsewhere(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let (first, second) =
        (ContractSession::open(factory, options)?, ContractSession::open(factory, options)?);
    let plans = grow(&first)?;
    for (at, (one, other)) in plans.iter().zip(grow(&second)?).enumerate() {
        same(one, &other, &format!("in two instances after round {at}"))?;
    }
    Ok(())
}

fn growth(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    grow(&ContractSession::open(factory, options)?).map(drop)
}

/// Ingests a session round by round and assembles after each.
fn grow(target: &ContractSession) -> Result<Vec<Option<Plan>>, String> {
    let mut builder = TranscriptBuilder::new();
    let mut plans = Vec::new();
    for round in 0..GROWTH_ROUNDS {
        let known = builder.len();
        cases::work_round(&mut builder, round);
        let transcript = builder.transcript();
        target.ingest(&transcript, known..builder.len())?;
        plans.push(target.assemble(&transcript, GROWTH_BUDGET_TOKENS)?);
    }
    Ok(plans)
}

fn new_epoch(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let target = ContractSession::open(factory, options)?;
    grow(&target)?;
    // Without a bootstrap: a compaction changes epoch and positions in the middle of a session.
    let mut builder = TranscriptBuilder::with_epoch(1);
    builder.summary("What happened so far, in short.");
    for round in 0..3 {
        cases::work_round(&mut builder, round);
        let transcript = builder.transcript();
        for budget in [GROWTH_BUDGET_TOKENS, 100] {
            target.assemble(&transcript, budget)?;
        }
    }
    Ok(())
}

fn two_sessions(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let shared = ContractSession::open(factory, options)?;
    // Different ranges of call ids, because the host identifies calls by them.
    let (one, other) = (shared.with_session("one", 1_000), shared.with_session("other", 2_000));
    let short = cases::working(30).transcript();
    let alone = |transcript: &Transcript| {
        let target = ContractSession::open(factory, options)?;
        target.bootstrap_and_ingest(transcript)?;
        target.assemble(transcript, GROWTH_BUDGET_TOKENS)
    };
    let alone = alone(&short)?;
    std::thread::scope(|threads| {
        // A thread for the other session: engines that keep one state for all sessions mix them up.
        let busy = threads.spawn(move || grow(&other));
        one.bootstrap_and_ingest(&short)?;
        for _ in 0..GROWTH_ROUNDS {
            let plan = one.assemble(&short, GROWTH_BUDGET_TOKENS)?;
            same(&alone, &plan, "alone and beside another session")?;
        }
        busy.join().map_err(|_| "the other session's thread panicked".to_owned())?.map(drop)
    })
}

fn bare_host(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let host = ScriptedHost::new();
    let required = factory.info().map_err(|error| error.to_string())?.requires;
    // Everything else fails with `Unsupported`: engines must check for optional capabilities.
    host.set_capabilities(&required.iter().map(String::as_str).collect::<Vec<_>>());
    let target = ContractSession::open_on(host, factory, options)?;
    grow(&target).map(drop)
}

fn dropped(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let target = ContractSession::open(factory, options)?;
    let transcript = cases::working(60).transcript();
    let budget = transcript.total_tokens() / 2;
    target.bootstrap_and_ingest(&transcript)?;
    let before = target.assemble(&transcript, budget)?;
    for _ in 0..3 {
        poll_once(target.engine.assemble(transcript.clone(), target.assemble_request(budget)));
        let request = target.compact_request(&transcript, budget);
        poll_once(target.engine.compact(transcript.clone(), request));
        poll_once(target.engine.ingest(transcript.clone(), target.ingest_request(0..60)));
        // Never polled: creating a future must not have side effects either.
        drop(target.engine.assemble(transcript.clone(), target.assemble_request(budget)));
    }
    same(&before, &target.assemble(&transcript, budget)?, "before and after a dropped call")
}

/// Polls a future once, with a no-op waker, and drops it.
fn poll_once<T>(future: impl Future<Output = T>) {
    let _ = std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop()));
}

fn cancelled(factory: EngineFactory, options: &ContractOptions) -> ContractVerdict {
    let target = ContractSession::open(factory, options)?;
    let transcript = cases::working(60).transcript();
    let budget = transcript.total_tokens() / 2;
    target.bootstrap_and_ingest(&transcript)?;
    let request = target.assemble_request(budget);
    target.host.cancel(request.call);
    // A cancelled call may return a plan or an error.
    let _ = target.wait("assemble", target.engine.assemble(transcript.clone(), request))?;
    let request = target.compact_request(&transcript, budget);
    target.host.cancel(request.call);
    let _ = target.compact(&transcript, request)?;
    target.assemble(&transcript, budget).map(drop)
}

fn same(one: &Option<Plan>, other: &Option<Plan>, when: &str) -> ContractVerdict {
    if one == other {
        return Ok(());
    }
    let ops = |plan: &Option<Plan>| plan.as_ref().map_or(Vec::new(), |plan| plan.ops.clone());
    let (one, other) = (ops(one), ops(other));
    // The first difference is more useful than two dumps of plans.
    let alike = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    Err(format!(
        "two plans differ {when}: {} and {} operations, the first {alike} alike",
        one.len(),
        other.len()
    ))
}
