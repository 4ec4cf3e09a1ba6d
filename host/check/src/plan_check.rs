//! The judgement of a plan as the engine gave it, before any law repairs it.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::testing::plan_fault;
use ctxhost_engine_api::{Action, Flags, Plan, PlanItem, Role, Transcript};

use super::fault::CheckFault;
use super::provider::{PairingFault, ProviderFamily};
use super::settings::FAIR_BUDGET;
use ctxhost_invariants::{self as invariants, InvariantSettings};

/// The first rule that a plan breaks: its shape, then its pairs, then what the law refuses outright.
///
/// `what` is the call that answered it. `family` is whose models the history comes from.
pub(super) fn check_plan(
    what: &str,
    view: &Transcript,
    plan: &Plan,
    budget: u64,
    family: ProviderFamily,
) -> Result<(), CheckFault> {
    if let Some(fault) = plan_fault(plan, view) {
        return Err(CheckFault::new("shape", format!("{what} returned a plan whose {fault}")));
    }
    pairs(what, view, plan, family)?;
    let budget = budget.max(FAIR_BUDGET);
    match invariants::enforce(view, plan.clone(), budget, &InvariantSettings::default()) {
        Ok(_) => Ok(()),
        // How many words are too many depends on a budget that a compaction does not have to fit yet.
        Err(invariants::PlanViolation::InsertTooLarge { .. }) if what != "assemble" => Ok(()),
        Err(violation) => Err(CheckFault::new(
            "refused",
            format!("the host refuses what {what} returned: {violation}"),
        )),
    }
}

/// Every call has its result and every result its call, as far as the history has both.
fn pairs(
    what: &str,
    view: &Transcript,
    plan: &Plan,
    family: ProviderFamily,
) -> Result<(), CheckFault> {
    let kept = kept(plan);
    for pair in pairs_of(view) {
        let torn = match (kept.contains(&pair.call), kept.contains(&pair.result)) {
            (true, false) => PairingFault::MissingResult(pair.id.clone()),
            (false, true) => PairingFault::MissingCall(pair.id.clone()),
            _ => continue,
        };
        let (there, gone) = match torn {
            PairingFault::MissingCall(_) => (pair.result, pair.call),
            _ => (pair.call, pair.result),
        };
        let shown = format!("{what} returned [{there}] without [{gone}]");
        return Err(CheckFault::new("pairs", with_refusal(shown, family, &torn)));
    }
    match parted(view, plan) {
        Some(id) => {
            let shown = format!("{what} put a message between call {id} and its result");
            Err(CheckFault::new("pairs", with_refusal(shown, family, &PairingFault::Separated(id))))
        }
        None => Ok(()),
    }
}

fn with_refusal(shown: String, family: ProviderFamily, torn: &PairingFault) -> String {
    match family.refusal(torn) {
        Some(refusal) => format!("{shown}; {refusal}"),
        None => format!("{shown}; {} takes it, others refuse it", family.name()),
    }
}

/// A call and its result in a transcript.
struct ToolPair {
    id: String,
    call: u64,
    result: u64,
}

/// The pairs of a transcript: each result belongs to the newest open call of its id before it. Found by
/// reading the messages, not by the flags of the host, whose faults would hide here.
fn pairs_of(view: &Transcript) -> Vec<ToolPair> {
    let mut open: HashMap<String, u64> = HashMap::new();
    let mut pairs = Vec::new();
    for entry in view.iter() {
        match entry.role() {
            Role::Assistant => {
                let calls = entry.tool_calls().into_iter();
                open.extend(calls.map(|call| (call.id.into_owned(), entry.seq())));
            }
            Role::Tool => {
                let id = entry.tool_result().map(|result| result.call_id.into_owned());
                let Some(id) = id else { continue };
                if let Some(call) = open.remove(&id) {
                    pairs.push(ToolPair { id, call, result: entry.seq() });
                }
            }
            _ => {}
        }
    }
    pairs
}

/// The positions that a plan keeps, in whatever form.
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

/// A call that an inserted message stands behind, where the session has its result right there.
fn parted(view: &Transcript, plan: &Plan) -> Option<String> {
    let items = plan.project(view);
    for three in items.windows(3) {
        let [before, PlanItem::Inserted { .. }, after] = three else { continue };
        let (Some(before), Some(after)) = (before.entry(), after.entry()) else { continue };
        let same_frame = after.role() == Role::Tool && before.frame() == after.frame();
        if same_frame && after.seq() == before.seq() + 1 && !after.has(Flags::ORPHAN) {
            return after.tool_result().map(|result| result.call_id.into_owned());
        }
    }
    None
}

/// What a plan costs by the host's count, repairs left aside.
pub(super) fn plan_tokens(view: &Transcript, plan: &Plan) -> u64 {
    plan.project(view).iter().map(PlanItem::tokens).sum()
}

/// Whether a plan keeps every entry as it is and says nothing of its own.
pub(super) fn is_no_op(view: &Transcript, plan: &Plan) -> bool {
    let items = plan.project(view);
    items.len() == view.len() && items.iter().all(|item| matches!(item, PlanItem::Kept(_)))
}

/// What a model would read of a plan, item by item: who speaks and the exact words.
pub(super) fn render_items(view: &Transcript, plan: &Plan) -> Vec<String> {
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

    fn verdict(build: impl FnOnce(&mut Plan)) -> Result<(), CheckFault> {
        let mut plan = Plan::default();
        build(&mut plan);
        check_plan("assemble", &view(), &plan, 1_000, ProviderFamily::Anthropic)
    }

    fn says(build: impl FnOnce(&mut Plan), rule: &str, words: &str) {
        let fault = verdict(build).unwrap_err();
        assert_eq!(fault.rule, rule);
        assert!(fault.message.contains(words), "{}", fault.message);
    }

    #[test]
    fn whole_pairs_pass() {
        assert_eq!(verdict(|plan| _ = plan.keep(0..5)), Ok(()));
        assert_eq!(verdict(|plan| _ = plan.keep(0..1).keep(4..5)), Ok(()));
    }

    #[test]
    fn half_pairs_are_named_with_the_answer_of_the_provider() {
        says(|plan| _ = plan.keep(2..5), "pairs", "assemble returned [2] without [1]; anthropic");
        says(|plan| _ = plan.keep(0..3).keep(4..5), "pairs", "returned [1] without [3]");
        let insert = |plan: &mut Plan| {
            plan.keep(0..2).insert(Role::User, "hm", 2..2).keep(2..5);
        };
        says(insert, "pairs", "a message between call a and its result");
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
        says(|plan| _ = plan.keep(0..9), "shape", "names 0..9 of 5 entries");
        says(|plan| _ = plan.replace_text(0, " "), "refused", "an empty text");
    }
}
