//! Runs a blocking C function on its own thread while a future of the host drives its service calls.
//!
//! ```text
//!  engine thread   BlockingCall ── polls ──► service of the host
//!                        ▲ CallChannel │ result
//!  own thread            └─ request ───┴─► C function
//! ```

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::memory::protocol;
use super::threads::thread_init;
use crate::abi::guard::{catch_panic, guard_panics};
use crate::abi::services::BoxFuture;
use crate::abi::wait::block_on;
use crate::error::{EngineError, ErrorKind, Result};

/// Stack size of a call's thread: the usual size of a main thread, which is where authors test.
const STACK_BYTES: usize = 8 * 1024 * 1024;

/// Serialises the calls of an engine that is not thread-safe.
pub(super) type CallLock = Arc<Mutex<()>>;

/// A future that waits for a C function on another thread and polls the services it requests.
pub(super) struct BlockingCall<T> {
    channel: Arc<CallChannel>,
    outcome: ResultSlot<T>,
    service: Option<BoxFuture<()>>,
}

/// A result passed from one thread to the other.
type ResultSlot<T> = Arc<Mutex<Option<Result<T>>>>;

impl<T: Send + 'static> BlockingCall<T> {
    /// Starts `work` on its own thread, which waits for the lock first.
    pub(super) fn start(
        call_lock: Option<CallLock>,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> BlockingCall<T> {
        let channel = Arc::new(CallChannel::default());
        let outcome = ResultSlot::default();
        let (thread_channel, thread_outcome) = (channel.clone(), outcome.clone());
        // A new thread for each call: C code may block it for minutes, and a thread that never returns must
        // not be part of a pool.
        let thread = std::thread::Builder::new().name("c-engine".into()).stack_size(STACK_BYTES);
        let first = thread_init();
        let spawned = thread.spawn(move || {
            let _guard = first.map(|first| first());
            let call_lock = call_lock.as_ref().map(|call_lock| lock(call_lock));
            if thread_channel.start_running() {
                let answer =
                    thread_channel.run_current(|| catch_panic(work).and_then(|answer| answer));
                *lock(&thread_outcome) = Some(answer);
                // Released before the future is woken, so that the next call does not wait for the host.
                drop(call_lock);
                thread_channel.end();
            }
        });
        if let Err(error) = spawned {
            let message = format!("cannot start a thread for the call: {error}");
            *lock(&outcome) = Some(Err(EngineError::failed(message)));
            channel.end();
        }
        BlockingCall { channel, outcome, service: None }
    }
}

impl<T> Future for BlockingCall<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        loop {
            match self.channel.next(context.waker()) {
                CallProgress::Ended => {
                    let lost = || Err(protocol("the call was polled after it had completed"));
                    return Poll::Ready(lock(&self.outcome).take().unwrap_or_else(lost));
                }
                CallProgress::Service(service) => self.service = Some(service),
                CallProgress::Nothing => {}
            }
            let Some(service) = &mut self.service else { return Poll::Pending };
            // Polled here and not on the thread of the call: services need the timers and the task context of
            // the host's thread, such as the session that the call belongs to.
            if service.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.service = None;
            self.channel.service_done();
        }
    }
}

impl<T> Drop for BlockingCall<T> {
    fn drop(&mut self) {
        let pending_service = self.channel.cancel();
        let service = self.service.take();
        // The drop of a service may panic; the thread of the call has to be released anyway.
        let _ = catch_panic(move || drop((pending_service, service)));
        // Calls of one session must not overlap, so the C function has to end first. One that does not return
        // blocks this thread, which the host detects as for a Rust engine that blocks.
        self.channel.wait_until_ended();
    }
}

/// Waits for a service of the host. The future of the current call polls it; on a thread that the
/// engine started itself, this function does.
pub(super) fn wait_for_service<T: Send + 'static>(
    service: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let channel = CHANNEL.try_with(|channel| channel.borrow().clone()).ok().flatten();
    match channel {
        Some(channel) => channel.ask(service),
        None => block_on(guard_panics(service)),
    }
}

thread_local! {
    /// The channel of the call that runs on this thread.
    static CHANNEL: RefCell<Option<Arc<CallChannel>>> = const { RefCell::new(None) };
}

/// Connects the thread of a call with its future.
#[derive(Default)]
struct CallChannel {
    state: Mutex<ChannelState>,
    changed: Condvar,
}

#[derive(Default)]
struct ChannelState {
    phase: CallPhase,
    cancelled: bool,
    pending_service: Option<BoxFuture<()>>,
    service_done: bool,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum CallPhase {
    #[default]
    Waiting,
    Running,
    Ended,
}

/// The next step of the future.
enum CallProgress {
    Nothing,
    Service(BoxFuture<()>),
    Ended,
}

impl CallChannel {
    fn state(&self) -> MutexGuard<'_, ChannelState> {
        lock(&self.state)
    }

    /// Marks the call as running; `false` if the future was dropped meanwhile.
    fn start_running(&self) -> bool {
        let mut state = self.state();
        if !state.cancelled {
            state.phase = CallPhase::Running;
        }
        !state.cancelled
    }

    /// Runs `work` with this channel as the current one of the thread.
    fn run_current<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> T {
        CHANNEL.set(Some(self.clone()));
        let answer = work();
        CHANNEL.set(None);
        answer
    }

    fn end(&self) {
        self.state().phase = CallPhase::Ended;
        self.changed.notify_all();
        self.wake();
    }

    /// Passes a service to the future and waits for its result. Called by the thread.
    fn ask<T: Send + 'static>(
        &self,
        service: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let slot = ResultSlot::<T>::default();
        let (service_slot, service) = (slot.clone(), guard_panics(service));
        let service: BoxFuture<()> = Box::pin(async move {
            let answer = service.await;
            *lock(&service_slot) = Some(answer);
        });
        {
            let mut state = self.state();
            if state.cancelled {
                return Err(cancelled());
            }
            // Under one lock with the check above, so that a concurrent `cancel` sees the service or stops it.
            state.pending_service = Some(service);
            state.service_done = false;
        }
        self.wake();
        let mut state = self.state();
        while !state.service_done && !state.cancelled {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        let answer = lock(&slot).take();
        answer.unwrap_or_else(|| Err(cancelled()))
    }

    fn next(&self, waker: &Waker) -> CallProgress {
        let mut state = self.state();
        if state.phase == CallPhase::Ended {
            return CallProgress::Ended;
        }
        // Stored under the lock: a service or the end that comes afterwards wakes this waker.
        state.waker = Some(waker.clone());
        state.pending_service.take().map_or(CallProgress::Nothing, CallProgress::Service)
    }

    fn service_done(&self) {
        self.state().service_done = true;
        self.changed.notify_all();
    }

    /// Cancels the call. Returns a service that was requested but not polled yet, for the caller to drop.
    fn cancel(&self) -> Option<BoxFuture<()>> {
        let mut state = self.state();
        state.cancelled = true;
        self.changed.notify_all();
        state.pending_service.take()
    }

    fn wait_until_ended(&self) {
        let mut state = self.state();
        while state.phase == CallPhase::Running {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self) {
        let waker = self.state().waker.take();
        waker.into_iter().for_each(Waker::wake);
    }
}

fn cancelled() -> EngineError {
    EngineError::new(ErrorKind::Cancelled, "the call was cancelled")
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
    fn services_are_polled_by_the_future_of_the_call() {
        let here = std::thread::current().id();
        let call = BlockingCall::start(None, move || {
            assert_ne!(std::thread::current().id(), here);
            let polled_on = wait_for_service(async move { Ok(std::thread::current().id()) })?;
            let second = wait_for_service(async { Ok(2) })?;
            Ok((polled_on == here, second))
        });
        assert_eq!(block_on(call).unwrap(), (true, 2));
    }

    #[test]
    fn a_thread_of_the_engine_polls_its_services() {
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
            let interrupted = wait_for_service::<()>(std::future::pending());
            let later = wait_for_service(async { Ok(()) });
            std::thread::sleep(Duration::from_millis(20));
            send.send((interrupted.unwrap_err().kind, later.unwrap_err().kind)).unwrap();
            Ok(())
        });
        begins.recv().unwrap();
        assert!(block_on_within(Duration::from_millis(20), call).is_none());
        // The drop above returns only after the thread has sent.
        let cancelled = ErrorKind::Cancelled;
        assert_eq!(receive.try_recv().unwrap(), (cancelled, cancelled));
    }

    #[test]
    fn locked_calls_run_in_sequence_and_can_be_cancelled() {
        let call_lock = CallLock::default();
        let held = lock(&call_lock);
        let waiting = BlockingCall::start(Some(call_lock.clone()), || Ok(()));
        assert!(block_on_within(Duration::from_millis(20), waiting).is_none());
        let next = BlockingCall::start(Some(call_lock.clone()), || Ok(7));
        drop(held);
        assert_eq!(block_on(next).unwrap(), 7);
    }
}
