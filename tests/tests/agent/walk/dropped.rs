//! Turns dropped at any point: the session opens, keeps the invariants, and the next turn works.

use std::time::Duration;

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Ask, Model, ScriptedServer, Speaker, Step};
use ctxhost_tests::stage::Stage;
use ctxhost_tests::workplace::{ConfigText, lawful_session, words};
use serde_json::json;

const WINDOW_TOKENS: u64 = 32_000;

/// Calls two tools at once, looks again, and then answers.
fn worker(wire: Wire) -> ScriptedServer {
    let call = |path: &str| Step::call("read_file", json!({"path": path}));
    let script = move |ask: &Ask<'_>| {
        let results = ask.said.iter().rev().take_while(|said| said.by != Speaker::User);
        let results = results.filter(|said| said.by == Speaker::Tool).count();
        match results {
            0 => {
                vec![Step::think("Hm."), Step::say("I look."), call("notes.txt"), call("long.txt")]
            }
            1 | 2 => vec![call("notes.txt")],
            _ => vec![Step::say("It is 4711.")],
        }
    };
    ScriptedServer::start(wire, Model::new(WINDOW_TOKENS)).script(script)
}

#[tokio::test]
async fn a_turn_may_be_dropped_at_any_moment() {
    for wire in Wire::ALL {
        let server = worker(wire);
        let place =
            ConfigText::new().provider("fake", wire, &server.url(), WINDOW_TOKENS).workplace();
        let mut stage = Stage::open(&place).await;
        let mut random = fastrand::Rng::with_seed(3);
        let mut said = Vec::new();
        for n in 0..12 {
            let text = format!("Which number is it, {n}?");
            tokio::select! {
                biased;
                _ = stage.runtime.send(&stage.session, &text) => {}
                () = after(&mut random) => {}
            }
            said.push(text);
            lawful_session(&place.session_path());
            if n % 3 == 2 {
                let text = format!("And now, {n}?");
                let reply = stage.say(&text).await;
                let reply = reply.unwrap_or_else(|error| panic!("{wire:?} {n}: {error}"));
                assert_eq!(reply.message.text(), "It is 4711.", "{wire:?} {n}");
                said.push(text);
            }
        }
        stage.close().await;
        assert_eq!(server.broken(), [], "{wire:?}");
        assert_eq!(words(&place.session()), said, "{wire:?}: once, and in order");
    }
}

/// Some yields and a short sleep.
async fn after(random: &mut fastrand::Rng) {
    for _ in 0..random.usize(0..40) {
        tokio::task::yield_now().await;
    }
    if random.bool() {
        tokio::time::sleep(Duration::from_micros(random.u64(0..60_000))).await;
    }
}
