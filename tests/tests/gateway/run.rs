//! `ctxhost run`: the agent finds the gateway, is left alone otherwise, and nothing stays behind.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use ctxhost_tests::ctxhost;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::access::certificate;
use crate::stage;

/// The test below that is no test but the agent of others, and the variable that says how many turns it
/// has.
const AGENT: &str = "run::an_agent";
const TURNS: &str = "AGENT_TURNS";
/// The words of each turn; few where it is not set.
const WORDS: &str = "AGENT_WORDS";

/// A home, a state folder and a folder for temporary files, all empty.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        for folder in ["home", "state", "tmp", "work"] {
            std::fs::create_dir(place.0.path().join(folder)).unwrap();
        }
        place
    }

    fn path(&self, folder: &str) -> std::path::PathBuf {
        self.0.path().join(folder)
    }

    /// `ctxhost <options> run -- <agent>`, with no address and no key in its environment.
    fn run(&self, options: &[&str], agent: &[&str]) -> Command {
        let mut command = ctxhost();
        for name in
            ["ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_BASE", "GOOGLE_GEMINI_BASE_URL"]
        {
            command.env_remove(name);
        }
        command
            .env("HOME", self.path("home"))
            .env("CTXHOST_STATE_DIR", self.path("state"))
            .env("TMPDIR", self.path("tmp"))
            .current_dir(self.path("work"))
            .args(options)
            .args(["run", "--"])
            .args(agent);
        command
    }

    /// A config in the folder that it works in; its path.
    fn config(&self, text: &str) -> String {
        let path = self.path("work").join("ctxhost.toml");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    #[track_caller]
    fn is_clean(&self) {
        for folder in ["home", "state", "tmp"] {
            let left: Vec<_> = files(&self.path(folder));
            assert!(left.is_empty(), "{folder}: {left:?}");
        }
    }
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn value<'a>(environment: &'a str, name: &str) -> &'a str {
    let line = environment.lines().find_map(|line| line.strip_prefix(&format!("{name}=")));
    line.unwrap_or_else(|| panic!("{name} is not set:\n{environment}"))
}

#[test]
fn the_agent_gets_the_gateway_address_and_its_exit_code_is_ours() {
    let place = Place::new();
    let output = place.run(&[], &["sh", "-c", "env; exit 7"]).output().unwrap();
    let (code, environment, stderr) = said(&output);
    assert_eq!(code, Some(7), "{stderr}");
    let url = value(&environment, "CTXHOST_URL").to_owned();
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    assert_eq!(value(&environment, "ANTHROPIC_BASE_URL"), url);
    assert_eq!(value(&environment, "GOOGLE_GEMINI_BASE_URL"), url);
    assert_eq!(value(&environment, "OPENAI_BASE_URL"), format!("{url}/v1"));
    assert!(value(&environment, "NO_PROXY").ends_with("127.0.0.1,localhost,::1"));
    let receipt = "ctxhost: 0 requests, 0 compactions, 0 tokens saved, engine legacy";
    assert_eq!(stderr.lines().last(), Some(receipt), "{stderr}");
    // Nobody listens there any more.
    let address = url.trim_start_matches("http://").split('/').next().unwrap();
    assert!(TcpStream::connect(address).is_err());
    place.is_clean();
}

#[test]
fn the_summary_names_the_engine_of_the_config_and_the_servers_that_it_names() {
    let place = Place::new();
    let text = "[plugins.slots]\ncontext_engine = \"mask\"\n[gateway.upstreams]\nopenai-responses = \"http://127.0.0.1:9\"\n";
    let path = place.config(text);
    let (_, _, stderr) = said(&place.run(&[], &["true"]).output().unwrap());
    assert!(stderr.contains("0 tokens saved, engine mask\n"), "{stderr}");
    let note = "ctxhost: openai-responses is sent to http://127.0.0.1:9 (ctxhost.toml)";
    assert!(stderr.contains(note), "{stderr}");
    let (_, _, stderr) = said(&place.run(&["--config", &path], &["true"]).output().unwrap());
    assert!(!stderr.contains("is sent to"), "{stderr}");
}

#[test]
fn a_certificate_of_the_config_is_for_others_and_the_agent_gets_plain_http() {
    let place = Place::new();
    let work = place.path("work");
    let (cert, key) = certificate(&work);
    let config = place.config(&format!("[gateway]\ntls_cert = {cert:?}\ntls_key = {key:?}\n"));
    let output = place.run(&["--config", &config], &["env"]).output().unwrap();
    let (code, environment, stderr) = said(&output);
    assert_eq!(code, Some(0), "{stderr}");
    let url = value(&environment, "ANTHROPIC_BASE_URL");
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
}

#[test]
fn an_address_that_others_reach_is_refused_in_words_that_help_here() {
    let place = Place::new();
    let mut command = ctxhost();
    command.env("HOME", place.path("home")).env("CTXHOST_STATE_DIR", place.path("state"));
    command.env("TMPDIR", place.path("tmp")).current_dir(place.path("work"));
    let output = command.args(["run", "--listen", "0.0.0.0:0", "--", "true"]).output().unwrap();
    let (code, _, stderr) = said(&output);
    assert_ne!(code, Some(0), "{stderr}");
    assert!(stderr.contains("ctxhost serve"), "{stderr}");
    assert!(!stderr.contains("--i-know-this-is-exposed"), "{stderr}");
    place.is_clean();
}

#[test]
fn what_it_keeps_while_it_runs_is_for_its_owner_alone() {
    let place = Place::new();
    let script = "umask; stat -c %a \"$TMPDIR\"/ctxhost-run-*";
    let mut command = place.run(&[], &["sh", "-c", script]);
    let (_, listed, stderr) = said(&command.output().unwrap());
    assert_eq!(listed.lines().nth(1), Some("700"), "{listed}{stderr}");
    place.is_clean();
}

#[test]
fn other_users_of_the_machine_are_refused() {
    let upstream = ScriptedServer::start(Wire::Anthropic, Model::new(200_000));
    let place = Place::new();
    let script = "echo $CTXHOST_URL; echo $CTXHOST_TOKEN; read line";
    let mut command = place.run(&[], &["sh", "-c", script]);
    command.env("ANTHROPIC_BASE_URL", upstream.url());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    let url = lines.next().unwrap().unwrap();
    let token = lines.next().unwrap().unwrap();
    let (address, word) = url.trim_start_matches("http://").split_once('/').unwrap();
    assert_eq!(word, token);
    assert!(word.len() >= 22, "{word}");
    let status = |path: &str, header: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let head =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{header}connection: close\r\n\r\n");
        std::io::Write::write_all(&mut stream, head.as_bytes()).unwrap();
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    for path in ["/v1/models", "/metrics", "/wrong/v1/models", "/v1/retrieve/0123"] {
        assert_eq!(status(path, "x-api-key: k\r\n"), "401", "{path}");
    }
    assert_eq!(upstream.requests().len(), 0);
    let known = status(&format!("/{word}/healthz"), "");
    assert_eq!(known, "200");
    let own = |status: String| assert_ne!(status, "401");
    own(status(&format!("/{word}/v1/messages/batches"), "x-api-key: k\r\n"));
    own(status("/v1/messages/batches", &format!("x-ctxhost-token: {word}\r\n")));
    drop(running.stdin.take());
    running.wait().unwrap();
}

#[test]
fn an_agent_that_cannot_be_started_has_the_exit_code_of_shells() {
    let place = Place::new();
    let (code, _, stderr) = said(&place.run(&[], &["no-such-agent"]).output().unwrap());
    assert_eq!(code, Some(127), "{stderr}");
    assert!(stderr.contains("error: cannot start no-such-agent"), "{stderr}");
    let no_program = place.path("work").display().to_string();
    let (code, _, stderr) = said(&place.run(&[], &[&no_program]).output().unwrap());
    assert_eq!(code, Some(126), "{stderr}");
    place.is_clean();
}

#[test]
fn an_agent_that_a_signal_ends_shows_in_the_exit_code() {
    let place = Place::new();
    let (code, _, stderr) = said(&place.run(&[], &["sh", "-c", "kill -9 $$"]).output().unwrap());
    assert_eq!(code, Some(128 + 9), "{stderr}");
    place.is_clean();
}

#[test]
fn signals_go_on_to_the_agent_and_the_gateway_outlives_it() {
    for (signal, name) in
        [(Signal::SIGTERM, "TERM"), (Signal::SIGINT, "INT"), (Signal::SIGUSR1, "USR1")]
    {
        let place = Place::new();
        // It says what it got once its own work is done, and ends by itself.
        let script = format!(
            "trap 'echo got {name}; exit 3' {name}; echo ready; while :; do sleep 0.05; done"
        );
        let mut command = place.run(&[], &["sh", "-c", &script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        kill(Pid::from_raw(i32::try_from(running.id()).unwrap()), signal).unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), format!("got {name}"));
        let (code, _, stderr) = said(&running.wait_with_output().unwrap());
        assert_eq!(code, Some(3), "{stderr}");
        assert!(stderr.contains("ctxhost: 0 requests"), "{stderr}");
        place.is_clean();
    }
}

#[test]
fn an_address_of_the_environment_is_asked_and_requests_are_counted() {
    let upstream = ScriptedServer::start(Wire::Anthropic, Model::new(200_000));
    let place = Place::new();
    let output = agent(&place, &[], 3).env("ANTHROPIC_BASE_URL", upstream.url()).output().unwrap();
    let (code, _, stderr) = said(&output);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(upstream.requests().len(), 3);
    assert_eq!(upstream.broken(), []);
    let receipt = stderr.lines().last().unwrap();
    assert!(receipt.starts_with("ctxhost: 3 requests, 0 compactions, "), "{stderr}");
    place.is_clean();
}

#[test]
fn a_proxy_of_the_environment_is_asked_by_the_gateway_and_not_by_the_agent() {
    let proxy = ScriptedServer::start(Wire::Anthropic, Model::new(200_000));
    let place = Place::new();
    let ask = |no_proxy: &str| {
        let mut command = agent(&place, &[], 1);
        command.env("ANTHROPIC_BASE_URL", "http://models.invalid").env("HTTP_PROXY", proxy.url());
        said(&command.env("NO_PROXY", no_proxy).output().unwrap())
    };
    let (code, _, stderr) = ask("");
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(proxy.requests().len(), 1);
    let (code, _, stderr) = ask("models.invalid");
    assert_ne!(code, Some(0), "nobody has that name: {stderr}");
    assert_eq!(proxy.requests().len(), 1);
}

#[test]
fn a_conversation_beyond_the_window_goes_on_and_the_receipt_tells_what_was_saved() {
    const TURNS: usize = 30;
    // 6,000 characters a turn: 180,000 in all, against a window that takes 112,000.
    let upstream = ScriptedServer::start(Wire::Anthropic, Model::new(32_000));
    let place = Place::new();
    let config = place.config("[models.claude-x]\nwindow_tokens = 32000\n");
    let mut command = agent(&place, &["--config", &config], TURNS);
    command.env(WORDS, "1000").env("ANTHROPIC_BASE_URL", upstream.url());
    let (code, _, stderr) = said(&command.output().unwrap());
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(upstream.broken(), []);
    let receipt = stderr.lines().last().unwrap();
    let figures: Vec<u64> = receipt
        .split(|c: char| !c.is_ascii_digit() && c != ',')
        .map(|word| word.replace(',', ""))
        .filter_map(|word| word.parse().ok())
        .collect();
    let [requests, compactions, saved_tokens] = figures[..] else { panic!("{receipt}") };
    assert_eq!(requests, TURNS as u64, "{stderr}");
    assert!(compactions > 0 && saved_tokens > 10_000, "{stderr}");
    assert!(receipt.ends_with("tokens saved, engine legacy"), "{receipt}");
    place.is_clean();
}

#[test]
fn requests_are_traced_where_a_collector_is_named() {
    let upstream = ScriptedServer::start(Wire::Anthropic, Model::new(200_000));
    let collector = Collector::start();
    let place = Place::new();
    let config = place.config(&format!("[telemetry]\notlp_endpoint = \"{}\"\n", collector.url));
    let mut command = agent(&place, &["--config", &config], 2);
    let (code, _, stderr) =
        said(&command.env("ANTHROPIC_BASE_URL", upstream.url()).output().unwrap());
    assert_eq!(code, Some(0), "{stderr}");
    let sent = collector.text();
    for word in ["service.name", "ctxhost", "anthropic-messages", "compaction"] {
        assert!(sent.contains(word), "{word} was not sent: {sent:?}");
    }
    assert!(!sent.contains("Say something"), "no word of the conversation leaves the machine");
    // A collector that is away costs nobody anything.
    drop(collector);
    let (code, _, stderr) =
        said(&command.env("ANTHROPIC_BASE_URL", upstream.url()).output().unwrap());
    assert_eq!(code, Some(0), "{stderr}");
}

/// A run of the agent below.
fn agent(place: &Place, options: &[&str], turns: usize) -> Command {
    let itself = std::env::current_exe().unwrap().display().to_string();
    let words = [itself.as_str(), AGENT, "--exact", "--ignored", "--nocapture"];
    let mut command = place.run(options, &words);
    command.env(TURNS, turns.to_string());
    command
}

#[tokio::test]
#[ignore = "the agent that other tests run"]
async fn an_agent() {
    let url = std::env::var("ANTHROPIC_BASE_URL").unwrap();
    let turns: usize = std::env::var(TURNS).unwrap().parse().unwrap();
    let words: usize = std::env::var(WORDS).ok().and_then(|it| it.parse().ok()).unwrap_or(1);
    let client = stage::client();
    let mut messages = Vec::new();
    for turn in 0..turns {
        let content = format!("Say something, {turn}.{}", " words".repeat(words));
        messages.push(json!({ "role": "user", "content": content }));
        let body = json!({ "model": "claude-x", "max_tokens": 1_000, "messages": messages });
        let request = client.post(format!("{url}/v1/messages")).json(&body);
        let request = request.header("x-api-key", "k").header("anthropic-version", "2023-06-01");
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        messages.push(json!({ "role": "assistant", "content": answer["content"] }));
    }
}

/// A collector of traces: it keeps what it is sent.
struct Collector {
    url: String,
    sent: Arc<Mutex<Vec<u8>>>,
    _runtime: tokio::runtime::Runtime,
}

impl Collector {
    fn start() -> Collector {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let kept = sent.clone();
        let keep = move |body: Bytes| {
            kept.lock().unwrap().extend_from_slice(&body);
            async {}
        };
        let routes = Router::new().route("/v1/traces", post(keep));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Collector { url, sent, _runtime: runtime }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.sent.lock().unwrap()).into_owned()
    }
}
