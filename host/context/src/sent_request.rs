//! A request that was sent, as far as its size goes.

use crate::accounting::RequestSize;

/// A request that was sent, as far as its size goes.
#[derive(Clone, Debug)]
pub struct SentRequest {
    /// All of it.
    pub size: RequestSize,
    /// What its images are taken to cost.
    pub image_tokens: u64,
    /// What the conversation in it costs, as entries count.
    pub conversation_tokens: u64,
}
