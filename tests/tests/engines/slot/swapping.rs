//! Engines swapped under active sessions: libraries, bundled engines, rewritten files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ctxhost_agent::event::EventKind;
use ctxhost_agent::{Runtime, RuntimeBuilder};
use ctxhost_config::{Config, set_slot};
use ctxhost_engine::EngineSpec;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Ask, Model, ScriptedServer, Speaker, Step};
use ctxhost_tests::workplace::{ConfigText, Workplace};
use ctxhost_tests::{bundled_library, chaos_library, ctxhost};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::{JoinHandle, JoinSet};

const WINDOW_TOKENS: u64 = 200_000;

/// Sessions that talk at the same time.
const SESSIONS: usize = 16;

/// A model that reads a file in every turn, so that each has two requests.
fn reader() -> ScriptedServer {
    let model = Model::new(WINDOW_TOKENS);
    ScriptedServer::start(Wire::Anthropic, model).keep_bodies(1).script(|ask: &Ask<'_>| {
        match ask.said.last().map(|said| said.by) {
            Some(Speaker::Tool) => vec![Step::say("It is 4711.")],
            _ => vec![Step::call("read_file", json!({"path": "notes.txt"}))],
        }
    })
}

fn workplace(server: &ScriptedServer, more: &str) -> Workplace {
    let config = ConfigText::new().provider("fake", Wire::Anthropic, &server.url(), WINDOW_TOKENS);
    config.agent("max_output_tokens = 512").tables(more).workplace()
}

/// What was in the slot, in order: who was about to come, and who had come.
#[derive(Default)]
struct Slot {
    coming: Mutex<Vec<&'static str>>,
    come: AtomicUsize,
}

impl Slot {
    /// An engine is about to come.
    fn announce(&self, engine: &'static str) {
        self.coming.lock().unwrap().push(engine);
    }

    /// It has come.
    fn arrived(&self) {
        self.come.store(self.coming.lock().unwrap().len(), Ordering::SeqCst);
    }

    /// Whose turn a turn may be that began when so many had come, and ends now.
    fn since(&self, come: usize) -> Vec<&'static str> {
        self.coming.lock().unwrap()[come - 1..].to_vec()
    }
}

/// Sessions that talk until they are told to stop. Every answer is of an engine that was in the slot.
struct Crowd {
    turns: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    talkers: JoinSet<()>,
}

impl Crowd {
    fn gather(runtime: &Runtime, place: &Workplace, slot: &Arc<Slot>) -> Crowd {
        let (turns, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let mut talkers = JoinSet::new();
        for n in 0..SESSIONS {
            let path = place.path().join(format!("session-{n}.jsonl"));
            let session = runtime.create_session(&path, place.path()).unwrap();
            let (runtime, slot) = (runtime.clone(), slot.clone());
            let (turns, stop) = (turns.clone(), stop.clone());
            talkers.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let come = slot.come.load(Ordering::SeqCst);
                    let reply = runtime.send(&session, "Which number is it?").await;
                    let reply = reply.unwrap_or_else(|error| panic!("a call failed: {error}"));
                    let possible = slot.since(come);
                    assert!(possible.contains(&&*reply.engine), "{} of {possible:?}", reply.engine);
                    assert_eq!(reply.requests, 2);
                    turns.fetch_add(1, Ordering::SeqCst);
                    // Sessions of a test need not grow as fast as they can.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
        Crowd { turns, stop, talkers }
    }

    /// Waits for a few turns more.
    async fn go_on(&mut self, turns: usize) {
        let until = self.turns.load(Ordering::SeqCst) + turns;
        while self.turns.load(Ordering::SeqCst) < until {
            tokio::select! {
                biased;
                ended = self.talkers.join_next() => ended.unwrap().unwrap(),
                () = tokio::time::sleep(Duration::from_millis(2)) => {}
            }
        }
    }

    async fn disperse(mut self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.talkers.join_next().await {
            ended.unwrap();
        }
        self.turns.load(Ordering::SeqCst)
    }
}

/// What a listener saw.
#[derive(Debug, Default)]
struct Seen {
    /// Turns of which every request was seen, all of one engine.
    whole_turns: usize,
    /// Turns whose requests were of several engines.
    mixed: Vec<Vec<String>>,
    stand_ins: Vec<String>,
    rolled_back: Vec<String>,
}

/// Watches every request until the runtime ends. One that is too slow misses some and forgets the turns
/// that it does not know whole.
fn watch(runtime: &Runtime) -> JoinHandle<Seen> {
    let mut events = runtime.subscribe();
    tokio::spawn(async move {
        let mut seen = Seen::default();
        let mut turns: HashMap<Arc<str>, Vec<String>> = HashMap::new();
        loop {
            let event = match events.recv().await {
                Ok(event) => event,
                Err(RecvError::Lagged(_)) => {
                    turns.clear();
                    continue;
                }
                Err(RecvError::Closed) => return seen,
            };
            match event.kind {
                EventKind::TurnStarted => drop(turns.insert(event.session, Vec::new())),
                EventKind::Assembled { engine, fallback, .. } => {
                    seen.stand_ins.extend(fallback);
                    if let Some(turn) = turns.get_mut(&event.session) {
                        turn.push(engine);
                    }
                }
                EventKind::TurnEnded => match turns.remove(&event.session) {
                    Some(engines) if engines.iter().any(|it| *it != engines[0]) => {
                        seen.mixed.push(engines);
                    }
                    Some(_) => seen.whole_turns += 1,
                    None => {}
                },
                EventKind::EngineRolledBack { engine, .. } => seen.rolled_back.push(engine),
                _ => {}
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_sessions_and_a_hundred_swaps_without_a_failed_call() {
    const SWAPS: usize = 100;
    let server = reader();
    let place = workplace(&server, "[swap]\nwarm_ms = 300\n");
    let runtime = place.runtime().build().await.unwrap();
    let watching = watch(&runtime);
    let library = |id: &str| EngineSpec::file(id, &bundled_library(id), json!({}));
    let engines = [
        ("mask", library("mask")),
        ("boundary", EngineSpec::bundled("boundary", json!({}))),
        ("window", library("window")),
    ];
    let slot = Arc::new(Slot::default());
    slot.announce("legacy");
    slot.arrived();
    let mut crowd = Crowd::gather(&runtime, &place, &slot);
    crowd.go_on(SESSIONS).await;
    for (id, engine) in engines.iter().cycle().take(SWAPS) {
        slot.announce(id);
        let swapped = runtime.replace_engine(engine).await.unwrap();
        slot.arrived();
        assert_eq!(swapped.engine, *id);
        crowd.go_on(2).await;
    }
    let turns = crowd.disperse().await;
    assert_eq!(runtime.generation(), SWAPS as u64 + 1);
    runtime.shutdown().await;
    drop(runtime);
    let seen = watching.await.unwrap();
    assert!(seen.mixed.is_empty(), "turns of several engines: {:?}", seen.mixed);
    assert!(seen.stand_ins.is_empty() && seen.rolled_back.is_empty(), "{seen:?}");
    assert!(turns >= 2 * SWAPS && seen.whole_turns > SWAPS, "{turns} turns, {seen:?}");
    assert_eq!(server.broken(), []);
}

/// A config in the folder, and a runtime that follows it.
async fn following(place: &Workplace) -> Runtime {
    let path = place.path().join("ctxhost.toml");
    let builder = RuntimeBuilder::from_config(&Config::load(&path).unwrap());
    builder.watch_config(&path, place.path().join("state")).build().await.unwrap()
}

async fn until(runtime: &Runtime, engine: &str) {
    for _ in 0..3_000 {
        if runtime.engine() == engine {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{engine} does not come into the slot within half a minute");
}

/// The program that installed engines run in. Built before anybody talks: that takes the whole machine.
fn workers() -> String {
    format!("[plugins.sandbox]\nprogram = {:?}\n", ctxhost().get_program())
}

fn use_engine(folder: &Path, engine: &str) {
    let output = ctxhost().current_dir(folder).args(["use", engine]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn another_shell_swaps_the_engine_of_a_running_host() {
    let server = reader();
    let mask = format!("[plugins.entries.mask]\npath = {:?}\n", bundled_library("mask"));
    let entry = workers() + &mask;
    let place = workplace(&server, &format!("[swap]\nwatch_ms = 20\n{entry}"));
    let runtime = following(&place).await;
    let watching = watch(&runtime);
    let slot = Arc::new(Slot::default());
    slot.announce("legacy");
    slot.arrived();
    let mut crowd = Crowd::gather(&runtime, &place, &slot);
    crowd.go_on(SESSIONS).await;
    for engine in ["mask", "window", "mask", "legacy", "boundary", "mask"] {
        slot.announce(engine);
        use_engine(place.path(), engine);
        until(&runtime, engine).await;
        slot.arrived();
        crowd.go_on(SESSIONS).await;
    }
    // A file that is broken for a while changes nothing.
    let path = place.path().join("ctxhost.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}\n[broken")).unwrap();
    assert!(runtime.reload().await.is_err());
    crowd.go_on(SESSIONS).await;
    std::fs::write(&path, &text).unwrap();
    crowd.disperse().await;
    assert_eq!(runtime.generation(), 7);
    runtime.shutdown().await;
    drop(runtime);
    let seen = watching.await.unwrap();
    assert!(seen.mixed.is_empty() && seen.stand_ins.is_empty(), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_library_that_panics_at_its_first_request_is_rolled_back_under_sixteen_sessions() {
    let server = reader();
    let chaos = format!(
        "[plugins.entries.chaos]\npath = {:?}\nconfig = {{ mode = \"panic-assemble\" }}\n",
        chaos_library()
    );
    let entry = workers() + &chaos;
    let place = workplace(&server, &format!("[swap]\nwatch_ms = 0\n{entry}"));
    let path = place.path().join("ctxhost.toml");
    set_slot(&path, "window").unwrap();
    let runtime = following(&place).await;
    let watching = watch(&runtime);
    let slot = Arc::new(Slot::default());
    slot.announce("window");
    slot.arrived();
    let mut crowd = Crowd::gather(&runtime, &place, &slot);
    crowd.go_on(SESSIONS).await;
    for _ in 0..3 {
        // The same again after a rollback is another try.
        set_slot(&path, "chaos").unwrap();
        let swapped = runtime.reload().await.unwrap().unwrap();
        assert_eq!((swapped.engine.as_str(), swapped.previous.as_str()), ("chaos", "window"));
        until(&runtime, "window").await;
        crowd.go_on(SESSIONS).await;
    }
    crowd.disperse().await;
    runtime.shutdown().await;
    drop(runtime);
    let seen = watching.await.unwrap();
    assert_eq!(seen.rolled_back, ["chaos"; 3]);
    assert!(seen.mixed.is_empty(), "{seen:?}");
    let reported = |why: &String| why.starts_with("chaos failed in assemble: ");
    assert!(seen.stand_ins.iter().all(reported) && !seen.stand_ins.is_empty(), "{seen:?}");
    assert_eq!(server.broken(), []);
}
