//! Broken database connections: no line is lost or stored twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ctxhost_session::{Session, SessionError};
use ctxhost_store::{PostgresStore, SessionStore, StoreSettings};
use ctxhost_tests::cutter::Cutter;
use ctxhost_tests::postgres::PostgresServer;

use super::contract::{compact, header, said};

/// A store behind a wire, and the same without one.
fn wired(server: &PostgresServer, timeout_ms: u64) -> (Cutter, PostgresStore, PostgresStore) {
    let cutter = Cutter::before(server.port());
    let direct = StoreSettings { lease_ms: 2_000, wait_ms: 5_000, ..server.schema() };
    let url = Some(server.url_at(cutter.port()));
    let cut = StoreSettings { url, timeout_ms, ..direct.clone() };
    let stores = [&cut, &direct].map(|settings| PostgresStore::open(settings).unwrap());
    let [cut, direct] = stores;
    (cutter, cut, direct)
}

fn texts(session: &Session) -> Vec<String> {
    session.live(0).snapshot().iter().map(|entry| entry.text().to_owned()).collect()
}

#[tokio::test]
async fn a_line_whose_answer_is_lost_is_there_once() {
    let Some(server) = PostgresServer::shared() else { return };
    let (cutter, store, direct) = wired(server, 10_000);
    let mut session = store.create(header("s", "/w")).unwrap();
    let _hold = session.shared_lock().unwrap().acquire().await.unwrap();
    for n in 0..50 {
        // The very next answer: the line has been taken by then.
        cutter.cut_after_answers(0);
        session.append(said(&format!("words {n}"))).unwrap();
    }
    // Many lines in one statement: an undo writes again what came since.
    compact(&mut session, 45);
    session.append(said("since")).unwrap();
    cutter.cut_after_answers(0);
    session.undo_newest_compaction().unwrap().unwrap();
    assert!(cutter.cuts() >= 51, "{} cuts", cutter.cuts());
    let whole = direct.read("s").unwrap();
    assert_eq!(whole.to_bytes(), session.to_bytes());
    assert_eq!(texts(&whole).len(), 51);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_machines_on_wires_that_are_cut_by_chance_lose_nothing() {
    let Some(server) = PostgresServer::shared() else { return };
    let (cutter, one, direct) = wired(server, 10_000);
    drop(one.create(header("s", "/w")).unwrap());
    cutter.cut_one_in(20);
    let cutter = Arc::new(cutter);
    let begun = Instant::now();
    let sides: Vec<_> = (0..2)
        .map(|side| {
            let (store, cutter) = (one.clone(), cutter.clone());
            tokio::spawn(async move {
                let mut session = store.open("s").unwrap();
                let (mut kept, mut unsure, mut n) = (Vec::new(), Vec::new(), 0);
                // Until enough was kept and cut, however slow the machine is.
                while kept.len() < 12 || cutter.cuts() < 6 {
                    assert!(begun.elapsed() < Duration::from_secs(120), "{} kept", kept.len());
                    n += 1;
                    let text = format!("side {side} words {n}");
                    let Ok(_hold) = session.shared_lock().unwrap().acquire().await else {
                        continue;
                    };
                    session.refresh().unwrap();
                    match session.append(said(&text)) {
                        Ok(_) => kept.push(text),
                        Err(SessionError::OutcomeUnknown { .. } | SessionError::Fenced { .. }) => {
                            unsure.push(text);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                (kept, unsure)
            })
        })
        .collect();
    let (mut kept, mut unsure) = (Vec::new(), Vec::new());
    for side in sides {
        let (ours, not_ours) = side.await.unwrap();
        kept.extend(ours);
        unsure.extend(not_ours);
    }
    cutter.cut_one_in(0);
    let whole = direct.read("s").unwrap();
    assert!(whole.problems().is_empty(), "{:?}", whole.problems());
    let found = texts(&whole);
    let count = |text: &String| found.iter().filter(|found| *found == text).count();
    assert!(kept.iter().all(|text| count(text) == 1));
    assert!(unsure.iter().all(|text| count(text) <= 1));
    let known = kept.len() + unsure.iter().filter(|text| count(text) == 1).count();
    assert_eq!(found.len(), known);
    eprintln!("{} lines kept, {} unsure, {} cuts", kept.len(), unsure.len(), cutter.cuts());
}

#[tokio::test]
async fn a_wire_that_stalls_ends_in_an_error_and_the_next_turn_finds_out() {
    let Some(server) = PostgresServer::shared() else { return };
    let (cutter, store, direct) = wired(server, 3_000);
    let mut session = store.create(header("s", "/w")).unwrap();
    let hold = session.shared_lock().unwrap().acquire().await.unwrap();
    session.append(said("before")).unwrap();
    cutter.stall(true);
    let begun = Instant::now();
    let unsure = session.append(said("into the dark"));
    assert!(matches!(unsure, Err(SessionError::OutcomeUnknown { .. })), "{unsure:?}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    drop(hold);
    cutter.stall(false);
    let _hold = session.shared_lock().unwrap().acquire().await.unwrap();
    session.refresh().unwrap();
    session.append(said("after")).unwrap();
    let found = texts(&direct.read("s").unwrap());
    assert_eq!(found, texts(&session));
    assert!([2, 3].contains(&found.len()), "{found:?}");
}

#[tokio::test]
async fn a_database_that_comes_back_in_time_is_not_noticed() {
    let Some(server) = PostgresServer::shared() else { return };
    let (cutter, store, direct) = wired(server, 10_000);
    let mut session = store.create(header("s", "/w")).unwrap();
    let _hold = session.shared_lock().unwrap().acquire().await.unwrap();
    cutter.go_down(true);
    let back = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        cutter.go_down(false);
    });
    session.append(said("words")).unwrap();
    back.join().unwrap();
    assert_eq!(texts(&direct.read("s").unwrap()), ["words"]);
}
