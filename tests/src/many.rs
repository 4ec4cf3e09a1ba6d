//! Many concurrent agents through one gateway: each keeps its session.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, Response};
use futures_util::future::join_all;
use serde_json::{Value, json};

/// How a client says whose conversation it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// By nothing but its words.
    Words,
    /// By a header of its own, as Claude Code does; all first messages are the same.
    Client,
    /// By our header; all first messages are the same.
    Header,
}

/// The three, each for a third of the conversations.
pub const NAMINGS: [Naming; 3] = [Naming::Words, Naming::Client, Naming::Header];

/// How long the model of a campaign thinks: long enough for all requests to be out together.
const THINKING: Duration = Duration::from_millis(40);

/// A client that sends its whole conversation with every request.
#[derive(Debug)]
struct Agent {
    number: usize,
    naming: Naming,
    messages: Vec<Value>,
    /// The sessions that its answers have named.
    sessions: BTreeSet<String>,
}

/// Agents that all speak at the same time.
#[derive(Debug)]
pub struct Agents {
    agents: Vec<Agent>,
    words: String,
    client: reqwest::Client,
    turn: usize,
}

impl Agents {
    /// So many, each of which says some `bytes` with every request.
    pub fn new(count: usize, bytes: usize) -> Agents {
        // Whatever the process has installed before serves as well.
        _ = rustls::crypto::ring::default_provider().install_default();
        let agent = |number| Agent {
            number,
            naming: NAMINGS[number % NAMINGS.len()],
            messages: Vec::new(),
            sessions: BTreeSet::new(),
        };
        Agents {
            agents: (0..count).map(agent).collect(),
            words: "The parser reads the ledger. ".repeat(bytes.div_ceil(29)),
            client: reqwest::Client::builder().no_proxy().build().expect("a client"),
            turn: 0,
        }
    }

    /// Every agent asks and is answered `turns` times more, each time all of them together, through the gateway at
    /// `url`. Answers the errors.
    pub async fn ask(&mut self, url: &str, turns: usize) -> Vec<String> {
        let mut errors = Vec::new();
        for _ in 0..turns {
            let (client, words, turn) = (&self.client, &self.words, self.turn);
            let asked = self.agents.iter_mut().map(|agent| agent.ask(client, url, turn, words));
            errors.extend(join_all(asked).await.into_iter().filter_map(Result::err));
            self.turn += 1;
        }
        errors
    }

    /// The agents whose answers named several sessions, or none, with those names.
    pub fn split(&self) -> BTreeMap<usize, BTreeSet<String>> {
        let split = self.agents.iter().filter(|agent| agent.sessions.len() != 1);
        split.map(|agent| (agent.number, agent.sessions.clone())).collect()
    }

    /// All sessions that were named.
    pub fn sessions(&self) -> BTreeSet<String> {
        self.agents.iter().flat_map(|agent| agent.sessions.iter().cloned()).collect()
    }
}

impl Agent {
    async fn ask(
        &mut self,
        client: &reqwest::Client,
        url: &str,
        turn: usize,
        words: &str,
    ) -> Result<(), String> {
        let text = match (turn, self.naming) {
            // What is said first, and what is answered to it, is the same in many conversations.
            (0, Naming::Client | Naming::Header) => format!("Go on. {words}"),
            _ => format!("Agent {} in turn {turn}. {words}", self.number),
        };
        self.messages.push(json!({ "role": "user", "content": text }));
        let body = json!({ "model": "m", "max_tokens": 100, "messages": self.messages });
        let request = client.post(format!("{url}/v1/chat/completions")).body(body.to_string());
        let request = match self.naming {
            Naming::Words => request,
            Naming::Client => {
                request.header("x-claude-code-session-id", format!("c{}", self.number))
            }
            Naming::Header => request.header("x-ctxhost-session", format!("h{}", self.number)),
        };
        let failed = |error: &dyn std::fmt::Display| format!("agent {}: {error}", self.number);
        let request = request.header("content-type", "application/json");
        let answer = request.send().await.map_err(|error| failed(&error))?;
        let status = answer.status();
        let session = answer.headers().get("x-ctxhost-session").and_then(|it| it.to_str().ok());
        self.sessions.extend(session.map(str::to_owned));
        let text = answer.text().await.map_err(|error| failed(&error))?;
        if status != 200 {
            return Err(failed(&format!("{status} {text}")));
        }
        let answer: Value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        self.messages.push(answer["choices"][0]["message"].clone());
        Ok(())
    }
}

/// A provider that answers every chat completion after a moment, without a look at most of it; its address.
pub async fn provider() -> String {
    let answer = |_: HeaderMap, body: Bytes| async move {
        tokio::time::sleep(THINKING).await;
        let message = json!({ "role": "assistant", "content": format!("Noted, {}.", body.len()) });
        let usage = json!({ "prompt_tokens": body.len() / 4, "completion_tokens": 5 });
        let answer = json!({ "id": "1", "object": "chat.completion", "model": "m", "usage": usage,
            "choices": [{ "index": 0, "finish_reason": "stop", "message": message }] });
        Response::builder()
            .header("content-type", "application/json")
            .body(Body::from(answer.to_string()))
            .expect("an answer")
    };
    let house = Router::new().fallback(answer).layer(DefaultBodyLimit::disable());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, house).await });
    format!("http://{address}")
}

/// How large a campaign is.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Conversations, all at the same time.
    pub conversations: usize,
    /// Requests of each.
    pub turns: usize,
    /// After how many of them the gateway is ended and started again.
    pub restart_after: usize,
    /// What each request adds, in bytes.
    pub bytes: usize,
    /// What the config of the gateway says.
    pub config: String,
}

/// What came of a campaign.
#[derive(Clone, Debug)]
pub struct Report {
    /// Conversations whose answers named several sessions or none, with those names.
    pub split: BTreeMap<usize, BTreeSet<String>>,
    /// How many sessions there were in all.
    pub sessions: usize,
    /// What went wrong with requests.
    pub errors: Vec<String>,
    /// The most that one of both gateway processes had resident, in bytes (`VmHWM`).
    pub peak_bytes: u64,
    /// How long all requests took.
    pub took: Duration,
    /// The lines of the logs, warnings and errors.
    pub log: Vec<String>,
}

/// Has `binary serve` keep many conversations apart, with a restart in the middle.
pub async fn many_conversations(binary: &Path, campaign: &Campaign) -> Report {
    let upstream = provider().await;
    let state = tempfile::tempdir().expect("a folder");
    std::fs::write(state.path().join("ctxhost.toml"), &campaign.config).expect("a config");
    let mut agents = Agents::new(campaign.conversations, campaign.bytes);
    let began = Instant::now();
    let (mut errors, mut log, mut peak_bytes) = (Vec::new(), Vec::new(), 0);
    for turns in [campaign.restart_after, campaign.turns - campaign.restart_after] {
        let mut serving = Serving::start(binary, state.path(), &upstream);
        errors.extend(agents.ask(&serving.url, turns).await);
        peak_bytes = peak_bytes.max(serving.peak_bytes());
        log.extend(serving.end());
    }
    Report {
        split: agents.split(),
        sessions: agents.sessions().len(),
        errors,
        peak_bytes,
        took: began.elapsed(),
        log,
    }
}

/// `ctxhost serve` on a free port.
#[derive(Debug)]
pub struct Serving {
    child: Child,
    /// Its address.
    pub url: String,
    log: Option<std::thread::JoinHandle<Vec<String>>>,
}

impl Serving {
    /// Starts it in front of an upstream for all dialects; its config and its state are in `folder`.
    pub fn start(binary: &Path, folder: &Path, upstream: &str) -> Serving {
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--upstream", upstream]);
        command.current_dir(folder).env("CTXHOST_STATE_DIR", folder).env("NO_COLOR", "1");
        command.env_remove("CTXHOST_TOKEN").env_remove("CTXHOST_LOG").stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let stderr = child.stderr.take().expect("a pipe");
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let said = lines.find(|line| line.contains("http")).expect("it says where it is");
        let url = said.split_whitespace().find(|word| word.starts_with("http"));
        let url = url.expect("an address").to_owned();
        let is_told = |line: &String| line.contains("WARN") || line.contains("ERROR");
        let log = std::thread::spawn(move || lines.filter(is_told).collect());
        Serving { child, url, log: Some(log) }
    }

    /// The most that it had resident so far, in bytes; 0 where the system does not say.
    pub fn peak_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or_default() * 1024
    }

    /// Tells it to end and waits for it; the warnings and errors of its log.
    pub fn end(&mut self) -> Vec<String> {
        let id = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM);
        _ = self.child.wait();
        self.log.take().and_then(|log| log.join().ok()).unwrap_or_default()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
