//! A pause between warnings whose cause lasts, such as a full disk: each request would repeat them.

use std::sync::atomic::{AtomicI64, Ordering};

/// The pause, in milliseconds.
const PAUSE_MS: i64 = 60_000;

/// When the next warning is due.
#[derive(Debug)]
pub(super) struct WarningPause(AtomicI64);

impl Default for WarningPause {
    fn default() -> WarningPause {
        WarningPause(AtomicI64::new(i64::MIN))
    }
}

impl WarningPause {
    /// Whether a warning is due now; the next one is due after the pause.
    pub(super) fn is_due(&self, now_ms: i64) -> bool {
        let next_ms = now_ms.saturating_add(PAUSE_MS);
        let due = |due_ms: i64| (now_ms >= due_ms).then_some(next_ms);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_is_due_per_minute() {
        let pause = WarningPause::default();
        let due = |now_ms| pause.is_due(now_ms);
        let all = [0, 1, 59_999, 60_000, 60_001, 300_000, 300_001].map(due);
        assert_eq!(all, [true, false, false, true, false, true, false]);
    }
}
