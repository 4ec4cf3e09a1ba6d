//! Messages queued during a turn: answered in order, and delivered after a crash.

use std::path::Path;
use std::time::Duration;

use ctxhost_dialects::ChatMessage;
use ctxhost_session::Session;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Ask, Fault, Model, ScriptedServer, Speaker, Step};
use ctxhost_tests::stage::Stage;
use ctxhost_tests::workplace::{ConfigText, Workplace, messages, words};

const WINDOW_TOKENS: u64 = 32_000;

/// Repeats what it was told last.
fn echo(wire: Wire) -> ScriptedServer {
    let script = |ask: &Ask<'_>| {
        let last = ask.said.iter().rev().find(|said| said.by == Speaker::User);
        vec![Step::say(format!("Heard: {}", last.map_or("", |said| said.text.as_str())))]
    };
    ScriptedServer::start(wire, Model::new(WINDOW_TOKENS)).script(script)
}

fn workplace(server: &ScriptedServer, wire: Wire) -> Workplace {
    ConfigText::new().provider("fake", wire, &server.url(), WINDOW_TOKENS).workplace()
}

/// Words and answers in the order in which they stand in the file.
fn talk(session: &Session) -> Vec<String> {
    let text = |message: &ChatMessage| match message {
        ChatMessage::Assistant(answer) => answer.text(),
        other => serde_json::to_value(other).unwrap()["content"][0]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    };
    messages(session).iter().map(text).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn words_that_come_together_are_answered_one_after_the_other() {
    let wire = Wire::Anthropic;
    let server = echo(wire);
    let place = workplace(&server, wire);
    let stage = Stage::open(&place).await;
    for round in 0..20 {
        let senders: Vec<_> = (0..6)
            .map(|n| {
                let (runtime, session) = (stage.runtime.clone(), stage.session.clone());
                tokio::spawn(async move {
                    let text = format!("{round}.{n}");
                    let reply = runtime.send(&session, &text).await.unwrap();
                    assert_eq!(reply.message.text(), format!("Heard: {text}"));
                })
            })
            .collect();
        for sender in senders {
            sender.await.unwrap();
        }
    }
    stage.close().await;
    assert_eq!(server.broken(), []);
    let talk = talk(&place.session());
    assert_eq!(talk.len(), 240);
    for pair in talk.chunks(2) {
        assert_eq!(pair[1], format!("Heard: {}", pair[0]));
    }
}

async fn until_it_says(file: &Path, text: &str) {
    for _ in 0..600 {
        if std::fs::read_to_string(file).is_ok_and(|it| it.contains(text)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} does not say {text:?}", file.display());
}

#[test]
fn words_of_a_process_that_died_are_delivered_by_the_next() {
    for wire in Wire::ALL {
        let server = echo(wire);
        let place = workplace(&server, wire);
        let session_file = place.path().join("session.jsonl");
        let inbox = place.path().join("session.jsonl.inbox");
        // One thread: a second one goes on with what waits while the first is told to end, and no death does that.
        let process =
            || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let first = process();
        first.block_on(async {
            let mut stage = Stage::open(&place).await;
            stage.say("Hello").await.unwrap();
            server.fail_next(Fault::Hang);
            for text in ["This hangs", "This waits", "So does this"] {
                let (runtime, session) = (stage.runtime.clone(), stage.session.clone());
                tokio::spawn(async move { runtime.send(&session, text).await });
                // One after the other, however slow the machine is.
                let file = if text == "This hangs" { &session_file } else { &inbox };
                until_it_says(file, text).await;
            }
        });
        first.shutdown_timeout(Duration::from_secs(5));
        assert!(inbox.exists(), "{wire:?}: what waits is on the disk");
        process().block_on(async {
            let mut stage = Stage::open(&place).await;
            let reply = stage.say("I am back").await.unwrap();
            assert!(reply.message.text().contains("I am back"), "{wire:?}");
            stage.close().await;
        });
        assert!(!inbox.exists(), "{wire:?}");
        let expected = ["Hello", "This hangs", "This waits", "So does this", "I am back"];
        assert_eq!(words(&place.session()), expected, "{wire:?}");
        assert_eq!(server.broken(), [], "{wire:?}");
    }
}
