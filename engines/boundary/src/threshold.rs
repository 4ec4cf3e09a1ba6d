//! The compaction threshold: the published rule, converted to the host's token estimates.
//!
//! ```text
//!  provider tokens   0 ───────────────── threshold ── buffer, output ── window
//!  budget            0 ───────────────── here ─── budget   (= window - the host's reserve)
//! ```

use ctxhost_engine_kit::budget::RequestBudget;

use crate::settings::ThresholdSettings;

/// The size from which a transcript is compacted, in estimated tokens: the smaller of the rule and
/// the host's budget.
pub(crate) fn threshold_tokens(room: &RequestBudget, settings: &ThresholdSettings) -> u64 {
    // The budget corresponds to the window without the reserve, so the rule takes the same share of
    // it. What system prompt and tools take changes the result by less than a hundredth of the
    // window.
    let usable_tokens = room.window_tokens.saturating_sub(room.reserve_tokens);
    let rule_tokens = provider_tokens(room.window_tokens, settings);
    // Also for an unknown window, where both are 0.
    if rule_tokens >= usable_tokens {
        return room.budget_tokens;
    }
    let share = rule_tokens as f64 / usable_tokens as f64;
    (room.budget_tokens as f64 * share) as u64
}

/// The rule in provider tokens.
fn provider_tokens(window_tokens: u64, settings: &ThresholdSettings) -> u64 {
    let percent_of = |percent: u64| (window_tokens as f64 * percent as f64 / 100.0) as u64;
    if settings.percent > 0 {
        return percent_of(settings.percent);
    }
    let held_free = settings.output_tokens.saturating_add(settings.buffer_tokens);
    // In a small window output and buffer would take more than half.
    window_tokens.saturating_sub(held_free).max(percent_of(settings.min_percent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_in_provider_tokens() {
        let settings = ThresholdSettings::default();
        for (window, tokens) in
            [(200_000, 171_000), (100_000, 71_000), (64_000, 41_600), (32_000, 20_800), (0, 0)]
        {
            assert_eq!(provider_tokens(window, &settings), tokens, "{window}");
        }
        let by_percent = ThresholdSettings { percent: 30, ..settings };
        assert_eq!(provider_tokens(200_000, &by_percent), 60_000);
    }

    #[test]
    fn the_smaller_of_rule_and_budget_counts() {
        let settings = ThresholdSettings::default();
        let check = |window_tokens, reserve_tokens, budget_tokens, expected| {
            let room = RequestBudget { budget_tokens, reserve_tokens, window_tokens };
            assert_eq!(threshold_tokens(&room, &settings), expected, "{room:?}");
        };
        // 171,000 provider tokens at the host's margin of 1.2.
        check(200_000, 20_000, 150_000, 142_500);
        check(200_000, 40_000, 133_333, 133_333);
        check(0, 0, 10_000, 10_000);
        check(200_000, 20_000, 0, 0);
    }
}
