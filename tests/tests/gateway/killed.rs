//! A killed gateway: clients continue, and the model reads the same bytes.

use std::time::Duration;

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Fault, Model, ScriptedServer, Step, Steps};

use crate::binary::{Served, served};
use crate::overflow::WIRES;
use crate::talk::Talk;
use crate::together::{KNOWN, kept_sessions};

const TURNS: usize = 15;

struct Stand {
    server: ScriptedServer,
    state: tempfile::TempDir,
    gateway: Served,
}

impl Stand {
    fn new(wire: Wire) -> Stand {
        let steps = (0..80).map(|n| vec![Step::say(format!("Noted, {n}."))]);
        let server = ScriptedServer::start(wire, Model::new(20_000)).script(Steps::new(steps));
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join("ctxhost.toml"), KNOWN).unwrap();
        let gateway = served(state.path(), &["--upstream", &server.url()]);
        Stand { server, state, gateway }
    }

    fn kill_and_start(&mut self) {
        self.gateway.child.kill().unwrap();
        self.gateway.child.wait().unwrap();
        self.gateway = served(self.state.path(), &["--upstream", &self.server.url()]);
    }

    /// A request is killed once the model has read it; asked again, the model reads the same.
    async fn killed_while_it_waits(&mut self, talk: &mut Talk) {
        self.server.fail_next(Fault::Hang);
        let before = self.server.requests().len();
        let asked = tokio::spawn(talk.request(&self.gateway.url).send());
        while self.server.requests().len() == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.kill_and_start();
        assert!(asked.await.unwrap().is_err(), "nobody was there to answer");
        talk.ask(&self.gateway.url).await;
        let seen = self.server.requests();
        assert_eq!(seen[before].body, seen[before + 1].body, "{:?}", talk.wire);
    }

    /// A request is killed anywhere on its way.
    async fn killed_somewhere(&mut self, talk: &mut Talk) {
        let asked = tokio::spawn(talk.request(&self.gateway.url).send());
        tokio::time::sleep(Duration::from_micros(fastrand::u64(..30_000))).await;
        self.kill_and_start();
        let _ = asked.await.unwrap();
        talk.ask(&self.gateway.url).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_in_the_middle_cost_no_conversation() {
    for wire in WIRES {
        let mut stand = Stand::new(wire);
        let mut talk = Talk::new(wire);
        for turn in 0..TURNS {
            talk.say(format!("Turn {turn}. {}", "The parser reads the ledger again. ".repeat(180)));
            match turn % 5 {
                2 => stand.killed_somewhere(&mut talk).await,
                4 => stand.killed_while_it_waits(&mut talk).await,
                _ => talk.ask(&stand.gateway.url).await,
            }
        }
        assert_eq!(stand.server.broken(), [], "{wire:?}");
        let kept = kept_sessions(stand.state.path());
        assert_eq!(kept.len(), 1, "{wire:?}: one conversation in {kept:?}");
    }
}
