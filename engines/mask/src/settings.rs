//! The settings of the `mask` engine: `[plugins.entries.mask.config]`.

use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_api::{EngineError, Result};
use ctxhost_engine_kit::settings;
use ctxhost_engine_kit::turns::SlidingRule;
use serde::{Deserialize, Serialize};

/// The largest share that makes sense: with more, hardly anything would stay after a move.
const SLACK_SHARE_MAX: f64 = 0.9;

/// The largest share for requests: the newest turns shall never be the smaller part.
const REQUEST_SHARE_MAX: f64 = 0.5;

/// What is up to the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How many of the newest results stay in full. Default 10: the figure of the published
    /// measurements, where masking cost no solved tasks and half of the tokens.
    pub keep_results: usize,
    /// How few may stay in full under pressure. Default 2: the one that is worked on and the one
    /// before it. The results of the live round stay whatever their number.
    pub min_keep_results: usize,
    /// How many results are masked at once. Default 10: each batch moves what a provider has cached,
    /// so the prefix stays the same for ten results at a time.
    pub batch_results: usize,
    /// Keeps the person's first message when turns must go. Default true: it is the task.
    pub keep_first_task: bool,
    /// Puts `[12 earlier entries left out]` where turns went. Default true: a model that knows of a
    /// gap asks instead of guessing.
    pub leave_out_note: bool,
    /// How much of the budget is free again after results or turns had to go, 0.0 … 0.9. Default
    /// 0.25: the prefix then stays the same until a quarter of the budget is new.
    pub slack_share: f64,
    /// Share of the budget that the person's requests before the kept turns may take, the newest
    /// first, 0.0 … 0.5. Default 0.1: what was asked outlives how it was done.
    pub request_share: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            keep_results: 10,
            min_keep_results: 2,
            batch_results: 10,
            keep_first_task: true,
            leave_out_note: true,
            slack_share: 0.25,
            request_share: 0.1,
        }
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
        match settings.fault() {
            Some((key, message)) => Err(EngineError::config(key, message)),
            None => Ok(settings),
        }
    }

    fn fault(&self) -> Option<(&'static str, String)> {
        if !(0.0..=SLACK_SHARE_MAX).contains(&self.slack_share) {
            let message = format!("slack_share is {}; set 0.0 to 0.9", self.slack_share);
            return Some(("slack_share", message));
        }
        if !(0.0..=REQUEST_SHARE_MAX).contains(&self.request_share) {
            let message = format!("request_share is {}; set 0.0 to 0.5", self.request_share);
            return Some(("request_share", message));
        }
        if self.batch_results == 0 {
            return Some(("batch_results", "batch_results is 0; set 1 or more".into()));
        }
        (self.min_keep_results > self.keep_results).then(|| {
            let (few, many) = (self.min_keep_results, self.keep_results);
            let message = format!("min_keep_results is {few}; set at most keep_results ({many})");
            ("min_keep_results", message)
        })
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
