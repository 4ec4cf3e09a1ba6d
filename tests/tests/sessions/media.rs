//! Images in a store: the model reads the same bytes, each is stored once, and unreferenced ones are collected.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ctxhost_blobs::{BlobFolder, hash};
use ctxhost_engine::HostClock;
use ctxhost_session::Session;
use ctxhost_tests::ctxhost;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Model, ScriptedServer, Step, Steps};
use ctxhost_tests::workplace::{ConfigText, Workplace};
use serde_json::{Value, json};

const WINDOW_TOKENS: u64 = 64_000;

/// What `read_file` takes for a picture.
fn picture(seed: u8) -> Vec<u8> {
    let mut bytes = vec![0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];
    bytes.extend((0..3_000_u32).map(|n| seed.wrapping_add(u8::try_from(n % 251).unwrap())));
    bytes
}

/// A model that looks at the same picture twice and at another one once, in two turns.
fn looker(wire: Wire) -> ScriptedServer {
    let look = |path: &str| vec![Step::call("read_file", json!({ "path": path }))];
    let server = ScriptedServer::start(wire, Model::new(WINDOW_TOKENS)).keep_bodies(20);
    server.script(Steps::new([
        look("a.png"),
        look("a.png"),
        vec![Step::say("I see.")],
        look("b.png"),
        vec![Step::say("I see that too.")],
    ]))
}

fn workplace(server: &ScriptedServer, wire: Wire, media: &str) -> Workplace {
    let session = format!("[session]\nmedia = \"{media}\"\nmedia_inline_bytes = 100\n");
    let config = ConfigText::new().provider("fake", wire, &server.url(), WINDOW_TOKENS);
    let place = config.tables(&session).workplace();
    fs::write(place.path().join("a.png"), picture(1)).unwrap();
    fs::write(place.path().join("b.png"), picture(2)).unwrap();
    place
}

/// Two turns, each with the session opened anew; what the model was sent, and the file.
async fn bodies(wire: Wire, media: &str) -> (Vec<Value>, Vec<u8>, Workplace) {
    let server = looker(wire);
    let place = workplace(&server, wire, media);
    let (path, cwd) = (place.session_path(), place.path().display().to_string());
    drop(Session::create(&path, &cwd, Some("same")).unwrap());
    let clock = HostClock::recorded();
    clock.set(1_790_000_000_000);
    for words in ["What is in a.png?", "And in b.png?"] {
        let runtime = place.runtime().clock(clock.clone()).build().await.unwrap();
        let session = runtime.open_session(&path).unwrap();
        runtime.send(&session, words).await.unwrap();
        runtime.close_session(&session).await;
        runtime.shutdown().await;
    }
    assert_eq!(server.broken(), [], "{wire:?}");
    let bodies = server.requests().into_iter().map(|seen| (*seen.body).clone()).collect();
    (bodies, fs::read(&path).unwrap(), place)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_sent_the_same_bytes_wherever_images_are_kept() {
    for wire in Wire::ALL {
        let (inline, inline_file, _) = bodies(wire, "inline").await;
        let (stored, stored_file, place) = bodies(wire, "store").await;
        assert_eq!(inline.len(), 5, "{wire:?}");
        assert!(inline.iter().any(|body| body.to_string().contains("iVBOR")), "{wire:?}");
        assert!(inline == stored, "{wire:?}");
        let text = String::from_utf8(stored_file).unwrap();
        assert!(!text.contains("iVBOR") && inline_file.len() > text.len() + 10_000, "{wire:?}");
        let kept = BlobFolder::beside_session(&place.session_path()).handles("").unwrap();
        let mut expected = [1, 2].map(|seed| hash(&picture(seed)));
        expected.sort();
        assert_eq!(kept, expected, "{wire:?}: each picture once");
    }
}

/// Runs the binary in a folder, with its state below it, and answers what it printed.
fn run(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let mut command = ctxhost();
    command.current_dir(folder).env("CTXHOST_STATE_DIR", folder.join("state"));
    let output = command.args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    output.stdout
}

fn say(folder: &Path, arguments: &[&str]) -> String {
    String::from_utf8(run(folder, arguments)).unwrap()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = paths
        .flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] })
        .collect();
    files.sort();
    files
}

#[test]
fn sessions_share_pictures_until_none_of_them_names_one() {
    let mut server = looker(Wire::Anthropic);
    let place = workplace(&server, Wire::Anthropic, "store");
    let folder = place.path();
    say(folder, &["chat", "-p", "What is in a.png?"]);
    server = server.script(Steps::new([
        vec![Step::call("read_file", json!({ "path": "a.png" }))],
        vec![Step::say("The same.")],
    ]));
    say(folder, &["chat", "-p", "What is in a.png?"]);
    let sessions = files_below(&folder.join("state/sessions"));
    let sessions: Vec<_> = sessions.iter().filter(|path| is_jsonl(path)).collect();
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    let handle = hash(&picture(1));
    let blob = folder.join("state/blobs").join(&handle[..2]).join(&handle);
    assert_eq!(fs::read(&blob).unwrap(), picture(1));
    for session in &sessions {
        assert_eq!(run(folder, &["fetch", session.to_str().unwrap(), &handle[..12]]), picture(1));
    }
    let exported = say(folder, &["export", sessions[0].to_str().unwrap()]);
    assert!(exported.contains("iVBOR") && !exported.contains("ctxhostBlob"), "images go along");
    let du = say(folder, &["sessions", "du"]);
    let last = du.lines().last().unwrap();
    assert!(last.starts_with("2 sessions  logical ") && !last.ends_with(" 1.0x"), "{du}");
    let json: Value = serde_json::from_str(&say(folder, &["sessions", "du", "--json"])).unwrap();
    let number = |key: &str| json[key].as_u64().unwrap();
    // Three times inline, as base64, less what stands in its place now.
    assert!(number("logical_bytes") > number("stored_bytes") + 2 * 3_000, "{json}");

    let old = SystemTime::now() - Duration::from_secs(100 * 24 * 60 * 60);
    File::options().append(true).open(&blob).unwrap().set_modified(old).unwrap();
    let nothing = "removed 0 blobs (0 B) older than 90d; 0 of them reachable\n";
    assert_eq!(say(folder, &["gc"]), nothing, "two sessions name it");
    fs::remove_file(sessions[0]).unwrap();
    assert_eq!(say(folder, &["gc"]), nothing, "one does");
    fs::remove_file(sessions[1]).unwrap();
    let dry = say(folder, &["gc", "--dry-run"]);
    assert_eq!(dry, "would remove 1 blob (2.9 KiB) older than 90d; 0 of them reachable\n");
    assert!(blob.is_file());
    let done = say(folder, &["gc", "--older-than", "30d"]);
    assert_eq!(done, "removed 1 blob (2.9 KiB) older than 30d; 0 of them reachable\n");
    assert!(!blob.exists());
    drop(server);
}

fn is_jsonl(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl")
}

/// An engine is one for all sessions of a runtime; what it puts away goes with the session it came from.
#[tokio::test(flavor = "multi_thread")]
async fn large_results_go_to_the_place_of_their_session() {
    let long = |line: &str| format!("{line}\n").repeat(6_000);
    let server = ScriptedServer::start(Wire::Anthropic, Model::new(WINDOW_TOKENS));
    let read = |path: &str| vec![Step::call("shell", json!({ "command": format!("cat {path}") }))];
    let server = server.script(Steps::new([
        read("one.txt"),
        vec![Step::say("Long.")],
        read("two.txt"),
        vec![Step::say("Long too.")],
    ]));
    let settings = "[plugins.entries.legacy.config.tool_results]\nspill_chars = 4000\n";
    let place = ConfigText::new()
        .provider("fake", Wire::Anthropic, &server.url(), WINDOW_TOKENS)
        .tables(settings)
        .workplace();
    for name in ["one", "two"] {
        fs::write(place.path().join(format!("{name}.txt")), long(name)).unwrap();
    }
    let runtime = place.runtime().build().await.unwrap();
    let paths = ["one", "two"].map(|name| place.path().join(format!("{name}.jsonl")));
    for path in &paths {
        let session = runtime.create_session(path, place.path()).unwrap();
        runtime.send(&session, "Read it.").await.unwrap();
    }
    runtime.shutdown().await;
    for (path, name) in paths.iter().zip(["one", "two"]) {
        let beside = BlobFolder::beside_session(path);
        let kept = beside.handles("").unwrap();
        assert_eq!(kept.len(), 1, "{name}");
        let bytes = beside.get(&kept[0]).unwrap().unwrap();
        assert!(String::from_utf8(bytes).unwrap().starts_with(name), "{name}");
    }
}
