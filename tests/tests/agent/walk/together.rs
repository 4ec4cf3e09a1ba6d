//! Several sessions in one folder, and an engine that changes during one.

use std::time::{Duration, Instant};

use ctxhost_engine::EngineSpec;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Ask, Fault, Faults, Model, ScriptedServer, Speaker, Step, Wanderer};
use ctxhost_tests::stage::Stage;
use ctxhost_tests::workplace::{ConfigText, lawful_session, model_of, words};
use serde_json::json;

const WINDOW_TOKENS: u64 = 32_000;

/// Reads a file and answers, slowly.
fn slow_reader(wire: Wire, delay_ms: u64) -> ScriptedServer {
    let script = |ask: &Ask<'_>| match ask.said.last().map(|said| said.by) {
        Some(Speaker::Tool) => vec![Step::say("It is 4711.")],
        _ => vec![Step::call("read_file", json!({"path": "notes.txt"}))],
    };
    let server = ScriptedServer::start(wire, Model::new(WINDOW_TOKENS)).script(script);
    server.fail_always(Some(Fault::SlowFirstByte { delay_ms }));
    server
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_sessions_finish_in_one_place() {
    let server = slow_reader(Wire::OpenAiChat, 300);
    let place = ConfigText::new()
        .provider("fake", Wire::OpenAiChat, &server.url(), WINDOW_TOKENS)
        .agent("concurrent_turns = 1")
        .workplace();
    let runtime = place.runtime().build().await.unwrap();
    let begun = Instant::now();
    let turns: Vec<_> = (0..64)
        .map(|n| {
            let path = place.path().join(format!("session-{n}.jsonl"));
            let session = runtime.create_session(&path, place.path()).unwrap();
            let runtime = runtime.clone();
            tokio::spawn(async move {
                for text in ["Which number is it?", "Are you sure?"] {
                    let reply = runtime.send(&session, text).await.unwrap();
                    assert_eq!(reply.message.text(), "It is 4711.");
                }
                path
            })
        })
        .collect();
    for turn in turns {
        let path = turn.await.unwrap();
        assert_eq!(words(&lawful_session(&path)).len(), 2);
    }
    runtime.shutdown().await;
    assert_eq!(server.broken(), []);
    // One after the other, the answers alone would take 77 seconds.
    assert!(begun.elapsed() < Duration::from_secs(40), "took {:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_that_takes_long_keeps_no_other_session_waiting() {
    let (wire, summaries) = (Wire::OpenAiChat, Wire::Anthropic);
    let server = ScriptedServer::start(wire, Model::new(WINDOW_TOKENS)).script(|_: &Ask<'_>| {
        vec![Step::say("A long tale of many files and sockets. ".repeat(120))]
    });
    let writer = ScriptedServer::start(summaries, Model::new(WINDOW_TOKENS)).faults(Faults::none());
    writer.fail_always(Some(Fault::SlowFirstByte { delay_ms: 4_000 }));
    let place = ConfigText::new()
        .provider("fake", wire, &server.url(), WINDOW_TOKENS)
        .agent("concurrent_turns = 1")
        .tables(&format!(
            "[providers.writer]\ndialect = \"{}\"\nbase_url = \"{}\"\nproxy = \"none\"\n\n\
             [summariser]\nprovider = \"writer\"\nmodel = \"{}\"",
            summaries.name(),
            writer.url(),
            model_of(summaries)
        ))
        .workplace();
    let mut stage = Stage::open(&place).await;
    for n in 0..8 {
        stage.say(&format!("Tell me more, {n}")).await.unwrap();
    }
    let other = place.path().join("other.jsonl");
    let other = stage.runtime.create_session(&other, place.path()).unwrap();
    let compaction = {
        let (runtime, session) = (stage.runtime.clone(), stage.session.clone());
        tokio::spawn(async move { runtime.compact(&session, None).await })
    };
    while writer.requests().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begun = Instant::now();
    stage.runtime.send(&other, "Are you free?").await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "waited {:?}", begun.elapsed());
    let outcomes = compaction.await.unwrap().unwrap();
    assert!(!outcomes.is_empty());
    assert_eq!((server.broken(), writer.broken()), (vec![], vec![]));
}

#[tokio::test]
async fn engines_take_turns_in_one_session() {
    for wire in [Wire::Anthropic, Wire::Gemini] {
        let server = ScriptedServer::start(wire, Model::new(WINDOW_TOKENS))
            .script(Wanderer::new(9).paths(["notes.txt", "long.txt"].map(str::to_owned)));
        let place =
            ConfigText::new().provider("fake", wire, &server.url(), WINDOW_TOKENS).workplace();
        let mut stage = Stage::open(&place).await;
        let engines = ["mask", "window", "boundary", "head-tail", "legacy"];
        for (n, engine) in engines.into_iter().cycle().take(10).enumerate() {
            stage.runtime.replace_engine(&EngineSpec::bundled(engine, json!({}))).await.unwrap();
            let text = format!("Turn {n}. {}", "Words about the ledger. ".repeat(150));
            let reply = stage.say(&text).await;
            let reply = reply.unwrap_or_else(|error| panic!("{wire:?} {engine}: {error}"));
            assert_eq!(reply.engine, engine, "{wire:?}");
        }
        stage.close().await;
        assert_eq!(server.broken(), [], "{wire:?}");
        assert_eq!(words(&place.session()).len(), 10, "{wire:?}");
    }
}
