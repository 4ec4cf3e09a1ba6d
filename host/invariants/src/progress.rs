//! Whether a compaction made progress, and the limits of those that do not.

use std::collections::VecDeque;

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_kit::circuit_breaker::CircuitBreaker;

use super::InvariantSettings;

/// The window of the hourly limit, in milliseconds.
const HOUR_MS: u64 = 3_600_000;

/// Why a compaction made no progress. All numbers are tokens as entries count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgressError {
    /// The size did not shrink.
    #[error("the compaction went from {} to {} tokens and saved nothing", group_thousands(*before_tokens), group_thousands(*after_tokens))]
    Grew {
        /// The size before.
        before_tokens: u64,
        /// The size after.
        after_tokens: u64,
    },
    /// The size shrank by less than the error of an estimate.
    #[error(
        "the compaction went from {} to {} tokens and saved less than {}", group_thousands(*before_tokens), group_thousands(*after_tokens), group_thousands(*margin_tokens)
    )]
    SavedTooLittle {
        /// Before it.
        before_tokens: u64,
        /// After it.
        after_tokens: u64,
        /// The least to save.
        margin_tokens: u64,
    },
    /// The size is still above the target.
    #[error(
        "the compaction went from {} to {} tokens, above the {} it must fall to", group_thousands(*before_tokens), group_thousands(*after_tokens), group_thousands(*target_tokens)
    )]
    StillTooLarge {
        /// Before it.
        before_tokens: u64,
        /// After it.
        after_tokens: u64,
        /// The budget less the margin.
        target_tokens: u64,
    },
}

/// Checks a compaction by the sizes measured before and after it.
pub fn check_progress(
    before_tokens: u64,
    after_tokens: u64,
    budget_tokens: u64,
    settings: &InvariantSettings,
) -> Result<(), ProgressError> {
    let margin = settings.progress_margin;
    let target_tokens = budget_tokens.saturating_sub(margin.of_tokens(budget_tokens));
    let margin_tokens = margin.of_tokens(before_tokens.min(budget_tokens));
    // First, since growth is the worst of the three and the message should say so.
    if after_tokens >= before_tokens {
        return Err(ProgressError::Grew { before_tokens, after_tokens });
    }
    if after_tokens > target_tokens {
        return Err(ProgressError::StillTooLarge { before_tokens, after_tokens, target_tokens });
    }
    if before_tokens - after_tokens < margin_tokens {
        return Err(ProgressError::SavedTooLittle { before_tokens, after_tokens, margin_tokens });
    }
    Ok(())
}

impl ProgressError {
    /// Whether the compaction freed a substantial amount, although not enough. Not a sign of a
    /// loop, so no limit counts it.
    pub fn has_freed_room(&self, settings: &InvariantSettings) -> bool {
        match *self {
            ProgressError::StillTooLarge { before_tokens, after_tokens, .. } => {
                // Of the transcript and not of the budget: after a change to a small window one compaction may not reach the target, but may well have helped.
                let margin_tokens = settings.progress_margin.of_tokens(before_tokens).max(1);
                before_tokens.saturating_sub(after_tokens) >= margin_tokens
            }
            ProgressError::Grew { .. } | ProgressError::SavedTooLittle { .. } => false,
        }
    }
}

/// Stops compactions that fail repeatedly, or too often in an hour. One per session; the time is a
/// parameter, so that replays use recorded time.
#[derive(Clone, Debug)]
pub struct CompactionLimits {
    failures_max: u32,
    cooldown_ms: u64,
    hourly_max: u32,
    circuit: CircuitBreaker,
    /// Whether an attempt of the present request has failed since the last success.
    has_request_failed: bool,
    /// The ends of the newest compactions without progress, oldest first, as many as the hourly
    /// limit needs.
    recent_ms: VecDeque<i64>,
    /// The sizes at which compactions last freed too little.
    shortfall: Option<Shortfall>,
}

/// Sizes at which a compaction freed too little. All in tokens as entries count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shortfall {
    before_tokens: u64,
    budget_tokens: u64,
    margin_tokens: u64,
}

/// Why compactions are suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BreakerOpen {
    /// Too many consecutive failures.
    #[error("{failures} compactions in a row made no progress; the next try is in {} ms", group_thousands(*wait_ms))]
    Failures {
        /// Their number.
        failures: u32,
        /// The time until the next attempt, in milliseconds.
        wait_ms: u64,
    },
    /// Too many without progress within an hour.
    #[error(
        "{compactions} compactions without progress within an hour are the limit; the next is allowed in {} ms", group_thousands(*wait_ms)
    )]
    Hourly {
        /// Their number.
        compactions: u32,
        /// The time until the next attempt, in milliseconds.
        wait_ms: u64,
    },
    /// The same sizes were tried before, and the result was too large.
    #[error(
        "compactions of {} tokens stayed above a budget of {}; the next is tried once the session or the budget has changed by {} tokens", group_thousands(*before_tokens), group_thousands(*budget_tokens), group_thousands(*margin_tokens)
    )]
    Shortfall {
        /// The size that was compacted.
        before_tokens: u64,
        /// The budget it did not fit.
        budget_tokens: u64,
        /// The change of size that allows another attempt.
        margin_tokens: u64,
    },
}

impl CompactionLimits {
    /// The limits of a new session.
    pub fn new(settings: &InvariantSettings) -> CompactionLimits {
        CompactionLimits {
            failures_max: settings.breaker_failures,
            cooldown_ms: settings.breaker_cooldown_ms,
            hourly_max: settings.compactions_per_hour,
            circuit: CircuitBreaker::default(),
            has_request_failed: false,
            recent_ms: VecDeque::new(),
            shortfall: None,
        }
    }

    /// Starts a request. Its attempts ask for the same with more effort, so together they are one
    /// failure of the circuit breaker. The hourly limit counts each of them, because each costs.
    pub fn begin_request(&mut self) {
        self.has_request_failed = false;
    }

    /// Records progress, which is not limited.
    pub fn record_success(&mut self) {
        self.circuit.record_success();
        self.has_request_failed = false;
        // A transcript that could be compacted once is worth another try.
        self.shortfall = None;
    }

    /// Records a compaction that freed too little. The same sizes are not tried again; others are,
    /// at once.
    pub fn record_shortfall(
        &mut self,
        before_tokens: u64,
        budget_tokens: u64,
        settings: &InvariantSettings,
    ) {
        let margin_tokens = settings.progress_margin.of_tokens(budget_tokens).max(1);
        self.shortfall = Some(Shortfall { before_tokens, budget_tokens, margin_tokens });
    }

    /// Why compactions of these sizes are not tried again.
    pub fn repeated_shortfall(
        &self,
        before_tokens: u64,
        budget_tokens: u64,
    ) -> Option<BreakerOpen> {
        let last = self.shortfall?;
        let is_same = last.before_tokens.abs_diff(before_tokens) < last.margin_tokens
            && last.budget_tokens.abs_diff(budget_tokens) < last.margin_tokens;
        let Shortfall { before_tokens, budget_tokens, margin_tokens } = last;
        is_same.then_some(BreakerOpen::Shortfall { before_tokens, budget_tokens, margin_tokens })
    }

    /// Records a failed compaction, or one without progress. After the cooldown a single failure
    /// suspends them again.
    pub fn record_failure(&mut self, now_ms: i64) {
        if !std::mem::replace(&mut self.has_request_failed, true) {
            self.circuit.record_failure(now_ms);
        }
        self.recent_ms.push_back(now_ms);
        // No more than the limit needs, so that the list stays short in long sessions.
        while self.recent_ms.len() > self.hourly_max as usize {
            self.recent_ms.pop_front();
        }
    }

    /// Why no request may compact now; `None` where one may.
    pub fn open_reason(&self, now_ms: i64) -> Option<BreakerOpen> {
        self.failed_too_often(now_ms).or_else(|| self.ran_too_often(now_ms))
    }

    /// Why the present request may not try now. A request that may try once may try again.
    pub fn attempt_open_reason(&self, now_ms: i64) -> Option<BreakerOpen> {
        let is_retry = self.has_request_failed;
        if is_retry { self.ran_too_often(now_ms) } else { self.open_reason(now_ms) }
    }

    fn failed_too_often(&self, now_ms: i64) -> Option<BreakerOpen> {
        let wait_ms = self.circuit.open_ms(now_ms, self.failures_max, self.cooldown_ms)?;
        Some(BreakerOpen::Failures { failures: self.circuit.failures(), wait_ms })
    }

    fn ran_too_often(&self, now_ms: i64) -> Option<BreakerOpen> {
        // The absolute difference: a clock that was set back must not suspend compactions for
        // longer.
        let in_hour = |at_ms: &&i64| now_ms.abs_diff(**at_ms) < HOUR_MS;
        let recent: Vec<&i64> = self.recent_ms.iter().filter(in_hour).collect();
        let compactions = u32::try_from(recent.len()).unwrap_or(u32::MAX);
        if self.hourly_max == 0 || compactions < self.hourly_max {
            return None;
        }
        let oldest_ms = recent.first().map_or(now_ms, |at_ms| **at_ms);
        let wait_ms = HOUR_MS - now_ms.abs_diff(oldest_ms);
        Some(BreakerOpen::Hourly { compactions, wait_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records one failed request at each of these times.
    fn fail_at(breaker: &mut CompactionLimits, times_ms: &[i64]) {
        for at_ms in times_ms {
            breaker.begin_request();
            breaker.record_failure(*at_ms);
        }
    }

    #[test]
    fn the_attempts_of_a_request_are_one_failure() {
        let mut breaker = CompactionLimits::new(&InvariantSettings::default());
        for at_ms in [0, 10, 20] {
            assert_eq!(breaker.open_reason(at_ms), None, "{at_ms}");
            breaker.begin_request();
            for _ in 0..3 {
                assert_eq!(breaker.attempt_open_reason(at_ms), None, "{at_ms}");
                breaker.record_failure(at_ms);
            }
        }
        assert!(matches!(breaker.open_reason(30), Some(BreakerOpen::Failures { failures: 3, .. })));
        breaker.begin_request();
        assert!(breaker.attempt_open_reason(30).is_some());
        // Each attempt counts for the hourly limit.
        let settings =
            InvariantSettings { compactions_per_hour: 2, ..InvariantSettings::default() };
        let mut breaker = CompactionLimits::new(&settings);
        breaker.begin_request();
        (0..2).for_each(|_| breaker.record_failure(0));
        assert!(matches!(breaker.attempt_open_reason(1), Some(BreakerOpen::Hourly { .. })));
    }

    fn check(before: u64, after: u64, expected: Result<(), ProgressError>) {
        assert_eq!(check_progress(before, after, 1_000, &InvariantSettings::default()), expected);
    }

    #[test]
    fn only_a_real_gain_below_the_target_counts() {
        check(1_200, 950, Ok(()));
        let large = ProgressError::StillTooLarge {
            before_tokens: 1_200,
            after_tokens: 951,
            target_tokens: 950,
        };
        check(1_200, 951, Err(large));
        check(1_200, 1_200, Err(ProgressError::Grew { before_tokens: 1_200, after_tokens: 1_200 }));
        check(100, 228, Err(ProgressError::Grew { before_tokens: 100, after_tokens: 228 }));
        let little = ProgressError::SavedTooLittle {
            before_tokens: 400,
            after_tokens: 381,
            margin_tokens: 20,
        };
        check(400, 381, Err(little));
        check(400, 380, Ok(()));
    }

    #[test]
    fn three_failures_open_it_for_the_cooldown() {
        let mut breaker = CompactionLimits::new(&InvariantSettings::default());
        fail_at(&mut breaker, &[0, 10]);
        assert_eq!(breaker.open_reason(10), None);
        fail_at(&mut breaker, &[20]);
        assert_eq!(
            breaker.open_reason(30),
            Some(BreakerOpen::Failures { failures: 3, wait_ms: 599_990 })
        );
        assert_eq!(breaker.open_reason(600_020), None);
        fail_at(&mut breaker, &[600_020]);
        assert!(breaker.open_reason(600_021).is_some(), "one failure after the cooldown is enough");
        breaker.record_success();
        assert_eq!(breaker.open_reason(1_300_000), None);
    }

    #[test]
    fn a_success_resets_the_failures() {
        let mut breaker = CompactionLimits::new(&InvariantSettings::default());
        for at_ms in 0..10 {
            fail_at(&mut breaker, &[at_ms, at_ms]);
            breaker.record_success();
        }
        assert!(!matches!(breaker.open_reason(9), Some(BreakerOpen::Failures { .. })));
    }

    #[test]
    fn a_clock_set_back_does_not_hold_it_open() {
        let mut breaker = CompactionLimits::new(&InvariantSettings::default());
        fail_at(&mut breaker, &[10_000_000; 3]);
        assert!(breaker.open_reason(9_999_000).is_some());
        assert_eq!(breaker.open_reason(0), None);
    }

    #[test]
    fn compactions_without_progress_are_limited_per_hour() {
        let settings =
            InvariantSettings { compactions_per_hour: 2, ..InvariantSettings::default() };
        let mut breaker = CompactionLimits::new(&settings);
        breaker.record_failure(0);
        assert_eq!(breaker.open_reason(1), None);
        breaker.record_failure(1_000);
        let wait_ms = HOUR_MS - 2_000;
        assert_eq!(
            breaker.open_reason(2_000),
            Some(BreakerOpen::Hourly { compactions: 2, wait_ms })
        );
        assert_eq!(breaker.open_reason(HOUR_MS as i64), None);
        let unlimited =
            InvariantSettings { compactions_per_hour: 0, ..InvariantSettings::default() };
        let mut breaker = CompactionLimits::new(&unlimited);
        breaker.record_failure(0);
        breaker.record_failure(1);
        assert_eq!(breaker.open_reason(2), None);
    }

    #[test]
    fn compactions_that_make_progress_have_no_limit() {
        let mut breaker = CompactionLimits::new(&InvariantSettings::default());
        for _ in 0..1_000 {
            breaker.record_success();
        }
        assert_eq!(breaker.open_reason(0), None);
    }

    #[test]
    fn a_shortfall_suspends_only_the_same_sizes() {
        let settings = InvariantSettings::default();
        let stuck = check_progress(20_000, 3_000, 1_000, &settings).unwrap_err();
        assert!(stuck.has_freed_room(&settings));
        let little = check_progress(20_000, 19_500, 1_000, &settings).unwrap_err();
        assert!(!little.has_freed_room(&settings), "2.5 % is within the margin");
        let mut breaker = CompactionLimits::new(&settings);
        (0..9).for_each(|_| breaker.record_shortfall(20_000, 1_000, &settings));
        assert_eq!(breaker.open_reason(0), None);
        assert!(breaker.repeated_shortfall(20_010, 1_000).is_some());
        assert_eq!(breaker.repeated_shortfall(20_050, 1_000), None, "the session has grown");
        assert_eq!(breaker.repeated_shortfall(20_000, 30_000), None, "another budget");
        breaker.record_success();
        assert_eq!(breaker.repeated_shortfall(20_000, 1_000), None);
    }
}
