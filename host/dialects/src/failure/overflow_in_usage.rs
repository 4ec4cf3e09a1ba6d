//! Detects overflows that a provider accepts: they show only in the token counts.

use super::phrases::OVERFLOW_CODES;
use crate::message::{StopReason, TokenUsage};

/// Share of the window, in percent, above which a prompt without output shows a full window. Not
/// 100, because servers that cut a prompt keep a few tokens for their template.
const FULL_WINDOW_PERCENT: u128 = 99;

/// How an answer shows that its request was too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilentOverflow {
    /// By the provider's stop reason.
    ByStopReason,
    /// The prompt's count exceeds the window.
    BeyondWindow,
    /// The prompt was cut to fit and left no room for output.
    NoAnswerBudget,
}

impl std::fmt::Display for SilentOverflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SilentOverflow::ByStopReason => "the model stopped because its window was full",
            SilentOverflow::BeyondWindow => "the prompt exceeded the window",
            SilentOverflow::NoAnswerBudget => {
                "the prompt filled the window and left no room for an answer"
            }
        })
    }
}

/// Detects that the request of an answer was too large.
///
/// `window_tokens` is the window in provider tokens. If it is 0 (unknown), only the stop reason is
/// checked.
pub fn detect_silent_overflow(
    usage: &TokenUsage,
    stop: StopReason,
    raw_stop: &str,
    window_tokens: u64,
) -> Option<SilentOverflow> {
    if OVERFLOW_CODES.iter().any(|code| raw_stop.eq_ignore_ascii_case(code)) {
        return Some(SilentOverflow::ByStopReason);
    }
    if window_tokens == 0 || matches!(stop, StopReason::Error | StopReason::Aborted) {
        return None;
    }
    if usage.prompt_tokens() > window_tokens {
        return Some(SilentOverflow::BeyondWindow);
    }
    let is_mute = stop == StopReason::Length && usage.output == 0;
    (is_mute && fills(usage.prompt_tokens(), window_tokens))
        .then_some(SilentOverflow::NoAnswerBudget)
}

/// Whether the answer ended before its requested limit, because the window was full.
///
/// A compaction and one retry may help. A second answer like this is the model's own behaviour.
pub fn is_cut_short(usage: &TokenUsage, stop: StopReason, asked_output_tokens: u64) -> bool {
    stop == StopReason::Length && usage.output > 0 && usage.output < asked_output_tokens
}

fn fills(prompt_tokens: u64, window_tokens: u64) -> bool {
    u128::from(prompt_tokens) * 100 >= u128::from(window_tokens) * FULL_WINDOW_PERCENT
}
