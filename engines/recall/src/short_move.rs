//! A short move of the window: what stands before the newest entries stays as it is, and with it the cached prefix.
//!
//! ```text
//!  pinned │ rules, names │ requests, found entries │ excerpt │ newer names │ newest entries
//!  ────────────────────── stays ─────────────────────────────┘ └───── chosen again ──────
//! ```

use ctxhost_engine_api::Transcript;
use ctxhost_engine_kit::retrieval::RequestLayout;
use ctxhost_engine_kit::settings::share_of;

use crate::session::RecallSession;
use crate::settings::Settings;

/// Short moves in a row. Names and found entries are then chosen again, because the work has moved on.
const MOST_SHORT_MOVES: u32 = 6;
/// Share of the slack that a short move frees at the least.
const LEAST_SLACK_SHARE: f64 = 0.5;

impl RecallSession {
    /// The last layout with other newest entries and names; `None` where that frees too little, or would hide a rule.
    /// A chat has none, because what its prompt finds is most of it.
    pub(crate) fn moved_layout(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        last: &RequestLayout,
        settings: &Settings,
    ) -> Option<RequestLayout> {
        let split = self.split(transcript, budget_tokens, settings);
        if split.newer_tokens == 0 || last.short_moves >= MOST_SHORT_MOVES {
            return None;
        }
        let mut layout = RequestLayout {
            budget_tokens: last.budget_tokens,
            replaced_rules: last.replaced_rules,
            kept: last.kept.clone(),
            head: last.head.clone(),
            excerpt: last.excerpt.clone(),
            antecedents: last.antecedents.clone(),
            short_moves: last.short_moves + 1,
            ..RequestLayout::default()
        };
        self.index.take_requests_with_files(&mut layout);
        self.place_tail(transcript, (split.tail_tokens, budget_tokens), settings, &mut layout);
        self.place_requests(transcript, &split, &mut layout);
        // The head lists the rules from before the last cut.
        let mut rules = self.rules.valid_positions(last.cut..layout.cut);
        if rules.any(|seq| !layout.kept.contains_key(&seq)) {
            return None;
        }
        self.add_newer_names(transcript, split.newer_tokens, &mut layout);
        let least_tokens = share_of(budget_tokens, settings.slack_share * LEAST_SLACK_SHARE);
        let is_small = layout.tokens(transcript, &settings.style()) + least_tokens <= budget_tokens;
        is_small.then_some(layout)
    }
}
