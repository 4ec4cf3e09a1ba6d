//! What is done behind an answer, by the task of its connection: to have another thread do it would take longer than
//! most of it does.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Context;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task_local;

use crate::runtime::Runtime;

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

/// Has a connection do what its requests leave, each time when it has written what it had to.
pub(super) async fn attending<T>(connection: impl Future<Output = T>) -> T {
    let attended = async {
        let mut connection = pin!(connection);
        poll_fn(|context| {
            ATTENDED.with(|it| it.turn.set(it.turn.get() + 1));
            let polled = connection.as_mut().poll(context);
            while let Some(work) = ATTENDED.with(|it| it.left.borrow_mut().pop()) {
                work.begin(context);
            }
            polled
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
        if self.future.as_mut().poll(context).is_pending() {
            self.runtime.in_background(self.future);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::task::yield_now;

    use super::*;
    use crate::config::Config;
    use crate::runtime::RuntimeBuilder;

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
        runtime.finish().await;
        assert_eq!(so_far(), 1_111);
    }
}
