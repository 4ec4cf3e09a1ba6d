//! Overflows that show only in the token counts.

use crate::failure::{SilentOverflow, detect_silent_overflow, is_cut_short};
use crate::message::{StopReason, TokenUsage};

const WINDOW_TOKENS: u64 = 200_000;

fn check(prompt: u64, output: u64, stop: StopReason, expected: Option<SilentOverflow>) {
    // Each token counts once, however the provider splits its count.
    let split = TokenUsage {
        input: prompt - prompt / 2,
        cache_read: prompt / 2,
        output,
        ..TokenUsage::default()
    };
    let whole = TokenUsage { input: prompt, output, ..TokenUsage::default() };
    for usage in [split, whole] {
        assert_eq!(detect_silent_overflow(&usage, stop, "", WINDOW_TOKENS), expected, "{usage:?}");
    }
}

#[test]
fn the_recorded_numbers() {
    check(201_000, 5, StopReason::Stop, Some(SilentOverflow::BeyondWindow));
    check(200_000, 5, StopReason::Stop, None);
    check(198_000, 0, StopReason::Length, Some(SilentOverflow::NoAnswerBudget));
    check(197_999, 0, StopReason::Length, None);
    check(198_000, 1, StopReason::Length, None);
    check(201_000, 5, StopReason::Error, None);
    check(u64::MAX, 5, StopReason::ToolUse, Some(SilentOverflow::BeyondWindow));
}

#[test]
fn a_stop_reason_shows_it_without_a_known_window() {
    let detect = |raw| detect_silent_overflow(&TokenUsage::default(), StopReason::Length, raw, 0);
    assert_eq!(detect("model_context_window_exceeded"), Some(SilentOverflow::ByStopReason));
    assert_eq!(detect("max_tokens"), None);
    let large = TokenUsage { input: 5_000_000, ..TokenUsage::default() };
    assert_eq!(detect_silent_overflow(&large, StopReason::Stop, "stop", 0), None);
}

#[test]
fn an_answer_is_cut_short_below_the_requested_limit() {
    let usage = TokenUsage { output: 100, ..TokenUsage::default() };
    assert!(is_cut_short(&usage, StopReason::Length, 4_096));
    assert!(!is_cut_short(&usage, StopReason::Length, 100));
    assert!(!is_cut_short(&usage, StopReason::Stop, 4_096));
    assert!(!is_cut_short(&TokenUsage::default(), StopReason::Length, 4_096));
}
