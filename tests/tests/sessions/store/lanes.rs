//! A session opened on several machines: one writes, the others wait.

use std::time::{Duration, Instant};

use ctxhost_session::{Session, SessionError};
use ctxhost_store::{PostgresStore, SessionStore, StoreOpenError, StoreSettings, migrate};
use ctxhost_tests::postgres::PostgresServer;

use super::contract::{header, said};

/// A store with a short lease, so that tests end.
fn quick(server: &PostgresServer) -> StoreSettings {
    StoreSettings { lease_ms: 600, wait_ms: 5_000, ..server.schema() }
}

fn machine(settings: &StoreSettings) -> PostgresStore {
    PostgresStore::open(settings).unwrap()
}

fn texts(session: &Session) -> Vec<String> {
    session.live(0).snapshot().iter().map(|entry| entry.text().to_owned()).collect()
}

#[tokio::test]
async fn two_machines_write_one_after_the_other() {
    let Some(server) = PostgresServer::shared() else { return };
    let settings = quick(server);
    let (one, two) = (machine(&settings), machine(&settings));
    let mut here = one.create(header("s", "/w")).unwrap();
    let mut there = two.open("s").unwrap();
    for n in 0..5 {
        for session in [&mut here, &mut there] {
            let _hold = session.shared_lock().unwrap().acquire().await.unwrap();
            session.refresh().unwrap();
            assert_eq!(texts(session).len(), session.records().len());
            session.append(said(&format!("a {n}"))).unwrap();
            session.append(said(&format!("b {n}"))).unwrap();
        }
    }
    let whole = one.read("s").unwrap();
    assert_eq!(whole.records().len(), 20);
    assert_eq!(whole.to_bytes(), there.to_bytes());
    assert!(whole.problems().is_empty());
}

#[tokio::test]
async fn a_waiting_machine_learns_the_holder_of_the_lease() {
    let Some(server) = PostgresServer::shared() else { return };
    let settings = StoreSettings { wait_ms: 300, ..quick(server) };
    let (one, two) = (machine(&settings), machine(&settings));
    let here = one.create(header("s", "/w")).unwrap();
    let there = two.open("s").unwrap();
    let hold = here.shared_lock().unwrap().acquire().await.unwrap();
    // Longer than the lease: it is renewed.
    tokio::time::sleep(Duration::from_millis(900)).await;
    match there.shared_lock().unwrap().acquire().await {
        Err(SessionError::LeaseTimeout { holder, waited_ms, .. }) => {
            assert_eq!((holder.as_str(), waited_ms), (one.name(), 300));
        }
        other => panic!("{other:?}"),
    }
    drop(hold);
    there.shared_lock().unwrap().acquire().await.unwrap();
}

#[tokio::test]
async fn a_machine_that_lost_a_session_writes_nothing_more() {
    let Some(server) = PostgresServer::shared() else { return };
    let settings = quick(server);
    let (one, two) = (machine(&settings), machine(&settings));
    let mut here = one.create(header("s", "/w")).unwrap();
    let mut there = two.open("s").unwrap();
    let hold = here.shared_lock().unwrap().acquire().await.unwrap();
    here.append(said("before")).unwrap();
    // As if this machine had been asleep for an hour.
    let schema = &settings.schema;
    server.sql(&format!("update {schema}.sessions set expires_at = now() - interval '1 hour'"));
    let taken = there.shared_lock().unwrap().acquire().await.unwrap();
    assert!(there.refresh().unwrap());
    there.append(said("of the other")).unwrap();
    let bytes = here.to_bytes();
    match here.append(said("too late")) {
        Err(SessionError::Fenced { holder, .. }) => assert_eq!(holder, two.name()),
        other => panic!("{other:?}"),
    }
    assert_eq!(here.to_bytes(), bytes);
    drop((hold, taken));
    let _hold = here.shared_lock().unwrap().acquire().await.unwrap();
    assert!(here.refresh().unwrap());
    here.append(said("in time")).unwrap();
    assert_eq!(texts(&one.read("s").unwrap()), ["before", "of the other", "in time"]);
}

#[tokio::test]
async fn the_lease_of_a_dead_machine_expires() {
    let Some(server) = PostgresServer::shared() else { return };
    let settings = quick(server);
    let schema = &settings.schema;
    let (one, two) = (machine(&settings), machine(&settings));
    let mut here = one.create(header("s", "/w")).unwrap();
    let hold = here.shared_lock().unwrap().acquire().await.unwrap();
    here.append(said("last words")).unwrap();
    // A dead machine gives nothing back and renews nothing: its hold is put into the row by hand.
    drop(hold);
    let is_free = || server.sql(&format!("select hold is null from {schema}.sessions")) == "t";
    while !is_free() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.sql(&format!(
        "update {schema}.sessions set hold = 'dead/1/1', expires_at = now() + interval '600 ms'"
    ));
    let begun = Instant::now();
    let mut there = two.open("s").unwrap();
    let _hold = there.shared_lock().unwrap().acquire().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    there.append(said("next")).unwrap();
    assert_eq!(texts(&one.read("s").unwrap()), ["last words", "next"]);
}

#[test]
fn writing_without_a_lease_is_refused_once_others_have_written() {
    let Some(server) = PostgresServer::shared() else { return };
    let settings = quick(server);
    let (one, two) = (machine(&settings), machine(&settings));
    let mut here = one.create(header("s", "/w")).unwrap();
    let mut there = two.open("s").unwrap();
    here.append(said("a")).unwrap();
    let behind = there.append(said("b"));
    assert!(matches!(behind, Err(SessionError::Stale { .. })), "{behind:?}");
    assert!(there.refresh().unwrap());
    there.append(said("b")).unwrap();
    assert_eq!(texts(&one.read("s").unwrap()), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_waiting_machine_starves() {
    let Some(server) = PostgresServer::shared() else { return };
    let settings = quick(server);
    drop(machine(&settings).create(header("s", "/w")).unwrap());
    let until = Instant::now() + Duration::from_secs(3);
    let machines: Vec<_> = (0..4)
        .map(|number| {
            let store = machine(&settings);
            tokio::spawn(async move {
                let mut session = store.open("s").unwrap();
                let (mut turns, mut longest) = (0, Duration::ZERO);
                while Instant::now() < until {
                    let begun = Instant::now();
                    let _hold = session.shared_lock().unwrap().acquire().await.unwrap();
                    longest = longest.max(begun.elapsed());
                    session.refresh().unwrap();
                    session.append(said(&format!("{number} {turns}"))).unwrap();
                    turns += 1;
                }
                (turns, longest)
            })
        })
        .collect();
    let mut all = 0;
    for machine in machines {
        let (turns, longest) = machine.await.unwrap();
        assert!(turns >= 3, "only {turns} turns");
        assert!(longest < Duration::from_secs(2), "waited {longest:?}");
        all += turns;
    }
    let whole = machine(&settings).read("s").unwrap();
    assert_eq!(texts(&whole).len(), all);
    assert!(whole.problems().is_empty());
}

#[test]
fn a_missing_or_other_schema_version_is_reported() {
    let Some(server) = PostgresServer::shared() else { return };
    let settings = server.empty_schema();
    match PostgresStore::open(&settings) {
        Err(StoreOpenError::SchemaTooOld { found: 0, .. }) => {}
        other => panic!("{other:?}"),
    }
    let (found, newest) = migrate(&settings).unwrap();
    assert_eq!(found, 0);
    assert_eq!(migrate(&settings).unwrap(), (newest, newest));
    let schema = &settings.schema;
    server.sql(&format!("insert into {schema}.versions (version) values (99)"));
    assert!(matches!(
        PostgresStore::open(&settings),
        Err(StoreOpenError::SchemaTooNew { found: 99, .. })
    ));
    assert!(matches!(migrate(&settings), Err(StoreOpenError::SchemaTooNew { found: 99, .. })));
    let bad = StoreSettings { schema: "x; drop".into(), ..settings };
    assert!(matches!(PostgresStore::open(&bad), Err(StoreOpenError::BadSchema { .. })));
}
