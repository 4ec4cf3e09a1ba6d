//! Checks a plan as the engine returned it, before the host repairs it.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::testing::plan_fault;
use ctxhost_engine_api::{Action, Flags, Plan, PlanItem, Role, Transcript};

use super::fault::CheckFault;
use super::provider::{PairingFault, ProviderFamily};
use ctxhost_invariants::FAIR_BUDGET_TOKENS;
use ctxhost_invariants::{self as invariants, InvariantSettings};

/// Checks the shape of a plan, its pairs, and the invariants, in that order.
///
/// `what` is the call that returned it, `family` the format of the history.
pub(super) fn check_plan(
    what: &str,
    view: &Transcript,
    plan: &Plan,
    budget: u64,
    family: ProviderFamily,
) -> Result<(), CheckFault> {
    // The shape first: the later checks index the transcript by the plan's positions.
    if let Some(fault) = plan_fault(plan, view) {
        return Err(CheckFault::new("shape", format!("{what} returned a plan whose {fault}")));
    }
    pairs(what, view, plan, family)?;
    // Below that even a one-line notice exceeds the limit of inserted text.
    let budget = budget.max(FAIR_BUDGET_TOKENS);
    match invariants::enforce(view, plan.clone(), budget, &InvariantSettings::default()) {
        Ok(_) => Ok(()),
        // The limit depends on the budget, which a compaction plan does not have to fit.
        Err(invariants::PlanViolation::InsertTooLarge { .. }) if what != "assemble" => Ok(()),
        Err(violation) => Err(CheckFault::new(
            "refused",
            format!("the host rejects the plan that {what} returned: {violation}"),
        )),
    }
}

/// Checks that the plan keeps both or neither of each call and result in the history.
fn pairs(
    what: &str,
    view: &Transcript,
    plan: &Plan,
    family: ProviderFamily,
) -> Result<(), CheckFault> {
    let kept = kept(plan);
    for pair in pairs_of(view) {
        let fault = match (kept.contains(&pair.call), kept.contains(&pair.result)) {
            (true, false) => PairingFault::MissingResult(pair.id.clone()),
            (false, true) => PairingFault::MissingCall(pair.id.clone()),
            _ => continue,
        };
        let (there, gone) = match fault {
            PairingFault::MissingCall(_) => (pair.result, pair.call),
            _ => (pair.call, pair.result),
        };
        let shown = format!("{what} returned [{there}] without [{gone}]");
        return Err(CheckFault::new("pairs", with_refusal(shown, family, &fault)));
    }
    match separated_call(view, plan) {
        Some(id) => {
            let shown = format!("{what} inserted a message between call {id} and its result");
            Err(CheckFault::new("pairs", with_refusal(shown, family, &PairingFault::Separated(id))))
        }
        None => Ok(()),
    }
}

fn with_refusal(shown: String, family: ProviderFamily, fault: &PairingFault) -> String {
    match family.refusal(fault) {
        Some(refusal) => format!("{shown}; {refusal}"),
        None => format!("{shown}; {} accepts it, others reject it", family.name()),
    }
}

/// The positions of a call and its result.
struct ToolPair {
    id: String,
    call: u64,
    result: u64,
}

/// The pairs of a transcript: a result belongs to the newest message that has an open call with its id.
fn pairs_of(view: &Transcript) -> Vec<ToolPair> {
    // Parsed from the messages instead of the host's flags, so that this check does not inherit
    // their faults.
    let mut open: HashMap<String, (u64, usize)> = HashMap::new();
    let mut pairs = Vec::new();
    for entry in view.iter() {
        match entry.role() {
            Role::Assistant => {
                for call in entry.tool_calls() {
                    let (caller, calls) = open.entry(call.id.into_owned()).or_default();
                    *calls = if *caller == entry.seq() { *calls + 1 } else { 1 };
                    *caller = entry.seq();
                }
            }
            Role::Tool => {
                let id = entry.tool_result().map(|result| result.call_id.into_owned());
                let Some(id) = id else { continue };
                if let Some((call, calls)) = open.get_mut(&id).filter(|(_, calls)| *calls > 0) {
                    *calls -= 1;
                    pairs.push(ToolPair { id, call: *call, result: entry.seq() });
                }
            }
            _ => {}
        }
    }
    pairs
}

/// The positions that a plan keeps, changed or unchanged.
fn kept(plan: &Plan) -> HashSet<u64> {
    let mut kept = HashSet::new();
    for op in &plan.ops {
        if matches!(
            op.action,
            Action::Keep(_) | Action::ReplaceText { .. } | Action::ReplaceRaw { .. }
        ) {
            kept.extend(op.action.range());
        }
    }
    kept
}

/// The id of a call whose result directly follows it in the session, but not in the plan.
fn separated_call(view: &Transcript, plan: &Plan) -> Option<String> {
    let items = plan.project(view);
    for three in items.windows(3) {
        let [before, PlanItem::Inserted { .. }, after] = three else { continue };
        let (Some(before), Some(after)) = (before.entry(), after.entry()) else { continue };
        // Only if the pair is adjacent in the session; a displaced result is not the plan's fault.
        let same_frame = after.role() == Role::Tool && before.frame() == after.frame();
        if same_frame && after.seq() == before.seq() + 1 && !after.has(Flags::ORPHAN) {
            return after.tool_result().map(|result| result.call_id.into_owned());
        }
    }
    None
}

/// The tokens of a plan without repairs.
pub(super) fn plan_tokens(view: &Transcript, plan: &Plan) -> u64 {
    plan.project(view).iter().map(PlanItem::tokens).sum()
}

/// Whether a plan keeps every entry unchanged and inserts nothing.
pub(super) fn is_no_op(view: &Transcript, plan: &Plan) -> bool {
    let items = plan.project(view);
    items.len() == view.len() && items.iter().all(|item| matches!(item, PlanItem::Kept(_)))
}

/// The role and exact text of each item that a model would read; empty without a plan.
pub(super) fn render_items(view: &Transcript, plan: Option<&Plan>) -> Vec<String> {
    let Some(plan) = plan else { return Vec::new() };
    let read = |item: &PlanItem<'_>| match item {
        PlanItem::Kept(entry) => format!("{} {}", entry.role().name(), entry.raw()),
        PlanItem::ReplacedRaw { entry, raw } => format!("{} {raw}", entry.role().name()),
        other => format!("{} {}", other.role().name(), other.text()),
    };
    plan.project(view).iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::generate::Script;

    use super::*;

    /// `user`, two calls, their results, an answer.
    fn view() -> Transcript {
        let script = Script::new().user("task").calls("", &["a", "b"]);
        script.result("a", "1").result("b", "2").assistant("done").finish().transcript()
    }

    fn check(build: impl FnOnce(&mut Plan)) -> Result<(), CheckFault> {
        let mut plan = Plan::default();
        build(&mut plan);
        check_plan("assemble", &view(), &plan, 1_000, ProviderFamily::Anthropic)
    }

    fn assert_fault(build: impl FnOnce(&mut Plan), rule: &str, words: &str) {
        let fault = check(build).unwrap_err();
        assert_eq!(fault.rule, rule);
        assert!(fault.message.contains(words), "{}", fault.message);
    }

    #[test]
    fn whole_pairs_pass() {
        assert_eq!(check(|plan| _ = plan.keep(0..5)), Ok(()));
        assert_eq!(check(|plan| _ = plan.keep(0..1).keep(4..5)), Ok(()));
    }

    #[test]
    fn half_pairs_are_named_with_the_answer_of_the_provider() {
        assert_fault(
            |plan| _ = plan.keep(2..5),
            "pairs",
            "assemble returned [2] without [1]; anthropic",
        );
        assert_fault(|plan| _ = plan.keep(0..3).keep(4..5), "pairs", "returned [1] without [3]");
        let insert = |plan: &mut Plan| {
            plan.keep(0..2).insert(Role::User, "hm", 2..2).keep(2..5);
        };
        assert_fault(insert, "pairs", "a message between call a and its result");
    }

    #[test]
    fn what_the_history_itself_lacks_is_not_the_plan_s_fault() {
        let script = Script::new().user("task").calls("", &["a"]).orphan("lost").user("so?");
        let view = script.finish().transcript();
        let plan = Plan::keep_all(view.len());
        assert_eq!(check_plan("assemble", &view, &plan, 1_000, ProviderFamily::Gemini), Ok(()));
    }

    #[test]
    fn a_reused_id_belongs_to_its_newest_call_aborted_or_not() {
        let script = Script::new().user("task").calls("", &["a"]).aborted_calls("", &["a"]);
        let view = script.result("a", "1").finish().transcript();
        let mut plan = Plan::default();
        plan.keep(0..1).keep(2..4);
        assert_eq!(check_plan("assemble", &view, &plan, 1_000, ProviderFamily::Gemini), Ok(()));
        let mut plan = Plan::default();
        plan.keep(0..2).keep(3..4);
        assert!(check_plan("assemble", &view, &plan, 1_000, ProviderFamily::Gemini).is_err());
    }

    #[test]
    fn what_the_host_refuses_is_refused_here() {
        assert_fault(|plan| _ = plan.keep(0..9), "shape", "names 0..9 of 5 entries");
        assert_fault(|plan| _ = plan.replace_text(0, " "), "refused", "an empty text");
    }
}
