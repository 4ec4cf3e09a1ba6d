//! The law as a whole, against any transcript, any hostile plan and any budget.

mod planted;
mod providers;
mod room;

use ctxhost_engine_api::testing::generate::{
    GeneratedTranscript, Script, plans, plans_for, transcripts,
};
use ctxhost_engine_api::{Action, Flags, Plan, Role, Transcript};
use proptest::prelude::*;

use super::{emergency_trim as rung_of, *};

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

/// The plan of the last rung, with a ledger that takes all it may.
fn last_rung(view: &Transcript, budget_tokens: u64) -> Result<Plan, EmergencyTrimError> {
    let words =
        |_: &[std::ops::Range<u64>], room: LedgerBudget| "led ".repeat(room.tokens as usize);
    rung_of(view, budget_tokens, &InvariantSettings::default(), &words)
}

fn breaches(view: &Transcript, lawful: &EnforcedPlan) -> Vec<InvariantViolation> {
    verify(view, &lawful.items(view), u64::MAX)
}

/// What must stay, counted without the law: no text needs more than 12 tokens, no call more than 40.
fn smallest_budget(view: &Transcript) -> u64 {
    let anchors = PinnedEntries::from_transcript(view);
    let cost = |entry: ctxhost_engine_api::Entry<'_>| 12 + 40 * entry.tool_calls().len() as u64;
    anchors.all_ranges(view).iter().flat_map(|range| view.range(range)).map(cost).sum()
}

/// What must stay, and of the other frames, newest first, each that fits what is left, by the sizes that
/// entries state.
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
    fn a_plan_is_refused_or_made_lawful((generated, plan) in cases(), budget_tokens in budgets()) {
        let view = generated.transcript();
        if let Ok(lawful) = judge(&view, plan, budget_tokens) {
            prop_assert_eq!(breaches(&view, &lawful), vec![]);
            let items = lawful.items(&view);
            prop_assert_eq!(items.iter().map(PlanItem::tokens).sum::<u64>(), lawful.tokens);
            providers::check(&items)?;
        }
    }

    #[test]
    fn enforcing_twice_changes_nothing((generated, plan) in cases(), budget_tokens in budgets()) {
        let view = generated.transcript();
        if let Ok(lawful) = judge(&view, plan.clone(), budget_tokens) {
            prop_assert_eq!(judge(&view, plan, budget_tokens), Ok(lawful.clone()));
            let again = judge(&view, lawful.plan.clone(), budget_tokens);
            let settled = EnforcedPlan { repairs: vec![], ..lawful };
            prop_assert_eq!(again, Ok(settled));
        }
    }

    #[test]
    fn everything_as_it_is_needs_no_repair(generated in transcripts(), budget_tokens in budgets()) {
        let view = generated.transcript();
        let lawful = judge(&view, Plan::keep_all(view.len()), budget_tokens);
        prop_assert_eq!(lawful.map(|lawful| lawful.repairs), Ok(vec![]));
    }

    #[test]
    fn the_last_rung_fits_and_is_lawful(generated in transcripts(), budget_tokens in budgets()) {
        let view = generated.transcript();
        prop_assert_eq!(last_rung(&view, budget_tokens), last_rung(&view, budget_tokens));
        match last_rung(&view, budget_tokens) {
            Ok(plan) => {
                let lawful = judge(&view, plan.clone(), budget_tokens).unwrap();
                prop_assert_eq!(&lawful.repairs, &vec![]);
                prop_assert_eq!(&lawful.plan, &plan);
                let items = lawful.items(&view);
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
        let anchors = PinnedEntries::from_transcript(&view);
        let must_stay: u64 =
            anchors.all_ranges(&view).iter().map(|range| view.tokens(range)).sum();
        let budget_tokens = must_stay + spare_tokens + anchors.added_tokens();
        let plan = packed(&view, budget_tokens - anchors.added_tokens());
        let lawful = judge(&view, plan, budget_tokens).unwrap();
        prop_assert_eq!(&lawful.repairs, &vec![]);
        prop_assert!(lawful.tokens <= budget_tokens, "{} of {budget_tokens}", lawful.tokens);
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
        prop_assert_eq!(auditor.verify(&view, &items, PLENTY), verify(&view, &items, PLENTY));
    }
}

/// What the law makes of a plan for a script, as positions: `r3` for retold, `i` for inserted,
/// `-id` for a missing result.
fn told(script: Script, build: impl FnOnce(&mut Plan)) -> (String, Vec<String>) {
    let view = script.finish().transcript();
    let mut plan = Plan::default();
    build(&mut plan);
    let lawful = judge(&view, plan, PLENTY).unwrap();
    let tell = |item: &PlanItem<'_>| match item {
        PlanItem::Kept(entry) => entry.seq().to_string(),
        PlanItem::ReplacedText { entry, .. } | PlanItem::ReplacedRaw { entry, .. } => {
            format!("r{}", entry.seq())
        }
        PlanItem::MissingResult { call_id, .. } => format!("-{call_id}"),
        _ => "i".to_owned(),
    };
    let items: Vec<_> = lawful.items(&view).iter().map(tell).collect();
    (items.join(" "), lawful.repairs.iter().map(ToString::to_string).collect())
}

fn round_trip() -> Script {
    let script =
        Script::new().user("task").calls("", &["a", "b"]).result("a", "1").result("b", "2");
    script.assistant("done").user("next").assistant("sure")
}

#[test]
fn a_cut_between_call_and_result_is_widened() {
    let (items, repairs) = told(round_trip(), |plan| _ = plan.keep(0..1).keep(3..7));
    assert_eq!(items, "0 1 2 3 4 5 6");
    assert_eq!(
        repairs,
        ["put back entries 1..3, which a cut had separated from their calls or results"]
    );
}

#[test]
fn what_must_stay_comes_back_in_its_place() {
    let (items, repairs) = told(round_trip(), |plan| {
        plan.insert(Role::User, "so far", 0..6).keep(6..7);
    });
    assert_eq!(items, "0 i 5 6");
    let expected = ["put back entries 0..1: pinned", "put back entries 5..6: newest user message"];
    assert_eq!(repairs, expected);
}

#[test]
fn the_live_round_comes_back_whole() {
    let script = Script::new().user("task").calls("", &["a", "b"]).result("b", "2");
    let (items, repairs) = told(script, |plan| _ = plan.keep(0..1));
    assert_eq!(items, "0 1 -a 2");
    assert_eq!(repairs, ["put back entries 1..3: live tool round"]);
}

#[test]
fn the_words_of_the_person_are_restored_and_results_may_be_shortened() {
    let (items, repairs) = told(round_trip(), |plan| {
        plan.replace_text(0, "T").keep(1..2).replace_text(2, "s").keep(3..5).replace_text(5, "N");
    });
    assert_eq!(items, "0 1 r2 3 4 5");
    let expected = [
        "restored the words of entry 0: pinned",
        "restored the words of entry 5: newest user message",
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
    let because = PinReason::LiveToolRound;
    let repairs = judge(&view, plan, PLENTY).unwrap().repairs;
    assert_eq!(repairs, [Repair::RestoredText { seq: 1, because }]);
}

#[test]
fn the_last_rung_takes_five_megabytes_apart() {
    let script = Script::new().user("task").calls("", &["a"]);
    let view = script.result("a", &"ab 你 \u{1F600}".repeat(500_000)).finish().transcript();
    assert!(view.get(2).unwrap().raw().len() > 5_000_000);
    let plan = last_rung(&view, 240).unwrap();
    let lawful = judge(&view, plan, 240).unwrap();
    assert!((230..=240).contains(&lawful.tokens), "{}", lawful.tokens);
    assert_eq!(verify(&view, &lawful.items(&view), 240), vec![]);
}

#[test]
fn the_last_rung_shortens_arguments_of_a_live_call() {
    let script = Script::new().user("task").call_with_argument("a", &"long ".repeat(90_000));
    let view = script.finish().transcript();
    let plan = last_rung(&view, 240).unwrap();
    assert!(
        matches!(&plan.ops[1].action, Action::ReplaceRaw { raw, .. } if raw.contains("notes.md"))
    );
    let lawful = judge(&view, plan, 240).unwrap();
    assert_eq!(verify(&view, &lawful.items(&view), 240), vec![]);
}

#[test]
fn the_last_rung_holds_its_documented_minimum() {
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
        let lawful = judge(&view, last_rung(&view, budget_tokens).unwrap(), budget_tokens).unwrap();
        assert_eq!(verify(&view, &lawful.items(&view), budget_tokens), vec![]);
    }
}

#[test]
fn the_last_rung_reaches_past_one_huge_result() {
    let script = Script::new().user("task").assistant("old").calls("", &["a"]);
    let view = script.result("a", &"x".repeat(90_000)).user("next").finish().transcript();
    let lawful = judge(&view, last_rung(&view, 800).unwrap(), 800).unwrap();
    assert_eq!(lawful.items(&view).len(), 5);
    assert!(lawful.tokens <= 800);
}

#[test]
fn the_last_rung_says_what_cannot_fit() {
    let view = round_trip().finish().transcript();
    let cannot = last_rung(&view, 1).unwrap_err();
    assert_eq!(
        cannot.to_string(),
        "1 pinned entries, the newest user message and a live tool round of 0 calls \
        need 2 tokens at the least, but the budget is 1; use a model with a larger window or a smaller reserve"
    );
}
