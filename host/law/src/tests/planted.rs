//! Planted defects: what the audit and the rules of the providers must find when it is there.

use ctxhost_engine_api::testing::generate::rewritten;

use super::*;

/// A conversation with two rounds, the second of them live.
fn conversation() -> GeneratedTranscript {
    let script = Script::new().system("rules").user("task").calls("", &["a", "b"]);
    let script = script.result("a", "1").result("b", "2").user("next").calls("", &["c"]);
    script.result("c", "3").finish()
}

/// Spoils the lawful items of the conversation and names what the audit finds.
fn check(spoil: impl FnOnce(&mut Vec<Item<'_>>), expected: &[Breach]) {
    let view = conversation().transcript();
    let lawful = judge(&view, Plan::keep_all(view.len()), PLENTY).unwrap();
    let mut items = lawful.items(&view);
    assert_eq!(audit(&view, &items, lawful.tokens), []);
    spoil(&mut items);
    assert_eq!(audit(&view, &items, PLENTY), expected);
}

fn call(id: &str) -> Breach {
    Breach::CallWithoutResult { call_id: id.to_owned() }
}

fn result(id: &str) -> Breach {
    Breach::ResultWithoutCall { call_id: id.to_owned() }
}

fn dropped(seq: u64, because: Because) -> Breach {
    Breach::Dropped { seq, because }
}

#[test]
fn a_lost_result() {
    let out_of_order = Breach::ResultsOutOfOrder { call_id: "b".into() };
    check(|items| _ = items.remove(3), &[out_of_order, call("a")]);
    check(|items| _ = items.remove(4), &[call("b")]);
    let live = dropped(7, Because::LiveToolRound);
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
fn results_in_another_order() {
    check(|items| items.swap(3, 4), &[Breach::ResultsOutOfOrder { call_id: "b".into() }]);
}

#[test]
fn messages_in_another_order() {
    check(|items| items.swap(0, 1), &[Breach::OutOfOrder { seq: 0 }]);
}

#[test]
fn an_entry_that_comes_twice() {
    check(|items| items.insert(4, items[3].clone()), &[result("a"), Breach::Repeated { seq: 3 }]);
}

#[test]
fn dropped_messages() {
    check(|items| _ = items.remove(5), &[dropped(5, Because::NewestUserMessage)]);
    check(|items| _ = items.remove(0), &[dropped(0, Because::Pinned)]);
    check(|items| items.truncate(6), &[dropped(7, Because::LiveToolRound)]);
}

#[test]
fn an_open_call_at_the_end_is_dropped() {
    let view = Script::new().user("task").calls("", &["a"]).finish().transcript();
    let items: Vec<_> = view.range(0..1).map(Item::Kept).collect();
    assert_eq!(audit(&view, &items, PLENTY), [dropped(1, Because::LiveToolRound)]);
}

#[test]
fn a_forged_rewrite() {
    let generated = conversation();
    let raw = generated.entries[2].raw.replace(r#""id":"b""#, r#""id":"x""#);
    let honest = rewritten(&generated.entries[2].raw, "I look");
    let view = generated.transcript();
    let audited = |raw: &str| {
        let mut items: Vec<_> = view.iter().map(Item::Kept).collect();
        items[2] = Item::Rewritten { entry: view.get(2).unwrap(), raw };
        audit(&view, &items, PLENTY)
    };
    assert_eq!(audited(&honest), []);
    assert_eq!(audited(&raw), [Breach::Forged { seq: 2 }, result("b"), call("x")]);
}

#[test]
fn a_budget_that_is_exceeded() {
    let view = conversation().transcript();
    let items: Vec<_> = view.iter().map(Item::Kept).collect();
    let tokens = view.total_tokens();
    let budget_tokens = tokens - 1;
    assert_eq!(audit(&view, &items, budget_tokens), [Breach::OverBudget { tokens, budget_tokens }]);
    assert_eq!(audit(&view, &items, tokens), []);
}

proptest! {
    /// Whatever single call or result goes missing anywhere, both judges see it.
    #[test]
    fn any_lost_half_of_a_pair(generated in transcripts(), at in any::<prop::sample::Index>()) {
        let view = generated.transcript();
        let lawful = judge(&view, Plan::keep_all(view.len()), PLENTY).unwrap();
        let mut items = lawful.items(&view);
        let halves: Vec<usize> = (0..items.len())
            .filter(|k| items[*k].calls_tools() || items[*k].role() == Role::Tool)
            .collect();
        prop_assume!(!halves.is_empty());
        items.remove(halves[at.index(halves.len())]);
        let is_half = |breach: &Breach| {
            matches!(breach, Breach::CallWithoutResult { .. } | Breach::ResultWithoutCall { .. })
        };
        prop_assert!(audit(&view, &items, u64::MAX).iter().any(is_half));
        prop_assert!(providers::check(&items).is_err());
    }

    /// A raw projection of a cut through a frame is what the law is there for.
    #[test]
    fn without_the_law_a_cut_is_found(generated in transcripts()) {
        let view = generated.transcript();
        let cut = view.iter().find(|entry| entry.role() == Role::Tool && !entry.is_cut_point());
        prop_assume!(cut.is_some());
        let items: Vec<_> = view.range(cut.unwrap().seq()..view.len() as u64).map(Item::Kept).collect();
        prop_assert!(providers::check(&items).is_err());
    }
}
