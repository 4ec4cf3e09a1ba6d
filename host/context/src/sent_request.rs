//! The size of a sent request.

use crate::accounting::RequestSize;

/// The size of a sent request.
#[derive(Clone, Debug)]
pub struct SentRequest {
    pub size: RequestSize,
    /// The size of its conversation, in estimated tokens.
    pub conversation_tokens: u64,
    /// The bytes of its body, where they are known.
    pub bytes: Option<u64>,
}
