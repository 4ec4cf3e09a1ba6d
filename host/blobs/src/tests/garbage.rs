//! Clearing up takes what nothing names, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use proptest::prelude::*;

use super::*;
use crate::references::HandleScanner;

fn handles(blobs: &[StoredBlob]) -> Vec<&str> {
    blobs.iter().map(|blob| blob.handle.as_str()).collect()
}

/// Ends the threads that go by it when it goes, also because a test fails: they would work for ever.
struct WhileThere<'a>(&'a AtomicBool);

impl Drop for WhileThere<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn swept(collection: &GarbageCollector) -> GarbageReport {
    let mut garbage = collection.find().unwrap();
    collection.remove(&mut garbage).unwrap();
    garbage
}

#[test]
fn a_handle_counts_at_every_position() {
    let state = State::new();
    let put = |bytes: &[u8]| put_old(&state.shared(), bytes, DAY * 100);
    let [session, folded, value, waiting, trashed, dead] =
        [b"1", b"2", b"3", b"4", b"5", b"6"].map(|bytes: &[u8; 1]| put(bytes));
    state.write(
        "s.jsonl",
        &format!("{{\"ctxhostBlob\":\"{session}\"}}\n{{\"raw\":\"x{folded}y\"}}"),
    );
    state.write("s.jsonl.inbox", &waiting.to_uppercase());
    let at = |path: &str, text: &str| {
        let path = state.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    at("store/engines/data/legacy/kv/memory", &format!("{{\"file\":\"{value}\"}}"));
    at("trash/2026-01-01/--work--/t.jsonl", &trashed);
    let collection = state.collection();
    assert_eq!(handles(&collection.find().unwrap().blobs), [dead.as_str()]);
    assert_eq!(handles(&swept(&collection).blobs), [dead.as_str()]);
    let mut left = vec![session, folded, value, waiting, trashed];
    left.sort();
    assert_eq!(state.shared().handles("").unwrap(), left);
}

#[test]
fn nothing_young_goes_whatever_is_asked_for() {
    let state = State::new();
    let young = state.shared().put(b"young").unwrap();
    let old = put_old(&state.shared(), b"old", DAY);
    let collection = GarbageCollector { blobs_older_than: Duration::ZERO, ..state.collection() };
    let garbage = swept(&collection);
    assert_eq!(
        (handles(&garbage.blobs), handles(&garbage.recent)),
        (vec![old.as_str()], vec![young.as_str()])
    );
    assert_eq!(state.shared().handles("").unwrap(), [young]);
}

#[test]
fn what_is_put_again_between_look_and_sweep_stays() {
    let state = State::new();
    let handle = put_old(&state.shared(), b"again", DAY * 100);
    let collection = state.collection();
    let mut garbage = collection.find().unwrap();
    assert_eq!(handles(&garbage.blobs), [handle.as_str()]);
    state.shared().put(b"again").unwrap();
    collection.remove(&mut garbage).unwrap();
    assert_eq!(garbage.blobs, []);
    assert!(state.shared().get(&handle).unwrap().is_some());
}

#[test]
fn folders_of_older_versions_are_cleared_too() {
    let state = State::new();
    let beside = BlobFolder::beside_session(&state.write("s.jsonl", ""));
    put_old(&beside, b"old", DAY * 100);
    assert_eq!(swept(&state.collection()).blobs.len(), 1);
    assert_eq!(beside.blobs().unwrap(), []);
}

#[test]
fn without_a_state_folder_there_is_nothing_to_clear() {
    let state = State::new();
    put_old(&state.shared(), b"old", DAY * 100);
    let none = GarbageCollector { home: BlobDirs::default(), ..state.collection() };
    assert!(swept(&none).blobs.is_empty());
    assert_eq!(state.shared().blobs().unwrap().len(), 1);
    fs::remove_dir_all(state.folder.path()).unwrap();
    assert!(swept(&state.collection()).blobs.is_empty(), "nor where it was never made");
}

/// A session that moves while all are read might name anything.
#[test]
fn a_session_that_goes_away_meanwhile_stops_everything() {
    let state = State::new();
    put_old(&state.shared(), b"old", DAY * 100);
    let (session, collection) = (state.session("s.jsonl"), state.collection());
    let moving = AtomicBool::new(true);
    let vanished = std::thread::scope(|threads| {
        threads.spawn(|| {
            while moving.load(Ordering::Relaxed) {
                fs::write(&session, "").unwrap();
                fs::rename(&session, session.with_extension("moved")).unwrap();
            }
        });
        let _moving = WhileThere(&moving);
        (0..200_000).any(|_| match collection.find() {
            Err(BlobError::Vanished { .. }) => true,
            Err(error) => panic!("{error}"),
            Ok(_) => false,
        })
    });
    assert!(vanished, "the race was never met");
}

#[test]
fn old_sessions_go_to_the_trash_whole_and_are_gone_after_a_month() {
    let state = State::new();
    let old = state.write("old.jsonl", &hash(b"bytes"));
    state.write("new.jsonl", "2");
    let (crc, inbox) = (state.write("old.jsonl.crc", "3"), state.write("waits.jsonl.inbox", "4"));
    let waits = state.write("waits.jsonl", "5");
    let open = state.write("open.jsonl", "6");
    let beside = BlobFolder::beside_session(&old);
    put_old(&beside, b"bytes", DAY * 400);
    age(&beside.path().join(".lock"), DAY * 400);
    for path in [&old, &crc, &waits, &open] {
        age(path, DAY * 400);
    }
    assert!(inbox.is_file(), "words came yesterday");
    let lock = File::open(&open).unwrap();
    lock.lock().unwrap();
    let collection =
        GarbageCollector { sessions_older_than: Some(DAY * 365), ..state.collection() };
    let looked = collection.find().unwrap();
    assert_eq!(looked.sessions.iter().map(|it| &it.path).collect::<Vec<_>>(), [&old, &open]);
    assert!(old.is_file());
    let garbage = swept(&collection);
    assert_eq!(garbage.sessions.iter().map(|it| &it.path).collect::<Vec<_>>(), [&old]);
    assert!(!old.exists() && !crc.exists() && open.exists() && waits.exists());
    let day = fs::read_dir(state.folder.path().join("trash")).unwrap().next().unwrap().unwrap();
    let there = day.path().join("--work--");
    assert_eq!(fs::read_to_string(there.join("old.jsonl")).unwrap(), hash(b"bytes"));
    assert!(there.join("old.jsonl.crc").is_file());
    assert_eq!(BlobFolder::beside_session(&there.join("old.jsonl")).blobs().unwrap().len(), 1);
    let later = GarbageCollector { now: collection.now + DAY * 29, ..collection.clone() };
    assert_eq!(swept(&later).trash, []);
    let later = GarbageCollector { now: collection.now + DAY * 32, ..collection };
    assert_eq!(swept(&later).trash.len(), 1);
    assert!(!there.exists());
}

#[test]
fn old_conversations_of_a_gateway_go_the_same_way() {
    let state = State::new();
    let folder = state.folder.path().join("gateway/sessions/00ff");
    fs::create_dir_all(&folder).unwrap();
    let [old, crc, new, open] =
        ["old.jsonl", "old.jsonl.crc", "new.jsonl", "open.jsonl"].map(|name| {
            let path = folder.join(name);
            fs::write(&path, hash(b"bytes")).unwrap();
            path
        });
    let secret = folder.with_file_name("secret");
    fs::write(&secret, "1").unwrap();
    let named = put_old(&state.shared(), b"bytes", DAY * 400);
    for path in [&old, &crc, &open, &secret] {
        age(path, DAY * 400);
    }
    let lock = File::open(&open).unwrap();
    lock.lock().unwrap();
    assert_eq!(DiskUsage::measure_all(&state.home).unwrap().sessions.len(), 3);
    assert_eq!(DiskUsage::measure_all(&state.home).unwrap().unreferenced, []);
    let collection =
        GarbageCollector { sessions_older_than: Some(DAY * 365), ..state.collection() };
    let garbage = swept(&collection);
    assert_eq!(garbage.sessions.iter().map(|it| &it.path).collect::<Vec<_>>(), [&old]);
    assert!(!old.exists() && !crc.exists());
    assert!(new.exists() && open.exists() && secret.exists());
    let day = fs::read_dir(state.folder.path().join("trash")).unwrap().next().unwrap().unwrap();
    let there = day.path().join("gateway/sessions/00ff");
    assert!(there.join("old.jsonl").is_file() && there.join("old.jsonl.crc").is_file());
    assert_eq!(state.shared().handles("").unwrap(), [named]);
}

#[test]
fn without_the_setting_no_session_moves() {
    let state = State::new();
    age(&state.write("old.jsonl", "1"), DAY * 4_000);
    let expired = state.folder.path().join("trash/2020-01-01");
    fs::create_dir_all(&expired).unwrap();
    let garbage = swept(&state.collection());
    assert_eq!((garbage.sessions, garbage.trash), (vec![], vec![]));
    assert!(state.session("old.jsonl").is_file() && expired.is_dir());
}

#[test]
fn handles_are_found_across_the_seams_of_reads() {
    let (handle, mut found) = (hash(b"seam"), Vec::new());
    let text = format!("{}{handle} {}", "0".repeat(10_000), "ff".repeat(40));
    for seam in [1, 63, 64, 100] {
        let mut mentions = HandleScanner::default();
        for piece in text.as_bytes().chunks(seam) {
            mentions.scan(piece, |named| found.extend((named == handle).then_some(seam)));
        }
    }
    assert_eq!(found, [1, 63, 64, 100], "once each, also behind a long row of digits");
}

/// Hosts put and name the same few results while others clear up: whatever a session names is there.
#[test]
fn puts_and_clearings_at_the_same_time_lose_nothing() {
    const ROUNDS: usize = 60;
    const MOST_ROUNDS: usize = 100_000;
    let state = State::new();
    let (clearing, cleared) = (AtomicBool::new(true), AtomicUsize::new(0));
    // Files grow old here in an instant, which none does that a host has just put: only between rounds.
    let in_use = RwLock::new(());
    let collect = || {
        while clearing.load(Ordering::Relaxed) {
            cleared.fetch_add(swept(&state.collection()).blobs.len(), Ordering::Relaxed);
            // The lock goes to the first thread that requests it, which must not always be this one.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    let goes_on = |round: usize| {
        let is_tried = cleared.load(Ordering::Relaxed) > 0;
        round < ROUNDS || !is_tried && round < MOST_ROUNDS
    };
    let host = |name: &str, ages: bool| {
        for round in (0..).take_while(|round| goes_on(*round)) {
            // The same bytes are there, old and unreferenced, when the host stores them.
            let bytes = [u8::try_from(round % 7).unwrap(); 40];
            let using = in_use.read().unwrap();
            let handle = state.shared().put(&bytes).unwrap();
            state.write(name, &handle);
            assert!(state.shared().get(&handle).unwrap().is_some(), "round {round}");
            state.write(name, "");
            drop(using);
            let blobs = state.shared().blobs().unwrap();
            let put = blobs.into_iter().find(|blob| blob.handle == handle);
            if let Some(file) = put.filter(|_| ages)
                && let Ok(file) = File::options().append(true).open(&file.path)
            {
                let _alone = in_use.write().unwrap();
                file.set_modified(SystemTime::now() - DAY * 100).unwrap();
            }
        }
    };
    std::thread::scope(|threads| {
        let _clearing = WhileThere(&clearing);
        (0..2).for_each(|_| drop(threads.spawn(collect)));
        let hosts = [("0.jsonl", true), ("1.jsonl", false)];
        let hosts = hosts.map(|(name, ages)| threads.spawn(move || host(name, ages)));
        hosts.into_iter().for_each(|host| host.join().unwrap());
    });
    assert!(cleared.into_inner() > 0, "nothing was ever removed, so nothing was tried");
}

/// What happens in a state folder, and what a session of it names.
#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Age(u8, u64),
    Name { session: u8, blob: u8 },
    Forget(u8),
    Collect(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u8..6).prop_map(Step::Put),
        3 => (0_u8..6, 0_u64..200).prop_map(|(blob, days)| Step::Age(blob, days)),
        3 => (0_u8..3, 0_u8..6).prop_map(|(session, blob)| Step::Name { session, blob }),
        1 => (0_u8..3).prop_map(Step::Forget),
        2 => (0_u64..200).prop_map(Step::Collect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Against a model: exactly what is old and unnamed goes.
    #[test]
    fn nothing_that_a_session_names_ever_goes(steps in prop::collection::vec(step(), 1..40)) {
        let state = State::new();
        let shared = state.shared();
        let handle = |blob: u8| hash(&[blob; 9]);
        let mut ages: BTreeMap<String, u64> = BTreeMap::new();
        let mut named: BTreeMap<u8, BTreeSet<String>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(blob) => drop(ages.insert(shared.put(&[blob; 9]).unwrap(), 0)),
                Step::Age(blob, days) => {
                    if let Some(known) = ages.get_mut(&handle(blob)) {
                        put_old(&shared, &[blob; 9], DAY * u32::try_from(days).unwrap());
                        *known = days;
                    }
                }
                Step::Name { session, blob } => drop(named.entry(session).or_default().insert(handle(blob))),
                Step::Forget(session) => drop(named.remove(&session)),
                Step::Collect(days) => {
                    for session in 0..3 {
                        let text: String = named.get(&session).into_iter().flatten().map(|it| format!("{it}\n")).collect();
                        state.write(&format!("{session}.jsonl"), &text);
                    }
                    let older = DAY * u32::try_from(days).unwrap();
                    swept(&GarbageCollector { blobs_older_than: older, ..state.collection() });
                    let is_named = |it: &String| named.values().any(|names| names.contains(it));
                    ages.retain(|it, age| is_named(it) || *age == 0 || *age < days);
                    prop_assert_eq!(shared.handles("").unwrap(), ages.keys().cloned().collect::<Vec<_>>());
                }
            }
        }
    }
}
