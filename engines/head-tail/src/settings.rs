//! The settings of the `head-tail` engine: `[plugins.entries.head-tail.config]`.

use ctxhost_engine_api::Result;
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_kit::budget::{RequestBudget, RoomSettings};
use ctxhost_engine_kit::settings::{check_ranges, parse, setting_error, share_of};
use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// What is up to the operator. Shares are between 0 and 1, numbers end in their unit.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Settings {
        /// Share of the window at which the engine begins to work: half of a window is free for
        /// what comes next, and a summary is written while there is room to write it. The trigger
        /// is never above the request's budget.
        pub threshold_share: f64 = 0.5, Share, "share";
        /// How many of the first messages stay until the first compaction is over, system messages
        /// not counted: the task and how it was taken up. Later they are history like any other.
        pub head_messages: u64 = 3, Whole(0), "messages";
        /// Share of the trigger that those messages may take: a large file that was read first
        /// would otherwise never leave.
        pub head_share: f64 = 0.1, Share, "share";
        /// Share of the trigger that the newest messages take, word for word.
        pub tail_share: f64 = 0.2, Share, "share";
        /// How few messages the tail holds as long as everything else gives way: a tail of one long
        /// result says nothing of what was going on.
        pub tail_messages: u64 = 8, Whole(0), "messages";
        /// How many times its share the tail may take to end at a whole message or at the person's
        /// newest request.
        pub tail_overrun: f64 = 1.5, Number(1.0, 3.0), "factor";
        /// A longer old result becomes one line.
        pub prune_result_chars: u64 = 200, Whole(0), "weighted characters";
        /// Longer arguments of an old call are shortened.
        pub prune_arguments_chars: u64 = 500, Whole(0), "weighted characters";
        /// What of each text among them stays.
        pub keep_argument_chars: u64 = 200, Whole(0), "weighted characters";
        /// Old results are pruned when they take this share of the trigger together: each batch
        /// moves what a provider has cached, so small ones cost more than they save.
        pub prune_batch_share: f64 = 0.1, Share, "share";
        /// Whether a model writes summaries where the host has one; false makes every summary out
        /// of the conversation's own sentences.
        pub use_model: bool = true, Flag;
        /// The model that writes them, by name; empty for the host's choice.
        pub model: String = String::new(), AnyText;
        /// A summary takes this share of what it stands for.
        pub summary_share: f64 = 0.2, Share, "share";
        /// But at least so many tokens.
        pub summary_min_tokens: u64 = 2_000, Whole(0), "tokens";
        /// And at most so many tokens: a longer one is history again.
        pub summary_max_tokens: u64 = 12_000, Whole(0), "tokens";
        /// And at most this share of the budget: the host refuses requests that are mostly an
        /// engine's own words.
        pub summary_budget_share: f64 = 0.25, Share, "share";
        /// What a summary repeats letter for letter.
        pub room: RoomSettings = RoomSettings::default(), Table(RoomSettings::SETTINGS);
        /// One message in a prompt of the summariser: head and end of anything longer.
        pub prompt_message_chars: u64 = 6_000, Whole(0), "weighted characters";
        /// Share of the budget that a compaction ends below: the host refuses results above 0.95.
        pub target_share: f64 = 0.9, Share, "share";
        /// Whether a failed summary ends the compaction and keeps the history, instead of making
        /// the summary without a model.
        pub abort_on_summary_failure: bool = false, Flag;
        /// How long no model is asked after a failed summary, and how long nothing is compacted
        /// after two compactions that saved too little.
        pub cooldown_ms: u64 = 600_000, Whole(0), "ms";
        /// A compaction that saves less than this share counts as one that did not help.
        pub min_saving_share: f64 = 0.1, Share, "share";
    }
}

impl Settings {
    /// Reads and checks the engine's table.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](ctxhost_engine_api::ErrorKind::Config) for a key or a value that is wrong.
    pub fn from_config(config: &Value) -> Result<Settings> {
        let settings: Settings = parse(config)?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<()> {
        self.room.check()?;
        if !(1.0..=3.0).contains(&self.tail_overrun) {
            return Err(setting_error("tail_overrun", "must be from 1 to 3"));
        }
        check_ranges(self, Self::SETTINGS)?;
        if self.summary_min_tokens > self.summary_max_tokens {
            return Err(setting_error("summary_min_tokens", "must be at most summary_max_tokens"));
        }
        Ok(())
    }

    /// From how many tokens on the engine works: its share of the window, or of the budget where
    /// nobody knows the window.
    pub(crate) fn trigger_tokens(&self, room: &RequestBudget) -> u64 {
        let RequestBudget { window_tokens, budget_tokens, .. } = *room;
        let whole_tokens = if window_tokens == 0 { budget_tokens } else { window_tokens };
        share_of(whole_tokens, self.threshold_share).min(budget_tokens)
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::serde_json::{json, to_value};

    use super::*;

    #[test]
    fn the_defaults_pass_their_own_check_and_survive_json() {
        let written = to_value(Settings::default()).unwrap();
        assert_eq!(Settings::from_config(&written).unwrap(), Settings::default());
        assert_eq!(Settings::from_config(&json!({})).unwrap(), Settings::default());
    }

    #[test]
    fn a_wrong_setting_is_named() {
        for (config, key) in [
            (json!({ "tail_share": 1.5 }), "tail_share"),
            (json!({ "threshold_share": 0.0 }), "threshold_share"),
            (json!({ "tail_overrun": 0.5 }), "tail_overrun"),
            (json!({ "summary_min_tokens": 20_000 }), "summary_min_tokens"),
            (json!({ "tale_share": 0.5 }), "tale_share"),
            (json!({ "head_messages": -1 }), "head_messages"),
        ] {
            let error = Settings::from_config(&config).unwrap_err();
            assert_eq!(error.detail["key"], key, "{}", error.message);
        }
    }

    #[test]
    fn the_trigger_is_half_of_the_window_and_never_above_the_budget() {
        let settings = Settings::default();
        for (window_tokens, budget_tokens, trigger) in
            [(200_000, 150_000, 100_000), (64_000, 20_000, 20_000), (0, 40_000, 20_000)]
        {
            let room = RequestBudget { window_tokens, budget_tokens, ..RequestBudget::default() };
            assert_eq!(settings.trigger_tokens(&room), trigger);
        }
    }
}
