//! All invariants against generated transcripts, hostile plans and budgets.

mod planted;
mod providers;
mod room;

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::testing::generate::{
    GeneratedTranscript, Script, plans, plans_for, transcripts,
};
use ctxhost_engine_api::{Action, Flags, Plan, Role, Transcript};
use proptest::prelude::*;

use super::*;

const PLENTY: u64 = 1_000_000;

fn budgets() -> impl Strategy<Value = u64> {
    prop_oneof![0..60_u64, 60..2_000_u64, Just(PLENTY), Just(u64::MAX)]
}

fn cases() -> impl Strategy<Value = (GeneratedTranscript, Plan)> {
    transcripts().prop_flat_map(|generated| {
        let plans = prop_oneof![2 => plans_for(&generated).boxed(), 1 => plans(generated.entries.len()).boxed()];
        (Just(generated), plans)
    })
}

fn judge(view: &Transcript, plan: Plan, budget_tokens: u64) -> Result<EnforcedPlan, PlanViolation> {
    enforce(view, plan, budget_tokens, &InvariantSettings::default())
}

/// The emergency trim with a ledger that uses its whole budget.
fn trim(view: &Transcript, budget_tokens: u64) -> Result<Plan, EmergencyTrimError> {
    let words =
        |_: &[std::ops::Range<u64>], room: LedgerBudget| "led ".repeat(room.tokens as usize);
    emergency_trim(view, budget_tokens, &InvariantSettings::default(), &words)
}

fn violations(view: &Transcript, enforced: &EnforcedPlan) -> Vec<InvariantViolation> {
    verify(view, &enforced.items(view), u64::MAX)
}

/// The minimum of pinned entries, counted independently: 12 tokens for a text, 40 for a call.
fn smallest_budget(view: &Transcript) -> u64 {
    let pinned = PinnedEntries::from_transcript(view);
    let cost = |entry: ctxhost_engine_api::Entry<'_>| 12 + 40 * entry.tool_calls().len() as u64;
    pinned.all_ranges(view).iter().flat_map(|range| view.range(range)).map(cost).sum()
}

/// Pinned entries, and of the other frames, newest first, each that fits by the stated sizes of its entries.
fn packed(view: &Transcript, budget_tokens: u64) -> Plan {
    let mut kept = PinnedEntries::from_transcript(view).all_ranges(view);
    let mut left = budget_tokens - kept.iter().map(|range| view.tokens(range)).sum::<u64>();
    let mut end = view.len() as u64;
    while let Some(last) = end.checked_sub(1) {
        let frame = view.cut_at_or_before(last)..end;
        end = frame.start;
        let tokens = view.tokens(frame.clone());
        if !kept.contains(frame.start) && tokens <= left {
            left -= tokens;
            kept = kept.union(&ranges::RangeSet::from_ranges(Some(frame)));
        }
    }
    let mut plan = Plan::default();
    kept.iter().for_each(|range| _ = plan.keep(range));
    plan
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_plan_is_refused_or_made_valid((generated, plan) in cases(), budget_tokens in budgets()) {
        let view = generated.transcript();
        if let Ok(enforced) = judge(&view, plan, budget_tokens) {
            prop_assert_eq!(violations(&view, &enforced), vec![]);
            let items = enforced.items(&view);
            prop_assert_eq!(items.iter().map(PlanItem::tokens).sum::<u64>(), enforced.tokens);
            providers::check(&items)?;
        }
    }

    #[test]
    fn linked_answers_are_kept_together_or_dropped_together((generated, plan) in cases(), budget_tokens in budgets()) {
        let view = generated.transcript();
        let Ok(enforced) = judge(&view, plan, budget_tokens) else { return Ok(()) };
        let items = enforced.items(&view);
        let kept: HashSet<u64> = items.iter().filter_map(|item| Some(item.entry()?.seq())).collect();
        let mut uses = HashMap::new();
        for entry in view.iter().filter(|entry| entry.role() == Role::Assistant) {
            let message: serde_json::Value = serde_json::from_str(entry.raw()).unwrap();
            let ids = |name: &str| message["links"][name].as_array().cloned().unwrap_or_default();
            for id in ids("refers_to") {
                prop_assert_eq!(kept.contains(&uses[&id]), kept.contains(&entry.seq()), "{}", id);
            }
            uses.extend(ids("ids").into_iter().map(|id| (id, entry.seq())));
        }
    }

    #[test]
    fn enforcing_twice_changes_nothing((generated, plan) in cases(), budget_tokens in budgets()) {
        let view = generated.transcript();
        if let Ok(enforced) = judge(&view, plan.clone(), budget_tokens) {
            prop_assert_eq!(judge(&view, plan, budget_tokens), Ok(enforced.clone()));
            let again = judge(&view, enforced.plan.clone(), budget_tokens);
            let settled = EnforcedPlan { repairs: vec![], ..enforced };
            prop_assert_eq!(again, Ok(settled));
        }
    }

    #[test]
    fn everything_as_it_is_needs_no_repair(generated in transcripts(), budget_tokens in budgets()) {
        let view = generated.transcript();
        let enforced = judge(&view, Plan::keep_all(view.len()), budget_tokens);
        prop_assert_eq!(enforced.map(|enforced| enforced.repairs), Ok(vec![]));
    }

    #[test]
    fn the_emergency_trim_fits_and_is_valid(generated in transcripts(), budget_tokens in budgets()) {
        let view = generated.transcript();
        prop_assert_eq!(trim(&view, budget_tokens), trim(&view, budget_tokens));
        match trim(&view, budget_tokens) {
            Ok(plan) => {
                let enforced = judge(&view, plan.clone(), budget_tokens).unwrap();
                prop_assert_eq!(&enforced.repairs, &vec![]);
                prop_assert_eq!(&enforced.plan, &plan);
                let items = enforced.items(&view);
                prop_assert_eq!(verify(&view, &items, budget_tokens), vec![]);
                providers::check(&items)?;
            }
            Err(cannot) => {
                prop_assert!(cannot.needed_tokens > budget_tokens);
                prop_assert!(budget_tokens < smallest_budget(&view), "{cannot}");
            }
        }
    }

    #[test]
    fn an_engine_that_packs_to_the_last_token_is_within_the_budget(
        generated in transcripts(), spare_tokens in 0..2_000_u64,
    ) {
        let view = generated.transcript();
        let pinned = PinnedEntries::from_transcript(&view);
        let must_stay: u64 =
            pinned.all_ranges(&view).iter().map(|range| view.tokens(range)).sum();
        let budget_tokens = must_stay + spare_tokens + pinned.added_tokens();
        let plan = packed(&view, budget_tokens - pinned.added_tokens());
        let enforced = judge(&view, plan, budget_tokens).unwrap();
        prop_assert_eq!(&enforced.repairs, &vec![]);
        prop_assert!(enforced.tokens <= budget_tokens, "{} of {budget_tokens}", enforced.tokens);
    }

    #[test]
    fn an_auditor_that_follows_sees_what_a_fresh_one_sees((generated, plan) in cases()) {
        let view = generated.transcript();
        let mut log = ctxhost_engine_api::transcript::log::TranscriptLog::new(0);
        let mut auditor = InvariantVerifier::default();
        for entry in generated.entries {
            log.append(entry);
            auditor.verify(&log.snapshot(), &[], PLENTY);
        }
        let items = plan.project(&view);
        for _ in 0..2 {
            prop_assert_eq!(auditor.verify(&view, &items, PLENTY), verify(&view, &items, PLENTY));
        }
    }
}

/// The enforced plan of a script as positions: `r3` for a changed text, `i` for an insert, `-id` for a missing
/// result.
fn show(script: Script, build: impl FnOnce(&mut Plan)) -> (String, Vec<String>) {
    let view = script.finish().transcript();
    let mut plan = Plan::default();
    build(&mut plan);
    let enforced = judge(&view, plan, PLENTY).unwrap();
    let show = |item: &PlanItem<'_>| match item {
        PlanItem::Kept(entry) => entry.seq().to_string(),
        PlanItem::ReplacedText { entry, .. } | PlanItem::ReplacedRaw { entry, .. } => {
            format!("r{}", entry.seq())
        }
        PlanItem::MissingResult { call_id, .. } => format!("-{call_id}"),
        _ => "i".to_owned(),
    };
    let items: Vec<_> = enforced.items(&view).iter().map(show).collect();
    (items.join(" "), enforced.repairs.iter().map(ToString::to_string).collect())
}

fn round_trip() -> Script {
    let script =
        Script::new().user("task").calls("", &["a", "b"]).result("a", "1").result("b", "2");
    script.assistant("done").user("next").assistant("sure")
}

#[test]
fn a_cut_between_call_and_result_is_widened() {
    let (items, repairs) = show(round_trip(), |plan| _ = plan.keep(0..1).keep(3..7));
    assert_eq!(items, "0 1 2 3 4 5 6");
    assert_eq!(
        repairs,
        ["reinserted entries 1..3, which a cut had separated from their calls or results"]
    );
}

#[test]
fn what_must_stay_comes_back_in_its_place() {
    let (items, repairs) = show(round_trip(), |plan| {
        plan.insert(Role::User, "so far", 0..6).keep(6..7);
    });
    assert_eq!(items, "0 i 5 6");
    let expected =
        ["reinserted entries 0..1: pinned", "reinserted entries 5..6: newest user message"];
    assert_eq!(repairs, expected);
}

#[test]
fn the_live_round_comes_back_whole() {
    let script = Script::new().user("task").calls("", &["a", "b"]).result("b", "2");
    let (items, repairs) = show(script, |plan| _ = plan.keep(0..1));
    assert_eq!(items, "0 1 -a 2");
    assert_eq!(repairs, ["reinserted entries 1..3: live tool round"]);
}

#[test]
fn user_texts_are_restored_and_results_may_be_shortened() {
    let (items, repairs) = show(round_trip(), |plan| {
        plan.replace_text(0, "T").keep(1..2).replace_text(2, "s").keep(3..5).replace_text(5, "N");
    });
    assert_eq!(items, "0 1 r2 3 4 5");
    let expected = [
        "restored the text of entry 0: pinned",
        "restored the text of entry 5: newest user message",
    ];
    assert_eq!(repairs, expected);
}

#[test]
fn a_message_that_leaves_no_room_may_be_shortened() {
    let view = Script::new().user("task").user(&"x".repeat(2_400)).finish().transcript();
    let shortened = |budget_tokens| {
        let mut plan = Plan::default();
        plan.keep(0..1).replace_text(1, "x…");
        judge(&view, plan, budget_tokens).unwrap().repairs.is_empty()
    };
    assert!(!shortened(1_200) && shortened(1_199));
}

#[test]
fn thinking_in_the_live_round_stays() {
    let mut generated =
        Script::new().user("task").calls("I look", &["a"]).result("a", "1").finish();
    generated.entries[1].flags = generated.entries[1].flags.with(Flags::THINKING);
    let view = generated.transcript();
    let mut plan = Plan::default();
    plan.keep(0..1).replace_text(1, "").keep(2..3);
    let reason = PinReason::LiveToolRound;
    let repairs = judge(&view, plan, PLENTY).unwrap().repairs;
    assert_eq!(repairs, [Repair::RestoredText { seq: 1, reason }]);
}

#[test]
fn the_emergency_trim_handles_five_megabytes() {
    let script = Script::new().user("task").calls("", &["a"]);
    let view = script.result("a", &"ab 你 \u{1F600}".repeat(500_000)).finish().transcript();
    assert!(view.get(2).unwrap().raw().len() > 5_000_000);
    let plan = trim(&view, 240).unwrap();
    let enforced = judge(&view, plan, 240).unwrap();
    assert!((230..=240).contains(&enforced.tokens), "{}", enforced.tokens);
    assert_eq!(verify(&view, &enforced.items(&view), 240), vec![]);
}

#[test]
fn the_emergency_trim_shortens_arguments_of_a_live_call() {
    let script = Script::new().user("task").call_with_argument("a", &"long ".repeat(90_000));
    let view = script.finish().transcript();
    let plan = trim(&view, 240).unwrap();
    assert!(
        matches!(&plan.ops[1].action, Action::ReplaceRaw { raw, .. } if raw.contains("notes.md"))
    );
    let enforced = judge(&view, plan, 240).unwrap();
    assert_eq!(verify(&view, &enforced.items(&view), 240), vec![]);
}

#[test]
fn the_emergency_trim_fits_its_documented_minimum() {
    for calls in [1, 2, 30, 300] {
        let ids: Vec<String> = (0..calls).map(|k| format!("call_{k}")).collect();
        let refs: Vec<&str> = ids.iter().map(String::as_str).collect();
        let huge = "猫".repeat(5_000);
        let mut script =
            Script::new().system(&huge).user(&huge).user_with_images(&huge, 3).calls(&huge, &refs);
        for id in ids.iter().skip(calls / 2) {
            script = script.result(id, &huge);
        }
        let view = script.finish().transcript();
        let budget_tokens = 200 + 40 * calls as u64;
        let enforced = judge(&view, trim(&view, budget_tokens).unwrap(), budget_tokens).unwrap();
        assert_eq!(verify(&view, &enforced.items(&view), budget_tokens), vec![]);
    }
}

#[test]
fn the_emergency_trim_reaches_past_one_huge_result() {
    let script = Script::new().user("task").assistant("old").calls("", &["a"]);
    let view = script.result("a", &"x".repeat(90_000)).user("next").finish().transcript();
    let enforced = judge(&view, trim(&view, 800).unwrap(), 800).unwrap();
    assert_eq!(enforced.items(&view).len(), 5);
    assert!(enforced.tokens <= 800);
}

#[test]
fn the_emergency_trim_reports_what_cannot_fit() {
    let view = round_trip().finish().transcript();
    let cannot = trim(&view, 1).unwrap_err();
    assert_eq!(
        cannot.to_string(),
        "1 pinned entries, the newest user message and a live tool round of 0 calls \
        need 2 tokens at the least, but the budget is 1; use a model with a larger window, or \
        reserve less for the answer (max_tokens of the request, budget.reserve_max_share)"
    );
}
