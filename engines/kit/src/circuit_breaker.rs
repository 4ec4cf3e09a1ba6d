//! A circuit breaker: blocks an operation for a cooldown after too many failures in a row.

/// Counts failures in a row. The caller passes the time, so that replays are deterministic.
#[derive(Clone, Debug, Default)]
pub struct CircuitBreaker {
    failures: u32,
    failed_ms: i64,
}

impl CircuitBreaker {
    /// Records a success and closes the breaker.
    pub fn record_success(&mut self) {
        self.failures = 0;
    }

    /// Records a failure.
    pub fn record_failure(&mut self, now_ms: i64) {
        self.failures = self.failures.saturating_add(1);
        self.failed_ms = now_ms;
    }

    /// Number of failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Remaining time in ms for which the breaker is open after `limit` failures in a row; `None`
    /// if it is closed.
    pub fn open_ms(&self, now_ms: i64, limit: u32, cooldown_ms: u64) -> Option<u64> {
        // The absolute distance: a clock that was set back must not prolong the cooldown.
        let wait_ms = cooldown_ms.saturating_sub(now_ms.abs_diff(self.failed_ms));
        (self.failures >= limit.max(1) && wait_ms > 0).then_some(wait_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_open_it_for_the_cooldown() {
        let mut breaker = CircuitBreaker::default();
        assert_eq!(breaker.open_ms(0, 0, 100), None, "nothing has failed");
        breaker.record_failure(0);
        breaker.record_success();
        breaker.record_failure(5);
        assert_eq!((breaker.open_ms(5, 2, 100), breaker.open_ms(5, 1, 100)), (None, Some(100)));
        breaker.record_failure(10);
        assert_eq!(breaker.open_ms(20, 2, 100), Some(90));
        assert_eq!(breaker.open_ms(110, 2, 100), None);
        breaker.record_failure(110);
        assert_eq!((breaker.failures(), breaker.open_ms(111, 2, 100)), (3, Some(99)));
        assert!(breaker.open_ms(i64::MAX, 2, u64::MAX).is_some());
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_hold_it_open() {
        let mut breaker = CircuitBreaker::default();
        breaker.record_failure(10_000);
        assert_eq!((breaker.open_ms(9_950, 1, 100), breaker.open_ms(0, 1, 100)), (Some(50), None));
    }
}
