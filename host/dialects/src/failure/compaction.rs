//! Why a compaction did not happen, from the words of whoever tried.

use super::Classifier;

/// Why nothing was compacted (openclaw-facts 4.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
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
    NotWritten,
    /// A quality guard refused the summary.
    Guarded,
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
const WORDS: &[(Skipped, &[&str])] = &[
    (
        Skipped::AuthFailed,
        &["auth_failed", "auth failed", "authentication failed", "api key", "api_key"],
    ),
    (Skipped::NothingToCompact, &["nothing to compact", "no real conversation messages"]),
    (Skipped::BelowThreshold, &["below threshold", "already under target"]),
    (Skipped::AlreadyCompacted, &["already compacted", "already_compacted"]),
    (Skipped::Deferred, &["deferred", "in the background"]),
    (Skipped::StillTooLarge, &["still exceeds"]),
    (Skipped::NotWritten, &["persist", "cannot append", "cannot write"]),
    (Skipped::Timeout, &["timed out", "timeout", "time limit"]),
    (Skipped::Guarded, &["guard"]),
    (Skipped::SummaryFailed, &["summary", "summarization failed"]),
    (Skipped::ProviderRefused, &["400", "401", "403", "429"]),
    (Skipped::ProviderFailed, &["500", "502", "503", "504"]),
];

impl Skipped {
    /// The class of a reason in words.
    pub fn of(reason: &str) -> Skipped {
        let reason = reason.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| says_word(&reason, word));
        WORDS.iter().find(|(_, words)| says(words)).map_or(Skipped::Unknown, |(class, _)| *class)
    }

    /// Whether nobody needs to hear of it. `is_ok` is whether the call itself was a success.
    pub fn is_harmless(self, is_ok: bool) -> bool {
        match self {
            Skipped::BelowThreshold | Skipped::AlreadyCompacted => true,
            Skipped::NothingToCompact => is_ok,
            _ => false,
        }
    }
}

/// Whether an error is one of a compaction itself, so that another compaction would not help.
pub fn is_compaction_failure(text: &str, classifier: &Classifier) -> bool {
    let lower = text.to_lowercase();
    let of_compaction = lower.contains("compaction") || lower.contains("summarization failed");
    of_compaction && (lower.contains("context overflow") || classifier.speaks_of_overflow(text))
}

/// Words match anywhere; a status does only as a number of its own.
fn says_word(text: &str, word: &str) -> bool {
    let is_status = word.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = || text.split(|c: char| !c.is_ascii_digit());
    if is_status { numbers().any(|number| number == word) } else { text.contains(word) }
}
