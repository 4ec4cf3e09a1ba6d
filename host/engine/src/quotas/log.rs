//! How much an engine may say in the log: lines and bytes within a minute. The rest is counted.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Quotas;

/// What the limits are for.
const WINDOW: Duration = Duration::from_secs(60);

/// The log of one engine.
#[derive(Debug)]
pub(crate) struct LogQuota {
    lines: u64,
    bytes: u64,
    minute: Mutex<LogWindow>,
}

/// What was said since a moment.
#[derive(Debug)]
struct LogWindow {
    began: Instant,
    lines: u64,
    bytes: u64,
    left_out: u64,
}

impl LogWindow {
    fn starting_at(now: Instant) -> LogWindow {
        LogWindow { began: now, lines: 0, bytes: 0, left_out: 0 }
    }
}

/// What becomes of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogDecision {
    /// It is written. So many of the minute before were not.
    Write {
        /// Lines left out.
        dropped_before: u64,
    },
    /// It is the first of this minute that is left out.
    DropFirst,
    /// It is left out.
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

    /// Judges a line of so many bytes.
    pub(crate) fn check(&self, bytes: usize) -> LogDecision {
        self.check_at(bytes as u64, Instant::now())
    }

    fn check_at(&self, bytes: u64, now: Instant) -> LogDecision {
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out_before = 0;
        if now.duration_since(minute.began) >= WINDOW {
            left_out_before = minute.left_out;
            *minute = LogWindow::starting_at(now);
        }
        let fits = minute.lines < self.lines && minute.bytes.saturating_add(bytes) <= self.bytes;
        if !fits {
            // What the minute before left out is told with the line that is written next.
            minute.left_out += left_out_before + 1;
            return match minute.left_out == 1 {
                true => LogDecision::DropFirst,
                false => LogDecision::Drop,
            };
        }
        minute.lines += 1;
        minute.bytes += bytes;
        LogDecision::Write { dropped_before: left_out_before }
    }

    /// Lines left out since this was asked last, or since a line after them was written.
    pub(crate) fn take_dropped(&self) -> u64 {
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut minute.left_out)
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
    fn lines_past_the_limit_are_counted_and_told_in_the_next_minute() {
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
    fn one_line_that_is_too_long_is_left_out_and_a_short_one_is_not() {
        let quota = quota(100, 1);
        let now = Instant::now();
        assert_eq!(quota.check_at(2048, now), LogDecision::DropFirst);
        assert_eq!(quota.check_at(100, now), LogDecision::Write { dropped_before: 0 });
        assert_eq!(quota.check_at(2048, now), LogDecision::Drop);
        // Nothing that was left out is forgotten where the next minute begins with another such line.
        assert_eq!(quota.check_at(2048, now + WINDOW), LogDecision::Drop);
        assert_eq!(quota.take_dropped(), 3);
        assert_eq!(quota.take_dropped(), 0, "they are told once");
    }
}
