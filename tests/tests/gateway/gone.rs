//! A state folder deleted, renamed or replaced while the gateway runs: its conversations are recreated and
//! reported.

use std::path::Path;
use std::time::Duration;

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer, Step, Steps};

use crate::binary::{Served, served};
use crate::stage::client;
use crate::talk::Talk;
use crate::together::{KNOWN, kept_sessions};

struct Stand {
    /// Ends with the test.
    _server: ScriptedServer,
    state: tempfile::TempDir,
    gateway: Served,
    talk: Talk,
}

impl Stand {
    async fn new() -> Stand {
        let steps = (0..20).map(|n| vec![Step::say(format!("Noted, {n}."))]);
        let wire = Wire::Anthropic;
        let server = ScriptedServer::start(wire, Model::new(200_000)).script(Steps::new(steps));
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join("ctxhost.toml"), KNOWN).unwrap();
        let gateway = served(state.path(), &["--upstream", &server.url()]);
        let mut stand = Stand { _server: server, state, gateway, talk: Talk::new(wire) };
        for words in ["the red fox", "the blue whale"] {
            stand.say(words).await;
        }
        stand.file_with("the blue whale").await;
        stand
    }

    async fn say(&mut self, words: &str) {
        self.talk.say(words.to_owned());
        self.talk.ask(&self.gateway.url).await;
    }

    fn folder(&self) -> std::path::PathBuf {
        self.state.path().join("gateway")
    }

    /// The text of the one conversation, once it is in a file with these words.
    async fn file_with(&self, words: &str) -> String {
        for _ in 0..500 {
            let is_there = self.folder().join("sessions").is_dir();
            let files = if is_there { kept_sessions(self.state.path()) } else { Vec::new() };
            let texts = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
            let found: Vec<String> = texts.filter(|text| text.contains(words)).collect();
            if let [text] = &found[..] {
                return text.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no file of the conversation has {words:?}");
    }

    async fn counted(&self, outcome: &str) -> u64 {
        let text = client().get(format!("{}/metrics", self.gateway.url)).send().await.unwrap();
        let text = text.text().await.unwrap();
        let name = format!("ctxhost_session_file_lost_total{{outcome=\"{outcome}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }

    /// Whether all of the conversation is in a file again although nothing more was said, and it goes on.
    async fn check_made_again(mut self) {
        let text = self.file_with("the blue whale").await;
        assert!(text.contains("the red fox"), "{text}");
        let line = self.gateway.logged("it was recreated").await;
        assert!(line.contains("ERROR") && line.contains(".jsonl"), "{line}");
        for _ in 0..500 {
            if self.counted("recreated").await == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((self.counted("recreated").await, self.counted("gone").await), (1, 0));
        self.say("the green heron").await;
        let text = self.file_with("the green heron").await;
        assert!(text.contains("the red fox") && text.contains("the blue whale"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_state_folder_is_recreated_without_a_request() {
    let stand = Stand::new().await;
    std::fs::remove_dir_all(stand.folder()).unwrap();
    stand.check_made_again().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_folder_that_is_swapped_gets_the_conversations() {
    let stand = Stand::new().await;
    let old = stand.state.path().join("old");
    std::fs::rename(stand.folder(), &old).unwrap();
    std::fs::create_dir(stand.folder()).unwrap();
    stand.check_made_again().await;
    assert!(Path::new(&old).join("sessions").is_dir() || !old.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_cannot_be_created_is_reported_and_created_later() {
    let stand = Stand::new().await;
    std::fs::remove_dir_all(stand.folder()).unwrap();
    std::fs::write(stand.folder(), "in the way").unwrap();
    stand.gateway.logged("cannot be recreated").await;
    for _ in 0..500 {
        if stand.counted("gone").await == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!((stand.counted("recreated").await, stand.counted("gone").await), (0, 1));
    std::fs::remove_file(stand.folder()).unwrap();
    let text = stand.file_with("the blue whale").await;
    assert!(text.contains("the red fox"), "{text}");
}
