//! Sub-agents with a scripted provider and a recording engine.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::registry::SubagentTable;
use super::tool::SPAWN_AGENT;
use super::*;
use crate::event::EventKind;
use crate::testing::*;
use ctxhost_engine_api::ContextMode;
use ctxhost_session::Session;

const ON: &str = "agent.subagents = true\n";

/// A model that delegates to a sub-agent, and the sub-agent's answer.
fn delegating(context: &'static str) -> std::sync::Arc<ScriptedProvider> {
    ScriptedProvider::new(move |request| match newest(request) {
        text if is_result(request) => Answer::Text(format!("found: {text}")),
        text if text == "find it" => Answer::Text("it is in the cellar".into()),
        _ => Answer::Calls(SPAWN_AGENT, json!({ "task": "find it", "context": context })),
    })
}

async fn start(
    name: &str,
    settings: &str,
    client: &std::sync::Arc<ScriptedProvider>,
) -> (Runtime, SessionId, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let engine = RecordingEngine::spec(name, json!({}));
    let runtime = builder(&config(settings), client, engine).build().await.unwrap();
    let parent = session(&runtime, &folder);
    (runtime, parent, folder)
}

/// A sub-agent that never answers, and a parent that answers at once.
fn slow_child() -> std::sync::Arc<ScriptedProvider> {
    ScriptedProvider::new(|request| match newest(request) {
        text if text.contains("think") => Answer::Delayed(Duration::from_secs(9_999), "42".into()),
        _ => Answer::Text("well".into()),
    })
}

fn child_files(folder: &tempfile::TempDir) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder.path().join("session.agents")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect()
}

#[tokio::test]
async fn the_model_gets_the_answer_of_a_sub_agent() {
    let client = delegating("isolated");
    let settings = format!("{ON}agent.concurrent_turns = 1\n");
    let (runtime, parent, folder) = start("isolated", &settings, &client).await;
    let mut events = runtime.subscribe();
    let reply = runtime.send(&parent, "where is it?").await.unwrap();
    assert_eq!(reply.message.text(), "found: it is in the cellar");

    let files = child_files(&folder);
    let child = Session::read(&files[0]).unwrap();
    let parent_file = folder.path().join("session.jsonl").canonicalize().unwrap();
    assert_eq!(child.header().parent_session().unwrap(), parent_file.display().to_string());
    let id = child.header().id();
    let prepared = "prepare Isolated 2".to_owned();
    assert_eq!(calls("isolated"), [prepared, format!("ended Completed {id}")]);

    let asked = client.requests_with("find it");
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].messages.len(), 1, "it sees its task alone");
    assert!(runtime.subagents(&parent).await.unwrap().is_empty());

    let mut seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        match event.kind {
            EventKind::SubagentSpawned { child, .. } => seen.push(format!("spawned {child}")),
            EventKind::SubagentEnded { child, end, .. } => seen.push(format!("{end:?} {child}")),
            _ => {}
        }
    }
    assert_eq!(seen, [format!("spawned {id}"), format!("Completed {id}")]);
}

#[tokio::test]
async fn a_fork_sees_the_conversation_up_to_the_call_that_made_it() {
    let client = delegating("fork");
    let (runtime, parent, _folder) = start("fork", ON, &client).await;
    runtime.send(&parent, "where is it?").await.unwrap();
    let asked = client.requests_with("find it");
    let texts: Vec<String> = asked[0].messages.iter().map(|m| format!("{m:?}")).collect();
    assert_eq!(texts.len(), 2, "{texts:#?}");
    assert!(texts[0].contains("where is it?"));
    assert!(texts[1].contains("find it"));
    assert!(calls("fork")[0].starts_with("prepare Fork"));
}

#[tokio::test]
async fn the_tool_is_offered_if_enabled_and_within_the_depth() {
    let offered = |requests: Vec<ctxhost_dialects::ModelRequest>| {
        requests[0].tools.iter().any(|tool| tool.name == SPAWN_AGENT)
    };
    let client = delegating("isolated");
    let (runtime, parent, _folder) =
        start("depth", &format!("{ON}agent.subagent_depth = 1"), &client).await;
    runtime.send(&parent, "where is it?").await.unwrap();
    assert!(offered(client.requests_with("where is it?")));
    assert!(!offered(client.requests_with("find it")), "a child of level 1 starts none");

    let silent = ScriptedProvider::new(|_| Answer::Text("well".into()));
    let (runtime, parent, _folder) = start("off", "", &silent).await;
    runtime.send(&parent, "hello").await.unwrap();
    assert!(!offered(silent.requests_with("hello")));
}

#[tokio::test]
async fn the_model_gets_the_error_of_an_engine_that_refuses_the_spawn() {
    let client = delegating("isolated");
    let folder = tempfile::tempdir().unwrap();
    let engine = RecordingEngine::spec("refuses", json!({ "refuses": true }));
    let runtime = builder(&config(ON), &client, engine).build().await.unwrap();
    let parent = session(&runtime, &folder);
    let reply = runtime.send(&parent, "where is it?").await.unwrap();
    assert!(reply.message.text().contains("no sub-agents today"), "{}", reply.message.text());
    assert_eq!(calls("refuses"), ["prepare Isolated 2"]);
    assert!(!folder.path().join("session.agents").exists());
}

#[tokio::test]
async fn a_spawn_that_cannot_start_is_rolled_back() {
    let client = slow_child();
    let (runtime, parent, folder) = start("rollback", "", &client).await;
    let taken = folder.path().join("session.jsonl");
    let options = SpawnOptions { path: Some(taken), ..SpawnOptions::default() };
    let refused = runtime.spawn_subagent(&parent, "think", options).await;
    assert!(matches!(refused, Err(SpawnError::Session(_))));
    let calls = calls("rollback");
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls[1].starts_with("rollback token of "));
    assert!(runtime.subagents(&parent).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_system_prompt_lists_live_sub_agents_across_compactions() {
    let client = slow_child();
    let (runtime, parent, _folder) = start("pinned", "", &client).await;
    let system = |words: &str| client.requests_with(words)[0].system.clone();
    let child =
        runtime.spawn_subagent(&parent, "think hard", SpawnOptions::default()).await.unwrap();
    for words in ["hello", &"a long story ".repeat(800), "short"] {
        runtime.send(&parent, words).await.unwrap();
    }
    assert!(
        system("a long story").contains(&format!("- {} (at work): think hard", child.session()))
    );

    let outcomes = runtime.compact(&parent, None).await.unwrap();
    assert_eq!(outcomes.last().unwrap().verdict, ctxhost_context::CompactionVerdict::Applied);
    runtime.send(&parent, "after the compaction").await.unwrap();
    assert!(system("after the compaction").contains("think hard"));

    let id = child.session().to_string();
    assert!(runtime.end_subagent(&parent, &id, SubagentEnd::Released).await.unwrap());
    let ended = child.wait().await.unwrap_err();
    assert_eq!(ended.to_string(), "the sub-agent was released");
    runtime.send(&parent, "after its end").await.unwrap();
    assert!(!system("after its end").contains("think hard"));
    assert!(calls("pinned").contains(&format!("ended Released {id}")));
    assert!(!runtime.end_subagent(&parent, &id, SubagentEnd::Deleted).await.unwrap());
}

#[tokio::test]
async fn sub_agents_survive_a_restart_until_their_time_limit() {
    let client = slow_child();
    let (runtime, parent, folder) = start("restart", "", &client).await;
    let child =
        runtime.spawn_subagent(&parent, "think hard", SpawnOptions::default()).await.unwrap();
    let id = child.session().to_string();
    // The file that a dead process leaves.
    let copy = folder.path().join("copy.jsonl");
    std::fs::copy(folder.path().join("session.jsonl"), &copy).unwrap();

    let restarted = RecordingEngine::spec("restarted", json!({}));
    let restarted = builder(&config(""), &client, restarted).build().await.unwrap();
    let parent = restarted.open_session(&copy).unwrap();
    let children = restarted.subagents(&parent).await.unwrap();
    assert_eq!(
        (children[0].id.as_str(), children[0].state),
        (id.as_str(), SubagentState::Interrupted)
    );
    restarted.send(&parent, "what now?").await.unwrap();
    let system = client.requests_with("what now?")[0].system.clone();
    assert!(system.contains("(interrupted when the process ended): think hard"), "{system}");
    assert!(system.contains("start another one if you still need the result"), "{system}");
    assert!(!system.contains("Do not start another"), "{system}");
    restarted.close_session(&parent).await;

    let settings = config("agent.subagent_ttl_ms = 1");
    let later = RecordingEngine::spec("swept", json!({}));
    let later = builder(&settings, &client, later).build().await.unwrap();
    let parent = later.open_session(&copy).unwrap();
    later.send(&parent, "and now?").await.unwrap();
    assert_eq!(calls("swept"), [format!("ended Swept {id}")]);
    assert!(!client.requests_with("and now?")[0].system.contains("think hard"));
    assert!(later.subagents(&parent).await.unwrap().is_empty());
}

#[tokio::test]
async fn dropping_a_turn_releases_its_sub_agent() {
    let client = ScriptedProvider::new(|request| match newest(request) {
        text if text == "think" => Answer::Delayed(Duration::from_secs(9_999), String::new()),
        text if text == "go" => Answer::Calls(SPAWN_AGENT, json!({ "task": "think" })),
        _ => Answer::Text("well".into()),
    });
    let (runtime, parent, _folder) = start("dropped", ON, &client).await;
    let turn = runtime.send(&parent, "go");
    assert!(tokio::time::timeout(Duration::from_millis(300), turn).await.is_err());
    runtime.send(&parent, "never mind").await.unwrap();
    assert!(calls("dropped")[1].starts_with("ended Released "), "{:?}", calls("dropped"));
    assert!(!client.requests_with("never mind")[0].system.contains("think"));
}

#[tokio::test]
async fn live_sub_agents_are_limited() {
    let client = slow_child();
    let (runtime, parent, _folder) = start("many", "agent.subagents_live = 2", &client).await;
    let mut children = Vec::new();
    for _ in 0..2 {
        children
            .push(runtime.spawn_subagent(&parent, "think", SpawnOptions::default()).await.unwrap());
    }
    let third = runtime.spawn_subagent(&parent, "think", SpawnOptions::default()).await;
    assert!(matches!(third, Err(SpawnError::TooMany { live: 2 })));
    let other = SpawnOptions { model: Some("scripted/other".into()), ..SpawnOptions::default() };
    runtime
        .end_subagent(&parent, children[0].session().as_str(), SubagentEnd::Deleted)
        .await
        .unwrap();
    assert!(children.remove(0).wait().await.is_err());
    let unknown = runtime.spawn_subagent(&parent, "think", other).await;
    assert!(matches!(unknown, Err(SpawnError::UnknownModel { .. })));
    assert!(runtime.spawn_subagent(&parent, "think", SpawnOptions::default()).await.is_ok());
}

#[tokio::test]
async fn a_failed_sub_agent_is_released_and_its_parent_continues() {
    let client = ScriptedProvider::new(|request| match newest(request) {
        text if text == "try it" => Answer::Refusal,
        text if text == "go" => Answer::Calls(SPAWN_AGENT, json!({ "task": "try it" })),
        text => Answer::Text(text),
    });
    let (runtime, parent, _folder) = start("failing", ON, &client).await;
    let reply = runtime.send(&parent, "go").await.unwrap();
    assert!(reply.message.text().contains("the sub-agent failed"), "{}", reply.message.text());
    assert!(calls("failing")[1].starts_with("ended Released "), "{:?}", calls("failing"));
}

#[tokio::test]
async fn a_sub_agent_compacts_within_its_budget_share() {
    let client = ScriptedProvider::new(|_| Answer::Text("well".into()));
    let settings = "compaction.timing = \"manual\"";
    let (runtime, parent, folder) = start("share", settings, &client).await;
    for words in ["hello", &"a long story ".repeat(1_500), "what else?", "and then?"] {
        runtime.send(&parent, words).await.unwrap();
    }
    let options = SpawnOptions {
        context: ContextMode::Fork,
        budget_share: Some(0.1),
        ..SpawnOptions::default()
    };
    let child = runtime.spawn_subagent(&parent, "find it", options).await.unwrap();
    assert_eq!(child.wait().await.unwrap().message.text(), "well");
    assert!(calls("share").contains(&"compacted".to_owned()), "{:?}", calls("share"));
    assert_eq!(client.requests_with("find it").len(), 1);
    let asked = format!("{:?}", client.requests_with("find it")[0].messages);
    assert!(asked.contains("what happened so far") && !asked.contains("a long story a long"));

    // The parent's session is unchanged.
    let own = Session::read(&folder.path().join("session.jsonl")).unwrap();
    assert!(
        own.records()
            .iter()
            .all(|record| *record.kind() != ctxhost_session::RecordKind::Compaction)
    );
    let child = Session::read(&child_files(&folder)[0]).unwrap();
    assert_eq!(SubagentTable::from_session(&child).depth(), 1);
}
