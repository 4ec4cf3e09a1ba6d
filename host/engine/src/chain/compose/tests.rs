//! A composed plan shows the same as its two plans one after the other.

use ctxhost_engine_api::testing::generate::{
    GeneratedTranscript, Script, rewrite_raw, transcripts,
};
use ctxhost_engine_api::{Entry, Flags, Message, PlanItem, Role, Transcript};
use proptest::prelude::*;

use super::super::view::{LinkView, LinkViews};
use super::*;
use ctxhost_invariants::{self as invariants, InvariantSettings, PinReason, Repair};

/// Large enough that only the shape of a plan is checked.
const BUDGET: u64 = 100_000;

fn keep_all(view: &Transcript) -> Plan {
    Plan::keep_all(view.len())
}

/// The view of an engine after a plan.
fn project(plan: &Plan, view: &Transcript) -> Transcript {
    LinkViews::default().project(&mut LinkView::default(), plan.clone(), view)
}

/// A plan with an operation for each entry, chosen by the next number.
fn walk(view: &Transcript, steps: &[u8]) -> Plan {
    let mut plan = Plan::default();
    for (entry, step) in view.iter().zip(steps.iter().cycle()) {
        take(&mut plan, &entry, *step);
    }
    plan
}

fn take(plan: &mut Plan, entry: &Entry<'_>, step: u8) {
    let seq = entry.seq();
    let text = format!("words {step} of {seq}");
    let is_rewritable = !entry.has(Flags::SYNTHETIC);
    match step {
        0..=4 => plan.keep(seq..seq + 1),
        5 => plan.keep(seq..seq + 1).note("layer", "kept"),
        6 | 7 => plan,
        8 => plan.leave_out(seq..seq + 1).note("layer", "gone"),
        9 => plan.replace_text(seq, text).note("layer", "shortened"),
        10 if is_rewritable => plan.replace_raw(seq, rewrite_raw(entry.raw(), &text)),
        11 => plan.insert(Role::User, text, seq..seq).keep(seq..seq + 1),
        12 => plan.insert(Role::Assistant, text, seq..seq + 1),
        13 => plan.keep(seq..seq + 1).insert(Role::User, text, 0..0),
        _ => plan.replace_text(seq, text),
    };
}

fn enforced(view: &Transcript, plan: Plan) -> Option<Plan> {
    invariants::enforce(view, plan, BUDGET, &InvariantSettings::default())
        .ok()
        .map(|enforced| enforced.plan)
}

/// The content of an item, however it is stored: role, text, calls.
type ItemContent = (Role, String, Vec<(String, String)>);

fn content(item: &PlanItem<'_>) -> ItemContent {
    let calls = match item {
        PlanItem::ReplacedRaw { raw, .. } => Message::parse(raw, "").tool_calls(),
        other => other.entry().map(|entry| entry.tool_calls()).unwrap_or_default(),
    };
    let calls = calls.iter().map(|call| (call.id.to_string(), call.arguments.to_string()));
    (item.role(), item.text().into_owned(), calls.collect())
}

fn contents(plan: &Plan, view: &Transcript) -> Vec<ItemContent> {
    plan.project(view).iter().map(content).collect()
}

fn sizes(plan: &Plan, view: &Transcript) -> Vec<u64> {
    plan.project(view).iter().map(PlanItem::tokens).collect()
}

fn check(
    first: impl FnOnce(&mut Plan),
    second: impl FnOnce(&mut Plan),
    expected: impl FnOnce(&mut Plan),
) {
    let mut plans = [Plan::default(), Plan::default(), Plan::default()];
    let [one, two, three] = &mut plans;
    first(one);
    second(two);
    expected(three);
    let [first, second, expected] = plans;
    assert_eq!(compose(&first, second).ops, expected.ops);
}

#[test]
fn the_example_of_the_module() {
    check(
        |plan| {
            plan.keep(0..1).insert(Role::User, "A", 1..4).replace_text(4, "four").keep(5..9);
        },
        |plan| _ = plan.keep(0..1).insert(Role::User, "B", 1..3).keep(4..7),
        |plan| _ = plan.keep(0..1).insert(Role::User, "B", 1..5).keep(6..9),
    );
}

#[test]
fn drops_of_the_first_stay_unless_the_second_covers_them() {
    check(
        |plan| {
            plan.leave_out(0..2).note("one", "old").keep(2..4).leave_out(4..6).keep(6..8);
        },
        |plan| _ = plan.keep(0..1).insert(Role::User, "B", 1..3).keep(3..4),
        |plan| {
            plan.leave_out(0..2).note("one", "old").keep(2..3);
            plan.insert(Role::User, "B", 3..7).keep(7..8);
        },
    );
}

#[test]
fn changes_of_the_second_win() {
    let raw = r#"{"role":"toolResult","toolCallId":"a","content":"x"}"#;
    check(
        |plan| _ = plan.replace_text(0, "one").insert(Role::User, "A", 1..2).replace_text(2, "c"),
        |plan| _ = plan.replace_text(0, "two").replace_text(1, "B").replace_raw(2, raw),
        |plan| _ = plan.replace_text(0, "two").insert(Role::User, "B", 1..2).replace_raw(2, raw),
    );
}

#[test]
fn calls_that_the_first_rewrote_stay_rewritten() {
    let call = r#"{"role":"assistant","content":[{"type":"text","text":"long"},{"type":"toolCall","id":"a","name":"read","arguments":{"short":1}}]}"#;
    let (mut first, mut second) = (Plan::default(), Plan::default());
    first.replace_raw(0, call);
    second.replace_text(0, "hm");
    let composed = compose(&first, second);
    let Some(Action::ReplaceRaw { seq: 0, raw }) = composed.ops.first().map(|op| &op.action) else {
        panic!("{composed:?}")
    };
    let message = Message::parse(raw, "");
    assert_eq!(message.text(), "hm");
    assert_eq!(message.tool_calls()[0].arguments, r#"{"short":1}"#);
}

#[test]
fn extras_of_both_are_merged() {
    let extras = |text: &str, epoch| PlanExtras {
        system_prompt_addition: Some(text.into()),
        projection_epoch: epoch,
        notes: vec![PlanNote::new(text, "did")],
        ..PlanExtras::default()
    };
    let first = Plan { extras: extras("one", Some(2)), estimated_tokens: 7, ..Plan::default() };
    let mut second = Plan { extras: extras("two", None), ..Plan::default() };
    second.extras.compaction_wanted = Some("full".into());
    let composed = compose(&first, second);
    assert_eq!(composed.extras.system_prompt_addition.as_deref(), Some("one\n\ntwo"));
    assert_eq!(composed.extras.projection_epoch, Some(2));
    assert_eq!(composed.extras.compaction_wanted.as_deref(), Some("full"));
    assert_eq!(composed.extras.notes.len(), 2);
    assert_eq!(composed.estimated_tokens, 7);
}

#[test]
fn positions_and_origins_are_inverse() {
    let mut plan = Plan::default();
    plan.keep(1..3).insert(Role::User, "A", 3..6).replace_text(6, "x").leave_out(7..8).keep(8..10);
    let shown = PlanProjection::new(&plan);
    assert_eq!(shown.origin_range(&(0..2)), 1..3);
    assert_eq!(shown.origin_range(&(2..4)), 3..7);
    assert_eq!(shown.origin_range(&(4..4)), 8..8);
    assert_eq!(shown.origin_range(&(6..6)), 10..10);
    assert_eq!(shown.projected_range(&(0..10)), 0..6);
    assert_eq!(shown.projected_range(&(4..9)), 2..5);
    assert_eq!(shown.projected_range(&(7..8)), 4..4);
    assert_eq!(shown.projected_range(&(10..12)), 6..6);
}

fn steps() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..14_u8, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_plan_that_keeps_everything_changes_nothing(generated in transcripts(), steps in steps()) {
        let view = generated.transcript();
        let Some(plan) = enforced(&view, walk(&view, &steps)) else { return Ok(()) };
        let shows = project(&plan, &view);
        let kept = compose(&plan, keep_all(&shows));
        prop_assert_eq!(contents(&kept, &view), contents(&plan, &view));
        prop_assert_eq!(&compose(&keep_all(&view), plan.clone()).ops.len(), &plan.ops.len());
        let has_place = |op: &&Op| !op.action.range().is_empty();
        let places = |plan: &Plan| plan.ops.iter().filter(has_place).cloned().collect::<Vec<_>>();
        prop_assert_eq!(places(&kept), places(&plan));
        prop_assert_eq!(places(&compose(&keep_all(&view), plan.clone())), places(&plan));
    }

    #[test]
    fn composing_is_projecting_twice(generated in transcripts(), one in steps(), two in steps()) {
        let view = generated.transcript();
        let Some(first) = enforced(&view, walk(&view, &one)) else { return Ok(()) };
        let shows = project(&first, &view);
        let Some(second) = enforced(&shows, walk(&shows, &two)) else { return Ok(()) };
        let (expected, expected_sizes) = (contents(&second, &shows), sizes(&second, &shows));
        let composed = compose(&first, second);
        prop_assert_eq!(contents(&composed, &view), expected);
        for (size, expected) in sizes(&composed, &view).into_iter().zip(expected_sizes) {
            // Calls are rounded one by one in one form of an entry, and together in another.
            prop_assert!(size.abs_diff(expected) <= 4, "{size} {expected}");
        }
    }

    #[test]
    fn a_composition_of_valid_plans_is_valid(
        generated in transcripts(),
        one in steps(),
        two in steps(),
    ) {
        let view = generated.transcript();
        let Some(first) = enforced(&view, walk(&view, &one)) else { return Ok(()) };
        let shows = project(&first, &view);
        let Some(second) = enforced(&shows, walk(&shows, &two)) else { return Ok(()) };
        let composed = compose(&first, second);
        let checked = invariants::enforce(&view, composed.clone(), BUDGET, &InvariantSettings::default());
        let checked = checked.map_err(|violation| TestCaseError::fail(violation.to_string()))?;
        // What the first puts in at the end hides from the second that calls are under way.
        let is_live = |repair: &Repair| {
            let (Repair::Reinserted { reason, .. } | Repair::RestoredText { reason, .. }) = repair
            else {
                return false;
            };
            *reason == PinReason::LiveToolRound
        };
        prop_assert!(checked.repairs.iter().all(is_live), "repaired: {:?}", checked.repairs);
        if checked.repairs.is_empty() {
            prop_assert_eq!(&checked.plan, &composed);
        }
        prop_assert_eq!(invariants::verify(&view, &checked.items(&view), BUDGET), vec![]);
    }

    /// The invariants treat a view like a session with the same entries.
    #[test]
    fn a_view_behind_a_plan_costs_what_the_plan_costs(generated in transcripts(), steps in steps()) {
        let view = generated.transcript();
        let Some(plan) = enforced(&view, walk(&view, &steps)) else { return Ok(()) };
        let shows = project(&plan, &view);
        prop_assert_eq!(contents(&keep_all(&shows), &shows), contents(&plan, &view));
        prop_assert_eq!(shows.total_tokens(), sizes(&plan, &view).iter().sum::<u64>());
        for entry in shows.iter() {
            prop_assert!(entry.frame() <= entry.seq());
        }
    }
}

#[test]
fn the_same_plan_makes_the_same_view_and_a_change_a_new_epoch() {
    let generated: GeneratedTranscript =
        Script::new().user("task").assistant("long answer").user("more").finish();
    let (view, views) = (generated.transcript(), LinkViews::default());
    let mut reading = LinkView::default();
    let mut plan = Plan::default();
    plan.keep(0..1).replace_text(1, "short").keep(2..3);
    let first = views.project(&mut reading, plan.clone(), &view);
    assert_eq!(reading.take_new_entries(&first), 0..3);
    let again = views.project(&mut reading, plan.clone(), &view);
    assert_eq!((again.epoch(), reading.take_new_entries(&again)), (first.epoch(), 3..3));
    let same = |view: &Transcript| view.get(1).unwrap().raw().as_ptr();
    assert_eq!(same(&again), same(&first), "changed words are worked out once");

    let mut log = generated.log();
    log.append(Script::new().assistant("and more").finish().entries[0].clone());
    let grown = views.project_last_plan(&mut reading, &log.snapshot());
    assert_eq!((grown.epoch(), reading.take_new_entries(&grown)), (first.epoch(), 3..4));
    assert_eq!(grown.get(1).unwrap().text(), "short");

    let other = views.project(&mut reading, keep_all(&view), &view);
    assert!(other.epoch() > first.epoch());
    assert_eq!(reading.take_new_entries(&other), 0..3);
}
