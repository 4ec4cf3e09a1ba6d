//! Overflows in the usage alone, and the words of compactions.

use super::CLASSIFIER;
use crate::failure::compaction::{SkipReason, is_compaction_failure};
use crate::failure::{SilentOverflow, detect_silent_overflow, is_cut_short};
use crate::message::{StopReason, TokenUsage};

const WINDOW_TOKENS: u64 = 200_000;

fn check(prompt: u64, output: u64, stop: StopReason, expected: Option<SilentOverflow>) {
    // However a provider splits its count, each token counts once.
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
fn a_stop_reason_says_it_even_where_the_window_is_unknown() {
    let of = |raw| detect_silent_overflow(&TokenUsage::default(), StopReason::Length, raw, 0);
    assert_eq!(of("model_context_window_exceeded"), Some(SilentOverflow::ByStopReason));
    assert_eq!(of("max_tokens"), None);
    let large = TokenUsage { input: 5_000_000, ..TokenUsage::default() };
    assert_eq!(detect_silent_overflow(&large, StopReason::Stop, "stop", 0), None);
}

#[test]
fn an_answer_is_cut_short_below_the_limit_that_was_asked_for() {
    let usage = TokenUsage { output: 100, ..TokenUsage::default() };
    assert!(is_cut_short(&usage, StopReason::Length, 4_096));
    assert!(!is_cut_short(&usage, StopReason::Length, 100));
    assert!(!is_cut_short(&usage, StopReason::Stop, 4_096));
    assert!(!is_cut_short(&TokenUsage::default(), StopReason::Length, 4_096));
}

#[test]
fn reasons_of_compactions_have_classes() {
    let cases = [
        ("auth_failed: no key", SkipReason::AuthFailed),
        ("No API key found for provider \"anthropic\"", SkipReason::AuthFailed),
        ("Nothing to compact (session too small)", SkipReason::NothingToCompact),
        ("no real conversation messages", SkipReason::NothingToCompact),
        ("below threshold", SkipReason::BelowThreshold),
        ("already under target", SkipReason::BelowThreshold),
        ("Already compacted", SkipReason::AlreadyCompacted),
        ("deferred to the background", SkipReason::Deferred),
        ("live context still exceeds target", SkipReason::StillTooLarge),
        ("transcript persistence failed", SkipReason::WriteFailed),
        ("cancelled by the quality guard", SkipReason::RejectedByGuard),
        ("the safeguard timed out", SkipReason::Timeout),
        ("no usable summary", SkipReason::SummaryFailed),
        ("timeout after 180 s", SkipReason::Timeout),
        ("HTTP 429 from provider", SkipReason::ProviderRefused),
        ("HTTP 503 from provider", SkipReason::ProviderFailed),
        ("saw 5000 tokens", SkipReason::Unknown),
    ];
    for (reason, class) in cases {
        assert_eq!(SkipReason::from_text(reason), class, "{reason}");
    }
    assert!(SkipReason::NothingToCompact.is_harmless(true));
    assert!(!SkipReason::NothingToCompact.is_harmless(false));
    assert!(SkipReason::BelowThreshold.is_harmless(false));
    assert!(!SkipReason::Timeout.is_harmless(true));
}

#[test]
fn a_compaction_that_overflows_is_told_from_a_turn_that_does() {
    let of = |text| is_compaction_failure(text, &CLASSIFIER);
    assert!(of("Summarization failed: prompt is too long"));
    assert!(of("Compaction stopped: context overflow"));
    assert!(!of("prompt is too long"));
    assert!(!of("Summarization failed: rate limit"));
}
