//! What went wrong with engines, counted until somebody takes the figures.

use std::sync::atomic::{AtomicU64, Ordering};

/// What went wrong with the configured engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureCounts {
    /// Answers that the law refused.
    pub violations: u64,
    /// Calls that ended in an error, a panic or a deadline.
    pub failures: u64,
}

/// The same while it is being counted.
#[derive(Debug, Default)]
pub(super) struct FailureCounter {
    violations: AtomicU64,
    failures: AtomicU64,
}

impl FailureCounter {
    /// The law refused an answer.
    pub(super) fn count_violation(&self) {
        self.violations.fetch_add(1, Ordering::Relaxed);
    }

    /// A call failed.
    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted since it was asked last, so that each failure is told once.
    pub(super) fn take(&self) -> FailureCounts {
        FailureCounts {
            violations: self.violations.swap(0, Ordering::Relaxed),
            failures: self.failures.swap(0, Ordering::Relaxed),
        }
    }
}
