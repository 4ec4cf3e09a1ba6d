//! Several engines in a row come and go as one.

use super::canarying::{begin, home};
use super::following::{Host, path};
use super::*;
use crate::RuntimeBuilder;
use crate::testing::puppet::{self, puppet};
use ctxhost_context::CompactionVerdict;

/// A turn that waits for its tool, until the gate lets it.
pub(super) fn waiting(
    settings: &str,
    engine: EngineSpec,
) -> (RuntimeBuilder, Arc<tokio::sync::Semaphore>) {
    let client = Scripted::new(|request| match crate::testing::is_result(request) {
        true => Answer::Says("done".into()),
        false => Answer::Calls("wait", json!({})),
    });
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let builder = builder(&quiet(settings), &client, engine);
    (builder.tool(Arc::new(Wait(gate.clone()))), gate)
}

#[tokio::test]
async fn a_stage_that_fails_on_trial_brings_back_what_served_before_the_row() {
    for (does, call) in [("fails in assemble", "assemble"), ("lies", "assemble")] {
        let (name, test) = (format!("whole: {does}"), format!("on trial: {does}"));
        let mut talk = Talk::begin("", Ledger::spec(&name, "")).await;
        let row = [puppet::<0>(&test, ""), puppet::<1>(&test, does)];
        let swapped = talk.runtime.replace_engine(&row).await.unwrap();
        assert_eq!(swapped.engine, "first+second");
        assert_eq!(talk.say().await, "ledger", "no stage of the row has a share in the answer");
        assert_eq!(heard(&name), ["bootstrap 1", "assemble 1", "bootstrap 2"]);
        talk.say().await;
        let news = talk.news();
        assert!(
            matches!(&news[..], [EventKind::EngineChanged { .. }, EventKind::EngineRolledBack { engine, serving, why }]
                if engine == "first+second" && serving == "ledger" && why.contains(call)),
            "{news:?}"
        );
        assert_eq!(talk.runtime.engine(), "ledger");
    }
}

#[tokio::test]
async fn a_whole_row_serves_again_where_what_followed_it_fails() {
    let settings = "plugins.on_engine_error = \"fail\"\n";
    let mut talk = Talk::begin(settings, Ledger::spec("any", "")).await;
    let row = [Ledger::spec("back", ""), puppet::<0>("back", "")];
    talk.runtime.replace_engine(&row).await.unwrap();
    assert_eq!(talk.say().await, "ledger+first");
    talk.runtime
        .replace_engine(&[Ledger::spec("gone", "panic"), puppet::<1>("gone", "")])
        .await
        .unwrap();
    assert_eq!(talk.say().await, "ledger+first", "the request does not fail on trial");
    assert_eq!(heard("back").last().unwrap(), "bootstrap 4");
    assert_eq!(heard("back").iter().filter(|it| it.starts_with("assemble")).count(), 2);
    assert_eq!(talk.say().await, "ledger+first");
    let rolled_back = |what: &&EventKind| matches!(what, EventKind::EngineRolledBack { .. });
    assert_eq!(talk.news().iter().filter(rolled_back).count(), 1);
    soon(|| heard("gone").contains(&"dispose".into())).await;
    assert!(!heard("back").contains(&"dispose".into()));
}

#[tokio::test]
async fn a_row_that_has_proved_itself_loses_one_stage_and_no_more() {
    let settings = "swap.proving_requests = 1\n";
    let mut talk = Talk::begin(settings, Ledger::spec("proved-0", "")).await;
    let row = [Ledger::spec("proved-1", ""), puppet::<1>("proved", "breaks in compact")];
    talk.runtime.replace_engine(&row).await.unwrap();
    assert_eq!(talk.say().await, "ledger+second");
    let outcomes = talk.runtime.compact(&talk.session, None).await.unwrap();
    let first = &outcomes.first().unwrap().verdict;
    assert!(
        matches!(first, CompactionVerdict::Rejected { reason } if reason.contains("broken")),
        "{first:?}"
    );
    assert_eq!(talk.say().await, "ledger");
    assert_eq!(heard("proved-0"), Vec::<String>::new(), "nobody was rolled back");
    assert!(matches!(talk.news()[..], [EventKind::EngineChanged { .. }]));
}

#[tokio::test]
async fn a_row_with_a_stage_that_does_not_open_changes_nothing() {
    let talk = Talk::begin("", Ledger::spec("alone", "")).await;
    let row = [puppet::<0>("unopened", ""), puppet::<1>("unopened", "fails in create")];
    assert!(matches!(talk.runtime.replace_engine(&row).await, Err(ReloadError::Slot(_))));
    assert_eq!(talk.say().await, "ledger");
}

#[tokio::test]
async fn a_turn_sees_one_row_and_all_of_its_stages_are_let_go() {
    let (builder, gate) = waiting("swap.warm_ms = 0\n", Ledger::spec("held-0", ""));
    let talk = Talk::with(builder).await;
    talk.runtime
        .replace_engine(&[Ledger::spec("held-1", ""), puppet::<0>("held", "")])
        .await
        .unwrap();
    let turn = talk.runtime.send(&talk.session, "go on");
    let swap = async {
        soon(|| heard("held-1").contains(&"assemble 1".into())).await;
        talk.runtime
            .replace_engine(&[puppet::<1>("held", ""), Ledger::spec("held-2", "")])
            .await
            .unwrap();
        gate.add_permits(1);
    };
    let (reply, ()) = tokio::join!(turn, swap);
    assert_eq!(reply.unwrap().engine, "ledger+first", "it ends with the row it began with");
    soon(|| heard("held-1").last().is_some_and(|last| last == "dispose")).await;
    gate.add_permits(1);
    assert_eq!(talk.say().await, "second+ledger");
    talk.runtime.shutdown().await;
}

#[tokio::test]
async fn a_turn_that_outlives_the_time_of_its_row_goes_on_with_what_serves_now() {
    let settings = "swap.warm_ms = 0\nswap.drain_ms = 0\n";
    let (builder, gate) = waiting(settings, Ledger::spec("over-0", ""));
    let talk = Talk::with(builder).await;
    talk.runtime
        .replace_engine(&[Ledger::spec("over-1", ""), puppet::<0>("over", "")])
        .await
        .unwrap();
    let turn = talk.runtime.send(&talk.session, "go on");
    let swap = async {
        soon(|| heard("over-1").contains(&"assemble 1".into())).await;
        talk.runtime.replace_engine(&Ledger::spec("over-2", "")).await.unwrap();
        soon(|| heard("over-1").contains(&"dispose".into())).await;
        gate.add_permits(1);
    };
    let (reply, ()) = tokio::join!(turn, swap);
    assert_eq!(reply.unwrap().engine, "ledger");
    assert_eq!(heard("over-2"), ["bootstrap 3", "assemble 2"]);
}

#[tokio::test]
async fn a_call_under_way_in_a_row_that_is_let_go_is_answered_by_the_bundled_engine() {
    let settings = "swap.warm_ms = 0\nswap.drain_ms = 0\nswap.proving_requests = 0\n";
    let talk = Talk::begin(settings, Ledger::spec("cut-0", "")).await;
    let row = [Ledger::spec("cut-1", ""), puppet::<0>("cut", "hangs in assemble")];
    talk.runtime.replace_engine(&row).await.unwrap();
    let swap = async {
        soon(|| heard("cut-1").contains(&"assemble 1".into())).await;
        talk.runtime.replace_engine(&Ledger::spec("cut-2", "")).await.unwrap();
    };
    let (engine, ()) = tokio::join!(talk.say(), swap);
    assert_eq!(engine, "legacy");
    assert_eq!(talk.say().await, "ledger");
    let asked = puppet::heard("cut");
    let shaped = asked.iter().filter(|line| line.contains(" shapes within "));
    assert_eq!(shaped.count(), 1, "it is asked once and never again: {asked:#?}");
}

#[tokio::test]
async fn a_row_in_the_file_is_a_row_in_the_slot() {
    let host = Host::with("mask", "").await;
    let write = |row: &str| {
        let text = format!("swap.watch_ms = 0\nplugins.slots.context_engine = {row}\n");
        std::fs::write(path(&host.folder), text).unwrap();
    };
    for (row, engine) in [
        ("[\"mask\", \"legacy\"]", "mask+legacy"),
        ("[\"legacy\", \"mask\"]", "legacy+mask"),
        ("\"window\"", "window"),
    ] {
        write(row);
        let swapped = host.talk.runtime.reload().await.unwrap().unwrap();
        assert_eq!(swapped.engine, engine);
        assert_eq!(host.talk.say().await, engine);
        assert_eq!(host.talk.runtime.reload().await.unwrap(), None);
    }
    write("[\"mask\", \"mask\"]");
    assert!(host.talk.runtime.reload().await.is_err());
    assert_eq!(host.talk.say().await, "window");
}

#[tokio::test]
async fn a_row_may_be_a_canary() {
    let mut host = Host::with("mask", "").await;
    let canary = begin(&host, "window+legacy", "100%", &["requests <= 1"], 1);
    host.talk.runtime.reload().await.unwrap();
    assert_eq!(host.talk.say().await, "window+legacy");
    let figures = home(&host).read_metrics("window+legacy", &canary.run);
    assert_eq!((figures.requests, figures.turns), (1, 1));
    assert_eq!(host.talk.say().await, "window+legacy");
    assert_eq!(host.talk.say().await, "mask", "a guard was broken");
    let news = host.talk.news();
    assert!(
        matches!(&news[..], [_, EventKind::CanaryEnded { engine, .. }] if engine == "window+legacy"),
        "{news:?}"
    );
}
