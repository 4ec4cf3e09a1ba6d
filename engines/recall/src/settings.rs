//! The settings of the `recall` engine: `[plugins.entries.recall.config]`.

use ctxhost_engine_api::Result;
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_kit::settings;
use serde::{Deserialize, Serialize};

/// The largest share that a move may free: with more, hardly anything would stay after it.
const SLACK_SHARE_MAX: f64 = 0.5;

/// The smallest share of a part that is never left out.
const TAIL_SHARE_MIN: f64 = 0.05;

/// The largest share of each text of the engine's own: the host lets an engine add up to half of the budget.
const OWN_SHARE_MAX: f64 = 0.25;

ctxhost_engine_api::settings! {
    /// What is up to the operator. Shares are of the budget of a request.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Settings {
        /// How much of the budget is free again after the window has moved: the prefix then stays the
        /// same, and cached, until a third of the budget is new.
        pub slack_share: f64 = 0.34, Number(0.0, SLACK_SHARE_MAX), "share";
        /// Share for the newest entries in a session whose newest entries use tools: an agent works on
        /// what it just did.
        pub agent_tail_share: f64 = 0.65, Number(TAIL_SHARE_MIN, 1.0), "share";
        /// Share for the newest entries in a session without tools: a few exchanges; what a question is
        /// about is found, not recent.
        pub chat_tail_share: f64 = 0.15, Number(TAIL_SHARE_MIN, 1.0), "share";
        /// Share of the newest entries in which results stay in full; older ones become a line.
        pub full_share: f64 = 0.6, Number(TAIL_SHARE_MIN, 1.0), "share";
        /// Share for the rules and preferences of the person: about thirty rules at 8,000 tokens.
        pub rule_share: f64 = 0.08, Number(0.0, OWN_SHARE_MAX), "share";
        /// Share for the rules and the ledger of names together in a session that uses tools. A session
        /// without tools takes a quarter of it for names.
        pub ledger_share: f64 = 0.25, Number(0.0, OWN_SHARE_MAX), "share";
        /// The same in tokens; the smaller of the two counts: about 1,500 names.
        pub ledger_tokens: u64 = 8_000, Whole(0), "tokens";
        /// Share for what a prompt finds after the window has moved, in a session that uses tools: most
        /// of what such a prompt is about is in view.
        pub agent_note_share: f64 = 0.06, Number(0.0, OWN_SHARE_MAX), "share";
        /// Share for the names that come next in the ledger, in front of a prompt in a session that uses
        /// tools: what the next turn comes back to is seldom what the last one ended with.
        pub name_note_share: f64 = 0.15, Number(0.0, OWN_SHARE_MAX), "share";
        /// The same as `agent_note_share` in a session without tools: an answer needs what was found more
        /// than room.
        pub chat_note_share: f64 = 0.25, Number(0.0, OWN_SHARE_MAX), "share";
        /// Puts `[12 earlier entries left out]` where entries went: a model that knows of a gap asks, or
        /// searches, instead of guessing.
        pub leave_out_note: bool = true, Flag;
        /// Offers the tools `context_search` and `context_expand` to the model: it looks for what the
        /// engine did not find.
        pub tools: bool = true, Flag;
    }
}

impl Settings {
    /// Reads the engine's table.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](ctxhost_engine_api::ErrorKind::Config) for a key or a value that is wrong.
    pub fn parse(config: &Value) -> Result<Settings> {
        let settings: Settings = settings::parse(config)?;
        settings::check_ranges(&settings, Settings::SETTINGS)?;
        Ok(settings)
    }
}
