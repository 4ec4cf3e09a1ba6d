//! Where an engine sits: in this process on a lane, or in a worker process. Nobody above knows which.

use std::time::Duration;

use ctxhost_engine_api::border::EngineHandle;
use ctxhost_engine_api::*;

use super::calls::CallGuard;
use super::lane::Lane;
use super::question::{Answer, Question};
use super::watch::ThreadWatch;
use super::worker::{Far, WorkerFacts};

/// The place of one engine.
pub(super) enum Seat {
    /// In this process.
    Near {
        /// The engine; gone only while this is dropped.
        handle: Option<EngineHandle>,
        /// Where its code runs.
        lane: Lane,
        /// Its id.
        id: String,
        /// Who watches the thread that drops it.
        watch: ThreadWatch,
        /// What its drop may take, before the thread is left behind.
        limit: Duration,
    },
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
            Seat::Near { handle: Some(handle), lane, .. } => {
                lane.run(call, question.ask(handle.clone(), view)).await
            }
            Seat::Near { handle: None, .. } => Err(EngineError::new(ErrorKind::Dead, "it is gone")),
            Seat::Far(far) => far.ask(call, view, question).await,
        };
        T::try_from(answer?)
    }

    /// Takes the host away: whatever the engine still runs, it reaches nothing of it any more.
    pub(super) fn revoke(&self) {
        match self {
            Seat::Near { handle: Some(handle), .. } => handle.revoke(),
            Seat::Near { handle: None, .. } => {}
            Seat::Far(far) => far.close(),
        }
    }

    /// Whether a thread of this process hangs in a call that was given up.
    pub(super) fn lost_a_thread(&self) -> bool {
        match self {
            Seat::Near { lane, .. } => lane.lost_a_thread(),
            Seat::Far(_) => false,
        }
    }

    /// Whether a process of its own that died has another one behind it.
    pub(super) fn may_start_another(&self) -> bool {
        match self {
            Seat::Near { .. } => false,
            Seat::Far(far) => far.may_start_another(),
        }
    }

    /// The process it sits in, where that is one of its own.
    pub(super) fn worker(&self) -> Option<WorkerFacts> {
        match self {
            Seat::Near { .. } => None,
            Seat::Far(far) => Some(far.facts()),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.revoke();
        if let Seat::Near { handle, lane, id, watch, limit } = self
            && let Some(handle) = handle.take()
        {
            lane.let_go(id, watch.clone(), handle, *limit);
        }
    }
}
