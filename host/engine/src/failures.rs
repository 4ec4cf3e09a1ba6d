//! Counts failures of engines until the figures are taken.

use std::sync::atomic::{AtomicU64, Ordering};

/// Failures of the configured engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureCounts {
    /// Answers that violated an invariant.
    pub violations: u64,
    /// Calls that ended in an error, a panic or a deadline.
    pub failures: u64,
}

/// The counters behind [`FailureCounts`].
#[derive(Debug, Default)]
pub(super) struct FailureCounter {
    violations: AtomicU64,
    failures: AtomicU64,
}

impl FailureCounter {
    /// Counts an answer that violated an invariant.
    pub(super) fn count_violation(&self) {
        self.violations.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a failed call.
    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the counts and resets them, so that each failure is reported once.
    pub(super) fn take(&self) -> FailureCounts {
        FailureCounts {
            violations: self.violations.swap(0, Ordering::Relaxed),
            failures: self.failures.swap(0, Ordering::Relaxed),
        }
    }
}
