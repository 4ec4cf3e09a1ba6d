//! Locks for turns: one turn per session at a time, and a limited number over all sessions.
//!
//! ```text
//!  lock ─► session lock (held to the end) ─► global permit (n) ─► work ─► model call ─► work
//!                                                held               │  released    │  reacquired
//! ```
//!
//! The order is fixed, which prevents deadlocks: a holder of a global permit never waits for a session. A model call runs
//! without the permit, so a slow provider blocks no other session. Both queues are first come, first served.
//!
//! A turn must not [`lock`](SessionLocks::lock) its own session: it would wait for itself. So a function that runs
//! within a turn takes the turn's [`SessionLock`] as a parameter, and a lock can be neither constructed nor cloned:
//!
//! ```
//! # use ctxhost_agent::session_locks::{SessionLock, SessionLocks};
//! /// Compacts within a turn.
//! async fn compact_in_turn(lock: &SessionLock) -> String {
//!     lock.yield_permit_during(async { format!("summary of {}", lock.session_id()) }).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let lock = SessionLocks::new(1).lock("s1").await;
//! assert_eq!(compact_in_turn(&lock).await, "summary of s1");
//! # }
//! ```
//!
//! Without the lock of a turn it does not compile:
//!
//! ```compile_fail,E0061
//! # use ctxhost_agent::session_locks::SessionLock;
//! # async fn compact_in_turn(lock: &SessionLock) {}
//! # async fn run() {
//! compact_in_turn().await;
//! # }
//! ```
//!
//! nor with a constructed one:
//!
//! ```compile_fail,E0451
//! # use ctxhost_agent::session_locks::SessionLock;
//! # async fn compact_in_turn(lock: &SessionLock) {}
//! # async fn run() {
//! compact_in_turn(&SessionLock { session_id: "s1".to_owned() }).await;
//! # }
//! ```

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use ctxhost_session::backend::SessionLease;

/// The session locks and the global permits of a process. Clones share them.
#[derive(Clone, Debug)]
pub struct SessionLocks {
    global: Arc<Semaphore>,
    /// Weak: a session's semaphore lives as long as it is held or waited for.
    sessions: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
}

impl SessionLocks {
    /// Locks with `global_limit` global permits, at least one.
    pub fn new(global_limit: usize) -> SessionLocks {
        let permits = global_limit.clamp(1, Semaphore::MAX_PERMITS);
        SessionLocks { global: Arc::new(Semaphore::new(permits)), sessions: Arc::default() }
    }

    /// Waits for the lock of a session, then for a global permit.
    ///
    /// Dropping the future leaves the queue. Do not call it within a turn of the same session: it would wait for
    /// itself. For another session, such as a sub-agent's, wait in [`SessionLock::yield_permit_during`].
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

    fn session(&self, session_id: &str) -> Arc<Semaphore> {
        let mut sessions = self.sessions.lock();
        if let Some(session) = sessions.get(session_id).and_then(Weak::upgrade) {
            return session;
        }
        // Unlocked sessions leave a dead entry, removed when the next one is added.
        sessions.retain(|_, session| session.strong_count() > 0);
        let session = Arc::new(Semaphore::new(1));
        sessions.insert(session_id.to_owned(), Arc::downgrade(&session));
        session
    }
}

/// The lock of one session. Dropping it unlocks the session.
#[derive(Debug)]
pub struct SessionLock {
    session_id: String,
    calls_in_flight: AtomicUsize,
    /// The global permit; `None` during a model call.
    permit: tokio::sync::Mutex<Option<TurnPermit>>,
    global: Arc<Semaphore>,
    /// The lock across machines, for sessions in a shared store.
    lease: Option<Box<dyn SessionLease>>,
    // The last field, because fields are dropped in order: the session's next turn then finds the
    // global permit released.
    _session: TurnPermit,
}

/// A permit; `None` only if the semaphore was closed, which never happens here.
type TurnPermit = Option<OwnedSemaphorePermit>;

async fn acquire(semaphore: Arc<Semaphore>) -> TurnPermit {
    semaphore.acquire_owned().await.ok()
}

impl SessionLock {
    /// The id of the locked session.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// Adds the lease of the session across machines.
    pub(super) fn with_lease(self, lease: Box<dyn SessionLease>) -> SessionLock {
        SessionLock { lease: Some(lease), ..self }
    }

    /// Releases the lease: other machines may continue the session.
    pub(super) fn release_lease(&mut self) {
        self.lease = None;
    }

    /// Waits for a model or for another session without the global permit. The session stays locked.
    ///
    /// Several calls may run concurrently; the last one to return reacquires the permit, since holding it during
    /// another call would block other sessions. If the caller drops this future, the turn has no permit until its next
    /// call returns: put timeouts inside.
    pub async fn yield_permit_during<T>(&self, call: impl Future<Output = T>) -> T {
        let count = ModelCallCount::start(self);
        // A concurrent call may have released it already.
        *self.permit.lock().await = None;
        let answer = call.await;
        if count.finish() == 0 {
            self.reacquire_permit().await;
        }
        answer
    }

    async fn reacquire_permit(&self) {
        let mut permit = self.permit.lock().await;
        if permit.is_none() {
            *permit = Some(acquire(Arc::clone(&self.global)).await);
        }
    }
}

/// Counts a call in flight, also if its future is dropped.
struct ModelCallCount<'a>(&'a AtomicUsize);

impl<'a> ModelCallCount<'a> {
    fn start(lock: &'a SessionLock) -> ModelCallCount<'a> {
        lock.calls_in_flight.fetch_add(1, Ordering::SeqCst);
        ModelCallCount(&lock.calls_in_flight)
    }

    /// Returns the number of other calls in flight.
    fn finish(self) -> usize {
        let others = self.0.fetch_sub(1, Ordering::SeqCst).saturating_sub(1);
        // `drop` would subtract it again.
        std::mem::forget(self);
        others
    }
}

impl Drop for ModelCallCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
