//! A chain in a runtime: turns, manual compactions, replacement while it runs.

use std::sync::Arc;

use serde_json::json;

use crate::testing::{Answer, RecordingEngine, ScriptedProvider, config, session};
use crate::{Runtime, RuntimeBuilder};
use ctxhost_context::CompactionVerdict;
use ctxhost_engine::EngineSpec;

async fn runtime(text: &str, client: &Arc<ScriptedProvider>) -> Runtime {
    let builder =
        RuntimeBuilder::from_config(&config(text)).model("scripted/model").window_tokens(64_000);
    builder.client(client.clone()).without_builtin_tools().build().await.unwrap()
}

#[tokio::test]
async fn the_configured_chain_shapes_turns() {
    let folder = tempfile::tempdir().unwrap();
    let client = ScriptedProvider::new(|_| Answer::Text("an answer ".repeat(1_600)));
    let chain = "[plugins.slots]\ncontext_engine = [\"mask\", \"legacy\"]\n";
    let runtime = runtime(chain, &client).await;
    assert_eq!(runtime.engine(), "mask+legacy");
    let session = session(&runtime, &folder);
    for turn in 0..8 {
        let question = format!("question {turn}: {}", "what of it? ".repeat(50));
        let reply = runtime.send(&session, &question).await.unwrap();
        assert_eq!(reply.engine, "mask+legacy");
    }
    let outcomes = runtime.compact(&session, None).await.unwrap();
    let last = outcomes.last().unwrap();
    assert_eq!((last.engine.as_str(), &last.verdict), ("legacy", &CompactionVerdict::Applied));
    assert!(!last.folded.is_empty() && last.after_tokens < last.before_tokens, "{last:?}");
    let reply = runtime.send(&session, "continue").await.unwrap();
    assert_eq!(reply.engine, "mask+legacy");
    assert!(runtime.undo(&session).await.unwrap());
    runtime.send(&session, "and on").await.unwrap();
    runtime.shutdown().await;
}

#[tokio::test]
async fn a_chain_replaces_an_engine_at_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let client = ScriptedProvider::new(|_| Answer::Text("yes".into()));
    let runtime = runtime("", &client).await;
    let session = session(&runtime, &folder);
    assert_eq!(runtime.send(&session, "one").await.unwrap().engine, "legacy");
    let chain = [RecordingEngine::spec("chain", json!({})), EngineSpec::bundled("mask", json!({}))];
    runtime.replace_engine(&chain).await.unwrap();
    assert_eq!(runtime.send(&session, "two").await.unwrap().engine, "recording+mask");
    runtime.replace_engine(&EngineSpec::bundled("window", json!({}))).await.unwrap();
    assert_eq!(runtime.send(&session, "three").await.unwrap().engine, "window");
    runtime.shutdown().await;
}
