//! The settings of the `recall` engine: `[plugins.entries.recall.config]`.

use ctxhost_engine_api::Result;
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_kit::retrieval::LayoutStyle;
use ctxhost_engine_kit::settings;
use serde::{Deserialize, Serialize};

use crate::LAYER;

/// With a larger share a move would keep hardly anything.
const SLACK_SHARE_MAX: f64 = 0.5;

/// Minimum share of a part that is never empty.
const TAIL_SHARE_MIN: f64 = 0.05;

/// Maximum share of each own text; the host allows half of the budget for all of them.
const OWN_SHARE_MAX: f64 = 0.25;

ctxhost_engine_api::settings! {
    /// Settings of the engine. Shares are of the budget of a request.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Settings {
        /// Share of the budget that is free after a move: the prefix then stays cached until a
        /// third of the budget is new.
        pub slack_share: f64 = 0.32, Number(0.0, SLACK_SHARE_MAX), "share";
        /// Share for the newest entries in a session that uses tools: an agent needs its latest
        /// steps.
        pub agent_tail_share: f64 = 0.65, Number(TAIL_SHARE_MIN, 1.0), "share";
        /// Share for the newest entries in a session without tools: the answer to a question is
        /// found, not recent.
        pub chat_tail_share: f64 = 0.15, Number(TAIL_SHARE_MIN, 1.0), "share";
        /// Share of the newest entries in which results stay in full; older ones become a line.
        pub full_share: f64 = 0.6, Number(TAIL_SHARE_MIN, 1.0), "share";
        /// Share for the user's requests before the newest entries, newest first: only the user can
        /// repeat them. They take it from the slack.
        pub request_share: f64 = 0.12, Number(0.0, OWN_SHARE_MAX), "share";
        /// Share for the user's rules and preferences: about thirty rules at 8,000 tokens.
        pub rule_share: f64 = 0.08, Number(0.0, OWN_SHARE_MAX), "share";
        /// Share for rules and names together in a session that uses tools. Without tools names get
        /// a quarter of it.
        pub ledger_share: f64 = 0.25, Number(0.0, OWN_SHARE_MAX), "share";
        /// The same in tokens; the smaller of the two counts: about 1,500 names.
        pub ledger_tokens: u64 = 8_000, Whole(0), "tokens";
        /// Share for what a new prompt finds in a session that uses tools: most of what it needs is
        /// in view.
        pub agent_note_share: f64 = 0.06, Number(0.0, OWN_SHARE_MAX), "share";
        /// Share for further names before a prompt in a session that uses tools: the next turn
        /// seldom uses the last one's names.
        pub name_note_share: f64 = 0.1, Number(0.0, OWN_SHARE_MAX), "share";
        /// The same in a session without tools: an answer needs found text more than free room.
        pub chat_note_share: f64 = 0.25, Number(0.0, OWN_SHARE_MAX), "share";
        /// Inserts `[12 earlier entries left out]` in place of what was dropped: a model that knows
        /// of a gap asks instead of guessing.
        pub leave_out_note: bool = true, Flag;
        /// With an embedder: the rank that counts half as much as the first in the fusion of both
        /// rankings; 60 is the usual value, with which a good place in both wins over the first in
        /// one.
        pub fusion_rank: u64 = 60, Whole(1), "ranks";
        /// With an embedder: texts embedded before one request; the rest follows before the next
        /// ones.
        pub embed_texts: u64 = 4_096, Whole(1), "texts";
        /// With an embedder: the wait after which no further call of it begins before a request; a
        /// user notices more. A replay does not wait less, so that it can be repeated.
        pub embed_wait_ms: u64 = 1_500, Whole(1), "ms";
        /// With an embedder: the pause after a failure, in which entries are ranked by words alone.
        pub embed_pause_ms: u64 = 60_000, Whole(0), "ms";
        /// Offers the tools `context_search` and `context_expand`, for what the engine did not
        /// find.
        pub tools: bool = true, Flag;
    }
}

impl Settings {
    /// Parses the engine's table.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](ctxhost_engine_api::ErrorKind::Config) for a wrong key or value.
    pub fn parse(config: &Value) -> Result<Settings> {
        let settings: Settings = settings::parse(config)?;
        settings::check_ranges(&settings, Settings::SETTINGS)?;
        Ok(settings)
    }

    /// How its texts are labelled.
    pub(crate) fn style(&self) -> LayoutStyle {
        LayoutStyle { layer: LAYER, head: "rules and names", leave_out_note: self.leave_out_note }
    }
}
