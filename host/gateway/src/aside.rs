//! The task of a connection: it counts its turns, and does what is left behind an answer, since to have another thread do
//! that would take longer than most of it does.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task_local;

use ctxhost_runtime::Runtime;

task_local! {
    static ATTENDED: Attended;
}

/// A connection at work.
#[derive(Default)]
struct Attended {
    /// How often it has been its turn.
    turn: Cell<u64>,
    /// What its requests have left since its last bytes.
    left: RefCell<Vec<Work>>,
}

impl Drop for Attended {
    /// What is left by requests that go with their connection is done by others.
    fn drop(&mut self) {
        if Handle::try_current().is_ok() {
            self.left.take().into_iter().for_each(Work::go_on_in_background);
        }
    }
}

/// Has a connection do what its requests leave, each time when it has written what it had to.
pub(super) async fn attending<T>(connection: impl Future<Output = T>) -> T {
    let attended = async {
        let mut connection = pin!(connection);
        poll_fn(|context| {
            ATTENDED.with(|it| it.turn.set(it.turn.get() + 1));
            let polled = connection.as_mut().poll(context);
            loop {
                let left = ATTENDED.with(|it| it.left.take());
                if left.is_empty() {
                    return polled;
                }
                left.into_iter().for_each(|work| work.begin(context));
            }
        })
        .await
    };
    ATTENDED.scope(Attended::default(), attended).await
}

/// Which turn of the connection this is, whose task this is; `None` in any other task. Between two of them
/// others had theirs.
pub(super) fn turn() -> Option<u64> {
    ATTENDED.try_with(|it| it.turn.get()).ok()
}

/// Leaves work to the connection whose task this is, else to the background. [`Runtime::finish`] waits for
/// it; a program that has ended does no more.
pub(super) fn leave(runtime: &Runtime, work: impl Future<Output = ()> + Send + 'static) {
    if Handle::try_current().is_err() {
        return;
    }
    let mut work = Some(Work { runtime: runtime.clone(), future: Box::pin(work) });
    let _ = ATTENDED.try_with(|it| it.left.borrow_mut().extend(work.take()));
    if let Some(Work { runtime, future }) = work {
        runtime.in_background(future);
    }
}

/// Work that nobody waits for.
struct Work {
    runtime: Runtime,
    future: BoxFuture<'static, ()>,
}

impl Work {
    /// Does as much as can be done without waiting; the rest is done in the background.
    fn begin(mut self, context: &mut Context<'_>) {
        // A bug in it is no reason to break the client's connection.
        match catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(context))) {
            Ok(Poll::Ready(())) => {}
            Ok(Poll::Pending) => self.go_on_in_background(),
            Err(_) => tracing::error!("what a request has left was broken off by a panic"),
        }
    }

    fn go_on_in_background(self) {
        self.runtime.in_background(self.future);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;
    use ctxhost_config::Config;
    use ctxhost_runtime::RuntimeBuilder;

    #[tokio::test]
    async fn what_is_left_is_done_behind_the_step_that_left_it() {
        let folder = tempfile::tempdir().unwrap();
        let builder = RuntimeBuilder::of(&Config::default()).store_folder(folder.path());
        let runtime = builder.build().await.unwrap();
        let done = Arc::new(AtomicU32::new(0));
        let add = |number: u32, waits: bool| {
            let done = done.clone();
            async move {
                if waits {
                    yield_now().await;
                }
                done.fetch_add(number, Ordering::Relaxed);
            }
        };
        let so_far = || done.load(Ordering::Relaxed);
        attending(async {
            leave(&runtime, add(1, false));
            assert_eq!(so_far(), 0, "not before the step is over");
            yield_now().await;
            assert_eq!(so_far(), 1);
            leave(&runtime, add(10, false));
        })
        .await;
        assert_eq!(so_far(), 11, "of the last step, too");
        attending(async { leave(&runtime, add(100, true)) }).await;
        leave(&runtime, add(1_000, false));
        assert_eq!(so_far(), 11, "what waits is waited for by nobody");
        let at_its_end = defer(|| leave(&runtime, add(10_000, false)));
        attending(async { leave(&runtime, async { panic!("as it was told to") }) }).await;
        attending(async move { drop(at_its_end) }).await;
        let with_it = defer(|| leave(&runtime, add(100_000, false)));
        let gone = attending(async move {
            let _with_it = with_it;
            std::future::pending::<()>().await;
        });
        assert!(timeout(Duration::from_millis(1), gone).await.is_err());
        runtime.finish().await;
        assert_eq!(so_far(), 111_111);
    }

    /// Does something when it goes.
    fn defer(work: impl FnOnce()) -> impl Drop {
        struct Deferred<F: FnOnce()>(Option<F>);
        impl<F: FnOnce()> Drop for Deferred<F> {
            fn drop(&mut self) {
                self.0.take().into_iter().for_each(|work| work());
            }
        }
        Deferred(Some(work))
    }
}
