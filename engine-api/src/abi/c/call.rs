//! One blocking call: C runs on a thread of its own, the host waits in a future, and what C asks
//! the host for is waited for in that future.
//!
//! ```text
//!  lane        Call ── polls ──► service of the host
//!               ▲  line │ answer
//!  own thread   └─ ask ─┴─► C function
//! ```
//!
//! So services run where those of every other engine run: with the lane's timers, inside the task
//! that knows the session. A dropped call takes its service along, and then waits for the C
//! function: until that returns the lane's thread is held, as by any engine that does not let go.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::memory::protocol;
use super::threads::thread_init;
use crate::abi::guard::{catch, guarded};
use crate::abi::services::BoxFuture;
use crate::abi::wait::block_on;
use crate::error::{EngineError, ErrorKind, Result};

/// Stack of a call's thread, in bytes: what a main thread has, since authors test on one.
const STACK_BYTES: usize = 8 * 1024 * 1024;

/// Held while an engine that is not thread-safe runs.
pub(super) type CallLock = Arc<Mutex<()>>;

/// A C function that runs, and the future that waits for it.
pub(super) struct BlockingCall<T> {
    line: Arc<CallChannel>,
    outcome: ResultSlot<T>,
    serving: Option<BoxFuture<()>>,
}

/// Where the thread leaves what the future takes.
type ResultSlot<T> = Arc<Mutex<Option<Result<T>>>>;

impl<T: Send + 'static> BlockingCall<T> {
    /// Starts `work` on a thread of its own, after its turn has come.
    pub(super) fn start(
        turn: Option<CallLock>,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> BlockingCall<T> {
        let line = Arc::new(CallChannel::default());
        let outcome = ResultSlot::default();
        let (far_line, far_outcome) = (line.clone(), outcome.clone());
        let thread = std::thread::Builder::new().name("c-engine".into()).stack_size(STACK_BYTES);
        let first = thread_init();
        let spawned = thread.spawn(move || {
            let _kept = first.map(|first| first());
            let turn = turn.as_ref().map(|turn| lock(turn));
            if far_line.begin() {
                let answer = far_line.during(|| catch(work).and_then(|answer| answer));
                *lock(&far_outcome) = Some(answer);
                // The next call may begin before this one's future is told.
                drop(turn);
                far_line.end();
            }
        });
        if let Err(error) = spawned {
            let message = format!("there is no thread for the call: {error}");
            *lock(&outcome) = Some(Err(EngineError::failed(message)));
            line.end();
        }
        BlockingCall { line, outcome, serving: None }
    }
}

impl<T> Future for BlockingCall<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        loop {
            match self.line.next(context.waker()) {
                CallProgress::Ended => {
                    let lost = || Err(protocol("the call was asked for its outcome twice"));
                    return Poll::Ready(lock(&self.outcome).take().unwrap_or_else(lost));
                }
                CallProgress::Asked(service) => self.serving = Some(service),
                CallProgress::Nothing => {}
            }
            let Some(service) = &mut self.serving else { return Poll::Pending };
            if service.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.serving = None;
            self.line.served();
        }
    }
}

impl<T> Drop for BlockingCall<T> {
    fn drop(&mut self) {
        let asked = self.line.give_up();
        let serving = self.serving.take();
        let _ = catch(move || drop((asked, serving)));
        self.line.wait_for_the_end();
    }
}

/// Waits for a service of the host: through the call that this thread runs, or right here where an
/// engine asks from a thread of its own.
pub(super) fn wait_for_service<T: Send + 'static>(
    service: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let line = LINE.try_with(|line| line.borrow().clone()).ok().flatten();
    match line {
        Some(line) => line.ask(service),
        None => block_on(guarded(service)),
    }
}

thread_local! {
    /// The call that this thread runs.
    static LINE: RefCell<Option<Arc<CallChannel>>> = const { RefCell::new(None) };
}

/// What the thread of a call and its future tell each other.
#[derive(Default)]
struct CallChannel {
    state: Mutex<ChannelState>,
    changed: Condvar,
}

#[derive(Default)]
struct ChannelState {
    stage: CallPhase,
    given_up: bool,
    asked: Option<BoxFuture<()>>,
    served: bool,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum CallPhase {
    #[default]
    Waiting,
    Running,
    Ended,
}

/// What the future has to do.
enum CallProgress {
    Nothing,
    Asked(BoxFuture<()>),
    Ended,
}

impl CallChannel {
    fn state(&self) -> MutexGuard<'_, ChannelState> {
        lock(&self.state)
    }

    /// The thread has its turn. Whether anybody still waits for it.
    fn begin(&self) -> bool {
        let mut state = self.state();
        if !state.given_up {
            state.stage = CallPhase::Running;
        }
        !state.given_up
    }

    /// Runs `work` as the one that services of this thread are asked for.
    fn during<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        LINE.set(Some(self.clone()));
        let answer = work();
        LINE.set(None);
        answer
    }

    fn end(&self) {
        self.state().stage = CallPhase::Ended;
        self.changed.notify_all();
        self.wake();
    }

    /// Has the future wait for a service. Called by the thread.
    fn ask<T: Send + 'static>(
        &self,
        service: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let slot = ResultSlot::<T>::default();
        let (far_slot, service) = (slot.clone(), guarded(service));
        let service: BoxFuture<()> = Box::pin(async move {
            let answer = service.await;
            *lock(&far_slot) = Some(answer);
        });
        {
            let mut state = self.state();
            if state.given_up {
                return Err(given_up());
            }
            state.asked = Some(service);
            state.served = false;
        }
        self.wake();
        let mut state = self.state();
        while !state.served && !state.given_up {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        let answer = lock(&slot).take();
        answer.unwrap_or_else(|| Err(given_up()))
    }

    fn next(&self, waker: &Waker) -> CallProgress {
        let mut state = self.state();
        if state.stage == CallPhase::Ended {
            return CallProgress::Ended;
        }
        state.waker = Some(waker.clone());
        state.asked.take().map_or(CallProgress::Nothing, CallProgress::Asked)
    }

    fn served(&self) {
        self.state().served = true;
        self.changed.notify_all();
    }

    /// Nobody waits any more. Answers what was asked for and not begun, for the caller to drop.
    fn give_up(&self) -> Option<BoxFuture<()>> {
        let mut state = self.state();
        state.given_up = true;
        self.changed.notify_all();
        state.asked.take()
    }

    fn wait_for_the_end(&self) {
        let mut state = self.state();
        while state.stage == CallPhase::Running {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self) {
        let waker = self.state().waker.take();
        waker.into_iter().for_each(Waker::wake);
    }
}

fn given_up() -> EngineError {
    EngineError::new(ErrorKind::Cancelled, "the call was given up")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::abi::wait::block_on_within;

    #[test]
    fn services_are_waited_for_by_whoever_waits_for_the_call() {
        let here = std::thread::current().id();
        let call = BlockingCall::start(None, move || {
            assert_ne!(std::thread::current().id(), here);
            let asked_on = wait_for_service(async move { Ok(std::thread::current().id()) })?;
            let second = wait_for_service(async { Ok(2) })?;
            Ok((asked_on == here, second))
        });
        assert_eq!(block_on(call).unwrap(), (true, 2));
    }

    #[test]
    fn a_thread_of_the_engine_waits_for_itself() {
        let call = BlockingCall::start(None, || {
            let own =
                std::thread::spawn(|| wait_for_service(async { Ok(std::thread::current().id()) }));
            let id = own.thread().id();
            Ok(own.join().unwrap()? == id)
        });
        assert!(block_on(call).unwrap());
    }

    #[test]
    fn a_panicking_service_is_an_error_of_that_service() {
        let call = BlockingCall::start(None, || {
            Ok(wait_for_service::<()>(async { panic!("no") }).unwrap_err().kind)
        });
        assert_eq!(block_on(call).unwrap(), ErrorKind::Panicked);
    }

    #[test]
    fn a_dropped_call_frees_its_thread_and_waits_for_it() {
        let (began, begins) = mpsc::channel();
        let (send, receive) = mpsc::channel();
        let call = BlockingCall::start(None, move || {
            began.send(()).unwrap();
            let asked = wait_for_service::<()>(std::future::pending());
            let again = wait_for_service(async { Ok(()) });
            std::thread::sleep(Duration::from_millis(20));
            send.send((asked.unwrap_err().kind, again.unwrap_err().kind)).unwrap();
            Ok(())
        });
        begins.recv().unwrap();
        assert!(block_on_within(Duration::from_millis(20), call).is_none());
        // The drop at the end of the line above came back after the thread had sent.
        let cancelled = ErrorKind::Cancelled;
        assert_eq!(receive.try_recv().unwrap(), (cancelled, cancelled));
    }

    #[test]
    fn turns_come_one_after_the_other_and_may_be_given_up() {
        let turn = CallLock::default();
        let held = lock(&turn);
        let waiting = BlockingCall::start(Some(turn.clone()), || Ok(()));
        assert!(block_on_within(Duration::from_millis(20), waiting).is_none());
        let next = BlockingCall::start(Some(turn.clone()), || Ok(7));
        drop(held);
        assert_eq!(block_on(next).unwrap(), 7);
    }
}
