//! Sleeps and background tasks without an async runtime, on one thread each.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::abi::wait::unpark_waker;
use crate::border::BoxFuture;

/// Maximum real time of a sleep, in milliseconds, so that tests are fast. The clock of the host advances by
/// the whole duration.
const LONGEST_SLEEP_MS: u64 = 5;

/// Runs a task to completion, or until `stopped` is set.
pub(super) fn run_until_stopped(mut task: BoxFuture<()>, stopped: &AtomicBool) {
    let waker = unpark_waker();
    while !stopped.load(Ordering::Acquire) {
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return;
        }
        // With a timeout, because setting `stopped` does not wake this thread.
        std::thread::park_timeout(Duration::from_millis(LONGEST_SLEEP_MS));
    }
}

/// Sleeps, at most [`LONGEST_SLEEP_MS`].
pub(super) fn sleep(milliseconds: u64) -> impl Future<Output = ()> + Send {
    SleepFuture { milliseconds: milliseconds.min(LONGEST_SLEEP_MS), alarm: None }
}

/// Completes when its own thread has slept.
struct SleepFuture {
    milliseconds: u64,
    alarm: Option<Arc<Mutex<SleepTimer>>>,
}

#[derive(Default)]
struct SleepTimer {
    rung: bool,
    /// The waker of the last poll.
    sleeper: Option<Waker>,
}

impl SleepTimer {
    fn set(milliseconds: u64) -> Arc<Mutex<SleepTimer>> {
        let alarm = Arc::new(Mutex::new(SleepTimer::default()));
        let bell = alarm.clone();
        // A thread for each sleep, because no timer exists without a runtime.
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(milliseconds));
            let mut alarm = bell.lock().unwrap_or_else(PoisonError::into_inner);
            alarm.rung = true;
            alarm.sleeper.take().into_iter().for_each(Waker::wake);
        });
        alarm
    }
}

impl Future for SleepFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let milliseconds = self.milliseconds;
        // Started at the first poll: a dropped future must not leave a thread.
        let alarm = self.alarm.get_or_insert_with(|| SleepTimer::set(milliseconds));
        let mut alarm = alarm.lock().unwrap_or_else(PoisonError::into_inner);
        if alarm.rung {
            return Poll::Ready(());
        }
        alarm.sleeper = Some(context.waker().clone());
        Poll::Pending
    }
}
