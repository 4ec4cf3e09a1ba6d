//! Running calls: their deadlines, cancellation, and transcripts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ctxhost_engine_api::{CallId, SessionRef, Transcript};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The time limit of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallLimit {
    /// The time allowed without a progress report.
    pub(super) timeout: Duration,
    /// The time allowed in all, whatever progress is reported.
    pub(super) cap: Duration,
}

impl CallLimit {
    /// A limit that progress does not extend.
    pub(super) fn fixed(patience: Duration) -> Self {
        CallLimit { timeout: patience, cap: patience }
    }
}

tokio::task_local! {
    /// The session of the running call, for services whose request names none.
    static SESSION: Arc<str>;
}

/// Runs work as part of a session.
pub(super) async fn scope_session<W: Future>(session: Option<Arc<str>>, work: W) -> W::Output {
    match session {
        // Task-local, because host calls cross the plugin boundary without an argument for the
        // session.
        Some(session) => SESSION.scope(session, work).await,
        None => work.await,
    }
}

/// The session of the calling task; `None` on a thread that the engine started itself.
pub(super) fn current_session() -> Option<Arc<str>> {
    SESSION.try_with(Clone::clone).ok()
}

struct CallState {
    patience: Duration,
    deadline: Instant,
    cap: Instant,
    view: Option<Transcript>,
    /// The number of calls of models so far.
    model_calls: u64,
    /// Cancelled when the call ends, so that its calls of models end with it.
    ended: CancellationToken,
}

impl Drop for CallState {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Why a call may not call a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelCallRefusal {
    /// It has ended, or never began.
    Ended,
    /// It called models as often as it may.
    Spent,
}

/// The running calls of one engine.
#[derive(Default)]
pub(super) struct CallTable {
    next: AtomicU64,
    running: Mutex<HashMap<u64, CallState>>,
}

impl CallTable {
    /// Begins a call, which ends when the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, limit: CallLimit, view: Option<Transcript>) -> CallGuard {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.begin_with_id(id, limit, view)
    }

    /// Begins a call with an id of the host, in a sandbox.
    pub(super) fn begin_with_id(
        self: &Arc<Self>,
        id: u64,
        limit: CallLimit,
        view: Option<Transcript>,
    ) -> CallGuard {
        let now = Instant::now();
        let call = CallState {
            patience: limit.timeout,
            deadline: now + limit.timeout.min(limit.cap),
            cap: now + limit.cap,
            view,
            model_calls: 0,
            ended: CancellationToken::new(),
        };
        self.running.lock().insert(id, call);
        CallGuard { id: CallId(id), calls: self.clone(), session: None }
    }

    /// The deadline; `None` once the call has ended.
    pub(super) fn deadline(&self, call: CallId) -> Option<Instant> {
        self.running.lock().get(&call.0).map(|call| call.deadline)
    }

    /// Whether the call is over: past its deadline, cancelled or ended.
    pub(super) fn is_cancelled(&self, call: CallId) -> bool {
        self.deadline(call).is_none_or(|deadline| deadline <= Instant::now())
    }

    /// Restarts the timeout of a call, up to its cap.
    pub(super) fn progress(&self, call: CallId) {
        if let Some(call) = self.running.lock().get_mut(&call.0) {
            call.deadline = (Instant::now() + call.patience).min(call.cap);
        }
    }

    /// Extends the limits by time that was lost without the engine's fault.
    pub(super) fn extend(&self, call: CallId, passed: Duration) {
        if let Some(call) = self.running.lock().get_mut(&call.0) {
            call.deadline += passed;
            call.cap += passed;
        }
    }

    /// Marks the call as cancelled.
    pub(super) fn cancel(&self, call: CallId) {
        self.running.lock().remove(&call.0);
    }

    /// The time that the call has left.
    pub(super) fn remaining(&self, call: CallId) -> Option<CallLimit> {
        let running = self.running.lock();
        let call = running.get(&call.0)?;
        Some(CallLimit {
            timeout: call.patience,
            cap: call.cap.saturating_duration_since(Instant::now()),
        })
    }

    /// Counts a call of a model within a call, up to `most`. Returns what is cancelled when the call ends.
    ///
    /// # Errors
    ///
    /// [`ModelCallRefusal`].
    pub(super) fn count_model_call(
        &self,
        call: CallId,
        most: u64,
    ) -> Result<CancellationToken, ModelCallRefusal> {
        let mut running = self.running.lock();
        let call = running.get_mut(&call.0).ok_or(ModelCallRefusal::Ended)?;
        if call.model_calls >= most {
            return Err(ModelCallRefusal::Spent);
        }
        call.model_calls += 1;
        Ok(call.ended.clone())
    }

    /// The transcript of the call.
    pub(super) fn view(&self, call: CallId) -> Option<Transcript> {
        self.running.lock().get(&call.0)?.view.clone()
    }
}

/// A running call.
pub(super) struct CallGuard {
    pub(super) id: CallId,
    calls: Arc<CallTable>,
    session: Option<Arc<str>>,
}

impl CallGuard {
    /// The call with its session.
    pub(super) fn with_session(self, session: &SessionRef) -> Self {
        self.with_session_id(Some(session.id.as_str().into()))
    }

    /// The call with the id of its session, where it has one.
    pub(super) fn with_session_id(mut self, session: Option<Arc<str>>) -> Self {
        self.session = session;
        self
    }

    /// Runs work in the session of this call.
    pub(super) fn scope<T, W: Future<Output = T>>(
        &self,
        work: W,
    ) -> impl Future<Output = T> + use<T, W> {
        scope_session(self.session.clone(), work)
    }

    /// The id of its session, where it is known.
    pub(super) fn session(&self) -> Option<Arc<str>> {
        self.session.clone()
    }

    /// The time it has left.
    pub(super) fn remaining(&self) -> CallLimit {
        self.calls.remaining(self.id).unwrap_or(CallLimit::fixed(Duration::ZERO))
    }

    /// The deadline.
    pub(super) fn deadline(&self) -> Instant {
        self.calls.deadline(self.id).unwrap_or_else(Instant::now)
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.calls.running.lock().remove(&self.id.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_moves_the_deadline_but_never_past_the_cap() {
        let calls = Arc::new(CallTable::default());
        let limit = CallLimit { timeout: Duration::from_secs(10), cap: Duration::from_secs(12) };
        let call = calls.begin(limit, None);
        let before = call.deadline();
        std::thread::sleep(Duration::from_millis(5));
        calls.progress(call.id);
        assert!(call.deadline() > before);
        assert!(call.deadline() < before + Duration::from_secs(3));
    }

    #[test]
    fn a_call_that_ended_counts_as_cancelled() {
        let calls = Arc::new(CallTable::default());
        let call = calls.begin(CallLimit::fixed(Duration::from_secs(10)), None);
        let id = call.id;
        assert!(!calls.is_cancelled(id));
        drop(call);
        assert!(calls.is_cancelled(id));
    }
}
