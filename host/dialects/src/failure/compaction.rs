//! Why a compaction did not happen, from the words of whoever tried.

use super::Classifier;

/// Why nothing was compacted (openclaw-facts 4.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    /// The summariser's key was refused.
    AuthFailed,
    /// There is nothing that could be compacted.
    NothingToCompact,
    /// It was not needed.
    BelowThreshold,
    /// It had just been done.
    AlreadyCompacted,
    /// It is done later, in the background.
    Deferred,
    /// It was done and the context is still too large.
    StillTooLarge,
    /// The session could not be written.
    WriteFailed,
    /// A quality guard refused the summary.
    RejectedByGuard,
    /// There was no usable summary.
    SummaryFailed,
    /// It took too long.
    Timeout,
    /// The provider refused the request.
    ProviderRefused,
    /// The provider failed.
    ProviderFailed,
    /// Anything else.
    Unknown,
}

/// Words of each class. The first row decides.
///
/// A timeout stands before the guard: "the safeguard timed out" is a timeout, and a class that
/// matched on "guard" first would hide it.
const WORDS: &[(SkipReason, &[&str])] = &[
    (
        SkipReason::AuthFailed,
        &["auth_failed", "auth failed", "authentication failed", "api key", "api_key"],
    ),
    (SkipReason::NothingToCompact, &["nothing to compact", "no real conversation messages"]),
    (SkipReason::BelowThreshold, &["below threshold", "already under target"]),
    (SkipReason::AlreadyCompacted, &["already compacted", "already_compacted"]),
    (SkipReason::Deferred, &["deferred", "in the background"]),
    (SkipReason::StillTooLarge, &["still exceeds"]),
    (SkipReason::WriteFailed, &["persist", "cannot append", "cannot write"]),
    (SkipReason::Timeout, &["timed out", "timeout", "time limit"]),
    (SkipReason::RejectedByGuard, &["guard"]),
    (SkipReason::SummaryFailed, &["summary", "summarization failed"]),
    (SkipReason::ProviderRefused, &["400", "401", "403", "429"]),
    (SkipReason::ProviderFailed, &["500", "502", "503", "504"]),
];

impl SkipReason {
    /// The class of a reason in words.
    pub fn from_text(reason: &str) -> SkipReason {
        let reason = reason.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| contains_word(&reason, word));
        WORDS.iter().find(|(_, words)| says(words)).map_or(SkipReason::Unknown, |(class, _)| *class)
    }

    /// Whether nobody needs to hear of it. `is_ok` is whether the call itself was a success.
    pub fn is_harmless(self, is_ok: bool) -> bool {
        match self {
            SkipReason::BelowThreshold | SkipReason::AlreadyCompacted => true,
            SkipReason::NothingToCompact => is_ok,
            _ => false,
        }
    }
}

/// Whether an error is one of a compaction itself, so that another compaction would not help.
pub fn is_compaction_failure(text: &str, classifier: &Classifier) -> bool {
    let lower = text.to_lowercase();
    let of_compaction = lower.contains("compaction") || lower.contains("summarization failed");
    of_compaction && (lower.contains("context overflow") || classifier.mentions_overflow(text))
}

/// Words match anywhere; a status does only as a number of its own.
fn contains_word(text: &str, word: &str) -> bool {
    let is_status = word.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = || text.split(|c: char| !c.is_ascii_digit());
    if is_status { numbers().any(|number| number == word) } else { text.contains(word) }
}
