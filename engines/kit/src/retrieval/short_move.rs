//! A short move of the window: what stands before the newest entries stays as it is, and with it the cached prefix.
//!
//! ```text
//!  pinned │ head │ requests, found entries │ excerpt │ newer texts │ newest entries
//!  ──────────────────── stays ───────────────────────┘ └───── chosen again ──────
//! ```

use ctxhost_engine_api::Transcript;

use crate::rules::UserRules;
use crate::settings::share_of;

use super::history_index::HistoryIndex;
use super::layout::{LayoutStyle, RequestLayout};

/// Short moves in a row. The head and found entries are then chosen again, because the work has moved on.
const MOST_SHORT_MOVES: u32 = 6;
/// Share of the slack that a short move frees at the least.
const LEAST_SLACK_SHARE: f64 = 0.5;
/// Share of the names for those that each move chooses again.
// With less, the names of the last steps are missing after a few moves; with more, less of the prefix stays.
pub const NEWER_SHARE: f64 = 0.5;

impl RequestLayout {
    /// What a short move keeps of a layout; `None` after as many as may follow each other.
    pub fn begin_short_move(&self, index: &HistoryIndex) -> Option<RequestLayout> {
        if self.short_moves >= MOST_SHORT_MOVES {
            return None;
        }
        let mut layout = RequestLayout {
            budget_tokens: self.budget_tokens,
            replaced_rules: self.replaced_rules,
            kept: self.kept.clone(),
            head: self.head.clone(),
            head_cut: if self.short_moves == 0 { self.cut } else { self.head_cut },
            excerpt: self.excerpt.clone(),
            antecedents: self.antecedents.clone(),
            short_moves: self.short_moves + 1,
            text_names: self.text_names.clone(),
            ..RequestLayout::default()
        };
        index.take_requests_with_files(&mut layout);
        Some(layout)
    }

    /// Whether a move from `last_cut` on took a valid rule out of view. The head lists those from before that cut.
    pub fn hides_rule_from(&self, last_cut: u64, rules: &UserRules) -> bool {
        let mut rules = rules.valid_positions(last_cut..self.cut);
        rules.any(|seq| !self.kept.contains_key(&seq))
    }

    /// The tokens that a short move to it may still add, so that enough of a budget with a share as slack is free;
    /// `None` where it frees too little.
    pub fn short_move_room(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        slack_share: f64,
        style: &LayoutStyle,
    ) -> Option<u64> {
        let least_tokens = share_of(budget_tokens, slack_share * LEAST_SLACK_SHARE);
        budget_tokens.checked_sub(self.tokens(transcript, style) + least_tokens)
    }
}

impl HistoryIndex {
    /// The room for the requests that a short move takes out of the newest entries, beside those that a layout keeps.
    pub fn room_for_new_requests(
        &self,
        transcript: &Transcript,
        layout: &RequestLayout,
        request_tokens: u64,
    ) -> u64 {
        let kept_tokens = self.request_tokens(transcript, layout);
        let left_tokens = request_tokens.saturating_sub(kept_tokens);
        left_tokens.max(request_tokens / u64::from(MOST_SHORT_MOVES))
    }
}
