//! Whether a server cut a prompt, or ran out of window, and said nothing.
//!
//! Ollama answers 200 to a prompt that does not fit: it reads about half a window of its end, and the
//! system prompt is gone. The only sign is a count that is too small. A count is too small for honest
//! reasons as well: an estimate errs, and old servers leave out what they had cached. So a verdict
//! needs one of:
//!
//! ```text
//!  more was counted than the window holds                        ─► Overrun     (z.ai)
//!  the window is full and nothing came out                       ─► NoRoom      (Xiaomi MiMo)
//!  the count is what a cut leaves of a window, to the token      ─► Cut         (Ollama)
//!  the same once more, to the token, though the prompt grew:
//!  at any size                                                   ─► Cut
//!  more was sent for certain than the window holds               ─► Cut
//!  less was counted than last time and what came after it hold,
//!  and this server has been seen to count what it had cached     ─► Cut
//! ```
//!
//! The first two show in the usage alone and are told by
//! [`detect_silent_overflow`]. After a verdict the count is of another prompt than the one that was sent:
//! nothing may be calibrated by it.

mod fingerprint;

#[cfg(test)]
mod tests;

use ctxhost_dialects::failure::{SilentOverflow, detect_silent_overflow};
use ctxhost_dialects::message::{StopReason, TokenUsage};

/// What was sent, as the host knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPrompt {
    /// The whole prompt: system, tools and messages.
    pub prompt_tokens: u64,
    /// How much of it stands for images, whose price differs tenfold between models.
    pub image_tokens: u64,
    /// How the prompt was counted.
    pub basis: CountBasis,
    /// The window that the server was told of, or that it is known for; 0 where nobody knows.
    pub window_tokens: u64,
}

/// How a prompt was counted before it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountBasis {
    /// By the tokenizer of the provider.
    Tokenizer,
    /// From the provider's count of an earlier prompt, and an estimate of what came after it.
    Anchored,
    /// By its characters.
    Estimated,
}

impl CountBasis {
    /// The part of the count that is there at least, in percent.
    ///
    /// Guesses halve at worst for prose and code in our measure of characters; logs full of spaces
    /// do worse, which is why a guess alone convicts nobody of a cut below the window.
    fn floor_percent(self) -> u64 {
        match self {
            CountBasis::Tokenizer => 97,
            CountBasis::Anchored => 80,
            CountBasis::Estimated => 50,
        }
    }
}

impl SentPrompt {
    /// What was sent for certain.
    fn floor_tokens(&self) -> u64 {
        let sure = self.prompt_tokens.saturating_sub(self.image_tokens);
        sure.saturating_mul(self.basis.floor_percent()) / 100
    }
}

/// What is known of the counts of one session and its model. It lives as long as both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountHistory {
    sent_tokens: u64,
    counted_tokens: u64,
    counts_cached: bool,
}

impl CountHistory {
    /// The counts after one more answer without a verdict. `grew` says that the prompt was the one
    /// before with something after it.
    #[must_use]
    pub fn with_answer(self, sent: &SentPrompt, usage: &TokenUsage, grew: bool) -> CountHistory {
        let counted_tokens = usage.prompt_tokens();
        let shows_cache = usage.cache_read > 0;
        let counts_cached = self.counts_cached
            || shows_cache
            || (grew && self.includes_previous(sent.prompt_tokens, counted_tokens));
        CountHistory { sent_tokens: sent.prompt_tokens, counted_tokens, counts_cached }
    }

    /// The counts after the prompt was rebuilt: what is known of the server stays, the sizes go.
    #[must_use]
    pub fn reset_sizes(self) -> CountHistory {
        CountHistory { counts_cached: self.counts_cached, ..CountHistory::default() }
    }

    /// Whether the count of a prompt that grew by little holds what had been sent before. Without it
    /// the count would be little itself.
    fn includes_previous(self, sent: u64, counted: u64) -> bool {
        let before = self.counted_tokens;
        before > 0 && counted >= before && sent <= before + before / 4
    }

    /// Whether a larger prompt than the last one was counted as that one, to the token.
    fn is_stuck(self, sent: &SentPrompt, counted: u64) -> bool {
        let is_larger = match sent.basis {
            CountBasis::Tokenizer | CountBasis::Anchored => sent.prompt_tokens > counted,
            // The same prompt may have been sent again.
            CountBasis::Estimated => {
                sent.floor_tokens() > counted && sent.prompt_tokens > self.sent_tokens
            }
        };
        is_larger && counted > 0 && counted == self.counted_tokens
    }

    /// Whether it was counted alike because both counts are of what was new, and that was alike.
    fn counts_new_alone(self, sent: &SentPrompt, counted: u64) -> bool {
        let before = match sent.basis {
            CountBasis::Estimated => self.sent_tokens,
            CountBasis::Tokenizer | CountBasis::Anchored => self.counted_tokens,
        };
        let new = sent.prompt_tokens.saturating_sub(before);
        self.explains_count(sent.prompt_tokens, counted) && new >= counted / 2
    }

    /// What a prompt that has the last one within it has for certain. A template may leave out old
    /// thinking, so not all of the last one is still there.
    fn min_tokens(self, sent: &SentPrompt) -> u64 {
        let new = match sent.basis {
            CountBasis::Estimated => 0,
            CountBasis::Tokenizer | CountBasis::Anchored => {
                let sure = sent.prompt_tokens.saturating_sub(sent.image_tokens);
                sure.saturating_sub(self.counted_tokens)
            }
        };
        self.counted_tokens / 4 * 3 + new / 2
    }

    /// Whether a server that leaves out what it had cached may have counted so much for what is new.
    fn explains_count(self, sent: u64, counted: u64) -> bool {
        let new = sent.saturating_sub(self.sent_tokens);
        !self.counts_cached && self.sent_tokens > 0 && new <= counted.saturating_mul(2)
    }
}

/// A prompt that the server did not read as it was sent, or could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentTruncation {
    /// What happened.
    pub kind: TruncationKind,
    /// The prompt as it was sent.
    pub sent_tokens: u64,
    /// The prompt as the server counted it.
    pub counted_tokens: u64,
    /// The window that the server seems to have; 0 where the counts do not tell.
    pub window_tokens: u64,
}

/// What happened to a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationKind {
    /// The server read a part of it.
    Cut,
    /// It filled the window, and nothing was left for the answer.
    NoAnswerBudget,
    /// The server read all of it, past the window that it is known for.
    Overrun,
}

impl SilentTruncation {
    /// Judges one answer, by the counts of the session before it.
    pub fn detect(
        sent: &SentPrompt,
        before: CountHistory,
        usage: &TokenUsage,
        stop_reason: StopReason,
    ) -> Option<SilentTruncation> {
        let counted_tokens = usage.prompt_tokens();
        if counted_tokens == 0 {
            // Nothing was counted, or all of it was cached by a server that leaves that out.
            return None;
        }
        let told = sent.window_tokens;
        let by_usage = detect_silent_overflow(usage, stop_reason, "", told);
        let (form, window_tokens) = if by_usage == Some(SilentOverflow::BeyondWindow) {
            (TruncationKind::Overrun, told)
        } else if let Some(window) = find_cut_window(sent, before, counted_tokens) {
            (TruncationKind::Cut, window)
        } else {
            by_usage.map(|_| (TruncationKind::NoAnswerBudget, told))?
        };
        let sent_tokens = sent.prompt_tokens;
        Some(SilentTruncation { kind: form, sent_tokens, counted_tokens, window_tokens })
    }

    /// The tokens that the model never saw, about.
    pub fn lost_tokens(&self) -> u64 {
        match self.kind {
            TruncationKind::Cut => self.sent_tokens.saturating_sub(self.counted_tokens),
            TruncationKind::NoAnswerBudget | TruncationKind::Overrun => 0,
        }
    }
}

impl std::fmt::Display for SilentTruncation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let SilentTruncation { sent_tokens: sent, counted_tokens: counted, .. } = *self;
        let (window, lost) = (self.window_tokens, self.lost_tokens());
        match self.kind {
            TruncationKind::Cut => write!(
                f,
                "the server read {counted} of about {sent} tokens and dropped about {lost} without \
                 saying so, the system prompt likely among them; "
            )?,
            TruncationKind::NoAnswerBudget => write!(
                f,
                "the prompt of {counted} tokens filled the window of {window} and the model could \
                 not answer; "
            )?,
            TruncationKind::Overrun => write!(
                f,
                "the server took {counted} tokens, more than its window of {window}, and said \
                 nothing; "
            )?,
        }
        match (self.kind, window) {
            (TruncationKind::Overrun, _) => {
                write!(f, "compact, or correct the window of this model")
            }
            (_, 0) => write!(f, "set num_ctx (the window of this model in the config), or compact"),
            _ => write!(
                f,
                "raise num_ctx (the window of this model in the config) above {window}, or compact"
            ),
        }
    }
}

/// The smallest window that is concluded from counts alone: servers that count nothing say some small
/// number always.
const LEAST_WINDOW_TOKENS: u64 = 1_024;

/// The window of the server that cut the prompt; 0 where only the cut is sure.
fn find_cut_window(sent: &SentPrompt, before: CountHistory, counted: u64) -> Option<u64> {
    let (window, floor) = (sent.window_tokens, sent.floor_tokens());
    let fingerprint = fingerprint::window_of(sent, counted);
    if fingerprint.is_some() && !before.explains_count(sent.prompt_tokens, counted) {
        return fingerprint;
    }
    if before.is_stuck(sent, counted) {
        if let Some(window) = fingerprint::window_of_count(sent, counted) {
            return Some(window);
        }
        if counted >= LEAST_WINDOW_TOKENS && !before.counts_new_alone(sent, counted) {
            return Some(counted);
        }
    }
    if window > 0 && floor > window {
        // Whatever was cached is in the window too, so a cache explains no such count.
        return Some(window);
    }
    let shrank = before.counts_cached && counted < before.min_tokens(sent);
    // The last prompt was read, and so was this part: whatever the window is, it holds both.
    let held = match sent.basis {
        CountBasis::Estimated => 0,
        CountBasis::Tokenizer | CountBasis::Anchored => counted.max(before.counted_tokens),
    };
    (shrank && floor > counted).then_some(held)
}
