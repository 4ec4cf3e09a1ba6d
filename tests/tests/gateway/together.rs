//! Two clients in one session at once.

use std::collections::BTreeSet;

use ctxhost_session::Session;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer, Step, Steps};

use crate::overflow::WIRES;
use crate::stage::Gate;
use crate::talk::Talk;

const WINDOW: u64 = 20_000;
pub(crate) const KNOWN: &str =
    "[models.m]\nwindow_tokens = 20000\n[models.gemini-3-pro]\nwindow_tokens = 20000\n";

const NAMES: [&str; 2] = ["Alder", "Birch"];
const TURNS: usize = 14;

async fn race(mut talk: Talk, url: String, name: &'static str) -> Talk {
    for turn in 0..TURNS {
        talk.say(format!("{name} {turn}. {}", "The parser reads the ledger again. ".repeat(180)));
        talk.ask(&url).await;
    }
    talk
}

/// Both name the same session and say the same at first. From then on each has a conversation of its own.
async fn two_race(wire: Wire) {
    let steps = (0..80).map(|n| vec![Step::say(format!("Noted, {n}."))]);
    let server = ScriptedServer::start(wire, Model::new(WINDOW)).script(Steps::new(steps));
    let gate = Gate::before(&server.url(), KNOWN).await;
    let mut talk = Talk::of_session(wire, "shared");
    talk.say("Let us begin.".into());
    talk.ask(&gate.url).await;
    let racers = NAMES.map(|name| tokio::spawn(race(talk.clone(), gate.url.clone(), name)));
    for racer in racers {
        assert_eq!(racer.await.unwrap().texts.len(), 2 + 2 * TURNS);
    }
    assert_eq!(server.broken(), [], "{wire:?}");
    let seen = server.requests();
    assert_eq!(seen.len(), 1 + NAMES.len() * TURNS, "{wire:?}: nothing was too large");
    for name in NAMES {
        let bodies = seen.iter().map(|seen| seen.body.to_string());
        let own: Vec<String> = bodies.filter(|body| body.contains(name)).collect();
        let other = NAMES.iter().find(|other| **other != name).unwrap();
        assert!(own.iter().all(|body| !body.contains(other)), "{wire:?}: two in one request");
        let turns: BTreeSet<usize> = (0..TURNS)
            .filter(|turn| own.iter().any(|body| body.contains(&format!("{name} {turn}. "))))
            .collect();
        assert_eq!(turns.len(), TURNS, "{wire:?}: what {name} says reaches the model");
    }
    gate.end.cancel();
    gate.task.await.unwrap();
    let kept = kept_sessions(gate.state.path());
    assert_eq!(kept.len(), 2, "{wire:?}: {kept:?}");
    for path in kept {
        Session::read(&path).unwrap();
    }
}

/// The files of conversations below a state folder.
pub(crate) fn kept_sessions(state: &std::path::Path) -> Vec<std::path::PathBuf> {
    let folder = state.join("gateway/sessions");
    let keys = std::fs::read_dir(folder).unwrap().flatten().map(|it| it.path());
    let files = keys.filter(|it| it.is_dir()).flat_map(|it| std::fs::read_dir(it).unwrap());
    let files = files.flatten().map(|it| it.path());
    files.filter(|it| it.extension().is_some_and(|it| it == "jsonl")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_clients_in_one_session_do_not_hear_each_other() {
    for wire in WIRES {
        two_race(wire).await;
    }
}
