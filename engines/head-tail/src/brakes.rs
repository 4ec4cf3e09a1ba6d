//! When not to try: a model that has just failed, compactions that have just not helped.
//!
//! Time is the request's, so that a replay brakes where the session did.

use ctxhost_engine_kit::settings::share_of;

use crate::settings::Settings;

/// So many compactions in a row that saved too little are no accident.
const MAX_WEAK: u32 = 2;

/// The brakes of one session.
#[derive(Debug, Default)]
pub(crate) struct Brakes {
    model_failed_ms: Option<i64>,
    weak: u32,
    weak_ms: i64,
}

impl Brakes {
    /// Whether a model may be asked.
    pub(crate) fn may_ask_model(&self, now_ms: i64, settings: &Settings) -> bool {
        self.model_failed_ms.is_none_or(|failed_ms| wait_ms(failed_ms, now_ms, settings) == 0)
    }

    /// A model was asked for a summary.
    pub(crate) fn record_model(&mut self, failed: bool, now_ms: i64) {
        self.model_failed_ms = failed.then_some(now_ms);
    }

    /// Why nothing is compacted now; `None` where it may be tried.
    pub(crate) fn resting(&self, now_ms: i64, settings: &Settings) -> Option<String> {
        let wait_ms = wait_ms(self.weak_ms, now_ms, settings);
        (self.weak >= MAX_WEAK && wait_ms > 0).then(|| {
            format!(
                "backing off: {} compactions in a row saved less than {:.0} %; the next try is in {} s",
                self.weak,
                settings.min_saving_share * 100.0,
                wait_ms.div_ceil(1_000)
            )
        })
    }

    /// A compaction was worked out. After the rest a single weak one is enough to rest again.
    pub(crate) fn record_saving(
        &mut self,
        before_tokens: u64,
        after_tokens: u64,
        now_ms: i64,
        settings: &Settings,
    ) {
        let saved_tokens = before_tokens.saturating_sub(after_tokens);
        if saved_tokens >= share_of(before_tokens, settings.min_saving_share).max(1) {
            self.weak = 0;
        } else {
            self.weak = self.weak.saturating_add(1);
            self.weak_ms = now_ms;
        }
    }

    /// A person asked: whatever was braked may be tried again.
    pub(crate) fn release(&mut self) {
        *self = Brakes::default();
    }
}

/// What is left of the cooldown. A clock that was set back must not prolong it.
fn wait_ms(since_ms: i64, now_ms: i64, settings: &Settings) -> u64 {
    settings.cooldown_ms.saturating_sub(now_ms.abs_diff(since_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_failed_rests_for_ten_minutes() {
        let (mut brakes, settings) = (Brakes::default(), Settings::default());
        assert!(brakes.may_ask_model(0, &settings));
        brakes.record_model(true, 1_000);
        assert!(!brakes.may_ask_model(600_999, &settings));
        assert!(brakes.may_ask_model(601_000, &settings));
        brakes.record_model(false, 601_000);
        assert!(brakes.may_ask_model(601_001, &settings));
    }

    #[test]
    fn two_weak_compactions_in_a_row_rest_and_say_so() {
        let (mut brakes, settings) = (Brakes::default(), Settings::default());
        brakes.record_saving(1_000, 950, 0, &settings);
        assert_eq!(brakes.resting(0, &settings), None);
        brakes.record_saving(1_000, 900, 5, &settings);
        brakes.record_saving(1_000, 901, 10, &settings);
        assert_eq!(brakes.resting(10, &settings), None, "the one between them helped");
        brakes.record_saving(1_000, 1_000, 20, &settings);
        let reason = brakes.resting(60_020, &settings).unwrap();
        assert!(reason.contains("2 compactions in a row saved less than 10 %"), "{reason}");
        assert!(reason.ends_with("in 540 s"), "{reason}");
        assert_eq!(brakes.resting(600_020, &settings), None);
        brakes.record_saving(1_000, 1_000, 600_020, &settings);
        assert!(brakes.resting(600_021, &settings).is_some());
        brakes.release();
        assert_eq!(brakes.resting(600_021, &settings), None);
    }
}
