//! Who may work: one run per session at a time, and few runs at once over all sessions.
//!
//! ```text
//!  enter ─► session lane (1, held to the end) ─► global lane (n) ─► work ─► model call ─► work
//!                                                  held              │  given back  │   taken again
//! ```
//!
//! The order is always the same: nobody who holds a place in the global lane waits for a session. A
//! model call, which takes as long as a provider likes, is made without a place in the global lane,
//! so that a slow one keeps no other session waiting. Both lanes are first come, first served.
//!
//! Inside a run nothing may [`lock`](Lanes::enter) the lane of its own session: it would wait for
//! itself. Therefore what may happen inside a run has a door of its own that asks for the
//! [`SessionLock`] of that run, and a guard cannot be made, copied or borrowed from nowhere:
//!
//! ```
//! # use ctxhost_agent::lane::{LaneGuard, Lanes};
//! /// Compacts inside a run.
//! async fn compact_in_run(lane: &LaneGuard) -> String {
//!     lane.during_model_call(async { format!("summary of {}", lane.session_id()) }).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let lane = Lanes::new(1).enter("s1").await;
//! assert_eq!(compact_in_run(&lane).await, "summary of s1");
//! # }
//! ```
//!
//! Without the guard of a run it does not compile:
//!
//! ```compile_fail,E0061
//! # use ctxhost_agent::lane::{LaneGuard, Lanes};
//! # async fn compact_in_run(lane: &LaneGuard) {}
//! # async fn run() {
//! compact_in_run().await;
//! # }
//! ```
//!
//! nor with one of its own making:
//!
//! ```compile_fail,E0451
//! # use ctxhost_agent::lane::{LaneGuard, Lanes};
//! # async fn compact_in_run(lane: &LaneGuard) {}
//! # async fn run(lanes: Lanes) {
//! compact_in_run(&LaneGuard { session_id: "s1".to_owned() }).await;
//! # }
//! ```

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use ctxhost_session::backend::SessionLease;

/// All lanes of a process. Clones are the same lanes.
#[derive(Clone, Debug)]
pub struct SessionLocks {
    global: Arc<Semaphore>,
    /// A session's lane lives as long as somebody holds it or waits for it.
    sessions: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
}

impl SessionLocks {
    /// Lanes in which at most `global_limit` runs work at the same time, and at least one.
    pub fn new(global_limit: usize) -> SessionLocks {
        let places = global_limit.clamp(1, Semaphore::MAX_PERMITS);
        SessionLocks { global: Arc::new(Semaphore::new(places)), sessions: Arc::default() }
    }

    /// Waits until a session is free and a place in the global lane is too, in this order.
    ///
    /// Dropping the future gives the place in the queue up. Do not call it inside a run of the same
    /// session, which would wait for itself; for a run of another session, such as a sub-agent's,
    /// wait in [`SessionLock::yield_permit_during`].
    pub async fn lock(&self, session_id: &str) -> SessionLock {
        let session = acquire(self.session(session_id)).await;
        let global = acquire(Arc::clone(&self.global)).await;
        SessionLock {
            session_id: session_id.to_owned(),
            calls_in_flight: AtomicUsize::new(0),
            permit: tokio::sync::Mutex::new(Some(global)),
            global: Arc::clone(&self.global),
            lease: None,
            _session: session,
        }
    }

    /// Sessions that are being worked in or waited for.
    pub fn busy_sessions(&self) -> usize {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().filter(|lane| lane.strong_count() > 0).count()
    }

    fn session(&self, session_id: &str) -> Arc<Semaphore> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = sessions.get(session_id).and_then(Weak::upgrade) {
            return lane;
        }
        sessions.retain(|_, lane| lane.strong_count() > 0);
        let lane = Arc::new(Semaphore::new(1));
        sessions.insert(session_id.to_owned(), Arc::downgrade(&lane));
        lane
    }
}

/// The right to work in one session. Dropping it lets the next one in.
#[derive(Debug)]
pub struct SessionLock {
    session_id: String,
    /// Model calls of this run that are out now.
    calls_in_flight: AtomicUsize,
    /// The place in the global lane; `None` while a model call is out.
    permit: tokio::sync::Mutex<Option<TurnPermit>>,
    global: Arc<Semaphore>,
    /// The session on all machines, where it is one of several.
    lease: Option<Box<dyn SessionLease>>,
    // Dropped last, so that the next run of the session finds the global place free.
    _session: TurnPermit,
}

/// A place in a lane; `None` only if the lane was closed, and ours never are.
type TurnPermit = Option<OwnedSemaphorePermit>;

async fn acquire(lane: Arc<Semaphore>) -> TurnPermit {
    lane.acquire_owned().await.ok()
}

impl SessionLock {
    /// The session it stands for.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// The same with the session held on all machines, until either is dropped.
    pub(super) fn with_lease(self, hold: Box<dyn SessionLease>) -> SessionLock {
        SessionLock { lease: Some(hold), ..self }
    }

    /// Lets other machines have the session, while this one looks at what it knows of it.
    pub(super) fn release_lease(&mut self) {
        self.lease = None;
    }

    /// Waits for a model, or for another session, without a place in the global lane; the session
    /// stays held. Work goes on with a place again.
    ///
    /// Several calls of a run may be out side by side; the last to come back takes the place again,
    /// since holding it over a call that is still out would keep others waiting. Where a caller
    /// drops this future, the run has no place until its next call comes back: put time limits
    /// inside.
    pub async fn yield_permit_during<T>(&self, call: impl Future<Output = T>) -> T {
        let out = ModelCallCount::start(self);
        *self.permit.lock().await = None;
        let answer = call.await;
        if out.finish() == 0 {
            self.reacquire_permit().await;
        }
        answer
    }

    async fn reacquire_permit(&self) {
        let mut here = self.permit.lock().await;
        if here.is_none() {
            *here = Some(acquire(Arc::clone(&self.global)).await);
        }
    }
}

/// A call that is out; counted even if its future is dropped.
struct ModelCallCount<'a>(&'a AtomicUsize);

impl<'a> ModelCallCount<'a> {
    fn start(guard: &'a SessionLock) -> ModelCallCount<'a> {
        guard.calls_in_flight.fetch_add(1, Ordering::SeqCst);
        ModelCallCount(&guard.calls_in_flight)
    }

    /// How many others are still out.
    fn finish(self) -> usize {
        let others = self.0.fetch_sub(1, Ordering::SeqCst).saturating_sub(1);
        // Counted already.
        std::mem::forget(self);
        others
    }
}

impl Drop for ModelCallCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
