//! Many sessions, few places, and calls that take as long as they like.

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

/// Time that is up only if nothing moves any more: time is paused, so waiting costs nothing.
const NEVER: Duration = Duration::from_secs(1_000_000);

#[tokio::test(start_paused = true)]
async fn a_session_is_worked_in_by_one_at_a_time_in_order() {
    let lanes = SessionLocks::new(8);
    let order = Arc::new(Mutex::new(Vec::new()));
    let runs = (0..20).map(|number| {
        let (lanes, order) = (lanes.clone(), Arc::clone(&order));
        async move {
            let _lane = lanes.lock("s").await;
            order.lock().unwrap().push((number, "in"));
            sleep(ms(10)).await;
            order.lock().unwrap().push((number, "out"));
        }
    });
    join_all(runs).await;
    let expected: Vec<_> = (0..20).flat_map(|n| [(n, "in"), (n, "out")]).collect();
    assert_eq!(*order.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_slow_model_call_keeps_no_other_session_waiting() {
    let lanes = SessionLocks::new(1);
    let slow = async {
        let lane = lanes.lock("slow").await;
        lane.yield_permit_during(sleep(Duration::from_secs(3_600))).await;
        Instant::now()
    };
    let quick = async {
        sleep(ms(1)).await;
        let lane = lanes.lock("quick").await;
        lane.yield_permit_during(sleep(ms(10))).await;
        Instant::now()
    };
    let began = Instant::now();
    let (slow, quick) = join(slow, quick).await;
    assert_eq!(quick - began, ms(11));
    assert_eq!(slow - began, Duration::from_secs(3_600));
}

#[tokio::test(start_paused = true)]
async fn the_session_stays_held_over_a_model_call() {
    let lanes = SessionLocks::new(4);
    let lane = lanes.lock("s").await;
    lane.yield_permit_during(async {
        assert!(timeout(ms(100), lanes.lock("s")).await.is_err());
    })
    .await;
    drop(lane);
    assert!(timeout(ms(100), lanes.lock("s")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn whoever_gives_up_waiting_leaves_no_trace() {
    let lanes = SessionLocks::new(1);
    let lane = lanes.lock("s").await;
    // One waits for the session, one holds its session and waits for the place.
    assert!(timeout(ms(5), lanes.lock("s")).await.is_err());
    assert!(timeout(ms(5), lanes.lock("t")).await.is_err());
    assert_eq!(lanes.busy_sessions(), 1);
    drop(lane);
    assert_eq!(lanes.busy_sessions(), 0);
    for session in ["s", "t"] {
        assert!(timeout(ms(5), lanes.lock(session)).await.is_ok(), "{session}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_no_longer_out() {
    let lanes = SessionLocks::new(1);
    let lane = lanes.lock("s").await;
    assert!(timeout(ms(5), lane.yield_permit_during(sleep(NEVER))).await.is_err());
    lane.yield_permit_during(sleep(ms(5))).await;
    assert!(timeout(ms(5), lanes.lock("t")).await.is_err(), "the place is held again");
    drop(lane);
    assert!(timeout(ms(5), lanes.lock("t")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn calls_side_by_side_end_and_none_is_waited_for_with_a_place() {
    let lanes = SessionLocks::new(1);
    let lane = lanes.lock("s").await;
    let both = join(
        lane.yield_permit_during(sleep(ms(5))),
        lane.yield_permit_during(async {
            sleep(ms(10)).await;
            assert!(timeout(ms(5), lanes.lock("t")).await.is_ok());
        }),
    );
    assert!(timeout(NEVER, both).await.is_ok());
    assert!(timeout(ms(5), lanes.lock("t")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_run_can_wait_for_a_run_of_its_child() {
    let lanes = SessionLocks::new(1);
    let parent = lanes.lock("parent").await;
    let child = async { lanes.lock("child").await.session_id().to_owned() };
    let answer = timeout(NEVER, parent.yield_permit_during(child)).await;
    assert_eq!(answer.unwrap(), "child");
}

/// What happens in one run.
struct Story {
    lanes: SessionLocks,
    working: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    limit: usize,
}

impl Story {
    async fn turn(&self, session: &str, seed: u64) {
        let lane = self.lanes.lock(session).await;
        let mut dice = Dice::new(seed);
        for _ in 0..dice.roll(4) {
            self.work(&mut dice).await;
            if dice.roll(2) == 0 {
                self.compact_in_run(&lane, &mut dice, 3).await;
            }
            lane.yield_permit_during(sleep(ms(dice.roll(500)))).await;
        }
        self.work(&mut dice).await;
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    /// A compaction of its own: queues like a turn.
    async fn compact(&self, session: &str, seed: u64) {
        let lane = self.lanes.lock(session).await;
        self.compact_in_run(&lane, &mut Dice::new(seed), 3).await;
        self.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn compact_in_run<'a>(
        &'a self,
        lane: &'a SessionLock,
        dice: &'a mut Dice,
        depth: u32,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.work(dice).await;
            lane.yield_permit_during(sleep(ms(dice.roll(2_000)))).await;
            if depth > 0 && dice.roll(3) == 0 {
                self.compact_in_run(lane, dice, depth - 1).await;
            }
            self.work(dice).await;
        })
    }

    /// Work that needs a place: never more than the limit at once.
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
async fn sixty_four_sessions_and_one_place_finish() {
    for (seed, limit) in [(1, 1), (2, 1), (3, 3)] {
        let ended = Arc::new(AtomicUsize::new(0));
        let story = Story {
            lanes: SessionLocks::new(limit),
            working: Arc::default(),
            ended: Arc::clone(&ended),
            limit,
        };
        let mut dice = Dice::new(seed);
        let runs = (0..64 * 6).map(|number| {
            let (story, session) = (&story, format!("session {}", number % 64));
            let (seed, begins_ms, is_turn) =
                (dice.roll(u64::MAX), dice.roll(3_000), dice.roll(3) > 0);
            let may_give_up = dice.roll(8) == 0;
            async move {
                sleep(ms(begins_ms)).await;
                if may_give_up {
                    // Gives up in the queue; that may not hold up anyone either.
                    let _ = timeout(ms(1), story.lanes.lock(&session)).await;
                }
                match is_turn {
                    true => story.turn(&session, seed).await,
                    false => story.compact(&session, seed).await,
                }
            }
        });
        assert!(timeout(NEVER, join_all(runs)).await.is_ok(), "a deadlock");
        assert_eq!(ended.load(Ordering::SeqCst), 64 * 6);
        assert_eq!(story.lanes.busy_sessions(), 0);
    }
}
