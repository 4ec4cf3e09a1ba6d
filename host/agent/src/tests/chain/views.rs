//! What each engine of a chain reads and which calls it gets.

use ctxhost_engine_api::testing::generate::Script;
use ctxhost_engine_api::*;

use super::fixture::*;

const LONG: &str = "an answer of more than twenty characters";

fn script() -> Script {
    Script::new().user("task").assistant(LONG).user("so?")
}

#[tokio::test]
async fn the_second_engine_reads_the_plan_of_the_first() {
    let chain = open_chain(&[
        scripted_engine::<0>("reads", "shortens"),
        scripted_engine::<1>("reads", "sums up"),
    ]);
    let view = script().assistant(LONG).user("and?").finish().transcript();
    let (staged, checked) = assemble(&chain, &view, BUDGET).await;
    assert_eq!(staged.engine, "first+second");
    assert_eq!(staged.fallback, None);
    let log = calls("reads");
    assert_eq!(
        log[0],
        format!("first assembles within {BUDGET}: task | {LONG} | so? | {LONG} | and?")
    );
    assert_eq!(log[1], "second ingests 0..5: task | short | so? | short | and?");
    assert_eq!(
        log[2],
        format!("second assembles within {BUDGET}: task | short | so? | short | and?")
    );
    let mut expected = Plan::default();
    expected.keep(0..1).insert(Role::User, "sum", 1..3).note("second", "put in");
    expected.replace_text(3, "short").note("shortener", "cut").keep(4..5);
    assert_eq!(checked.plan.ops, expected.ops, "in positions of the session");
}

#[tokio::test]
async fn an_engine_ingests_only_what_has_changed() {
    let chain =
        open_chain(&[scripted_engine::<0>("once", "shortens"), scripted_engine::<1>("once", "")]);
    let generated = script().finish();
    let mut log = generated.log();
    assemble(&chain, &log.snapshot(), BUDGET).await;
    log.append(script().assistant("done").finish().entries[3].clone());
    assemble(&chain, &log.snapshot(), BUDGET).await;
    let calls: Vec<String> =
        calls("once").into_iter().filter(|it| it.contains("ingests")).collect();
    assert_eq!(
        calls,
        [
            "second ingests 0..3: task | short | so?",
            "second ingests 3..4: task | short | so? | done"
        ]
    );
}

#[tokio::test]
async fn dropped_entries_name_their_engine() {
    let chain = open_chain(&[
        scripted_engine::<0>("named", ""),
        scripted_engine::<1>("named", "drops the second"),
    ]);
    let (_, checked) = assemble(&chain, &script().finish().transcript(), BUDGET).await;
    let dropped = checked.plan.ops.iter().find(|op| matches!(op.action, Action::Drop(_))).unwrap();
    assert_eq!(dropped.action, Action::Drop(1..2));
    assert_eq!(dropped.note, Some(PlanNote::new("second", "left out")));
}

#[tokio::test]
async fn repairs_have_positions_of_the_session() {
    let does = ["drops the second", "drops the second"];
    let chain = open_chain(&[
        scripted_engine::<0>("mends", does[0]),
        scripted_engine::<1>("mends", does[1]),
    ]);
    let view = Script::new().user("task").assistant("a").user("so?").finish().transcript();
    let (staged, checked) = assemble(&chain, &view, BUDGET).await;
    // The second engine saw 0 and 2, and left out the newest message of the user.
    assert_eq!(staged.repairs.len(), 1, "{:?}", staged.repairs);
    assert!(staged.repairs[0].to_string().contains("2..3"), "{}", staged.repairs[0]);
    let kept: Vec<u64> =
        checked.items(&view).iter().filter_map(|it| Some(it.entry()?.seq())).collect();
    assert_eq!(kept, [0, 2]);
}

#[tokio::test]
async fn each_engine_gets_the_end_of_a_turn_in_its_own_positions() {
    let chain = open_chain(&[
        scripted_engine::<0>("turn", "drops the second"),
        scripted_engine::<1>("turn", ""),
    ]);
    let mut log = script().finish().log();
    let view = log.snapshot();
    chain
        .bootstrap(&view, BootstrapRequest { session: session(), ..Default::default() })
        .await
        .unwrap();
    assemble(&chain, &view, BUDGET).await;
    log.append(script().assistant("done").finish().entries[3].clone());
    let view = log.snapshot();
    let after = AfterTurnRequest { session: session(), entries: 2..4, ..Default::default() };
    chain.after_turn(&view, after).await.unwrap();
    let commit = CommitTurnRequest { session: session(), entries: 2..4, ..Default::default() };
    assert_eq!(chain.commit_turn(&view, commit).await.unwrap().value, CommitTurnReply::Committed);
    let log = calls("turn");
    let of = |who: &str, what: &str| {
        let found = log.iter().find(|line| line.starts_with(&format!("{who} {what}")));
        found.unwrap_or_else(|| panic!("{who} {what}: {log:#?}")).clone()
    };
    assert_eq!(of("first", "after"), format!("first after 2..4: task | {LONG} | so? | done"));
    assert_eq!(of("second", "after"), "second after 1..3: task | so? | done");
    assert_eq!(of("second", "ingests 2..3"), "second ingests 2..3: task | so? | done");
    assert_eq!(of("second", "commits"), "second commits 1..3: task | so? | done");
}

#[tokio::test]
async fn the_last_stage_with_a_compaction_of_its_own_makes_it_over_the_session() {
    let engines = [
        scripted_engine::<0>("compacts", "compacts"),
        scripted_engine::<1>("compacts", "shortens"),
    ];
    let chain = open_chain(&engines);
    let view = script().assistant("done").finish().transcript();
    assemble(&chain, &view, BUDGET).await;
    calls("compacts");
    let request =
        CompactRequest { session: session(), budget: BUDGET, ..CompactRequest::default() };
    let served = chain.compact(&view, request).await.unwrap();
    assert_eq!(served.engine, "first");
    let Compaction::Plan(plan) = served.value else { panic!("{served:?}") };
    assert_eq!(plan.ops[1].action.range(), 1..3);
    let log = calls("compacts");
    let whole = format!("task | {LONG} | so? | done");
    assert_eq!(log.last().unwrap(), &format!("first compacts: {whole}"));
    assert!(log.contains(&format!("second compacts: {whole}")), "{log:#?}");
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
    let all =
        open_chain(&[scripted_engine::<0>("delegate", ""), scripted_engine::<1>("delegate", "")]);
    assert_eq!(all.compact(&view, request.clone()).await.unwrap().engine, "legacy");
    let broken = open_chain(&[
        scripted_engine::<0>("delegate", "compacts"),
        scripted_engine::<1>("delegate", "breaks in compact"),
    ]);
    let error = broken.compact(&view, request.clone()).await.expect_err("it breaks").to_string();
    assert!(error.contains("\"second\" failed in compact"), "{error}");
    assert_eq!(broken.compact(&view, request).await.unwrap().engine, "first");
}

#[tokio::test]
async fn tools_of_all_stages_are_offered_and_called_where_they_belong() {
    let chain =
        open_chain(&[scripted_engine::<0>("tools", "shortens"), scripted_engine::<1>("tools", "")]);
    let tools = chain.tools(session()).await.unwrap().value;
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["shared", "first", "second"]);
    let view = script().finish().transcript();
    assemble(&chain, &view, BUDGET).await;
    calls("tools");
    for name in ["shared", "second"] {
        let call = ToolCallRequest { session: session(), name: name.into(), ..Default::default() };
        chain.call_tool(&view, call).await.unwrap();
    }
    let expected = [
        format!("first is called as shared: task | {LONG} | so?"),
        "second is called as second: task | short | so?".to_owned(),
    ];
    assert_eq!(calls("tools"), expected);
}
