//! What each stage reads, is told and is asked.

use ctxhost_engine_api::testing::generate::Script;
use ctxhost_engine_api::*;

use super::stage::*;

const LONG: &str = "an answer of more than twenty letters";

fn script() -> Script {
    Script::new().user("task").assistant(LONG).user("so?")
}

#[tokio::test]
async fn the_second_stage_reads_what_the_first_shows() {
    let stack = stack(&[puppet::<0>("reads", "shortens"), puppet::<1>("reads", "sums up")]);
    let view = script().assistant(LONG).user("and?").finish().transcript();
    let (staged, lawful) = shaped(&stack, &view, BUDGET).await;
    assert_eq!(staged.engine, "first+second");
    assert_eq!(staged.fallback, None);
    let told = heard("reads");
    assert_eq!(
        told[0],
        format!("first shapes within {BUDGET}: task | {LONG} | so? | {LONG} | and?")
    );
    assert_eq!(told[1], "second hears 0..5: task | short | so? | short | and?");
    assert_eq!(
        told[2],
        format!("second shapes within {BUDGET}: task | short | so? | short | and?")
    );
    let mut expected = Plan::default();
    expected.keep(0..1).insert(Role::User, "sum", 1..3).note("second", "put in");
    expected.replace_text(3, "short").note("shortener", "cut").keep(4..5);
    assert_eq!(lawful.plan.ops, expected.ops, "in positions of the session");
}

#[tokio::test]
async fn a_stage_is_told_once_of_what_stays_and_anew_of_what_changes() {
    let stack = stack(&[puppet::<0>("once", "shortens"), puppet::<1>("once", "")]);
    let generated = script().finish();
    let mut log = generated.log();
    shaped(&stack, &log.snapshot(), BUDGET).await;
    log.append(script().assistant("done").finish().entries[3].clone());
    shaped(&stack, &log.snapshot(), BUDGET).await;
    let heard: Vec<String> = heard("once").into_iter().filter(|it| it.contains("hears")).collect();
    assert_eq!(
        heard,
        ["second hears 0..3: task | short | so?", "second hears 3..4: task | short | so? | done"]
    );
}

#[tokio::test]
async fn who_left_something_out_without_a_word_is_named_for_it() {
    let stack = stack(&[puppet::<0>("named", ""), puppet::<1>("named", "drops the second")]);
    let (_, lawful) = shaped(&stack, &script().finish().transcript(), BUDGET).await;
    let dropped = lawful.plan.ops.iter().find(|op| matches!(op.action, Action::Drop(_))).unwrap();
    assert_eq!(dropped.action, Action::Drop(1..2));
    assert_eq!(dropped.note, Some(PlanNote::new("second", "left out")));
}

#[tokio::test]
async fn what_the_law_mends_behind_a_stage_is_told_in_positions_of_the_session() {
    let does = ["drops the second", "drops the second"];
    let stack = stack(&[puppet::<0>("mends", does[0]), puppet::<1>("mends", does[1])]);
    let view = Script::new().user("task").assistant("a").user("so?").finish().transcript();
    let (staged, lawful) = shaped(&stack, &view, BUDGET).await;
    // The second stage saw 0 and 2, and left out the newest message of the person.
    assert_eq!(staged.repairs.len(), 1, "{:?}", staged.repairs);
    assert!(staged.repairs[0].to_string().contains("2..3"), "{}", staged.repairs[0]);
    let kept: Vec<u64> =
        lawful.items(&view).iter().filter_map(|it| Some(it.entry()?.seq())).collect();
    assert_eq!(kept, [0, 2]);
}

#[tokio::test]
async fn the_end_of_a_turn_is_told_in_positions_of_each() {
    let stack = stack(&[puppet::<0>("turn", "drops the second"), puppet::<1>("turn", "")]);
    let mut log = script().finish().log();
    let view = log.snapshot();
    stack
        .bootstrap(&view, BootstrapRequest { session: session(), ..Default::default() })
        .await
        .unwrap();
    shaped(&stack, &view, BUDGET).await;
    log.append(script().assistant("done").finish().entries[3].clone());
    let view = log.snapshot();
    let after = AfterTurnRequest { session: session(), entries: 2..4, ..Default::default() };
    stack.after_turn(&view, after).await.unwrap();
    let commit = CommitTurnRequest { session: session(), entries: 2..4, ..Default::default() };
    assert_eq!(stack.commit_turn(&view, commit).await.unwrap().value, CommitTurnReply::Committed);
    let told = heard("turn");
    let of = |who: &str, what: &str| {
        let found = told.iter().find(|line| line.starts_with(&format!("{who} {what}")));
        found.unwrap_or_else(|| panic!("{who} {what}: {told:#?}")).clone()
    };
    assert_eq!(of("first", "after"), format!("first after 2..4: task | {LONG} | so? | done"));
    assert_eq!(of("second", "after"), "second after 1..3: task | so? | done");
    assert_eq!(of("second", "hears 2..3"), "second hears 2..3: task | so? | done");
    assert_eq!(of("second", "commits"), "second commits 1..3: task | so? | done");
}

#[tokio::test]
async fn the_last_stage_with_a_compaction_of_its_own_makes_it_over_the_session() {
    let engines = [puppet::<0>("compacts", "compacts"), puppet::<1>("compacts", "shortens")];
    let stack = stack(&engines);
    let view = script().assistant("done").finish().transcript();
    shaped(&stack, &view, BUDGET).await;
    heard("compacts");
    let request =
        CompactRequest { session: session(), budget: BUDGET, ..CompactRequest::default() };
    let served = stack.compact(&view, request).await.unwrap();
    assert_eq!(served.engine, "first");
    let Compaction::Plan(plan) = served.value else { panic!("{served:?}") };
    assert_eq!(plan.ops[1].action.range(), 1..3);
    let told = heard("compacts");
    let whole = format!("task | {LONG} | so? | done");
    assert_eq!(told.last().unwrap(), &format!("first compacts: {whole}"));
    assert!(told.contains(&format!("second compacts: {whole}")), "{told:#?}");
}

#[tokio::test]
async fn where_all_delegate_the_bundled_engine_compacts_and_one_that_breaks_is_left_out() {
    let view = script().assistant("done").finish().transcript();
    let request = CompactRequest {
        session: session(),
        budget: BUDGET,
        force: true,
        trigger: Trigger::Manual,
        ..CompactRequest::default()
    };
    let all = stack(&[puppet::<0>("delegate", ""), puppet::<1>("delegate", "")]);
    assert_eq!(all.compact(&view, request.clone()).await.unwrap().engine, "legacy");
    let broken =
        stack(&[puppet::<0>("delegate", "compacts"), puppet::<1>("delegate", "breaks in compact")]);
    let error = broken.compact(&view, request.clone()).await.expect_err("it breaks").to_string();
    assert!(error.contains("\"second\" failed in compact"), "{error}");
    assert_eq!(broken.compact(&view, request).await.unwrap().engine, "first");
}

#[tokio::test]
async fn tools_of_all_stages_are_offered_and_called_where_they_belong() {
    let stack = stack(&[puppet::<0>("tools", "shortens"), puppet::<1>("tools", "")]);
    let tools = stack.tools(session()).await.unwrap().value;
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["shared", "first", "second"]);
    let view = script().finish().transcript();
    shaped(&stack, &view, BUDGET).await;
    heard("tools");
    for name in ["shared", "second"] {
        let call = ToolCallRequest { session: session(), name: name.into(), ..Default::default() };
        stack.call_tool(&view, call).await.unwrap();
    }
    let expected = [
        format!("first is called as shared: task | {LONG} | so?"),
        "second is called as second: task | short | so?".to_owned(),
    ];
    assert_eq!(heard("tools"), expected);
}
