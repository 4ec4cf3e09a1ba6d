//! A new engine on trial: until it has proved itself, the slot before it stands ready to serve again.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::Slot;
use crate::engine::quarantine::QuarantineRecord;

/// Whether the engine of a slot has proved itself.
#[derive(Debug, Default)]
pub(super) struct Trial {
    running: Mutex<Option<Running>>,
    lost: OnceLock<LostTrial>,
}

#[derive(Debug)]
struct Running {
    before: Arc<Slot>,
    /// Requests that it has to shape yet.
    left: u32,
}

/// A trial that the new engine lost.
#[derive(Clone, Debug)]
pub struct LostTrial {
    /// The slot that serves again.
    pub before: Arc<Slot>,
    /// What the new engine did.
    pub record: QuarantineRecord,
}

impl Trial {
    /// The engine has to shape so many requests; none, and there is no trial.
    pub(super) fn begin(&self, before: Arc<Slot>, requests: u32) {
        *self.running() = (requests > 0).then_some(Running { before, left: requests });
    }

    /// It shaped a lawful request.
    pub(super) fn passed(&self) {
        let mut running = self.running();
        if let Some(trial) = running.as_mut() {
            trial.left = trial.left.saturating_sub(1);
        }
        running.take_if(|trial| trial.left == 0);
    }

    /// It failed. The slot that serves instead, where the trial was running or is lost already.
    pub(super) fn failed(&self, record: &QuarantineRecord) -> Option<&LostTrial> {
        let mut running = self.running();
        if let Some(trial) = running.take() {
            let lost = LostTrial { before: trial.before, record: record.clone() };
            // Set once: only a running trial can be lost, and it runs once.
            let _ = self.lost.set(lost);
        }
        self.lost()
    }

    /// How it was lost; `None` while it runs and once it was won.
    pub(super) fn lost(&self) -> Option<&LostTrial> {
        self.lost.get()
    }

    /// Whatever the engine has shown, the slot before it stands ready no more.
    pub(super) fn end(&self) {
        *self.running() = None;
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
