//! Blocks a thread on a future without an async runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Blocks this thread on a future.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = unpark_waker();
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        // May wake spuriously; the loop polls again.
        std::thread::park();
    }
}

/// Blocks this thread on a future for at most `limit`; `None` on a timeout.
///
/// The limit is checked between polls only, so a poll that does not return blocks for longer.
pub fn block_on_within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = unpark_waker();
    let start = Instant::now();
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(answer);
        }
        // `None` once the limit has passed. Parking may also end early, so the loop polls again.
        std::thread::park_timeout(limit.checked_sub(start.elapsed())?);
    }
}

/// A waker that unparks the current thread.
pub(crate) fn unpark_waker() -> Waker {
    Waker::from(Arc::new(UnparkWaker(std::thread::current())))
}

struct UnparkWaker(Thread);

impl Wake for UnparkWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
