//! The settings of the `boundary` engine: `[plugins.entries.boundary.config]`.

use ctxhost_engine_api::Result;
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_kit::attachments::AttachmentLimits;
use ctxhost_engine_kit::budget::RoomSettings;
use ctxhost_engine_kit::settings::{check_ranges, parse, setting_error};
use serde::{Deserialize, Serialize};

/// The environment variable that goes before `threshold.percent`.
pub const PERCENT_VARIABLE: &str = "CTXHOST_BOUNDARY_PERCENT";

ctxhost_engine_api::settings! {
    /// What is up to the operator.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Settings {
        /// Whether anything is ever compacted. Without it the host's last rung shapes what no
        /// longer fits.
        pub compaction: bool = true, Flag;
        /// Whether the engine compacts without being asked by a person.
        pub auto_compaction: bool = true, Flag;
        /// Whether running notes are tried as the summary before a model is asked: they are there
        /// already and cost nothing. False lets the configured model write every summary.
        pub session_memory: bool = true, Flag;
        /// The model that writes summaries, by name; empty for the host's choice.
        pub model: String = String::new(), AnyText;
        /// The whole summary: nine sections of some lines each.
        pub summary_chars: u64 = 16_000, Whole(0), "weighted characters";
        /// The same as a share of the threshold; the smaller of the two counts.
        pub summary_share: f64 = 0.2, Number(0.0, 1.0), "share";
        /// Share of the threshold up to which the last turn stays word for word; of a longer one
        /// its newest part stays. With summary and attachments about half is free afterwards.
        pub last_turn_share: f64 = 0.3, Number(0.0, 1.0), "share";
        /// Share of the threshold that the tool results of one round may take; of longer ones head
        /// and important tail are shown. What must stay then always leaves room to compact.
        pub preview_share: f64 = 0.5, Number(0.0, 1.0), "share";
        /// Compactions that fail in a row until no more are made on the engine's own account: the
        /// third is no accident.
        pub breaker_failures: u32 = 3, Whole(0), "failures in a row";
        /// When compactions begin.
        pub threshold: ThresholdSettings = ThresholdSettings::default(),
            Table(ThresholdSettings::SETTINGS);
        /// What a summary repeats letter for letter.
        pub room: RoomSettings = RoomSettings::default(), Table(RoomSettings::SETTINGS);
        /// What is put back after a compaction.
        pub attachments: AttachmentSettings = AttachmentSettings::default(),
            Table(AttachmentSettings::SETTINGS);
        /// What old tool results become between compactions.
        pub micro: MicroSettings = MicroSettings::default(), Table(MicroSettings::SETTINGS);
    }
}

ctxhost_engine_api::settings! {
    /// When compactions begin: at window - output - buffer.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct ThresholdSettings {
        /// Held free for the answer.
        pub output_tokens: u64 = 16_000, Whole(0), "provider tokens";
        /// Held free beside it, so that the compaction's own request still fits.
        pub buffer_tokens: u64 = 13_000, Whole(0), "provider tokens";
        /// Percent of the window in place of the rule of output and buffer; 0 for the rule. The
        /// variable `CTXHOST_BOUNDARY_PERCENT` goes before it.
        pub percent: u64 = 0, Between(0, 100), "percent";
        /// Percent of the window below which the rule never falls: in a small window output and
        /// buffer would take more than half, and half of it is compacted twice as often.
        pub min_percent: u64 = 65, Between(0, 100), "percent";
    }
}

ctxhost_engine_api::settings! {
    /// What is put back after a compaction.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct AttachmentSettings {
        /// How many of the files that were read last.
        pub files: usize = 5, Whole(0), "files";
        /// How many skills.
        pub skills: usize = 3, Whole(0), "skills";
        /// One file, skill or plan: the part to go on with; the rest is one call away.
        pub item_chars: u64 = 4_000, Whole(0), "weighted characters";
        /// All of them as a share of the threshold; 0 puts nothing back.
        pub total_share: f64 = 0.15, Number(0.0, 1.0), "share";
    }
}

ctxhost_engine_api::settings! {
    /// What old tool results become between compactions.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct MicroSettings {
        /// Whether old results are cleared at all.
        pub enabled: bool = true, Flag;
        /// How many of the newest results stay.
        pub keep_results: usize = 5, Whole(0), "results";
        /// A longer result is cleared when it is old: shorter ones are mostly answers to a question
        /// and not worth a look-up.
        pub over_chars: u64 = 2_000, Whole(0), "weighted characters";
        /// Share of the threshold from which results are cleared though the provider's cache is
        /// warm.
        pub pressure_share: f64 = 0.6, Number(0.0, 1.0), "share";
        /// Share of the threshold that such a clearing must win: less is not worth the cached
        /// prefix that it moves.
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
    /// Reads the engine's table; `percent` is what the environment says of it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`](ctxhost_engine_api::ErrorKind::Config) for a key or a value that is wrong.
    pub fn parse(config: &Value, percent: Option<&str>) -> Result<Settings> {
        let mut settings: Settings = parse(config)?;
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
