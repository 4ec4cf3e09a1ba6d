//! Waiting for a future on a thread, without any runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Waits for a future on this thread, without any runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = unpark_waker();
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        std::thread::park();
    }
}

/// Waits for a future on this thread, but no longer than `limit`; `None` when it takes longer.
///
/// The limit is looked at between two polls: a poll that never returns is waited for.
pub fn block_on_within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = unpark_waker();
    let begun = Instant::now();
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(answer);
        }
        std::thread::park_timeout(limit.checked_sub(begun.elapsed())?);
    }
}

/// A waker that unparks the thread that made it.
pub(crate) fn unpark_waker() -> Waker {
    Waker::from(Arc::new(UnparkWaker(std::thread::current())))
}

struct UnparkWaker(Thread);

impl Wake for UnparkWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
