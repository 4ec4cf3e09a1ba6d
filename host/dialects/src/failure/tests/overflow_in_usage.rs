//! Overflows in the usage alone, and the words of compactions.

use super::CLASSIFIER;
use crate::failure::compaction::{Skipped, is_compaction_failure};
use crate::failure::{SilentOverflow, cut_short, silent_overflow};
use crate::message::{StopReason, Usage};

const WINDOW_TOKENS: u64 = 200_000;

fn check(prompt: u64, output: u64, stop: StopReason, expected: Option<SilentOverflow>) {
    // However a provider splits its count, each token counts once.
    let split =
        Usage { input: prompt - prompt / 2, cache_read: prompt / 2, output, ..Usage::default() };
    let whole = Usage { input: prompt, output, ..Usage::default() };
    for usage in [split, whole] {
        assert_eq!(silent_overflow(&usage, stop, "", WINDOW_TOKENS), expected, "{usage:?}");
    }
}

#[test]
fn the_recorded_numbers() {
    check(201_000, 5, StopReason::Stop, Some(SilentOverflow::BeyondWindow));
    check(200_000, 5, StopReason::Stop, None);
    check(198_000, 0, StopReason::Length, Some(SilentOverflow::NoRoomToAnswer));
    check(197_999, 0, StopReason::Length, None);
    check(198_000, 1, StopReason::Length, None);
    check(201_000, 5, StopReason::Error, None);
    check(u64::MAX, 5, StopReason::ToolUse, Some(SilentOverflow::BeyondWindow));
}

#[test]
fn a_stop_reason_says_it_even_where_the_window_is_unknown() {
    let of = |raw| silent_overflow(&Usage::default(), StopReason::Length, raw, 0);
    assert_eq!(of("model_context_window_exceeded"), Some(SilentOverflow::Named));
    assert_eq!(of("max_tokens"), None);
    let large = Usage { input: 5_000_000, ..Usage::default() };
    assert_eq!(silent_overflow(&large, StopReason::Stop, "stop", 0), None);
}

#[test]
fn an_answer_is_cut_short_below_the_limit_that_was_asked_for() {
    let usage = Usage { output: 100, ..Usage::default() };
    assert!(cut_short(&usage, StopReason::Length, 4_096));
    assert!(!cut_short(&usage, StopReason::Length, 100));
    assert!(!cut_short(&usage, StopReason::Stop, 4_096));
    assert!(!cut_short(&Usage::default(), StopReason::Length, 4_096));
}

#[test]
fn reasons_of_compactions_have_classes() {
    let cases = [
        ("auth_failed: no key", Skipped::AuthFailed),
        ("No API key found for provider \"anthropic\"", Skipped::AuthFailed),
        ("Nothing to compact (session too small)", Skipped::NothingToCompact),
        ("no real conversation messages", Skipped::NothingToCompact),
        ("below threshold", Skipped::BelowThreshold),
        ("already under target", Skipped::BelowThreshold),
        ("Already compacted", Skipped::AlreadyCompacted),
        ("deferred to the background", Skipped::Deferred),
        ("live context still exceeds target", Skipped::StillTooLarge),
        ("transcript persistence failed", Skipped::NotWritten),
        ("cancelled by the quality guard", Skipped::Guarded),
        ("the safeguard timed out", Skipped::Timeout),
        ("no usable summary", Skipped::SummaryFailed),
        ("timeout after 180 s", Skipped::Timeout),
        ("HTTP 429 from provider", Skipped::ProviderRefused),
        ("HTTP 503 from provider", Skipped::ProviderFailed),
        ("saw 5000 tokens", Skipped::Unknown),
    ];
    for (reason, class) in cases {
        assert_eq!(Skipped::of(reason), class, "{reason}");
    }
    assert!(Skipped::NothingToCompact.is_harmless(true));
    assert!(!Skipped::NothingToCompact.is_harmless(false));
    assert!(Skipped::BelowThreshold.is_harmless(false));
    assert!(!Skipped::Timeout.is_harmless(true));
}

#[test]
fn a_compaction_that_overflows_is_told_from_a_turn_that_does() {
    let of = |text| is_compaction_failure(text, &CLASSIFIER);
    assert!(of("Summarization failed: prompt is too long"));
    assert!(of("Compaction stopped: context overflow"));
    assert!(!of("prompt is too long"));
    assert!(!of("Summarization failed: rate limit"));
}
