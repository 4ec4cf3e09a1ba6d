//! A summary of this gateway that a client sends back instead of the messages that it stands for.

use super::seeded_hash::SeededHash;

/// The summary at the start of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnedSummary {
    /// Its text without a frame.
    pub text: String,
    /// The number of items that the client got with it, including its own.
    pub items: usize,
    /// The conversation that it was made of, if known.
    pub origin: Option<SummaryOrigin>,
}

/// The conversation that a summary was made of, as it was then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryOrigin {
    /// The key whose folder has its file.
    pub home_key: SeededHash,
    /// Its session id.
    pub session: String,
    /// The canonical hash of its first item. Once it continues from a summary, it has another one.
    pub first_item: SeededHash,
}
