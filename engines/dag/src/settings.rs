//! The settings of the `dag` engine: `[plugins.entries.dag.config]`.

use ctxhost_engine_api::Result;
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_kit::settings;
use serde::{Deserialize, Serialize};

/// With a larger share a move would keep hardly anything.
const SLACK_SHARE_MAX: f64 = 0.5;
/// Minimum share of a part that is never empty.
const TAIL_SHARE_MIN: f64 = 0.05;
/// Maximum share of each own text; the host allows half of the budget for all of them.
const OWN_SHARE_MAX: f64 = 0.3;

ctxhost_engine_api::settings! {
    /// Settings of the engine. Shares are of the budget of a request.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Settings {
        /// Turns of a leaf; a leaf ends before the next user message.
        pub leaf_turns: u64 = 4, Whole(1), "turns";
        /// A leaf also ends at this size: an agent's turn may have a hundred entries, too many for
        /// one line.
        pub leaf_tokens: u64 = 2_000, Whole(1), "tokens";
        /// A leaf also ends at a pause of this length, because another subject follows.
        pub pause_minutes: u64 = 30, Whole(1), "minutes";
        /// Nodes that one node of the next depth condenses. Six keep a hundred thousand entries
        /// within six depths.
        pub fanout: u64 = 6, Between(2, 32), "nodes";
        /// Size of the text of a leaf: two requests, two reports and ten names.
        pub leaf_text_tokens: u64 = 110, Whole(20), "tokens";
        /// Size of the text of a node above: a line of each of its sources.
        pub node_text_tokens: u64 = 180, Whole(20), "tokens";
        /// Share of the budget that is free after a move: the prefix then stays cached until a
        /// third of the budget is new.
        pub slack_share: f64 = 0.34, Number(0.0, SLACK_SHARE_MAX), "share";
        /// Share for the newest entries in a session that uses tools: an agent needs its latest
        /// steps.
        pub agent_tail_share: f64 = 0.6, Number(TAIL_SHARE_MIN, 1.0), "share";
        /// Share for the newest entries in a session without tools: the answer to a question is
        /// found, not recent.
        pub chat_tail_share: f64 = 0.15, Number(TAIL_SHARE_MIN, 1.0), "share";
        /// Share for the user's requests before the newest entries, newest first: only the user can
        /// repeat them. They take it from the slack.
        pub request_share: f64 = 0.12, Number(0.0, OWN_SHARE_MAX), "share";
        /// Share for the nodes in a session that uses tools: they name the files and commands of
        /// earlier steps.
        pub agent_node_share: f64 = 0.1, Number(0.0, OWN_SHARE_MAX), "share";
        /// Share for the nodes in a session without tools: found entries answer better.
        pub chat_node_share: f64 = 0.08, Number(0.0, OWN_SHARE_MAX), "share";
        /// The same in tokens; the smaller one counts. A longer outline is not read.
        pub node_tokens: u64 = 12_000, Whole(0), "tokens";
        /// Share of the newest entries in which results stay in full; older ones become a line.
        pub full_share: f64 = 0.6, Number(TAIL_SHARE_MIN, 1.0), "share";
        /// Share for names that are not in view in a session that uses tools: the next calls use
        /// them.
        pub name_share: f64 = 0.2, Number(0.0, OWN_SHARE_MAX), "share";
        /// Share for further names before a prompt in a session that uses tools: the next turn
        /// seldom uses the last one's names.
        pub name_note_share: f64 = 0.15, Number(0.0, OWN_SHARE_MAX), "share";
        /// Share for what a new prompt finds in a session that uses tools: most of what it needs is
        /// in view.
        pub agent_note_share: f64 = 0.06, Number(0.0, OWN_SHARE_MAX), "share";
        /// The same in a session without tools: an answer needs found text more than free room.
        pub chat_note_share: f64 = 0.25, Number(0.0, OWN_SHARE_MAX), "share";
        /// Offers the tools `context_search` and `context_expand`, so that a model reads the
        /// sources of a node.
        pub tools: bool = true, Flag;
        /// Nodes that the configured model writes after a turn, from the entries of their leaves; 0
        /// for extracts only.
        pub model_nodes: u64 = 1, Whole(0), "nodes";
        /// Name of the model that writes nodes; empty for the host's choice.
        pub model: String = String::new(), AnyText;
        /// Failures in a row after which the model is not asked: a third failure is not an accident.
        pub breaker_failures: u64 = 3, Whole(1), "failures in a row";
        /// Time without requests after these failures: summaries mostly fail while a provider has
        /// an outage.
        pub breaker_cooldown_ms: u64 = 600_000, Whole(0), "ms";
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
}
