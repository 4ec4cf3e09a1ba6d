//! Cooldowns after failed model calls and after compactions that saved too little.
//!
//! The caller passes the request's time, so that replays are deterministic.

use ctxhost_engine_kit::circuit_breaker::CircuitBreaker;
use ctxhost_engine_kit::settings::share_of;

use crate::settings::Settings;

/// Compactions in a row that saved too little before a cooldown starts.
const MAX_WEAK: u32 = 2;

/// The sizes of a transcript before and after a compaction, in tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionSizes {
    pub(crate) before_tokens: u64,
    pub(crate) after_tokens: u64,
    /// What no invariant keeps.
    pub(crate) removable_tokens: u64,
}

/// The cooldowns of one session.
#[derive(Debug, Default)]
pub(crate) struct Cooldowns {
    model: CircuitBreaker,
    /// Counts compactions that saved too little.
    saving: CircuitBreaker,
}

impl Cooldowns {
    /// Whether a model may be called.
    pub(crate) fn may_ask_model(&self, now_ms: i64, settings: &Settings) -> bool {
        self.model.open_ms(now_ms, 1, settings.cooldown_ms).is_none()
    }

    /// Records the outcome of a model call.
    pub(crate) fn record_model(&mut self, failed: bool, now_ms: i64) {
        if failed {
            self.model.record_failure(now_ms);
        } else {
            self.model.record_success();
        }
    }

    /// The reason not to compact; `None` if it is allowed.
    pub(crate) fn backoff_reason(&self, now_ms: i64, settings: &Settings) -> Option<String> {
        let wait_ms = self.saving.open_ms(now_ms, MAX_WEAK, settings.cooldown_ms)?;
        Some(format!(
            "backing off: {} compactions in a row saved less than {:.0} %; the next try is in {} s",
            self.saving.failures(),
            settings.min_saving_share * 100.0,
            wait_ms.div_ceil(1_000)
        ))
    }

    /// Records the saving of a compaction. After a cooldown one weak compaction starts the next
    /// one.
    pub(crate) fn record_saving(
        &mut self,
        sizes: CompactionSizes,
        now_ms: i64,
        settings: &Settings,
    ) {
        let saved_tokens = sizes.before_tokens.saturating_sub(sizes.after_tokens);
        let least_tokens = share_of(sizes.before_tokens, settings.min_saving_share).max(1);
        // A huge newest message stays whatever a compaction does, and is a part of the middle one turn later.
        if sizes.removable_tokens < least_tokens {
            return;
        }
        if saved_tokens >= least_tokens {
            self.saving.record_success();
        } else {
            self.saving.record_failure(now_ms);
        }
    }

    /// Ends all cooldowns: a user requested a compaction.
    pub(crate) fn reset(&mut self) {
        *self = Cooldowns::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saving(after_tokens: u64) -> CompactionSizes {
        CompactionSizes { before_tokens: 1_000, after_tokens, removable_tokens: 500 }
    }

    #[test]
    fn a_model_that_failed_rests_for_ten_minutes() {
        let (mut cooldowns, settings) = (Cooldowns::default(), Settings::default());
        assert!(cooldowns.may_ask_model(0, &settings));
        cooldowns.record_model(true, 1_000);
        assert!(!cooldowns.may_ask_model(600_999, &settings));
        assert!(cooldowns.may_ask_model(601_000, &settings));
        cooldowns.record_model(false, 601_000);
        assert!(cooldowns.may_ask_model(601_001, &settings));
    }

    #[test]
    fn two_weak_compactions_in_a_row_start_a_cooldown() {
        let (mut cooldowns, settings) = (Cooldowns::default(), Settings::default());
        cooldowns.record_saving(saving(950), 0, &settings);
        assert_eq!(cooldowns.backoff_reason(0, &settings), None);
        cooldowns.record_saving(saving(900), 5, &settings);
        cooldowns.record_saving(saving(901), 10, &settings);
        assert_eq!(cooldowns.backoff_reason(10, &settings), None, "the one between them helped");
        cooldowns.record_saving(saving(1_000), 20, &settings);
        let reason = cooldowns.backoff_reason(60_020, &settings).unwrap();
        assert!(reason.contains("2 compactions in a row saved less than 10 %"), "{reason}");
        assert!(reason.ends_with("in 540 s"), "{reason}");
        assert_eq!(cooldowns.backoff_reason(600_020, &settings), None);
        cooldowns.record_saving(saving(1_000), 600_020, &settings);
        assert!(cooldowns.backoff_reason(600_021, &settings).is_some());
        cooldowns.reset();
        assert_eq!(cooldowns.backoff_reason(600_021, &settings), None);
    }

    #[test]
    fn a_compaction_that_could_save_nothing_does_not_count() {
        let (mut cooldowns, settings) = (Cooldowns::default(), Settings::default());
        let unavoidable = CompactionSizes { removable_tokens: 99, ..saving(1_000) };
        (0..4).for_each(|_| cooldowns.record_saving(unavoidable, 0, &settings));
        assert_eq!(cooldowns.backoff_reason(0, &settings), None);
    }
}
