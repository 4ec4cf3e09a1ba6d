//! Classifies failed requests: one reason per failure, by which callers decide what to do.
//!
//! ```text
//!  body ─► parse_refusal ─► ProviderRefusal ─► Classifier (phrases as data) ─► Classification
//!  usage ─► detect_silent_overflow: overflows that were accepted
//! ```

mod classifier;
mod counts;
mod error;
mod overflow_in_usage;
mod patterns;
mod phrases;
mod reason;
mod refusal;

#[cfg(test)]
mod tests;

pub use classifier::{Classification, Classifier, ExtraPhrase};
pub use error::{ProviderError, RequestLimit, excerpt};
pub use overflow_in_usage::{SilentOverflow, detect_silent_overflow, is_cut_short};
pub use patterns::PhraseError;
pub use reason::FailureReason;
pub use refusal::{ProviderRefusal, is_refusal, parse_refusal};
