//! Many sessions, few permits, and slow calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join, join_all};
use proptest::test_runner::{RngAlgorithm, TestRng};
use tokio::time::{Instant, sleep, timeout};

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Elapses only in a deadlock: time is paused, so waiting costs nothing.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// The number of sessions that are locked or waited for.
fn busy_sessions(locks: &SessionLocks) -> usize {
    locks.sessions.lock().values().filter(|session| session.strong_count() > 0).count()
}

#[tokio::test(start_paused = true)]
async fn turns_of_a_session_run_in_order() {
    let locks = SessionLocks::new(8);
    let order = Arc::new(Mutex::new(Vec::new()));
    let runs = (0..20).map(|number| {
        let (locks, order) = (locks.clone(), Arc::clone(&order));
        async move {
            let _lock = locks.lock("s").await;
            order.lock().push((number, "in"));
            sleep(ms(10)).await;
            order.lock().push((number, "out"));
        }
    });
    join_all(runs).await;
    let expected: Vec<_> = (0..20).flat_map(|n| [(n, "in"), (n, "out")]).collect();
    assert_eq!(*order.lock(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_slow_model_call_blocks_no_other_session() {
    let locks = SessionLocks::new(1);
    let slow = async {
        let lock = locks.lock("slow").await;
        lock.yield_permit_during(sleep(Duration::from_secs(3_600))).await;
        Instant::now()
    };
    let quick = async {
        sleep(ms(1)).await;
        let lock = locks.lock("quick").await;
        lock.yield_permit_during(sleep(ms(10))).await;
        Instant::now()
    };
    let began = Instant::now();
    let (slow, quick) = join(slow, quick).await;
    assert_eq!(quick - began, ms(11));
    assert_eq!(slow - began, Duration::from_secs(3_600));
}

#[tokio::test(start_paused = true)]
async fn the_session_stays_locked_during_a_model_call() {
    let locks = SessionLocks::new(4);
    let lock = locks.lock("s").await;
    lock.yield_permit_during(async {
        assert!(timeout(ms(100), locks.lock("s")).await.is_err());
    })
    .await;
    drop(lock);
    assert!(timeout(ms(100), locks.lock("s")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn dropped_waiters_leave_the_queue() {
    let locks = SessionLocks::new(1);
    let lock = locks.lock("s").await;
    // One waits for the session, the other holds its session and waits for the permit.
    assert!(timeout(ms(5), locks.lock("s")).await.is_err());
    assert!(timeout(ms(5), locks.lock("t")).await.is_err());
    assert_eq!(busy_sessions(&locks), 1);
    drop(lock);
    assert_eq!(busy_sessions(&locks), 0);
    for session in ["s", "t"] {
        assert!(timeout(ms(5), locks.lock(session)).await.is_ok(), "{session}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_is_not_counted() {
    let locks = SessionLocks::new(1);
    let lock = locks.lock("s").await;
    assert!(timeout(ms(5), lock.yield_permit_during(sleep(NEVER))).await.is_err());
    lock.yield_permit_during(sleep(ms(5))).await;
    assert!(timeout(ms(5), locks.lock("t")).await.is_err(), "the permit is held again");
    drop(lock);
    assert!(timeout(ms(5), locks.lock("t")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_hold_no_permit() {
    let locks = SessionLocks::new(1);
    let lock = locks.lock("s").await;
    let both = join(
        lock.yield_permit_during(sleep(ms(5))),
        lock.yield_permit_during(async {
            sleep(ms(10)).await;
            assert!(timeout(ms(5), locks.lock("t")).await.is_ok());
        }),
    );
    assert!(timeout(NEVER, both).await.is_ok());
    assert!(timeout(ms(5), locks.lock("t")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_turn_can_wait_for_another_session() {
    let locks = SessionLocks::new(1);
    let parent = locks.lock("parent").await;
    let child = async { locks.lock("child").await.session_id().to_owned() };
    let answer = timeout(NEVER, parent.yield_permit_during(child)).await;
    assert_eq!(answer.unwrap(), "child");
}

/// Random work of turns and compactions.
struct Workload {
    locks: SessionLocks,
    working: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    limit: usize,
}

impl Workload {
    async fn turn(&self, session: &str, seed: u64) {
        let lock = self.locks.lock(session).await;
        let mut dice = Dice::new(seed);
        for _ in 0..dice.roll(4) {
            self.work(&mut dice).await;
            if dice.roll(2) == 0 {
                self.compact_in_run(&lock, &mut dice, 3).await;
            }
            lock.yield_permit_during(sleep(ms(dice.roll(500)))).await;
        }
        self.work(&mut dice).await;
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// A separate compaction, which queues like a turn.
    async fn compact(&self, session: &str, seed: u64) {
        let lock = self.locks.lock(session).await;
        self.compact_in_run(&lock, &mut Dice::new(seed), 3).await;
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn compact_in_run<'a>(
        &'a self,
        lock: &'a SessionLock,
        dice: &'a mut Dice,
        depth: u32,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.work(dice).await;
            lock.yield_permit_during(sleep(ms(dice.roll(2_000)))).await;
            if depth > 0 && dice.roll(3) == 0 {
                self.compact_in_run(lock, dice, depth - 1).await;
            }
            self.work(dice).await;
        })
    }

    /// Work under the permit; asserts the limit.
    async fn work(&self, dice: &mut Dice) {
        let now = self.working.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(now <= self.limit, "{now} work at once");
        sleep(ms(dice.roll(20))).await;
        self.working.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Dice(TestRng);

impl Dice {
    fn new(seed: u64) -> Dice {
        let bytes: Vec<u8> = seed.to_le_bytes().repeat(4);
        Dice(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    /// A number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        use proptest::prelude::Rng;
        self.0.next_u64() % sides
    }
}

#[tokio::test(start_paused = true)]
async fn random_turns_of_64_sessions_finish() {
    for (seed, limit) in [(1, 1), (2, 1), (3, 3)] {
        let ended = Arc::new(AtomicUsize::new(0));
        let workload = Workload {
            locks: SessionLocks::new(limit),
            working: Arc::default(),
            ended: Arc::clone(&ended),
            limit,
        };
        let mut dice = Dice::new(seed);
        let runs = (0..64 * 6).map(|number| {
            let (workload, session) = (&workload, format!("session {}", number % 64));
            let (seed, begins_ms, is_turn) =
                (dice.roll(u64::MAX), dice.roll(3_000), dice.roll(3) > 0);
            let may_give_up = dice.roll(8) == 0;
            async move {
                sleep(ms(begins_ms)).await;
                if may_give_up {
                    // Leaves the queue, which must not block others.
                    let _ = timeout(ms(1), workload.locks.lock(&session)).await;
                }
                if is_turn {
                    workload.turn(&session, seed).await;
                } else {
                    workload.compact(&session, seed).await;
                }
            }
        });
        assert!(timeout(NEVER, join_all(runs)).await.is_ok(), "a deadlock");
        assert_eq!(ended.load(Ordering::SeqCst), 64 * 6);
        assert_eq!(busy_sessions(&workload.locks), 0);
    }
}
