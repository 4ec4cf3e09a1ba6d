//! `ctxhost serve`: prints its address, serves, and ends on a signal.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ctxhost_tests::ctxhost;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::stage::{Upstream, body_for, client, plain};

pub(crate) struct Served {
    pub(crate) child: Child,
    pub(crate) url: String,
    said: String,
    /// The lines of its log so far.
    log: Arc<Mutex<Vec<String>>>,
}

impl Served {
    /// The first line of its log that has these words, once it is there.
    pub(crate) async fn logged(&self, words: &str) -> String {
        for _ in 0..500 {
            let found = self.log.lock().unwrap().iter().find(|it| it.contains(words)).cloned();
            if let Some(line) = found {
                return line;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no {words:?} in {:?}", self.log.lock().unwrap());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn served(state: &std::path::Path, arguments: &[&str]) -> Served {
    let mut command = ctxhost();
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments).current_dir(state);
    command.env("CTXHOST_STATE_DIR", state).env_remove("CTXHOST_TOKEN").stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Where it has found a config, it says so first.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = lines.find(|line| line.contains("http")).unwrap();
    let more = lines.next().unwrap();
    let url = said.split_whitespace().find(|word| word.starts_with("http")).unwrap().to_owned();
    let log = Arc::<Mutex<Vec<String>>>::default();
    let noted = log.clone();
    std::thread::spawn(move || lines.for_each(|line| noted.lock().unwrap().push(line)));
    Served { child, url, said: format!("{said}\n{more}"), log }
}

/// Otherwise freed memory stays in an arena of each thread, and 1,000 clients take more than 200 MB.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn serve_bounds_the_arenas_of_the_c_library_and_stays_the_process_that_was_started() {
    let state = tempfile::tempdir().unwrap();
    let served = served(state.path(), &[]);
    let environment = std::fs::read(format!("/proc/{}/environ", served.child.id())).unwrap();
    let arenas = |variable: &[u8]| variable == b"MALLOC_ARENA_MAX=2";
    assert_eq!(environment.split(|byte| *byte == 0).filter(|it| arenas(it)).count(), 1);
    let name = std::fs::read_to_string(format!("/proc/{}/comm", served.child.id())).unwrap();
    assert_eq!(name.trim(), "ctxhost");
}

#[tokio::test]
async fn serve_prints_its_address_and_ends_on_a_signal() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let state = tempfile::tempdir().unwrap();
    let mut served = served(state.path(), &["--upstream", &upstream.url]);
    assert!(served.said.contains("engine legacy"), "{}", served.said);
    assert!(served.said.contains(&format!("OPENAI_BASE_URL={}/v1", served.url)), "{}", served.said);
    let url = format!("{}/v1/messages", served.url);
    let answer = client().post(url).body(body_for("/v1/messages")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(upstream.last().body, body_for("/v1/messages"));
    kill(Pid::from_raw(served.child.id() as i32), Signal::SIGTERM).unwrap();
    let ended = tokio::task::spawn_blocking(move || served.child.wait().unwrap().code());
    assert_eq!(ended.await.unwrap(), Some(0));
}

/// What a newcomer does: the gateway first, then the first choice of an engine, which creates the config.
#[tokio::test]
async fn a_config_that_is_created_while_it_serves_is_followed() {
    let state = tempfile::tempdir().unwrap();
    let served = served(state.path(), &[]);
    let metrics = format!("{}/metrics", served.url);
    let active = async || client().get(&metrics).send().await.unwrap().text().await.unwrap();
    assert!(active().await.contains("active=\"legacy\""));
    let mut command = ctxhost();
    command.args(["use", "mask"]).current_dir(state.path()).env("CTXHOST_STATE_DIR", state.path());
    assert!(command.output().unwrap().status.success());
    for _ in 0..1_000 {
        if active().await.contains("active=\"mask\"") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("mask is not active after 20 s: {}", active().await);
}

#[tokio::test]
async fn serving_with_a_postgres_store_warns_at_the_start() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let state = tempfile::tempdir().unwrap();
    let config = "[store]\nkind = \"postgres\"\nurl_env = \"CTXHOST_NO_SUCH_STORE\"\n";
    std::fs::write(state.path().join("ctxhost.toml"), config).unwrap();
    let served = served(state.path(), &["--upstream", &upstream.url]);
    let line = served.logged("[store]").await;
    assert!(line.contains("in local files"), "{line}");
}

#[tokio::test]
async fn serving_without_the_engine_is_logged() {
    let upstream = Upstream::start(|_| plain(200, "application/json", "{}")).await;
    let state = tempfile::tempdir().unwrap();
    // No engine that is bundled works in so small a window.
    let config = "[models.some-model]\nwindow_tokens = 8000\n";
    std::fs::write(state.path().join("ctxhost.toml"), config).unwrap();
    let served = served(state.path(), &["--upstream", &upstream.url]);
    let request = client().post(format!("{}/v1/messages", served.url));
    let answer = request.body(body_for("/v1/messages")).send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["x-ctxhost-engine"]),
        (200, &"none".parse().unwrap())
    );
    let line = served.logged("forwarded unshaped").await;
    assert!(line.contains("WARN") && line.contains("8,000"), "{line}");
}

#[tokio::test]
async fn ui_prints_a_new_link_at_each_call() {
    let state = tempfile::tempdir().unwrap();
    let ui = || ctxhost().arg("ui").env("CTXHOST_STATE_DIR", state.path()).output().unwrap();
    let without = ui();
    assert_eq!(without.status.code(), Some(2));
    assert!(String::from_utf8(without.stderr).unwrap().contains("ctxhost serve"));
    let mut served = served(state.path(), &[]);
    let still = crate::stage::client_builder().redirect(reqwest::redirect::Policy::none());
    let still = still.build().unwrap();
    for _ in 0..2 {
        let link = String::from_utf8(ui().stdout).unwrap();
        assert!(link.starts_with(&served.url), "{link}");
        for status in [303, 401] {
            assert_eq!(still.get(link.trim()).send().await.unwrap().status(), status, "{link}");
        }
    }
    // A killed gateway leaves its announcement behind, without the lock.
    served.child.kill().unwrap();
    served.child.wait().unwrap();
    assert_eq!(ui().status.code(), Some(2));
}
