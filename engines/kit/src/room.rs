//! What a request says of its room.

use ctxhost_engine_api::{AssembleRequest, CompactRequest, ModelRef};

/// The numbers of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What a plan may take, in tokens as entries count them.
    pub budget_tokens: u64,
    /// What the host holds free, in provider tokens.
    pub reserve_tokens: u64,
    /// The whole window, in provider tokens; 0 when unknown.
    pub window_tokens: u64,
}

impl Room {
    fn new(budget_tokens: u64, reserve_tokens: u64, model: &ModelRef) -> Room {
        Room { budget_tokens, reserve_tokens, window_tokens: model.window_tokens }
    }
}

impl From<&AssembleRequest> for Room {
    fn from(request: &AssembleRequest) -> Room {
        Room::new(request.budget, request.reserve_tokens, &request.model)
    }
}

impl From<&CompactRequest> for Room {
    fn from(request: &CompactRequest) -> Room {
        Room::new(request.budget, request.reserve_tokens, &request.model)
    }
}
