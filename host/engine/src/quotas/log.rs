//! The log quota: lines and bytes in a minute. Lines beyond it are dropped and counted.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::Quotas;

/// The period of the limits.
const WINDOW: Duration = Duration::from_secs(60);

/// The log quota of one engine.
#[derive(Debug)]
pub(crate) struct LogQuota {
    lines: u64,
    bytes: u64,
    minute: Mutex<LogWindow>,
}

/// The lines of the current period.
#[derive(Debug)]
struct LogWindow {
    began: Instant,
    lines: u64,
    bytes: u64,
    dropped: u64,
}

impl LogWindow {
    fn starting_at(now: Instant) -> LogWindow {
        LogWindow { began: now, lines: 0, bytes: 0, dropped: 0 }
    }
}

/// What happens to a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogDecision {
    /// It is written; so many of the last period were dropped.
    Write {
        /// Dropped lines.
        dropped_before: u64,
    },
    /// It is dropped, the first one of this period.
    DropFirst,
    /// It is dropped.
    Drop,
}

impl LogQuota {
    pub(crate) fn new(quotas: &Quotas) -> LogQuota {
        LogQuota {
            lines: quotas.log_lines_per_minute,
            bytes: quotas.log_kib_per_minute.saturating_mul(1024),
            minute: Mutex::new(LogWindow::starting_at(Instant::now())),
        }
    }

    /// Decides about a line of so many bytes.
    pub(crate) fn check(&self, bytes: usize) -> LogDecision {
        self.check_at(bytes as u64, Instant::now())
    }

    fn check_at(&self, bytes: u64, now: Instant) -> LogDecision {
        let mut minute = self.minute.lock();
        let mut dropped_before = 0;
        if now.duration_since(minute.began) >= WINDOW {
            dropped_before = minute.dropped;
            *minute = LogWindow::starting_at(now);
        }
        let fits = minute.lines < self.lines && minute.bytes.saturating_add(bytes) <= self.bytes;
        if !fits {
            // The count of the last period is reported with the next line that is written.
            minute.dropped += dropped_before + 1;
            return if minute.dropped == 1 { LogDecision::DropFirst } else { LogDecision::Drop };
        }
        minute.lines += 1;
        minute.bytes += bytes;
        LogDecision::Write { dropped_before }
    }

    /// Takes the number of dropped lines that were not reported yet.
    pub(crate) fn take_dropped(&self) -> u64 {
        let mut minute = self.minute.lock();
        std::mem::take(&mut minute.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(lines: u64, kib: u64) -> LogQuota {
        let quotas =
            Quotas { log_lines_per_minute: lines, log_kib_per_minute: kib, ..Quotas::default() };
        LogQuota::new(&quotas)
    }

    #[test]
    fn lines_past_the_limit_are_counted_and_reported_in_the_next_minute() {
        let quota = quota(2, 1);
        let now = Instant::now();
        let written = LogDecision::Write { dropped_before: 0 };
        assert_eq!(quota.check_at(10, now), written);
        assert_eq!(quota.check_at(10, now), written);
        assert_eq!(quota.check_at(10, now), LogDecision::DropFirst);
        assert_eq!(quota.check_at(10, now), LogDecision::Drop);
        let later = now + WINDOW;
        assert_eq!(quota.check_at(10, later), LogDecision::Write { dropped_before: 2 });
        assert_eq!(quota.take_dropped(), 0);
    }

    #[test]
    fn one_line_that_is_too_long_is_dropped_and_a_short_one_is_not() {
        let quota = quota(100, 1);
        let now = Instant::now();
        assert_eq!(quota.check_at(2048, now), LogDecision::DropFirst);
        assert_eq!(quota.check_at(100, now), LogDecision::Write { dropped_before: 0 });
        assert_eq!(quota.check_at(2048, now), LogDecision::Drop);
        // The count survives a period that begins with another dropped line.
        assert_eq!(quota.check_at(2048, now + WINDOW), LogDecision::Drop);
        assert_eq!(quota.take_dropped(), 3);
        assert_eq!(quota.take_dropped(), 0, "they are reported once");
    }
}
