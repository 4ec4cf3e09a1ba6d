//! Chains are replaced and rolled back as one engine.

use super::canary::{begin, canary_folder};
use super::config_changes::{Host, path};
use super::*;
use crate::testing::scripted_engine::{self, scripted_engine};
use ctxhost_context::CompactionVerdict;

#[tokio::test]
async fn a_chain_is_rolled_back_if_one_engine_fails_its_trial() {
    for (does, call) in [("fails in assemble", "assemble"), ("invalid plan", "assemble")] {
        let (name, test) = (format!("whole: {does}"), format!("on trial: {does}"));
        let mut agent = TestAgent::begin("", CountingEngine::spec(&name, "")).await;
        let chain = [scripted_engine::<0>(&test, ""), scripted_engine::<1>(&test, does)];
        let change = agent.replace(&chain).await;
        assert_eq!(change.engine, "first+second");
        assert_eq!(agent.send().await, "ledger", "no engine of the chain has a part in the answer");
        assert_eq!(calls(&name), ["bootstrap 1", "assemble 1", "bootstrap 2"]);
        agent.send().await;
        let events = agent.engine_events();
        assert!(
            matches!(&events[..], [EventKind::EngineChanged { .. }, EventKind::EngineRolledBack { engine, serving, why }]
                if engine == "first+second" && serving == "ledger" && why.contains(call)),
            "{events:?}"
        );
        assert_eq!(agent.runtime.engine(), "ledger");
    }
}

#[tokio::test]
async fn a_chain_serves_again_if_its_successor_fails() {
    let settings = "plugins.on_engine_error = \"fail\"\n";
    let mut agent = TestAgent::begin(settings, CountingEngine::spec("any", "")).await;
    let chain = [CountingEngine::spec("back", ""), scripted_engine::<0>("back", "")];
    agent.replace(&chain).await;
    assert_eq!(agent.send().await, "ledger+first");
    agent.replace(&[CountingEngine::spec("gone", "panic"), scripted_engine::<1>("gone", "")]).await;
    assert_eq!(agent.send().await, "ledger+first", "the request does not fail on trial");
    assert_eq!(calls("back").last().unwrap(), "bootstrap 4");
    assert_eq!(calls("back").iter().filter(|call| call.starts_with("assemble")).count(), 2);
    assert_eq!(agent.send().await, "ledger+first");
    let rolled_back = |kind: &&EventKind| matches!(kind, EventKind::EngineRolledBack { .. });
    assert_eq!(agent.engine_events().iter().filter(rolled_back).count(), 1);
    soon(|| calls("gone").contains(&"dispose".into())).await;
    assert!(!calls("back").contains(&"dispose".into()));
}

#[tokio::test]
async fn a_chain_past_its_trial_loses_only_the_failed_engine() {
    let settings = "swap.trial_requests = 1\n";
    let mut agent = TestAgent::begin(settings, CountingEngine::spec("proved-0", "")).await;
    let chain =
        [CountingEngine::spec("proved-1", ""), scripted_engine::<1>("proved", "breaks in compact")];
    agent.replace(&chain).await;
    assert_eq!(agent.send().await, "ledger+second");
    let outcomes = agent.runtime.compact(&agent.session, None).await.unwrap();
    let first = &outcomes.first().unwrap().verdict;
    assert!(
        matches!(first, CompactionVerdict::Rejected { reason } if reason.contains("broken")),
        "{first:?}"
    );
    assert_eq!(agent.send().await, "ledger");
    assert_eq!(calls("proved-0"), Vec::<String>::new(), "there was no rollback");
    assert!(matches!(agent.engine_events()[..], [EventKind::EngineChanged { .. }]));
}

#[tokio::test]
async fn a_chain_that_does_not_open_changes_nothing() {
    let agent = TestAgent::begin("", CountingEngine::spec("alone", "")).await;
    let chain =
        [scripted_engine::<0>("unopened", ""), scripted_engine::<1>("unopened", "fails in create")];
    assert!(matches!(agent.runtime.replace_engine(&chain).await, Err(ReloadError::Slot(_))));
    assert_eq!(agent.send().await, "ledger");
}

#[tokio::test]
async fn a_turn_keeps_its_chain_and_all_engines_are_disposed_of() {
    let (agent, gate) =
        TestAgent::waiting("swap.warm_ms = 0\n", CountingEngine::spec("held-0", "")).await;
    agent.replace(&[CountingEngine::spec("held-1", ""), scripted_engine::<0>("held", "")]).await;
    let turn = agent.runtime.send(&agent.session, "continue");
    let replace = async {
        soon(|| calls("held-1").contains(&"assemble 1".into())).await;
        agent
            .replace(&[scripted_engine::<1>("held", ""), CountingEngine::spec("held-2", "")])
            .await;
        gate.add_permits(1);
    };
    let (reply, ()) = tokio::join!(turn, replace);
    assert_eq!(reply.unwrap().engine, "ledger+first", "the turn keeps its chain");
    soon(|| calls("held-1").last().is_some_and(|last| last == "dispose")).await;
    gate.add_permits(1);
    assert_eq!(agent.send().await, "second+ledger");
    agent.runtime.shutdown().await;
}

#[tokio::test]
async fn a_turn_continues_with_the_current_engine_after_the_drain_time() {
    let settings = "swap.warm_ms = 0\nswap.drain_ms = 0\n";
    let (agent, gate) = TestAgent::waiting(settings, CountingEngine::spec("over-0", "")).await;
    agent.replace(&[CountingEngine::spec("over-1", ""), scripted_engine::<0>("over", "")]).await;
    let turn = agent.runtime.send(&agent.session, "continue");
    let replace = async {
        soon(|| calls("over-1").contains(&"assemble 1".into())).await;
        agent.replace(&CountingEngine::spec("over-2", "")).await;
        soon(|| calls("over-1").contains(&"dispose".into())).await;
        gate.add_permits(1);
    };
    let (reply, ()) = tokio::join!(turn, replace);
    assert_eq!(reply.unwrap().engine, "ledger");
    assert_eq!(calls("over-2"), ["bootstrap 3", "assemble 2"]);
}

#[tokio::test]
async fn the_bundled_engine_answers_a_cancelled_call_of_a_chain() {
    let settings = "swap.warm_ms = 0\nswap.drain_ms = 0\nswap.trial_requests = 0\n";
    let agent = TestAgent::begin(settings, CountingEngine::spec("cut-0", "")).await;
    let chain =
        [CountingEngine::spec("cut-1", ""), scripted_engine::<0>("cut", "hangs in assemble")];
    agent.replace(&chain).await;
    let replace = async {
        soon(|| calls("cut-1").contains(&"assemble 1".into())).await;
        agent.replace(&CountingEngine::spec("cut-2", "")).await;
    };
    let (engine, ()) = tokio::join!(agent.send(), replace);
    assert_eq!(engine, "legacy");
    assert_eq!(agent.send().await, "ledger");
    let calls = scripted_engine::calls("cut");
    let assembled = calls.iter().filter(|line| line.contains(" assembles within "));
    assert_eq!(assembled.count(), 1, "the call is not repeated: {calls:#?}");
}

#[tokio::test]
async fn a_chain_in_the_config_fills_the_slot() {
    let host = Host::with("mask", "").await;
    let write = |chain: &str| {
        let text = format!("swap.watch_ms = 0\nplugins.slots.context_engine = {chain}\n");
        std::fs::write(path(&host.folder), text).unwrap();
    };
    for (chain, engine) in [
        ("[\"mask\", \"legacy\"]", "mask+legacy"),
        ("[\"legacy\", \"mask\"]", "legacy+mask"),
        ("\"window\"", "window"),
    ] {
        write(chain);
        let change = host.agent.runtime.reload().await.unwrap().unwrap();
        assert_eq!(change.engine, engine);
        assert_eq!(host.agent.send().await, engine);
        assert_eq!(host.agent.runtime.reload().await.unwrap(), None);
    }
    write("[\"mask\", \"mask\"]");
    assert!(host.agent.runtime.reload().await.is_err());
    assert_eq!(host.agent.send().await, "window");
}

#[tokio::test]
async fn a_chain_may_be_a_canary() {
    let mut host = Host::with("mask", "").await;
    let canary = begin(&host, "window+legacy", "100%", &["requests <= 1"], 1);
    host.agent.runtime.reload().await.unwrap();
    assert_eq!(host.agent.send().await, "window+legacy");
    let figures = canary_folder(&host).read_metrics("window+legacy", &canary.run);
    assert_eq!((figures.sum.engine_us.len(), figures.sum.turns), (1, 1));
    assert_eq!(host.agent.send().await, "window+legacy");
    assert_eq!(host.agent.send().await, "mask", "a guard was broken");
    let events = host.agent.engine_events();
    assert!(
        matches!(&events[..], [_, EventKind::CanaryEnded { engine, .. }] if engine == "window+legacy"),
        "{events:?}"
    );
}
