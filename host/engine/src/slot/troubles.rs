//! What went wrong in a slot, counted until somebody takes the figures.

use std::sync::atomic::{AtomicU64, Ordering};

/// What went wrong with the configured engine of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
    /// Answers that the law refused.
    pub illegal: u64,
    /// Calls that ended in an error, a panic or a deadline.
    pub failures: u64,
}

impl Troubles {
    /// Both together.
    pub fn and(self, more: Troubles) -> Troubles {
        let illegal = self.illegal + more.illegal;
        Troubles { illegal, failures: self.failures + more.failures }
    }
}

/// The same while it is being counted.
#[derive(Debug, Default)]
pub struct TroubleCounter {
    illegal: AtomicU64,
    failures: AtomicU64,
}

impl TroubleCounter {
    /// The law refused an answer.
    pub fn illegal(&self) {
        self.illegal.fetch_add(1, Ordering::Relaxed);
    }

    /// A call failed.
    pub fn failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted since it was asked last, so that each trouble is told once.
    pub fn take(&self) -> Troubles {
        Troubles {
            illegal: self.illegal.swap(0, Ordering::Relaxed),
            failures: self.failures.swap(0, Ordering::Relaxed),
        }
    }
}
