//! What a request says of its room, and how a compaction fills it.

use ctxhost_engine_api::{AssembleRequest, CompactRequest, ModelRef, Result};
use serde::{Deserialize, Serialize};

use crate::settings::{check_all, share_of};

/// How much of the room a summary uses for what it repeats letter for letter: first the person's
/// requests, then commands and identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoomSettings {
    /// Share of the budget that the person's requests may take, word for word. Default 0.1: all of
    /// those of a long session in a small window, and what was pasted into them is cut first.
    pub request_share: f64,
    /// Share of the budget that commands and identifiers may take. Default 0.2: in a window
    /// of 32,000 it holds seven in ten commands of a session of 484 requests; 0.15 holds five.
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
        let shares =
            [("room.request_share", self.request_share), ("room.ledger_share", self.ledger_share)];
        let is_share = |share: &f64| (0.0..=0.5).contains(share);
        check_all(shares, is_share, "a share of the room is from 0 to 0.5")
    }
}

/// What a compaction leaves in use at least, in tokens: a share of the budget, or what the newest part
/// and the summary may take together where that is less.
pub fn floor_tokens(
    budget_tokens: u64,
    floor_share: f64,
    recent_tokens: u64,
    summary_tokens: u64,
) -> u64 {
    share_of(budget_tokens, floor_share).min(recent_tokens + summary_tokens)
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
