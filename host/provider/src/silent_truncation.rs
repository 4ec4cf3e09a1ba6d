//! Detects from token counts that a server cut a prompt or filled its window without an error.
//!
//! Ollama answers 200 to a prompt that does not fit: it reads the last half of a window, without
//! the system prompt. The only sign is a low count. But counts may be low for other reasons:
//! estimates err, and old servers omit cached tokens. So one of these is required:
//!
//! ```text
//!  more was counted than the window holds                        ─► Overrun        (z.ai)
//!  the window is full and the answer is empty                    ─► NoAnswerBudget (Xiaomi MiMo)
//!  the count is exactly what a cut leaves of a window            ─► Cut            (Ollama)
//!  the same count again, exactly, though the prompt grew:
//!  at any size                                                   ─► Cut
//!  the prompt is certainly larger than the window                ─► Cut
//!  the count is lower than that of the last prompt plus the new part,
//!  and this server is known to count cached tokens               ─► Cut
//! ```
//!
//! [`detect_silent_overflow`] detects the first two. After a detection the count belongs to another
//! prompt than the one that was sent, so no estimate may be calibrated by it.

mod fingerprint;

#[cfg(test)]
mod tests;

use ctxhost_dialects::failure::{SilentOverflow, detect_silent_overflow};
use ctxhost_dialects::message::{StopReason, TokenUsage};
use ctxhost_engine_api::transcript::tokens::group_thousands;

/// A prompt that was sent, as the host counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPrompt {
    /// The whole prompt: system, tools and messages.
    pub prompt_tokens: u64,
    /// The estimate of all of it, without counts and what was learned from them.
    pub estimated_tokens: u64,
    /// Its share of images, whose price differs tenfold between models.
    pub image_tokens: u64,
    /// How it was counted.
    pub basis: CountBasis,
    /// The window in the request, or the known one; 0 if unknown.
    pub window_tokens: u64,
}

/// How a prompt was counted before it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountBasis {
    /// By the provider's tokenizer.
    Tokenizer,
    /// By the provider's count of an earlier prompt plus an estimate of the rest.
    Anchored,
    /// By an estimate from its characters.
    Estimated,
}

impl CountBasis {
    /// The certain part of the count, in percent.
    fn floor_percent(self) -> u64 {
        match self {
            CountBasis::Tokenizer => 97,
            CountBasis::Anchored => 80,
            // Estimates err by half at worst for prose and code. Logs full of spaces err more, so an
            // estimate alone never proves a cut below the window.
            CountBasis::Estimated => 50,
        }
    }
}

impl SentPrompt {
    /// Whether a count may be of the whole prompt, as uncertain as its own count is.
    pub fn may_be_read_whole(&self, usage: &TokenUsage) -> bool {
        usage.prompt_tokens() >= self.floor_tokens()
    }

    /// The tokens that were certainly sent.
    fn floor_tokens(&self) -> u64 {
        let certain = self.prompt_tokens.saturating_sub(self.image_tokens);
        certain.saturating_mul(self.basis.floor_percent()) / 100
    }
}

/// The counts of one session and model so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountHistory {
    sent_tokens: u64,
    estimated_tokens: u64,
    counted_tokens: u64,
    /// The last answer, which the server may have cached as well.
    answer_tokens: u64,
    counts_cached: bool,
    /// How many counts in a row include the previous one, by their sizes alone.
    including_counts: u32,
}

/// So many counts in a row that include the previous one prove that a server counts cached tokens. A server that omits
/// them counts whole prompts only where its cache has expired.
const PROVING_COUNTS: u32 = 4;

impl CountHistory {
    /// The history after another answer without a detection. `grew` means that the prompt extended
    /// the previous one.
    #[must_use]
    pub fn with_answer(self, sent: &SentPrompt, usage: &TokenUsage, grew: bool) -> CountHistory {
        let counted_tokens = usage.prompt_tokens();
        let shows_cache = usage.cache_read > 0;
        let counts_cached = self.counts_cached
            || shows_cache
            || (grew && self.includes_previous(sent, counted_tokens));
        CountHistory {
            sent_tokens: sent.prompt_tokens,
            estimated_tokens: sent.estimated_tokens,
            counted_tokens,
            answer_tokens: usage.output,
            counts_cached,
            including_counts: self.including_counts_with(sent, counted_tokens),
        }
    }

    /// Whether the next request extends none that was answered.
    pub fn is_empty(&self) -> bool {
        self.sent_tokens == 0
    }

    /// Whether the server is known to count cached tokens. Until then a count may be of the new part alone.
    pub fn counts_cached(&self) -> bool {
        // Sizes alone do not show that a prompt extends the previous one. So they prove nothing about a truncation, and a
        // lower count withdraws what they prove.
        self.counts_cached || self.including_counts >= PROVING_COUNTS
    }

    /// The counts in a row that include the previous one, with this one.
    fn including_counts_with(self, sent: &SentPrompt, counted: u64) -> u32 {
        let (before, new) = (self.counted_tokens, self.new_tokens(sent));
        if before == 0 || self.estimated_tokens == 0 {
            return self.including_counts;
        }
        // Of the last count, since the factor of a server may be far from 1.
        let factor = before as f64 / self.estimated_tokens as f64;
        let part = |tokens: u64, share: f64| (tokens as f64 * factor * share) as u64;
        if new == 0 {
            // The prompt became smaller, and so does an honest count.
            let is_similar = counted >= part(sent.estimated_tokens, 0.75);
            return if is_similar { self.including_counts } else { 0 };
        }
        // An estimate of a new part may err by more than that of a prompt, so a count slightly below it shows nothing.
        if counted <= before || counted < before + part(new, 0.25) {
            0
        } else if counted < before + part(new, 0.5) || new > before / 4 {
            self.including_counts
        } else {
            self.including_counts.saturating_add(1)
        }
    }

    /// The history after the prompt was rebuilt: knowledge of the server stays, sizes are dropped.
    #[must_use]
    pub fn reset_sizes(self) -> CountHistory {
        let CountHistory { counts_cached, including_counts, .. } = self;
        CountHistory { counts_cached, including_counts, ..CountHistory::default() }
    }

    /// Whether the count of a prompt that grew little includes the previous prompt. A server that
    /// omits cached tokens would have counted little.
    fn includes_previous(self, sent: &SentPrompt, counted: u64) -> bool {
        let before = self.counted_tokens;
        // A prompt that grew by more could reach the old count by its new part alone.
        before > 0 && counted >= before && self.new_tokens(sent) <= before / 4
    }

    /// The estimate of what a prompt has beyond the last one. A factor that was learned from counts without cached
    /// tokens would make it too small.
    fn new_tokens(self, sent: &SentPrompt) -> u64 {
        sent.estimated_tokens.saturating_sub(self.estimated_tokens)
    }

    /// Whether a larger prompt got exactly the count of the last one.
    fn is_stuck(self, sent: &SentPrompt, counted: u64) -> bool {
        let is_larger = match sent.basis {
            CountBasis::Tokenizer | CountBasis::Anchored => sent.prompt_tokens > counted,
            // It may be the same prompt again.
            CountBasis::Estimated => {
                sent.floor_tokens() > counted && sent.prompt_tokens > self.sent_tokens
            }
        };
        is_larger && counted > 0 && counted == self.counted_tokens
    }

    /// Whether both counts are equal because each counts only the new part, and the parts are
    /// equal.
    fn counts_new_alone(self, sent: &SentPrompt, counted: u64) -> bool {
        self.explains_count(sent, counted) && self.new_tokens(sent) >= counted / 2
    }

    /// The certain size of a prompt that includes the last one.
    fn min_tokens(self, sent: &SentPrompt) -> u64 {
        let new = match sent.basis {
            CountBasis::Estimated => 0,
            CountBasis::Tokenizer | CountBasis::Anchored => {
                let certain = sent.prompt_tokens.saturating_sub(sent.image_tokens);
                certain.saturating_sub(self.counted_tokens)
            }
        };
        // A chat template may drop old thinking, so not all of the last prompt is counted again.
        self.counted_tokens / 4 * 3 + new / 2
    }

    /// Whether the count is plausible for a server that omits cached tokens.
    fn explains_count(self, sent: &SentPrompt, counted: u64) -> bool {
        // What the server wrote itself may be cached.
        let new = self.new_tokens(sent).saturating_sub(self.answer_tokens);
        !self.counts_cached && self.sent_tokens > 0 && new <= counted.saturating_mul(2)
    }
}

/// A prompt that the server did not read completely, or could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SilentTruncation {
    /// What happened.
    pub kind: TruncationKind,
    /// The size of the prompt as sent.
    pub sent_tokens: u64,
    /// Its size by the server's count.
    pub counted_tokens: u64,
    /// The server's window by the counts; 0 if unknown.
    pub window_tokens: u64,
}

/// What happened to a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncationKind {
    /// The server read a part of it.
    Cut,
    /// It filled the window and left no room for the answer.
    NoAnswerBudget,
    /// The server read all of it, beyond its known window.
    Overrun,
}

impl SilentTruncation {
    /// Checks one answer against the counts before it.
    pub fn detect(
        sent: &SentPrompt,
        before: CountHistory,
        usage: &TokenUsage,
        stop_reason: StopReason,
    ) -> Option<SilentTruncation> {
        let counted_tokens = usage.prompt_tokens();
        if counted_tokens == 0 {
            // The server does not count, or counted only uncached tokens and all were cached.
            return None;
        }
        let window = sent.window_tokens;
        // Without the raw stop reason: an overflow by that is not a truncation.
        let by_usage = detect_silent_overflow(usage, stop_reason, "", window);
        let (kind, window_tokens) = if by_usage == Some(SilentOverflow::BeyondWindow) {
            (TruncationKind::Overrun, window)
        } else if let Some(cut_window) = find_cut_window(sent, before, counted_tokens) {
            (TruncationKind::Cut, cut_window)
        } else {
            by_usage.map(|_| (TruncationKind::NoAnswerBudget, window))?
        };
        let sent_tokens = sent.prompt_tokens;
        Some(SilentTruncation { kind, sent_tokens, counted_tokens, window_tokens })
    }

    /// The tokens that the model did not read, approximately.
    pub fn lost_tokens(&self) -> u64 {
        match self.kind {
            TruncationKind::Cut => self.sent_tokens.saturating_sub(self.counted_tokens),
            TruncationKind::NoAnswerBudget | TruncationKind::Overrun => 0,
        }
    }
}

impl std::fmt::Display for SilentTruncation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers =
            [self.sent_tokens, self.counted_tokens, self.window_tokens, self.lost_tokens()];
        let [sent, counted, window, lost] = numbers.map(group_thousands);
        match self.kind {
            TruncationKind::Cut => write!(
                f,
                "the server read {counted} of about {sent} tokens and silently dropped about \
                 {lost}, probably with the system prompt; "
            )?,
            TruncationKind::NoAnswerBudget => write!(
                f,
                "the prompt of {counted} tokens filled the window of {window} and left no room for \
                 an answer; "
            )?,
            TruncationKind::Overrun => write!(
                f,
                "the server accepted {counted} tokens without an error, more than its window of \
                 {window}; "
            )?,
        }
        match (self.kind, self.window_tokens) {
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

/// The smallest window concluded from counts alone. Servers that do not count report a small
/// constant.
const MIN_WINDOW_TOKENS: u64 = 1_024;

/// The window of a server that cut the prompt; 0 if only the cut is certain.
fn find_cut_window(sent: &SentPrompt, before: CountHistory, counted: u64) -> Option<u64> {
    let (window, floor) = (sent.window_tokens, sent.floor_tokens());
    let fingerprint = fingerprint::window_of(sent, counted);
    // A server that omits cached tokens may hit such a size by chance.
    if fingerprint.is_some() && !before.explains_count(sent, counted) {
        return fingerprint;
    }
    if before.is_stuck(sent, counted) {
        if let Some(window) = fingerprint::window_of_count(sent, counted) {
            return Some(window);
        }
        if counted >= MIN_WINDOW_TOKENS && !before.counts_new_alone(sent, counted) {
            return Some(counted);
        }
    }
    if window > 0 && floor > window {
        // Cached tokens occupy the window as well, so a cache does not explain such a count.
        return Some(window);
    }
    let is_too_small = before.counts_cached && counted < before.min_tokens(sent);
    // The window holds both the last prompt and this part.
    let min_window = match sent.basis {
        CountBasis::Estimated => 0,
        CountBasis::Tokenizer | CountBasis::Anchored => counted.max(before.counted_tokens),
    };
    (is_too_small && floor > counted).then_some(min_window)
}
