//! The settings of the `recall` engine: `[plugins.entries.recall.config]`.

use ctxhost_engine_api::Result;
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_kit::settings::{self, check_all};
use serde::{Deserialize, Serialize};

/// What is up to the operator. Shares are of the budget of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How much of the budget is free again after the window has moved, 0.0 … 0.5. Default 0.34: the
    /// prefix then stays the same, and cached, until a third of the budget is new.
    pub slack_share: f64,
    /// Share for the newest entries in a session whose newest entries use tools. Default 0.65: an agent
    /// works on what it just did.
    pub agent_tail_share: f64,
    /// Share for the newest entries in a session without tools. Default 0.15: a few exchanges; what a
    /// question is about is found, not recent.
    pub chat_tail_share: f64,
    /// Share of the newest entries in which results stay in full; older ones become a line. Default 0.6.
    pub full_share: f64,
    /// Share for the rules and preferences of the person. Default 0.08: about thirty rules at 8,000 tokens.
    pub rule_share: f64,
    /// Share for the rules and the ledger of names together in a session that uses tools. Default 0.25. A
    /// session without tools takes a quarter of it for names.
    pub ledger_share: f64,
    /// The same in tokens; the smaller of the two counts. Default 8,000: about 1,500 names.
    pub ledger_tokens: u64,
    /// Share for what a prompt finds after the window has moved, in a session that uses tools. Default 0.06.
    pub agent_note_share: f64,
    /// Share for the names that come next in the ledger, in front of a prompt in a session that uses tools.
    /// Default 0.15: what the next turn comes back to is seldom what the last one ended with.
    pub name_note_share: f64,
    /// The same as `agent_note_share` in a session without tools. Default 0.25: an answer needs what was found more than room.
    pub chat_note_share: f64,
    /// Puts `[12 earlier entries left out]` where entries went. Default true: a model that knows of a gap asks,
    /// or searches, instead of guessing.
    pub leave_out_note: bool,
    /// Offers the tools `context_search` and `context_expand` to the model. Default true.
    pub tools: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            slack_share: 0.34,
            agent_tail_share: 0.65,
            chat_tail_share: 0.15,
            full_share: 0.6,
            rule_share: 0.08,
            ledger_share: 0.25,
            ledger_tokens: 8_000,
            agent_note_share: 0.06,
            name_note_share: 0.15,
            chat_note_share: 0.25,
            leave_out_note: true,
            tools: true,
        }
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
        let halves = [("slack_share", settings.slack_share)];
        check_all(halves, |share| (0.0..=0.5).contains(share), "set 0.0 to 0.5")?;
        let tails = [
            ("agent_tail_share", settings.agent_tail_share),
            ("chat_tail_share", settings.chat_tail_share),
            ("full_share", settings.full_share),
        ];
        check_all(tails, |share| (0.05..=1.0).contains(share), "set 0.05 to 1.0")?;
        // The host lets an engine add text of its own up to half of the budget.
        let own = [
            ("rule_share", settings.rule_share),
            ("ledger_share", settings.ledger_share),
            ("agent_note_share", settings.agent_note_share),
            ("name_note_share", settings.name_note_share),
            ("chat_note_share", settings.chat_note_share),
        ];
        check_all(own, |share| (0.0..=0.25).contains(share), "set 0.0 to 0.25")?;
        Ok(settings)
    }
}
