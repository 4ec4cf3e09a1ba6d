//! Overflows that no provider calls an error: they show in the usage alone.

use super::phrases::OVERFLOW_CODES;
use crate::message::{StopReason, TokenUsage};

/// Percent of a window from which a length stop without any output means that there was no room.
/// 99, because servers that cut a prompt keep a few tokens for their template.
const FULL_WINDOW_PERCENT: u128 = 99;

/// How an answer shows that its request was too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilentOverflow {
    /// The provider's stop reason says so.
    ByStopReason,
    /// More prompt was counted than the window holds, and it was accepted.
    BeyondWindow,
    /// The prompt was cut until it just fitted, and nothing could be answered.
    NoAnswerBudget,
}

impl std::fmt::Display for SilentOverflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SilentOverflow::ByStopReason => "the model stopped because its window was full",
            SilentOverflow::BeyondWindow => "more was counted than the window holds",
            SilentOverflow::NoAnswerBudget => {
                "the prompt filled the window and nothing could be answered"
            }
        })
    }
}

/// Whether an answer that came without an error belongs to a request that was too large.
///
/// `window_tokens` is the context window in provider tokens; with 0, an unknown one, only the stop
/// reason can tell.
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

/// Whether an answer was cut off before the limit of output that was asked for: the window was full.
///
/// One compaction and one repetition may help; a second such answer is the model's own way.
pub fn is_cut_short(usage: &TokenUsage, stop: StopReason, asked_output_tokens: u64) -> bool {
    stop == StopReason::Length && usage.output > 0 && usage.output < asked_output_tokens
}

fn fills(prompt_tokens: u64, window_tokens: u64) -> bool {
    u128::from(prompt_tokens) * 100 >= u128::from(window_tokens) * FULL_WINDOW_PERCENT
}
