//! Where an engine sits: in this process on a lane, or in a worker process. Nobody above knows which.

use std::time::Duration;

use ctxhost_engine_api::border::EngineHandle;
use ctxhost_engine_api::*;

use super::calls::CallGuard;
use super::lane::Lane;
use super::question::{Answer, Question};
use super::watch::ThreadWatch;
use super::worker::{Far, WorkerFacts};

/// An engine in this process.
pub(super) struct Near {
    /// Its id.
    pub(super) id: String,
    /// The engine; gone only while this is dropped.
    pub(super) handle: Option<EngineHandle>,
    /// Where its code runs.
    pub(super) lane: Lane,
    /// Who watches the thread that drops it.
    pub(super) watch: ThreadWatch,
    /// What its drop may take, before its thread is left behind.
    pub(super) limit: Duration,
}

impl Drop for Near {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.lane.let_go(&self.id, self.watch.clone(), handle, self.limit);
        }
    }
}

/// The place of one engine.
pub(super) enum Seat {
    /// In this process.
    Near(Box<Near>),
    /// In a process of its own.
    Far(Box<Far>),
}

impl Seat {
    /// Asks the engine, within the call's time.
    ///
    /// # Errors
    ///
    /// The engine's own, [`ErrorKind::Deadline`], or [`ErrorKind::Dead`] where its process died.
    pub(super) async fn ask<T>(
        &self,
        call: &CallGuard,
        view: Transcript,
        question: Question,
    ) -> Result<T>
    where
        T: TryFrom<Answer, Error = EngineError>,
    {
        let answer = match self {
            Seat::Near(near) => {
                let gone = || EngineError::new(ErrorKind::Dead, "it is being dropped");
                let handle = near.handle.clone().ok_or_else(gone)?;
                near.lane.run(call, question.ask(handle, view)).await
            }
            Seat::Far(far) => far.ask(call, view, question).await,
        };
        T::try_from(answer?)
    }

    /// Takes the host away: whatever the engine still runs, it reaches nothing of it any more.
    pub(super) fn revoke(&self) {
        match self {
            Seat::Near(near) => _ = near.handle.as_ref().map(EngineHandle::revoke),
            Seat::Far(far) => far.close(),
        }
    }

    /// Whether a thread of this process hangs in a call that was given up.
    pub(super) fn lost_a_thread(&self) -> bool {
        match self {
            Seat::Near(near) => near.lane.lost_a_thread(),
            Seat::Far(_) => false,
        }
    }

    /// Whether a process of its own that died has another one behind it.
    pub(super) fn may_start_another(&self) -> bool {
        match self {
            Seat::Near(_) => false,
            Seat::Far(far) => far.may_start_another(),
        }
    }

    /// The process it sits in, where that is one of its own.
    pub(super) fn worker(&self) -> Option<WorkerFacts> {
        match self {
            Seat::Near(_) => None,
            Seat::Far(far) => Some(far.facts()),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.revoke();
    }
}
