//! The settings of the `window` engine: `[plugins.entries.window.config]`.

use ctxhost_engine_api::Result;
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_kit::settings;
use ctxhost_engine_kit::sliding_window::{REQUEST_SHARE_MAX, SLACK_SHARE_MAX, SlidingRule};
use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// Settings of the engine.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Settings {
        /// Keeps the user's first message, even if the host does not pin it: an agent without its
        /// task drifts.
        pub keep_first_task: bool = true, Flag;
        /// Inserts `[12 earlier entries left out]` in place of what was dropped: a model that knows
        /// of a gap asks instead of guessing.
        pub leave_out_note: bool = true, Flag;
        /// Share of the budget that is free after a move: the prefix then stays cached until a
        /// quarter of the budget is new.
        pub slack_share: f64 = 0.25, Number(0.0, SLACK_SHARE_MAX), "share";
        /// Share of the budget for user requests before the kept turns, newest first: requests are
        /// kept longer than the work on them.
        pub request_share: f64 = 0.1, Number(0.0, REQUEST_SHARE_MAX), "share";
    }
}

impl Settings {
    /// Parses the engine's table.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](ctxhost_engine_api::ErrorKind::Config) for a wrong key or value.
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
