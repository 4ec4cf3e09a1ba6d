//! The settings of the `boundary` engine: `[plugins.entries.boundary.config]`.

use ctxhost_engine_api::Result;
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_kit::attachments::AttachmentLimits;
use ctxhost_engine_kit::budget::RoomSettings;
use ctxhost_engine_kit::settings::{check_ranges, parse, setting_error};
use serde::{Deserialize, Serialize};

/// The environment variable that overrides `threshold.percent`.
pub const PERCENT_VARIABLE: &str = "CTXHOST_BOUNDARY_PERCENT";

ctxhost_engine_api::settings! {
    /// Settings of the engine.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Settings {
        /// Whether the engine compacts; without it the host's emergency trim makes a request fit.
        pub compaction: bool = true, Flag;
        /// Whether the engine compacts without a user's request.
        pub auto_compaction: bool = true, Flag;
        /// Whether running notes are used as the summary, which costs nothing; with false the
        /// configured model writes every summary.
        pub session_memory: bool = true, Flag;
        /// Name of the model that writes summaries; empty for the host's choice.
        pub model: String = String::new(), AnyText;
        /// Size of the whole summary: nine sections of a few lines.
        pub summary_chars: u64 = 16_000, Whole(0), "weighted characters";
        /// The same as a share of the threshold; the smaller one counts.
        pub summary_share: f64 = 0.2, Number(0.0, 1.0), "share";
        /// Share of the threshold up to which the last turn stays word for word; of a longer one
        /// its newest part. About half is then free.
        pub last_turn_share: f64 = 0.3, Number(0.0, 1.0), "share";
        /// Minimum of kept entries and ledger as a share of the budget: where the last turn is short, older entries stay
        /// before it, word for word.
        pub floor_share: f64 = 0.3, Number(0.0, 0.5), "share";
        /// Share of the threshold for the tool results of one round; of longer ones head and
        /// important tail are shown, so that compacting frees room.
        pub preview_share: f64 = 0.5, Number(0.0, 1.0), "share";
        /// Failed compactions in a row after which automatic ones stop: a third failure is not an
        /// accident.
        pub breaker_failures: u32 = 3, Whole(0), "failures in a row";
        /// When compactions begin.
        pub threshold: ThresholdSettings = ThresholdSettings::default(),
            Table(ThresholdSettings::SETTINGS);
        /// Limits of the ledger of a summary.
        pub room: RoomSettings = RoomSettings::default(), Table(RoomSettings::SETTINGS);
        /// Attachments after a compaction.
        pub attachments: AttachmentSettings = AttachmentSettings::default(),
            Table(AttachmentSettings::SETTINGS);
        /// Treatment of old tool results between compactions.
        pub micro: MicroSettings = MicroSettings::default(), Table(MicroSettings::SETTINGS);
    }
}

ctxhost_engine_api::settings! {
    /// When compactions begin: at window - output - buffer.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct ThresholdSettings {
        /// Reserved for the answer.
        pub output_tokens: u64 = 16_000, Whole(0), "provider tokens";
        /// Reserved in addition, so that the compaction's own request fits.
        pub buffer_tokens: u64 = 13_000, Whole(0), "provider tokens";
        /// Percent of the window instead of the rule of output and buffer; 0 for the rule.
        /// `CTXHOST_BOUNDARY_PERCENT` overrides it.
        pub percent: u64 = 0, Between(0, 100), "percent";
        /// Minimum of the rule in percent of the window: in a small one output and buffer would
        /// take more than half.
        pub min_percent: u64 = 65, Between(0, 100), "percent";
    }
}

ctxhost_engine_api::settings! {
    /// Attachments after a compaction.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct AttachmentSettings {
        /// Number of files, most recently read first.
        pub files: usize = 5, Whole(0), "files";
        /// Number of skills.
        pub skills: usize = 3, Whole(0), "skills";
        /// Size of one file, skill or plan: enough to continue; the rest is one call away.
        pub item_chars: u64 = 4_000, Whole(0), "weighted characters";
        /// All attachments as a share of the threshold; 0 for none.
        pub total_share: f64 = 0.15, Number(0.0, 1.0), "share";
    }
}

ctxhost_engine_api::settings! {
    /// Treatment of old tool results between compactions.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct MicroSettings {
        /// Whether old results are cleared.
        pub enabled: bool = true, Flag;
        /// Number of newest results that stay.
        pub keep_results: usize = 5, Whole(0), "results";
        /// A longer old result is cleared: shorter ones are mostly answers to a question.
        pub over_chars: u64 = 2_000, Whole(0), "weighted characters";
        /// Share of the threshold from which results are cleared although the provider's cache is
        /// warm.
        pub pressure_share: f64 = 0.6, Number(0.0, 1.0), "share";
        /// Minimum share of the threshold that such a clearing saves: less does not pay for a new
        /// cached prefix.
        pub min_saving_share: f64 = 0.05, Number(0.0, 1.0), "share";
    }
}

impl AttachmentSettings {
    pub(crate) fn limits(&self) -> AttachmentLimits {
        let AttachmentSettings { files, skills, item_chars, .. } = *self;
        AttachmentLimits { files, skills, item_chars }
    }
}

impl Settings {
    /// Parses the engine's table; `percent` is the value of the environment variable.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](ctxhost_engine_api::ErrorKind::Config) for a wrong key or value.
    pub fn parse(config: &Value, percent: Option<&str>) -> Result<Settings> {
        let mut settings: Settings = parse(config)?;
        // An empty variable is treated as unset.
        if let Some(text) = percent.map(str::trim).filter(|text| !text.is_empty()) {
            let wrong = |_| {
                let message = format!("is {text:?} in {PERCENT_VARIABLE}; set a whole number");
                setting_error("threshold.percent", message)
            };
            settings.threshold.percent = text.parse().map_err(wrong)?;
        }
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<()> {
        self.room.check()?;
        check_ranges(self, Self::SETTINGS)
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::serde_json::{self, json};

    use super::*;

    #[test]
    fn the_defaults_survive_json() {
        let written = serde_json::to_value(Settings::default()).unwrap();
        assert_eq!(Settings::parse(&written, None).unwrap(), Settings::default());
        assert_eq!(Settings::parse(&Value::Null, Some(" ")).unwrap(), Settings::default());
    }

    #[test]
    fn the_environment_goes_before_the_file() {
        let config = json!({"threshold": {"percent": 70}});
        let percent = |variable| Settings::parse(&config, variable).unwrap().threshold.percent;
        assert_eq!((percent(None), percent(Some("40"))), (70, 40));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (config, variable, key, word) in [
            (json!({"last_turn_share": 1.5}), None, "last_turn_share", "1.5"),
            (json!({"threshold": {"percent": 101}}), None, "threshold.percent", "101"),
            (json!({}), Some("much"), "threshold.percent", PERCENT_VARIABLE),
            (json!({"micro": {"keep": 1}}), None, "micro.keep", "known here"),
        ] {
            let error = Settings::parse(&config, variable).unwrap_err();
            assert_eq!(error.detail["key"], key);
            assert!(error.message.contains(word), "{error}");
        }
    }
}
