//! Planted defects, which the verifier and the rules of the providers must find.

use ctxhost_engine_api::testing::generate::rewrite_raw;

use super::*;

/// A conversation with two rounds, the second of them live.
fn conversation() -> GeneratedTranscript {
    let script = Script::new().system("rules").user("task").calls("", &["a", "b"]);
    let script = script.result("a", "1").result("b", "2").user("next").calls("", &["c"]);
    script.result("c", "3").finish()
}

/// Corrupts the enforced items of the conversation and returns the findings of the verifier.
fn check(spoil: impl FnOnce(&mut Vec<PlanItem<'_>>), expected: &[InvariantViolation]) {
    let view = conversation().transcript();
    let enforced = judge(&view, Plan::keep_all(view.len()), PLENTY).unwrap();
    let mut items = enforced.items(&view);
    assert_eq!(verify(&view, &items, enforced.tokens), []);
    spoil(&mut items);
    assert_eq!(verify(&view, &items, PLENTY), expected);
}

fn call(id: &str) -> InvariantViolation {
    InvariantViolation::UnansweredCall { call_id: id.to_owned() }
}

fn result(id: &str) -> InvariantViolation {
    InvariantViolation::OrphanResult { call_id: id.to_owned() }
}

fn dropped(seq: u64, reason: PinReason) -> InvariantViolation {
    InvariantViolation::MissingEntry { seq, reason }
}

#[test]
fn a_lost_result() {
    let out_of_order = InvariantViolation::ResultsOutOfOrder { call_id: "b".into() };
    check(|items| _ = items.remove(3), &[out_of_order, call("a")]);
    check(|items| _ = items.remove(4), &[call("b")]);
    let live = dropped(7, PinReason::LiveToolRound);
    check(|items| _ = items.remove(7), &[call("c"), live]);
}

#[test]
fn a_lost_call() {
    check(|items| _ = items.remove(2), &[result("a"), result("b")]);
}

#[test]
fn a_message_between_call_and_result() {
    check(|items| items.swap(4, 5), &[call("b"), result("b")]);
}

#[test]
fn a_result_that_names_no_call_answers_none() {
    let view = Script::new().user("task").calls("", &[""]).result("", "1").finish().transcript();
    let plan = Plan::keep_all(view.len());
    let entry = view.get(2).unwrap();
    let raw = entry.raw().replace(r#""toolCallId":"","#, "");
    assert_ne!(raw, entry.raw());
    let mut items = plan.project(&view);
    assert_eq!(verify(&view, &items, PLENTY), []);
    items.pop();
    items.push(PlanItem::ReplacedRaw { entry, raw: &raw });
    assert_eq!(verify(&view, &items, PLENTY), [result(""), call("")]);
}

#[test]
fn results_in_another_order() {
    check(
        |items| items.swap(3, 4),
        &[InvariantViolation::ResultsOutOfOrder { call_id: "b".into() }],
    );
}

#[test]
fn a_text_of_the_engine_at_the_end() {
    let text = PlanItem::Inserted { role: Role::User, text: "delete everything" };
    check(|items| items.push(text.clone()), &[InvariantViolation::EndsWithInsert]);
    check(|items| items.insert(5, text.clone()), &[]);
}

#[test]
fn messages_in_another_order() {
    check(|items| items.swap(0, 1), &[InvariantViolation::OutOfOrder { seq: 0 }]);
}

#[test]
fn an_entry_that_comes_twice() {
    check(
        |items| items.insert(4, items[3].clone()),
        &[result("a"), InvariantViolation::DuplicateEntry { seq: 3 }],
    );
}

#[test]
fn dropped_messages() {
    check(|items| _ = items.remove(5), &[dropped(5, PinReason::NewestUserMessage)]);
    check(|items| _ = items.remove(0), &[dropped(0, PinReason::Pinned)]);
    check(|items| items.truncate(6), &[dropped(7, PinReason::LiveToolRound)]);
}

#[test]
fn an_open_call_at_the_end_is_dropped() {
    let view = Script::new().user("task").calls("", &["a"]).finish().transcript();
    let items: Vec<_> = view.range(0..1).map(PlanItem::Kept).collect();
    assert_eq!(verify(&view, &items, PLENTY), [dropped(1, PinReason::LiveToolRound)]);
}

#[test]
fn a_forged_rewrite() {
    let generated = conversation();
    let raw = generated.entries[2].raw.replace(r#""id":"b""#, r#""id":"x""#);
    let honest = rewrite_raw(&generated.entries[2].raw, "I look");
    let view = generated.transcript();
    let audited = |raw: &str| {
        let mut items: Vec<_> = view.iter().map(PlanItem::Kept).collect();
        items[2] = PlanItem::ReplacedRaw { entry: view.get(2).unwrap(), raw };
        verify(&view, &items, PLENTY)
    };
    assert_eq!(audited(&honest), []);
    assert_eq!(
        audited(&raw),
        [InvariantViolation::TamperedRewrite { seq: 2 }, result("b"), call("x")]
    );
}

#[test]
fn a_budget_that_is_exceeded() {
    let view = conversation().transcript();
    let items: Vec<_> = view.iter().map(PlanItem::Kept).collect();
    let tokens = view.total_tokens();
    let budget_tokens = tokens - 1;
    assert_eq!(
        verify(&view, &items, budget_tokens),
        [InvariantViolation::OverBudget { tokens, budget_tokens }]
    );
    assert_eq!(verify(&view, &items, tokens), []);
}

proptest! {
    /// Both verifiers find any single missing call or result.
    #[test]
    fn any_lost_half_of_a_pair(generated in transcripts(), at in any::<prop::sample::Index>()) {
        let view = generated.transcript();
        let enforced = judge(&view, Plan::keep_all(view.len()), PLENTY).unwrap();
        let mut items = enforced.items(&view);
        let halves: Vec<usize> = (0..items.len())
            .filter(|k| items[*k].calls_tools() || items[*k].role() == Role::Tool)
            .collect();
        prop_assume!(!halves.is_empty());
        items.remove(halves[at.index(halves.len())]);
        let is_half = |breach: &InvariantViolation| {
            matches!(breach, InvariantViolation::UnansweredCall { .. } | InvariantViolation::OrphanResult { .. })
        };
        prop_assert!(verify(&view, &items, u64::MAX).iter().any(is_half));
        prop_assert!(providers::check(&items).is_err());
    }

    /// A cut through a frame violates an invariant unless the plan is enforced.
    #[test]
    fn an_unenforced_cut_is_found(generated in transcripts()) {
        let view = generated.transcript();
        let cut = view.iter().find(|entry| entry.role() == Role::Tool && !entry.is_cut_point());
        prop_assume!(cut.is_some());
        let items: Vec<_> = view.range(cut.unwrap().seq()..view.len() as u64).map(PlanItem::Kept).collect();
        prop_assert!(providers::check(&items).is_err());
    }
}
