//! The settings of the `mask` engine: `[plugins.entries.mask.config]`.

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
        /// How many of the newest results stay in full: the figure of the published measurements,
        /// where masking cost no solved tasks and half of the tokens.
        pub keep_results: usize = 10, Whole(0), "results";
        /// How few may stay in full under pressure: the one that is worked on and the one before
        /// it. The results of the live round stay whatever their number.
        pub min_keep_results: usize = 2, Whole(0), "results";
        /// How many results are masked at once: each batch moves what a provider has cached, so the
        /// prefix stays the same for ten results at a time.
        pub batch_results: usize = 10, Whole(1), "results";
        /// Keeps the person's first message when turns must go: it is the task.
        pub keep_first_task: bool = true, Flag;
        /// Puts `[12 earlier entries left out]` where turns went: a model that knows of a gap asks
        /// instead of guessing.
        pub leave_out_note: bool = true, Flag;
        /// How much of the budget is free again after results or turns had to go, 0.0 … 0.9: the
        /// prefix then stays the same until a quarter of the budget is new.
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
        if settings.min_keep_results > settings.keep_results {
            let (few, many) = (settings.min_keep_results, settings.keep_results);
            let message = format_args!("is {few}; set at most keep_results ({many})");
            return Err(settings::setting_error("min_keep_results", message));
        }
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
