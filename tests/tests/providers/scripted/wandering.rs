//! The random agent, and summaries.

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Answered, Model, ScriptedServer, Wanderer};
use serde_json::json;

use super::client::{ReceivedRequest, ask, hear, request, send};

const TURNS: usize = 30;

/// A conversation in chat completions, as long as the agent likes.
async fn wander(server: &ScriptedServer) -> (usize, usize) {
    let wire = Wire::OpenAiChat;
    let (path, mut body) = request(wire, "begin", true);
    let (mut calls, mut turns) = (0, 0);
    for _ in 0..TURNS {
        let received = hear(wire, &send(server, &path, &body).await.unwrap().text);
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(assistant(&received));
        for (id, name, arguments) in &received.calls {
            assert_eq!(name, "read");
            assert!(arguments["path"].is_string(), "{arguments}");
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": "contents"}));
        }
        calls += received.calls.len();
        if received.calls.is_empty() {
            turns += 1;
            messages.push(json!({"role": "user", "content": "go on"}));
        }
    }
    (calls, turns)
}

fn assistant(received: &ReceivedRequest) -> serde_json::Value {
    let call = |(id, name, arguments): &(String, String, serde_json::Value)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}});
    let mut message = json!({"role": "assistant", "content": received.text});
    if !received.calls.is_empty() {
        message["tool_calls"] = received.calls.iter().map(call).collect();
    }
    message
}

#[tokio::test]
async fn it_calls_what_is_offered_and_ends_its_turns() {
    let server = ScriptedServer::start(Wire::OpenAiChat, Model::new(64_000))
        .script(Wanderer::new(5))
        .keep_bodies(3);
    let (calls, turns) = wander(&server).await;
    assert!(calls >= 8 && turns >= 4, "{calls} calls, {turns} turns");
    assert_eq!(server.broken(), []);
    let kept = server.requests().iter().filter(|seen| !seen.body.is_null()).count();
    assert_eq!((server.requests().len(), kept), (TURNS, 3));
}

#[tokio::test]
async fn without_tools_it_talks() {
    for wire in Wire::ALL {
        let server = ScriptedServer::start(wire, Model::new(32_000)).script(Wanderer::new(2));
        let (path, body) = request(wire, "hello", false);
        let received = hear(wire, &send(&server, &path, &body).await.unwrap().text);
        assert!(
            received.text.starts_with("Answer 0: ") && received.calls.is_empty(),
            "{wire:?}: {received:?}"
        );
        assert_eq!(ask(&server, wire, "and now?").await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_summariser_gets_its_five_sections_in_every_dialect() {
    let prompt = "<conversation>\n[User]: fix /srv/app/login.rs\n\n[Tool result]: deadbeef42\n</conversation>\n\n\
                  Summarise the conversation.\n## Decisions\n## Exact identifiers";
    for wire in Wire::ALL {
        let server = ScriptedServer::start(wire, Model::new(32_000));
        let (path, body) = request(wire, prompt, false);
        let received = hear(wire, &send(&server, &path, &body).await.unwrap().text);
        assert_eq!(server.requests()[0].answered, Answered::Summary, "{wire:?}");
        let headings = [
            "## Decisions",
            "## Open TODOs",
            "## Constraints/Rules",
            "## Pending user asks",
            "## Exact identifiers",
        ];
        let places: Vec<_> =
            headings.iter().map(|heading| received.text.find(heading).unwrap()).collect();
        assert!(places.is_sorted(), "{wire:?}: {}", received.text);
        assert!(
            received.text.contains("- /srv/app/login.rs") && received.text.contains("- deadbeef42")
        );
    }
}
