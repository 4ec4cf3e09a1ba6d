//! Catches panics in calls, in polls, and in the drop of futures, engines and panic payloads.

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use async_ffi::{FfiFuture, FutureExt as _};

use crate::error::{EngineError, ErrorKind, Result};

thread_local! {
    /// Where the newest panic of this thread happened: a payload does not name its place.
    static PANIC_PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// Keeps the place of a panic for the error that it becomes. Called by the panic hook of a library.
pub(crate) fn record_panic_place(panic: &PanicHookInfo<'_>) {
    PANIC_PLACE.set(panic.location().map(|at| format!("{}:{}", at.file(), at.line())));
}

/// Runs `work`; a panic becomes an error with the panic's message, in a library with its place as well.
pub(crate) fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(into_error)
}

/// Wraps a future so that neither polls nor drops unwind.
pub(crate) fn guard_panics<T>(
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> PanicGuard<T> {
    PanicGuard { future: Some(Box::pin(future)) }
}

/// Wraps a background task. A panic ends the task only; the panic hook of its library logs it.
pub(crate) fn background_task(future: impl Future<Output = ()> + Send + 'static) -> FfiFuture<()> {
    let work = guard_panics(async {
        future.await;
        Ok(())
    });
    async move {
        let _ = work.await;
    }
    .into_ffi()
}

type CallFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

pub(crate) struct PanicGuard<T> {
    future: Option<CallFuture<T>>,
}

impl<T> PanicGuard<T> {
    fn discard(&mut self) -> Result<()> {
        let future = self.future.take();
        catch_panic(move || drop(future))
    }
}

impl<T> Future for PanicGuard<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        // An error instead of a panic: this code runs below the guard and must not unwind.
        let Some(future) = self.future.as_mut() else {
            let message = "the future was polled after completion";
            return Poll::Ready(Err(EngineError::new(ErrorKind::Protocol, message)));
        };
        let answer = match catch_panic(|| future.as_mut().poll(context)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(answer)) => answer,
            Err(panicked) => Err(panicked),
        };
        // Dropped here, where a panic of its drop is caught, and not where its owner happens to drop it.
        Poll::Ready(self.discard().and(answer))
    }
}

impl<T> Drop for PanicGuard<T> {
    fn drop(&mut self) {
        let _ = self.discard();
    }
}

fn into_error(payload: Box<dyn Any + Send>) -> EngineError {
    let message = match payload.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "no message".into()),
    };
    // A payload may panic in its own drop. The payload of that second panic is leaked, since dropping it
    // could panic again.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    let text = match PANIC_PLACE.take() {
        Some(place) => format!("panicked at {place}: {message}"),
        None => format!("panicked: {message}"),
    };
    EngineError::new(ErrorKind::Panicked, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn poll_once<T>(future: &mut PanicGuard<T>) -> Poll<Result<T>> {
        Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("drop bomb");
        }
    }

    fn kind_of<T>(poll: Poll<Result<T>>) -> ErrorKind {
        match poll {
            Poll::Ready(Err(error)) => error.kind,
            _ => ErrorKind::Other(0),
        }
    }

    #[test]
    fn keeps_the_message_of_a_panicking_poll() {
        let mut future = guard_panics::<()>(async { panic!("at {}", 7) });
        match poll_once(&mut future) {
            Poll::Ready(Err(error)) => assert_eq!(error.message, "panicked: at 7"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn stops_a_bomb_in_the_drop_at_completion() {
        let bomb = Bomb;
        let mut future = guard_panics(async move {
            let _held = &bomb;
            Ok(1)
        });
        assert_eq!(kind_of(poll_once(&mut future)), ErrorKind::Panicked);
    }

    #[test]
    fn stops_a_bomb_in_an_early_drop_and_in_a_payload() {
        let bomb = Bomb;
        drop(guard_panics(async move {
            let _held = &bomb;
            std::future::pending::<Result<()>>().await
        }));
        let mut future = guard_panics::<()>(async { std::panic::panic_any(Bomb) });
        assert_eq!(kind_of(poll_once(&mut future)), ErrorKind::Panicked);
    }

    #[test]
    fn answers_a_poll_after_the_end() {
        let mut future = guard_panics(async { Ok(1) });
        assert!(matches!(poll_once(&mut future), Poll::Ready(Ok(1))));
        assert_eq!(kind_of(poll_once(&mut future)), ErrorKind::Protocol);
    }
}
