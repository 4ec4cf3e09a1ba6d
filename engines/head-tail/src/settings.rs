//! The settings of the `head-tail` engine: `[plugins.entries.head-tail.config]`.

use ctxhost_engine_api::Result;
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_kit::budget::{RequestBudget, RoomSettings};
use ctxhost_engine_kit::settings::{check_ranges, parse, setting_error, share_of};
use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// Settings of the engine. Shares are between 0 and 1; names end in their unit.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Settings {
        /// Share of the window from which the engine acts, at most the request's budget: half is
        /// free for new entries and for a summary.
        pub threshold_share: f64 = 0.5, Share, "share";
        /// Minimum of that size, if `target_share` of the budget allows it: half of a small window is full again a few
        /// turns after a compaction.
        pub threshold_min_tokens: u64 = 24_000, Whole(0), "tokens";
        /// First messages kept until the first compaction, system messages not counted: the task
        /// and the first steps.
        pub head_messages: u64 = 3, Whole(0), "messages";
        /// Share of the trigger for those messages: a large file read first would otherwise stay.
        pub head_share: f64 = 0.1, Share, "share";
        /// Share of the trigger for the newest messages, word for word.
        pub tail_share: f64 = 0.2, Share, "share";
        /// Minimum messages in the tail if there is room: one long result alone has no context.
        pub tail_messages: u64 = 8, Whole(0), "messages";
        /// Factor by which the tail may exceed its share to end at a whole message or the newest
        /// request.
        pub tail_overrun: f64 = 1.5, Number(1.0, 3.0), "factor";
        /// Minimum of kept entries and ledger as a share of the budget: where the tail falls short of it, older
        /// entries stay before it.
        pub floor_share: f64 = 0.3, Number(0.0, 0.5), "share";
        /// A longer old result becomes one line.
        pub prune_result_chars: u64 = 200, Whole(0), "weighted characters";
        /// Longer arguments of an old call are shortened.
        pub prune_arguments_chars: u64 = 500, Whole(0), "weighted characters";
        /// Length of each shortened argument text.
        pub keep_argument_chars: u64 = 200, Whole(0), "weighted characters";
        /// Old results are pruned once they take this share of the trigger together: each batch
        /// invalidates the provider's cache.
        pub prune_batch_share: f64 = 0.1, Share, "share";
        /// Whether a model writes summaries if the host has one; else they are made of the
        /// conversation's own sentences.
        pub use_model: bool = true, Flag;
        /// Name of the model; empty for the host's choice.
        pub model: String = String::new(), AnyText;
        /// Size of a summary as a share of the history it replaces.
        pub summary_share: f64 = 0.2, Share, "share";
        /// Minimum size of a summary.
        pub summary_min_tokens: u64 = 2_000, Whole(0), "tokens";
        /// Maximum size of a summary: a longer one is history again.
        pub summary_max_tokens: u64 = 12_000, Whole(0), "tokens";
        /// Maximum size of a summary as a share of the budget: the host limits what engines insert.
        pub summary_budget_share: f64 = 0.25, Share, "share";
        /// Limits of the ledger of a summary.
        pub room: RoomSettings = RoomSettings::default(), Table(RoomSettings::SETTINGS);
        /// Length of one message in a prompt; of a longer one head and end are quoted.
        pub prompt_message_chars: u64 = 6_000, Whole(0), "weighted characters";
        /// Share of the budget that a compaction stays below: the host refuses a result above 0.95.
        pub target_share: f64 = 0.9, Share, "share";
        /// Whether a failed summary ends the compaction and keeps the history, instead of falling
        /// back to an extractive one.
        pub abort_on_summary_failure: bool = false, Flag;
        /// Time without model calls after a failed summary, and without compactions after two that
        /// saved too little.
        pub cooldown_ms: u64 = 600_000, Whole(0), "ms";
        /// A compaction that saves less than this share did not help.
        pub min_saving_share: f64 = 0.1, Share, "share";
    }
}

impl Settings {
    /// Parses and checks the engine's table.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](ctxhost_engine_api::ErrorKind::Config) for a wrong key or value.
    pub fn from_config(config: &Value) -> Result<Settings> {
        let settings: Settings = parse(config)?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<()> {
        self.room.check()?;
        check_ranges(self, Self::SETTINGS)?;
        if self.summary_min_tokens > self.summary_max_tokens {
            return Err(setting_error("summary_min_tokens", "must be at most summary_max_tokens"));
        }
        Ok(())
    }

    /// The size from which the engine acts: a share of the window, or of the budget if the window
    /// is unknown; in a small window more.
    pub(crate) fn trigger_tokens(&self, room: &RequestBudget) -> u64 {
        let RequestBudget { window_tokens, budget_tokens, .. } = *room;
        // An unknown window leaves only the budget to take a share of.
        let whole_tokens = if window_tokens == 0 { budget_tokens } else { window_tokens };
        let most_tokens = share_of(budget_tokens, self.target_share);
        share_of(whole_tokens, self.threshold_share)
            .min(budget_tokens)
            .max(self.threshold_min_tokens.min(most_tokens))
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
        for (window_tokens, budget_tokens, trigger) in [
            (200_000, 150_000, 100_000),
            (64_000, 20_000, 20_000),
            (0, 80_000, 40_000),
            // A small window acts later.
            (0, 40_000, 24_000),
            (8_000, 5_800, 5_220),
        ] {
            let room = RequestBudget { window_tokens, budget_tokens, ..RequestBudget::default() };
            assert_eq!(settings.trigger_tokens(&room), trigger);
        }
    }
}
