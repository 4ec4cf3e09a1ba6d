//! The settings of the `window` engine: `[plugins.entries.window.config]`.

use ctxhost_engine_api::Result;
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_kit::settings;
use ctxhost_engine_kit::sliding_window::SlidingRule;
use serde::{Deserialize, Serialize};

/// The largest share that makes sense: with more, hardly anything would stay after a move.
const SLACK_SHARE_MAX: f64 = 0.9;

/// The largest share for requests: the newest turns shall never be the smaller part.
const REQUEST_SHARE_MAX: f64 = 0.5;

ctxhost_engine_api::settings! {
    /// What is up to the operator.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Settings {
        /// Keeps the person's first message even where the host does not pin it: it is the task,
        /// and an agent without its task drifts.
        pub keep_first_task: bool = true, Flag;
        /// Puts `[12 earlier entries left out]` in front of the kept turns: a model that knows of a
        /// gap asks instead of guessing. The line changes only when the window moves.
        pub leave_out_note: bool = true, Flag;
        /// How much of the budget is free again after the window has moved, 0.0 … 0.9: the prefix
        /// then stays the same, and cached, until a quarter of the budget is new.
        pub slack_share: f64 = 0.25, Number(0.0, SLACK_SHARE_MAX), "share";
        /// Share of the budget that the person's requests before the kept turns may take, the
        /// newest first, 0.0 … 0.5: what was asked outlives how it was done.
        pub request_share: f64 = 0.1, Number(0.0, REQUEST_SHARE_MAX), "share";
    }
}

impl Settings {
    /// Reads the engine's table.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](ctxhost_engine_api::ErrorKind::Config) for a key or a value that is wrong.
    pub fn parse(config: Value) -> Result<Settings> {
        let settings: Settings = settings::parse(&config)?;
        settings::check_ranges(&settings, Settings::SETTINGS)?;
        Ok(settings)
    }

    pub(crate) fn rule(&self) -> SlidingRule {
        SlidingRule {
            keep_first_task: self.keep_first_task,
            leave_out_note: self.leave_out_note,
            slack_share: self.slack_share,
            request_share: self.request_share,
        }
    }
}
