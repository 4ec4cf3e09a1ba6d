//! Matching requests to conversations: retries, forks, side calls, restarts.

use std::path::Path;

use ctxhost_dialects::message::TokenUsage;
use ctxhost_dialects::usage::AnswerReport;
use ctxhost_gateway::proxy::ProxyAction;
use ctxhost_session::{RecordBody, Session};
use ctxhost_tests::rules::Wire;
use serde_json::{Value, json};

use super::client::{Client, WIRES};
use super::exchange::{Gateway, WINDOW_TOKENS, assert_lawful, text, work};

#[tokio::test]
async fn a_fork_keeps_the_compactions_before_it() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut client = Client::new(Wire::Anthropic);
    let mut compactions = 0;
    for turn in 0..6 {
        work(&mut client, turn, 12_000);
        compactions += usize::from(gateway.ask(&client).await.report.compaction == "applied");
        client.answer("Done.");
    }
    assert!(compactions > 0);
    let mut edited = client.clone();
    client.say("What is next?");
    let straight = gateway.ask(&client).await;
    edited.say("What is left?");
    let fork = gateway.ask(&edited).await;
    assert_ne!(fork.report.session, straight.report.session);
    assert_eq!(text(&fork.body).replace("left?", "next?"), text(&straight.body));
    gateway.close().await;
}

#[tokio::test]
async fn a_process_that_died_over_a_request_leaves_nothing_of_it() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut client = Client::new(Wire::OpenAiChat);
    for turn in 0..6 {
        work(&mut client, turn, 12_000);
        gateway.ask(&client).await;
        client.answer("Done.");
    }
    client.say("What is next?");
    let before = gateway.ask(&client).await;
    gateway.close().await;
    let folders = std::fs::read_dir(state.path().join("gateway/sessions")).unwrap().flatten();
    let key = folders.map(|it| it.path()).find(|path| path.is_dir()).unwrap();
    let path = key.join(format!("{}.jsonl", before.report.session));
    let mut session = Session::open(&path).unwrap();
    let half = json!({ "role": "user", "content": "half of a request" });
    session.append(RecordBody::message(&half.to_string()).unwrap()).unwrap();
    drop(session);
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let after = gateway.ask(&client).await;
    assert_eq!(text(&after.body), text(&before.body));
    assert_eq!(after.report.session, before.report.session);
    client.answer("This.");
    client.say("And then?");
    let next = gateway.ask(&client).await;
    assert_eq!(next.report.session, before.report.session);
    assert!(!text(&next.body).contains("half of a request"));
    gateway.close().await;
}

#[tokio::test]
async fn retries_edits_and_side_calls() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), 200_000).await;
    for wire in WIRES {
        let mut client = Client::new(wire);
        client.say(&format!("The first words of {wire:?}."));
        let first = gateway.ask(&client).await.report;
        client.answer("Yes.");
        client.say("More.");
        let before = client.clone();
        assert_eq!(gateway.ask(&client).await.report.session, first.session, "{wire:?}: goes on");
        let again = gateway.ask(&client).await.report;
        assert_eq!(again.session, first.session, "{wire:?}: a retry");
        client.answer("Certainly.");
        client.say("Even more.");
        let longer = gateway.ask(&client).await.report;
        assert_eq!(longer.session, first.session);
        // A title for the conversation: nothing in common with it.
        let mut side = Client::new(wire);
        side.say("Write a title of three words.");
        let title = gateway.ask(&side).await.report;
        assert_ne!(title.session, first.session, "{wire:?}: a side call");
        // The person goes back and says something else.
        let mut edited = before.clone();
        edited.items.truncate(before.items.len() - 1);
        edited.say("Something else.");
        let fork = gateway.ask(&edited).await.report;
        assert_ne!(fork.session, first.session, "{wire:?}: an edit");
        assert!(fork.before_tokens.unwrap() < longer.before_tokens.unwrap());
        edited.answer("Done.");
        edited.say("And on.");
        assert_eq!(gateway.ask(&edited).await.report.session, fork.session, "{wire:?}");
        // Both branches live on.
        client.answer("Fine.");
        client.say("Go on.");
        assert_eq!(gateway.ask(&client).await.report.session, first.session, "{wire:?}");
    }
    gateway.close().await;
}

#[tokio::test]
async fn a_named_session_is_found_by_its_name_alone() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), 200_000).await;
    let session = async |name: &str| {
        let mut client = Client::new(Wire::Anthropic).with_header("x-ctxhost-session", name);
        client.say("The same words.");
        gateway.ask(&client).await.report.session
    };
    assert_eq!(session("one").await, session("one").await);
    assert_ne!(session("one").await, session("two").await);
    let mut unnamed = Client::new(Wire::Anthropic);
    unnamed.say("The same words.");
    assert_ne!(gateway.ask(&unnamed).await.report.session, session("one").await);
    gateway.close().await;
}

#[tokio::test]
async fn a_name_that_is_none_is_refused_in_the_clients_words() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), 200_000).await;
    for (wire, place) in [
        (Wire::Anthropic, "/error/type"),
        (Wire::OpenAiChat, "/error/type"),
        (Wire::Responses, "/error/code"),
        (Wire::Gemini, "/error/status"),
        (Wire::Ollama, "/error"),
    ] {
        let mut client = Client::new(wire).with_header("x-ctxhost-session", "../../etc");
        client.say("Hello.");
        let ProxyAction::Respond(answer) = gateway.exchange.handle(&client.request()).await else {
            panic!("{wire:?}: forwarded")
        };
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer.status, 400);
        assert!(body.pointer(place).is_some_and(Value::is_string), "{wire:?}: {body}");
        assert!(text(&answer.body).contains("x-ctxhost-session"));
    }
    gateway.close().await;
}

#[tokio::test]
async fn two_clients_race_on_one_conversation() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut client = Client::new(Wire::OpenAiChat);
    for turn in 0..6 {
        work(&mut client, turn, 12_000);
        client.answer("Done.");
    }
    client.say("Begin.");
    gateway.ask(&client).await;
    client.answer("Begun.");
    let racer = |words: String| {
        let mut client = client.clone();
        client.say(&words);
        client
    };
    let racers: Vec<Client> = (0..8).map(|nth| racer(format!("Racer {nth}."))).collect();
    let asked = racers.iter().map(|racer| gateway.ask(racer));
    let forwards = futures_util::future::join_all(asked).await;
    let mut sessions = std::collections::BTreeSet::new();
    for (nth, (racer, forward)) in racers.iter().zip(forwards).enumerate() {
        assert_lawful(racer, &forward.body);
        for other in 0..8 {
            let words = format!("Racer {other}.");
            assert_eq!(text(&forward.body).contains(&words), nth == other, "{nth} and {other}");
        }
        sessions.insert(forward.report.session);
    }
    assert_eq!(sessions.len(), 8);
    gateway.close().await;
}

#[tokio::test]
async fn a_state_folder_that_cannot_be_used_costs_no_request() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(state.path().join("gateway"), "no folder").unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut client = Client::new(Wire::Anthropic);
    let (mut sessions, mut compactions) = (Vec::new(), 0);
    for turn in 0..10 {
        work(&mut client, turn, 12_000);
        let forward = gateway.ask(&client).await;
        assert_lawful(&client, &forward.body);
        compactions += usize::from(forward.report.compaction == "applied");
        sessions.push(forward.report.session);
        client.answer("Done.");
    }
    sessions.dedup();
    assert!(sessions.len() == 1 && compactions > 0, "{sessions:?} {compactions}");
    gateway.close().await;
}

#[tokio::test]
async fn idle_conversations_leave_memory_and_are_reloaded_from_their_file() {
    let state = tempfile::tempdir().unwrap();
    let few = "[gateway]\nconversations = 2\n";
    let gateway = Gateway::with(state.path(), WINDOW_TOKENS, few).await;
    let mut client = Client::new(Wire::Anthropic);
    for turn in 0..6 {
        work(&mut client, turn, 12_000);
        gateway.ask(&client).await;
        client.answer("Done.");
    }
    client.say("Stay.");
    let before = gateway.ask(&client).await;
    for other in 0..5 {
        let mut side = Client::new(Wire::Anthropic);
        side.say(&format!("Side call {other}."));
        gateway.ask(&side).await;
    }
    let after = gateway.ask(&client).await;
    assert_eq!(after.report, before.report);
    assert_eq!(text(&after.body), text(&before.body));
    assert_eq!(after.report.session, before.report.session);
    gateway.close().await;
}

#[tokio::test]
async fn what_was_counted_is_learned_and_files_are_their_owners() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut events = gateway.runtime.subscribe();
    let mut client = Client::new(Wire::Anthropic);
    client.say("Begin.");
    let forward = gateway.ask(&client).await;
    let usage = TokenUsage { input: 4_000, output: 10, ..TokenUsage::default() };
    let report = AnswerReport { usage: Some(usage), ..AnswerReport::default() };
    gateway.exchange.record_answer(forward.in_flight, report);
    client.answer("Begun.");
    client.say("More.");
    let session = gateway.ask(&client).await.report.session;
    gateway.close().await;
    let mut names = Vec::new();
    while let Ok(event) = events.try_recv() {
        assert_eq!(*event.session, *session);
        names.push(format!("{:?}", event.kind).split([' ', '(', '{']).next().unwrap().to_owned());
    }
    for name in ["Assembled", "Answered", "TurnEnded"] {
        assert!(names.contains(&name.to_owned()), "{names:?}");
    }
    let folder = state.path().join("gateway/sessions");
    let keys: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().map(|it| it.path()).collect();
    let key = keys.iter().find(|path| path.is_dir()).unwrap();
    let file = key.join(format!("{session}.jsonl"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(key), mode(&file)), (0o700, 0o700, 0o600));
    }
}

#[tokio::test]
async fn a_client_that_compacts_by_itself_is_left_to_it() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut client = Client::new(Wire::Anthropic).with_header("x-claude-code-session-id", "1f");
    client.say("Begin.");
    assert_eq!(gateway.ask(&client).await.report.compaction, "none");
    client.answer("Begun.");
    let before = client.clone();
    client.say("Your task is to create a detailed summary of the conversation so far.");
    assert_eq!(gateway.ask(&client).await.report.compaction, "client");
    let mut after = before;
    after.items.clear();
    after.say("This session is being continued from a previous conversation. Begun.");
    let left = gateway.ask(&after).await.report;
    assert_eq!(left.compaction, "client");
    // What its summary asked for is nothing that it goes on with.
    after.answer("On.");
    after.say("Go on.");
    let next = gateway.ask(&after).await.report;
    assert_eq!((next.compaction, next.session), ("client", left.session));
    gateway.close().await;
}

/// Two clients say the same in small steps. The moment the conversation of the first one is compacted for
/// comfort, that of the second one goes on as it came, because its client compacts by itself.
async fn one_is_compacted_and_one_is_left(mut engines: Client, mut own: Client, left: &str) {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::of(state.path(), WINDOW_TOKENS, "boundary", "").await;
    engines.say(&left.to_lowercase());
    own.say(left);
    for turn in 0..100 {
        for client in [&mut engines, &mut own] {
            client
                .answer(&format!("Answer {turn}: {}", "the parser reads the ledger. ".repeat(25)));
            client.say(&format!("Words {turn}."));
        }
        let (shaped, request) = (gateway.ask(&engines).await, own.request());
        let passed = gateway.forward(&request).await;
        assert_eq!(passed.report.compaction, "client", "turn {turn}");
        if shaped.report.compaction == "applied" {
            assert_eq!(passed.body, request.body, "turn {turn}");
            gateway.close().await;
            return;
        }
        assert_eq!(shaped.report.compaction, "none", "turn {turn}");
    }
    panic!("nothing was ever compacted");
}

#[tokio::test]
async fn only_a_conversation_whose_client_does_not_compact_is_compacted_for_comfort() {
    let left = "This session is being continued from a previous conversation that ran out.";
    let claude = |name: &str| Client::new(Wire::Anthropic).with_header("x-ctxhost-session", name);
    one_is_compacted_and_one_is_left(claude("engines"), claude("own"), left).await;
    let codex = |id: &str| {
        let client = Client::new(Wire::Responses).with_header("x-codex-window-id", id);
        client.with_header("thread-id", id.split(':').next().unwrap())
    };
    one_is_compacted_and_one_is_left(codex("a:0"), codex("b:1"), "Go on.").await;
}

#[tokio::test]
async fn a_result_that_quotes_a_summary_leaves_the_conversation_to_the_engine() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    for wire in WIRES {
        let mut client = Client::new(wire);
        client.say("Which words does your gateway look for?");
        client.read(&[
            "\"This session is being continued from a previous conversation\", <state_snapshot>"
                .to_owned(),
        ]);
        assert_eq!(gateway.ask(&client).await.report.compaction, "none", "{wire:?}");
        client.answer("These.");
        client.say("Write a test for it.");
        assert_eq!(gateway.ask(&client).await.report.compaction, "none", "{wire:?}");
    }
    gateway.close().await;
}
