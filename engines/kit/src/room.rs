//! What a request says of its room, and how a compaction fills it.

use ctxhost_engine_api::{AssembleRequest, CompactRequest, ModelRef, Result};
use serde::{Deserialize, Serialize};

use crate::settings::{check_all, share_of};

/// How a compaction fills the room that it is allowed: first the person's requests, then the ledger,
/// then the newest turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoomSettings {
    /// Share of the budget that a compaction leaves in use at least, where the session has as much.
    /// Default 0.3: what was allowed is used for what matters, and most of the rest is free for the
    /// next turns.
    pub floor_share: f64,
    /// Share of the budget that the person's requests may take, word for word. Default 0.1: all of
    /// those of a long session in a small window, and what was pasted into them is cut first.
    pub request_share: f64,
    /// Share of the budget that commands and identifiers may take. Default 0.15: measured on a
    /// session of 484 requests, more of it wins little and shortens the tail.
    pub ledger_share: f64,
    /// The same in weighted characters; the smaller of the two counts. Default 32,000: about 250
    /// commands and 200 names, more than a model looks through.
    pub ledger_chars: u64,
    /// One command, in weighted characters. Default 160; where room is short as little as 96.
    pub command_chars: u64,
}

impl Default for RoomSettings {
    fn default() -> Self {
        RoomSettings {
            floor_share: 0.3,
            request_share: 0.1,
            ledger_share: 0.2,
            ledger_chars: 32_000,
            command_chars: 160,
        }
    }
}

impl RoomSettings {
    /// Checks the shares.
    ///
    /// # Errors
    ///
    /// A config error that names the key.
    pub fn check(&self) -> Result<()> {
        let shares = [
            ("room.floor_share", self.floor_share),
            ("room.request_share", self.request_share),
            ("room.ledger_share", self.ledger_share),
        ];
        let is_share = |share: &f64| (0.0..=0.5).contains(share);
        check_all(shares, is_share, "a share of the room is from 0 to 0.5")
    }

    /// What a compaction leaves in use at least, in tokens: the share of the budget, or what the newest
    /// part and the summary may take together where that is less.
    pub fn floor_tokens(&self, budget_tokens: u64, recent_tokens: u64, summary_tokens: u64) -> u64 {
        share_of(budget_tokens, self.floor_share).min(recent_tokens + summary_tokens)
    }
}

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
