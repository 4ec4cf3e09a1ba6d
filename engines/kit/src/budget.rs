//! The token budget of a request, and the shares of it for the texts of an engine.

use ctxhost_engine_api::settings::SettingKind;
use ctxhost_engine_api::{AssembleRequest, CompactRequest, ModelRef, Result};
use serde::{Deserialize, Serialize};

use crate::settings::{check_numbers, share_of};

ctxhost_engine_api::settings! {
    /// Limits of the ledger: the user's requests first, then commands and identifiers.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct RoomSettings {
        /// Share of the budget for the user's requests, word for word; enough for a long session in
        /// a small window. Pasted text is cut first.
        // With 0.1 every fourth request of a session of 469 left out short ones of the user at 16,000 tokens.
        pub request_share: f64 = 0.14, Number(0.0, 0.5), "share";
        /// Share of the budget for commands, identifiers and names. In a window of 32,000 it holds
        /// seven in ten commands of a session of 484 requests.
        pub ledger_share: f64 = 0.2, Number(0.0, 0.5), "share";
        /// The same in weighted characters; the smaller one counts: about 250 commands and 200
        /// names.
        pub ledger_chars: u64 = 32_000, Whole(0), "weighted characters";
        /// Share of that room for further files and code symbols, by frequency and recency: the
        /// next calls use more names than messages mention; 0 for none.
        pub name_share: f64 = 0.4, Number(0.0, 0.5), "share";
        /// One command; reduced to 96 if room is short.
        pub command_chars: u64 = 160, Whole(0), "weighted characters";
    }
}

impl RoomSettings {
    /// Checks the shares of the table `room`.
    ///
    /// # Errors
    ///
    /// A config error that names the key.
    pub fn check(&self) -> Result<()> {
        check_numbers("room.", self, Self::SETTINGS, |allowed| match allowed {
            SettingKind::Number(..) => Some("a share of the room is from 0 to 0.5".to_owned()),
            _ => None,
        })
    }
}

/// Share of a budget for the texts that an engine inserts.
// The host refuses a plan with more than half; estimates may differ slightly.
const OWN_TEXT_SHARE: f64 = 0.48;

/// Maximum size of all texts that an engine inserts, in tokens.
pub fn own_text_tokens(budget_tokens: u64) -> u64 {
    share_of(budget_tokens, OWN_TEXT_SHARE)
}

/// Share of the budget up to which a summary gets room that is free.
// A third stays free for new entries.
const FILLED_SHARE: f64 = 2.0 / 3.0;
/// Share of the size from which an engine compacts that stays free after a compaction.
// With less the next compaction follows after a few turns, and each one costs the cached prefix.
const FREE_SHARE: f64 = 0.25;

/// The size up to which a compaction fills its result, in tokens, for an engine that compacts from `trigger_tokens` on.
pub fn filled_tokens(budget_tokens: u64, trigger_tokens: u64) -> u64 {
    share_of(budget_tokens, FILLED_SHARE).min(share_of(trigger_tokens, 1.0 - FREE_SHARE))
}

/// Part of a result that summary and ledger get at least, if they need it: what they leave out is nowhere else.
const SUMMARY_ROOM_PART: u64 = 4;

/// The least room of summary and ledger beside the answer that the newest request is about, in tokens, of `most_tokens`
/// that they may take in a result of `result_tokens`.
pub fn least_summary_tokens(most_tokens: u64, result_tokens: u64) -> u64 {
    most_tokens.min(result_tokens / SUMMARY_ROOM_PART)
}

/// The minimum size after a compaction, in tokens: a share of the budget, at most the size of the
/// newest entries and the summary.
pub fn floor_tokens(
    budget_tokens: u64,
    floor_share: f64,
    recent_tokens: u64,
    summary_tokens: u64,
) -> u64 {
    share_of(budget_tokens, floor_share).min(recent_tokens + summary_tokens)
}

/// Most that the floor takes in a large window, in tokens.
// What `legacy` keeps, and the limit that the host measures compactions by.
const FLOOR_MAX_TOKENS: u64 = 24_000;

/// The floor of an engine that keeps one turn, whatever its size: at most half of the transcript, so that a compaction
/// of a short one, which only a user asks for, still frees room.
pub fn turn_floor_tokens(budget_tokens: u64, floor_share: f64, transcript_tokens: u64) -> u64 {
    share_of(budget_tokens, floor_share).min(FLOOR_MAX_TOKENS).min(transcript_tokens / 2)
}

/// The budget of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestBudget {
    /// Limit of a plan, in tokens as entries count them.
    pub budget_tokens: u64,
    /// Reserved by the host, in provider tokens.
    pub reserve_tokens: u64,
    /// The whole window, in provider tokens; 0 when unknown.
    pub window_tokens: u64,
}

impl RequestBudget {
    fn new(budget_tokens: u64, reserve_tokens: u64, model: &ModelRef) -> RequestBudget {
        RequestBudget { budget_tokens, reserve_tokens, window_tokens: model.window_tokens }
    }
}

impl From<&AssembleRequest> for RequestBudget {
    fn from(request: &AssembleRequest) -> RequestBudget {
        RequestBudget::new(request.budget, request.reserve_tokens, &request.model)
    }
}

impl From<&CompactRequest> for RequestBudget {
    fn from(request: &CompactRequest) -> RequestBudget {
        RequestBudget::new(request.budget, request.reserve_tokens, &request.model)
    }
}
