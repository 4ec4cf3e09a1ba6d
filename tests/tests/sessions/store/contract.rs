//! The contract of every session store, as one list of checks.

use std::path::Path;
use std::sync::Arc;

use ctxhost_context::LiveSession;
use ctxhost_engine::store::{EngineStore, FileStore};
use ctxhost_engine_api::{Plan, Transcript};
use ctxhost_session::{NewCompaction, RecordBody, Session, SessionError, SessionHeader};
use ctxhost_store::{FileSessionStore, PostgresStore, SessionStore, copy_sessions};
use ctxhost_tests::postgres::PostgresServer;
use ctxhost_tests::recorded_session;
use serde_json::json;

/// What a store must do, in words and as a test.
type Check = (&'static str, fn(&dyn SessionStore));

const CHECKS: [Check; 9] = [
    ("what is appended is there again, byte for byte", round_trip),
    ("an id is given once", doubles),
    ("a session that is not there is missing", missing),
    ("lines of any length and any text", odd_lines),
    ("reading writes nothing", reading),
    ("an undo gives the live transcript of before", undo),
    ("a recorded session is kept as it is", recorded),
    ("sessions are listed, the newest first, by folder", listing),
    ("sessions do not see each other", neighbours),
];

#[test]
fn files_keep_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    for (name, check) in CHECKS {
        eprintln!("files: {name}");
        let root = folder.path().join(name);
        check(&FileSessionStore::new(&root));
    }
}

#[test]
fn postgres_keeps_the_contract() {
    let Some(server) = PostgresServer::shared() else { return };
    for (name, check) in CHECKS {
        eprintln!("postgres: {name}");
        check(&PostgresStore::open(&server.schema()).unwrap());
    }
}

pub(crate) fn header(id: &str, cwd: &str) -> SessionHeader {
    SessionHeader::new(Some(id), cwd, 1_795_225_281_054)
}

pub(crate) fn said(text: &str) -> RecordBody {
    let message =
        json!({"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1});
    RecordBody::message(&message.to_string()).unwrap()
}

fn round_trip(store: &dyn SessionStore) {
    let mut session = store.create(header("s", "/w")).unwrap();
    for n in 0..20 {
        session.append(said(&format!("words {n}"))).unwrap();
    }
    let bytes = session.to_bytes();
    drop(session);
    let mut again = store.open("s").unwrap();
    assert_eq!(again.to_bytes(), bytes);
    assert_eq!(again.header().cwd(), "/w");
    again.append(said("more")).unwrap();
    let longer = again.to_bytes();
    assert!(longer.starts_with(&bytes));
    drop(again);
    assert_eq!(store.open("s").unwrap().to_bytes(), longer);
}

fn doubles(store: &dyn SessionStore) {
    let first = store.create(header("s", "/w")).unwrap();
    let second = store.create(header("s", "/elsewhere"));
    assert!(matches!(second, Err(SessionError::AlreadyExists { .. })), "{second:?}");
    drop(first);
    assert_eq!(store.open("s").unwrap().header().cwd(), "/w");
}

fn missing(store: &dyn SessionStore) {
    for outcome in [store.open("nobody"), store.read("nobody")] {
        assert!(matches!(outcome, Err(SessionError::NotFound { .. })), "{outcome:?}");
    }
    assert_eq!(store.list(None).unwrap(), []);
}

fn odd_lines(store: &dyn SessionStore) {
    let mut session = store.create(header("odd 'id' \"%_\\", "/w")).unwrap();
    let texts = [
        "a\u{0}b".to_owned(),
        "\u{feff}\u{202e}\u{1f9d1}\u{200d}\u{1f680} \u{fffd} \u{d7ff}\u{e000} \u{10ffff}"
            .to_owned(),
        "quote ' \" \\ $1 @. {} -- ; drop table".to_owned(),
        "line\r\nbreaks\n\u{2028}\u{2029}\u{85}".to_owned(),
        "x".repeat(1 << 20),
        "\u{1f600}".repeat(300_000),
        String::new(),
    ];
    for text in &texts {
        session.append(said(text)).unwrap();
    }
    let bytes = session.to_bytes();
    drop(session);
    let again = store.open("odd 'id' \"%_\\").unwrap();
    assert_eq!(again.to_bytes(), bytes);
    assert!(again.problems().is_empty());
    let entries = again.live(0).snapshot();
    let found: Vec<String> = entries.iter().map(|entry| entry.text().to_owned()).collect();
    assert_eq!(found.len(), texts.len());
    assert_eq!(found[..5], texts[..5]);
}

fn reading(store: &dyn SessionStore) {
    let mut session = store.create(header("s", "/w")).unwrap();
    session.append(said("words")).unwrap();
    let bytes = session.to_bytes();
    // Somebody reads while another one has it open.
    let mut read = store.read("s").unwrap();
    assert_eq!(read.to_bytes(), bytes);
    let refused = read.append(said("more"));
    assert!(matches!(refused, Err(SessionError::ReadOnly { .. })), "{refused:?}");
    drop(session);
    assert_eq!(store.open("s").unwrap().to_bytes(), bytes);
}

fn digest(view: &Transcript) -> Vec<(String, String)> {
    view.iter().map(|entry| (entry.id().to_owned(), entry.raw().to_owned())).collect()
}

/// Folds away what lies between the first entry and this one.
pub(crate) fn compact(session: &mut Session, tail: u64) {
    let view = session.live(0).snapshot();
    let mut plan = Plan::default();
    plan.keep(0..1);
    plan.keep(tail..view.len() as u64);
    let compaction = NewCompaction {
        plan: &plan,
        view: &view,
        tokens_before: 100,
        tokens_after: 40,
        engine: "test".into(),
        engine_version: "1".into(),
        trigger: "manual".into(),
        timestamp_ms: Some(5),
        ignored: &[],
        extra_details: json!(null),
    };
    session.compact(compaction).unwrap();
}

fn undo(store: &dyn SessionStore) {
    let mut session = store.create(header("s", "/w")).unwrap();
    for n in 0..12 {
        session.append(said(&format!("words {n}"))).unwrap();
    }
    let before = session.live(0).snapshot();
    compact(&mut session, 8);
    assert_eq!(session.live(1).snapshot().len(), 5);
    drop(session);
    let mut session = store.open("s").unwrap();
    assert_eq!(session.live(1).snapshot().len(), 5);
    session.append(said("since")).unwrap();
    assert!(session.undo_newest_compaction().unwrap().is_some());
    drop(session);
    let session = store.open("s").unwrap();
    let after = digest(&session.live(2).snapshot());
    assert_eq!(after[..12], digest(&before));
    assert_eq!(after.len(), 13);
}

fn recorded(store: &dyn SessionStore) {
    let session = Session::parse("coding", &recorded_session()).unwrap();
    let (id, bytes) = (session.header().id().to_owned(), session.normalized_bytes());
    drop(store.insert(session).unwrap());
    let kept = store.open(&id).unwrap();
    assert_eq!(kept.to_bytes(), bytes);
    assert!(kept.problems().is_empty());
}

fn listing(store: &dyn SessionStore) {
    for (id, cwd) in [("one", "/a"), ("two", "/b"), ("three", "/a")] {
        drop(store.create(header(id, cwd)).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(15));
    }
    store.open("one").unwrap().append(said("words")).unwrap();
    let ids = |cwd: Option<&str>| -> Vec<String> {
        store.list(cwd.map(Path::new)).unwrap().into_iter().map(|kept| kept.id).collect()
    };
    assert_eq!(ids(None), ["one", "three", "two"]);
    assert_eq!(ids(Some("/a")), ["one", "three"]);
    assert_eq!(ids(Some("/nowhere")), [""; 0]);
    let newest = &store.list(None).unwrap()[0];
    assert_eq!(newest.cwd, "/a");
    let now_ms = ctxhost_engine::HostClock::default().now_ms();
    assert!((now_ms - newest.changed_ms).abs() < 60_000, "{newest:?}");
}

fn neighbours(store: &dyn SessionStore) {
    let mut one = store.create(header("one", "/w")).unwrap();
    let mut two = store.create(header("two", "/w")).unwrap();
    for n in 0..10 {
        one.append(said(&format!("one {n}"))).unwrap();
        two.append(said(&format!("two {n}"))).unwrap();
    }
    let all = [one.to_bytes(), two.to_bytes()];
    drop((one, two));
    assert_eq!([store.open("one").unwrap().to_bytes(), store.open("two").unwrap().to_bytes()], all);
}

fn engine_store(store: &dyn EngineStore, other: &dyn EngineStore) {
    assert_eq!(store.get("a/b").unwrap(), None);
    store.put("a/b", "1").unwrap();
    store.put("a/b", "2\u{0}\u{1f600}").unwrap();
    store.put("a/../c", "3").unwrap();
    store.put("a\u{0}", "4").unwrap();
    store.put("会话", "5").unwrap();
    assert_eq!(store.get("a/b").unwrap().as_deref(), Some("2\u{0}\u{1f600}"));
    assert_eq!(store.get("a\u{0}").unwrap().as_deref(), Some("4"));
    assert_eq!(store.list("a/").unwrap(), ["a/../c", "a/b"]);
    assert_eq!(store.list("a%").unwrap(), [""; 0]);
    assert_eq!(store.list("").unwrap(), ["a\u{0}", "a/../c", "a/b", "会话"]);
    store.delete("a/b").unwrap();
    store.delete("a/b").unwrap();
    assert_eq!(store.get("a/b").unwrap(), None);
    assert!(store.put("", "x").is_err());
    assert!(store.put(&"k".repeat(81), "x").is_err());
    assert_eq!(other.list("").unwrap(), [""; 0]);
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let handle = store.put_blob(&bytes).unwrap();
    assert_eq!(store.put_blob(&bytes).unwrap(), handle);
    assert_eq!(store.get_blob(&handle).unwrap(), Some(bytes));
    assert_eq!(store.get_blob("../../etc/passwd").unwrap(), None);
}

#[test]
fn engines_keep_values_in_either() {
    let folder = tempfile::tempdir().unwrap();
    let of_file = |id: &str| FileStore::new(folder.path(), id);
    engine_store(&of_file("one"), &of_file("two"));
    let Some(server) = PostgresServer::shared() else { return };
    let store = PostgresStore::open(&server.schema()).unwrap();
    let engines = store.engine_stores().unwrap();
    engine_store(&*engines.open_store("one"), &*engines.open_store("two"));
    drop((engines, store));
}

#[test]
fn a_session_copied_there_and_back_is_the_same() {
    let Some(server) = PostgresServer::shared() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = PostgresStore::open(&server.schema()).unwrap();
    let files: Arc<dyn SessionStore> = Arc::new(FileSessionStore::new(folder.path()));
    let coding = || Session::parse("coding", &recorded_session());
    let copied = copy_sessions([("coding".to_owned(), coding())], &store);
    assert_eq!((copied.copied, copied.present), (1, 0), "{copied:?}");
    let again = copy_sessions([("coding".to_owned(), coding())], &store);
    assert_eq!((again.copied, again.present), (0, 1), "{again:?}");
    let id = coding().unwrap().header().id().to_owned();
    let back = copy_sessions([(id.clone(), store.read(&id))], &*files);
    assert_eq!(back.copied, 1, "{back:?}");
    assert_eq!(files.read(&id).unwrap().to_bytes(), coding().unwrap().normalized_bytes());
    let live = |session: Session| digest(&LiveSession::new(session).view());
    assert_eq!(live(store.read(&id).unwrap()), live(coding().unwrap()));
}
