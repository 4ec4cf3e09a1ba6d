//! The group `determinism`: the same input gives the same bytes, and the prefix of requests is stable.
//!
//! Providers cache the prefix of a request and charge about a tenth for it. A plan that depends on chance
//! cannot be replayed.

use ctxhost_engine_api::{Compaction, Plan, Transcript, Trigger};
use sha2::{Digest as _, Sha256};

use super::histories::{HistoryKey, budgets};
use crate::fault::{CaseOutcome, CaseStats, CheckFault};
use crate::harness::CaseHarness;
use crate::plan_check::render_items;
use crate::session::CheckSession;

/// Histories; each in two processes.
pub(super) const CASES: u64 = 24;

pub(super) fn run((number, family): HistoryKey, harness: &CaseHarness<'_>) -> CaseOutcome {
    let history = harness.history(number, family);
    let view = history.transcript();
    let mut hash = Sha256::new();
    let mut checks = 0;
    let (one, other) =
        (harness.open(harness.host_with_model())?, harness.open(harness.host_with_model())?);
    one.bootstrap_and_ingest(&view)?;
    other.bootstrap_and_ingest(&view)?;
    for budget in budgets(&view) {
        let (first, second) = (one.assemble(&view, budget)?, other.assemble(&view, budget)?);
        expect_equal(&view, first.as_ref(), second.as_ref(), "assemble", budget)?;
        hash.update(format!("{first:?}"));
        checks += 1;
    }
    let budget = view.total_tokens() / 2;
    let compacted = |target: &CheckSession| {
        let answer = target.compact(&view, budget, Trigger::Overflow)?;
        Ok(answer.map_err(|error| error.message))
    };
    let (first, second): (Result<Compaction, String>, _) = (compacted(&one)?, compacted(&other)?);
    // Other results are compared with the second process, by the digest.
    if let (Ok(Compaction::Plan(first)), Ok(Compaction::Plan(second))) = (&first, &second) {
        expect_equal(&view, Some(first), Some(second), "compact", budget)?;
    }
    hash.update(format!("{first:?}"));
    checks += 1;
    let prefix = stable_prefix(harness, |entries| history.first(entries), history.len())?;
    checks += prefix.0;
    let digest = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(CaseStats { checks, digest, prefix, ..CaseStats::default() })
}

fn expect_equal(
    view: &Transcript,
    first: Option<&Plan>,
    second: Option<&Plan>,
    what: &str,
    budget: u64,
) -> Result<(), CheckFault> {
    if first == second {
        return Ok(());
    }
    let (first, second) = (render_items(view, first), render_items(view, second));
    let equal = first.iter().zip(&second).take_while(|(a, b)| a == b).count();
    let message = format!(
        "two instances got the same entries, but {what} returned {} and {} messages with a budget of \
         {budget}, the first {equal} equal",
        first.len(),
        second.len()
    );
    Err(CheckFault::new("differs", message))
}

/// Ingests a session message by message with a budget for all of it and counts the steps in which the
/// messages sent before change.
fn stable_prefix(
    harness: &CaseHarness<'_>,
    first: impl Fn(usize) -> Transcript,
    len: usize,
) -> Result<(u64, u64), CheckFault> {
    let target = harness.open(harness.host())?;
    // Far above the history, so that the engine has no reason to change anything.
    let budget = first(len).total_tokens() * 4 + 10_000;
    let mut before: Vec<String> = Vec::new();
    let (mut steps, mut moved, mut where_moved) = (0, 0, String::new());
    for entries in 1..=len {
        let view = first(entries);
        target.ingest(&view, entries as u64 - 1..entries as u64)?;
        let Some(plan) = target.assemble(&view, budget)? else { continue };
        let now = render_items(&view, Some(&plan));
        let equal = before.iter().zip(&now).take_while(|(a, b)| a == b).count();
        if !before.is_empty() {
            steps += 1;
            if equal < before.len() {
                moved += 1;
                where_moved = format!("message {equal} of {}", before.len());
            }
        }
        before = now;
    }
    // Half of the steps is generous: it finds engines that rewrite the prefix on every request.
    if moved * 2 > steps {
        let message = format!(
            "the prefix moved in {moved} of {steps} steps while everything fitted, the last time at \
             {where_moved}: a provider's prompt cache is lost each time"
        );
        return Err(CheckFault::new("prefix", message));
    }
    Ok((steps, moved))
}
