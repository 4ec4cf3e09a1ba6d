//! Bench: durable appends of 64 sessions, sequential, concurrent, and with one sync of the file system for all.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout)]

use std::fs::File;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use criterion::Criterion;
use ctxhost_session::{RecordBody, Session, SyncPolicy};

const SESSIONS: usize = 64;
/// Of each session in one round.
const APPENDS: usize = 4;
const ROUNDS: usize = 21;
const TEXT_CHARS: usize = 900;

struct Home {
    folder: tempfile::TempDir,
    sessions: Vec<Session>,
}

impl Home {
    fn new(policy: SyncPolicy) -> Home {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = |number: usize| folder.path().join(format!("{number}.jsonl"));
        let create = |number| Session::create(&path(number), "/", None).unwrap().with_sync(policy);
        let sessions = (0..SESSIONS).map(create).collect();
        Home { folder, sessions }
    }

    /// Every session appends in its turn.
    fn one_after_the_other(&mut self) {
        for _ in 0..APPENDS {
            self.sessions.iter_mut().for_each(append);
        }
    }

    /// Every session has a thread of its own.
    fn at_once(&mut self) {
        thread::scope(|scope| {
            for session in &mut self.sessions {
                scope.spawn(|| (0..APPENDS).for_each(|_| append(session)));
            }
        });
    }

    /// Every session is a task on the two threads of a runtime, which a sync keeps from other tasks.
    fn as_tasks(&mut self, in_place: bool) {
        let threads =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let sessions = std::mem::take(&mut self.sessions);
        let tasks = sessions.into_iter().map(|mut session| {
            threads.spawn(async move {
                for _ in 0..APPENDS {
                    if in_place {
                        tokio::task::block_in_place(|| append(&mut session))
                    } else {
                        append(&mut session)
                    }
                    tokio::task::yield_now().await;
                }
                session
            })
        });
        let tasks: Vec<_> = tasks.collect();
        self.sessions = tasks.into_iter().map(|task| threads.block_on(task).unwrap()).collect();
    }

    /// The same as threads, where one of them syncs the file system for all.
    fn at_once_with_one_sync(&mut self) {
        let barrier = Barrier::new(SESSIONS);
        let folder = File::open(self.folder.path()).unwrap();
        thread::scope(|scope| {
            for session in &mut self.sessions {
                scope.spawn(|| {
                    for _ in 0..APPENDS {
                        append(session);
                        if barrier.wait().is_leader() {
                            rustix::fs::syncfs(&folder).unwrap();
                        }
                        barrier.wait();
                    }
                });
            }
        });
    }
}

fn append(session: &mut Session) {
    let message = serde_json::json!({ "role": "user", "content": "x".repeat(TEXT_CHARS) });
    session.append(RecordBody::message(&message.to_string()).unwrap()).unwrap();
}

fn timed(mut work: impl FnMut()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn main() {
    let mut one = Home::new(SyncPolicy::Always);
    let mut all = Home::new(SyncPolicy::Always);
    let mut shared = Home::new(SyncPolicy::Os);
    let mut unsynced = Home::new(SyncPolicy::Os);

    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let mut group = criterion.benchmark_group("64 sessions append 4 lines each");
    group.bench_function("one after the other", |b| b.iter(|| one.one_after_the_other()));
    group.bench_function("at once", |b| b.iter(|| all.at_once()));
    group.bench_function("at once, one syncfs for all", |b| {
        b.iter(|| shared.at_once_with_one_sync())
    });
    group.bench_function("at once, never synced", |b| b.iter(|| unsynced.at_once()));
    group.finish();
    criterion.final_summary();

    let rounds: Vec<[Duration; 5]> = (0..ROUNDS)
        .map(|_| {
            [
                timed(|| one.one_after_the_other()),
                timed(|| all.at_once()),
                timed(|| shared.at_once_with_one_sync()),
                timed(|| one.as_tasks(false)),
                timed(|| all.as_tasks(true)),
            ]
        })
        .collect();
    let of = |column: usize| median(rounds.iter().map(|round| round[column]).collect());
    let ways = [
        "one after the other",
        "at once",
        "at once, one syncfs for all",
        "as tasks of two threads",
        "as tasks of two threads, each sync in place",
    ];
    for (column, way) in ways.into_iter().enumerate() {
        let ratio = of(0).as_secs_f64() / of(column).as_secs_f64();
        println!(
            "{way}: {:?}, {ratio:.1} times as fast as the first; median of {ROUNDS} rounds",
            of(column)
        );
    }
}
