//! The settings of the `boundary` engine: `[plugins.entries.boundary.config]`.

use ctxhost_engine_api::Result;
use ctxhost_engine_api::serde_json::Value;
use ctxhost_engine_kit::attachments::AttachmentLimits;
use ctxhost_engine_kit::room::RoomSettings;
use ctxhost_engine_kit::settings::{check_all, parse, refuse};
use serde::{Deserialize, Serialize};

/// The environment variable that goes before `threshold.percent`.
pub const PERCENT_VARIABLE: &str = "CTXHOST_BOUNDARY_PERCENT";

/// What is up to the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether anything is ever compacted. Default true. Without it the host's last rung shapes
    /// what no longer fits.
    pub compaction: bool,
    /// Whether the engine compacts without being asked by a person. Default true.
    pub auto_compaction: bool,
    /// Whether running notes are tried as the summary before a model is asked. Default true: they
    /// are there already and cost nothing.
    pub session_memory: bool,
    /// The model that writes summaries, by name; empty for the host's choice. Default empty.
    pub model: String,
    /// The whole summary, in weighted characters. Default 16,000: nine sections of some lines each.
    pub summary_chars: u64,
    /// The same as a share of the threshold; the smaller of the two counts. Default 0.2.
    pub summary_share: f64,
    /// Share of the threshold up to which the last turn stays word for word; of a longer one its
    /// newest part stays. Default 0.3: with summary and attachments about half is free afterwards.
    pub last_turn_share: f64,
    /// Share of the threshold that the tool results of one round may take; of longer ones head and
    /// important tail are shown. Default 0.5: what must stay then always leaves room to compact.
    pub preview_share: f64,
    /// Compactions that fail in a row until no more are made on the engine's own account. Default
    /// 3, the published figure: the third is no accident.
    pub breaker_failures: u32,
    /// When compactions begin.
    pub threshold: ThresholdSettings,
    /// What a summary repeats letter for letter.
    pub room: RoomSettings,
    /// What is put back after a compaction.
    pub attachments: AttachmentSettings,
    /// What old tool results become between compactions.
    pub micro: MicroSettings,
}

/// When compactions begin: at window - output - buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThresholdSettings {
    /// Held free for the answer, in provider tokens. Default 16,000.
    pub output_tokens: u64,
    /// Held free beside it, so that the compaction's own request still fits, in provider tokens.
    /// Default 13,000.
    pub buffer_tokens: u64,
    /// Percent of the window in place of the rule above; 0 for the rule. Default 0. The variable
    /// `CTXHOST_BOUNDARY_PERCENT` goes before it.
    pub percent: u64,
    /// Percent of the window below which the rule never falls. Default 65: in a small window output
    /// and buffer would take more than half, and half of it is compacted twice as often.
    pub min_percent: u64,
}

/// What is put back after a compaction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AttachmentSettings {
    /// How many of the files that were read last. Default 5.
    pub files: usize,
    /// How many skills. Default 3.
    pub skills: usize,
    /// One file, skill or plan, in weighted characters. Default 4,000: the part to go on with; the
    /// rest is one call away.
    pub item_chars: u64,
    /// All of them as a share of the threshold. Default 0.15; 0 puts nothing back.
    pub total_share: f64,
}

/// What old tool results become between compactions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MicroSettings {
    /// Whether old results are cleared at all. Default true.
    pub enabled: bool,
    /// How many of the newest results stay. Default 5.
    pub keep_results: usize,
    /// A longer result is cleared when it is old, in weighted characters. Default 2,000: shorter
    /// ones are mostly answers to a question and not worth a look-up.
    pub over_chars: u64,
    /// Share of the threshold from which results are cleared though the provider's cache is warm.
    /// Default 0.6.
    pub pressure_share: f64,
    /// Share of the threshold that such a clearing must win. Default 0.05: less is not worth the
    /// cached prefix that it moves.
    pub min_saving_share: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            compaction: true,
            auto_compaction: true,
            session_memory: true,
            model: String::new(),
            summary_chars: 16_000,
            summary_share: 0.2,
            last_turn_share: 0.3,
            preview_share: 0.5,
            breaker_failures: 3,
            threshold: ThresholdSettings::default(),
            room: RoomSettings::default(),
            attachments: AttachmentSettings::default(),
            micro: MicroSettings::default(),
        }
    }
}

impl Default for ThresholdSettings {
    fn default() -> Self {
        ThresholdSettings {
            output_tokens: 16_000,
            buffer_tokens: 13_000,
            percent: 0,
            min_percent: 65,
        }
    }
}

impl Default for AttachmentSettings {
    fn default() -> Self {
        AttachmentSettings { files: 5, skills: 3, item_chars: 4_000, total_share: 0.15 }
    }
}

impl Default for MicroSettings {
    fn default() -> Self {
        MicroSettings {
            enabled: true,
            keep_results: 5,
            over_chars: 2_000,
            pressure_share: 0.6,
            min_saving_share: 0.05,
        }
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
                refuse("threshold.percent", message)
            };
            settings.threshold.percent = text.parse().map_err(wrong)?;
        }
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<()> {
        let shares = [
            ("summary_share", self.summary_share),
            ("last_turn_share", self.last_turn_share),
            ("preview_share", self.preview_share),
            ("attachments.total_share", self.attachments.total_share),
            ("micro.pressure_share", self.micro.pressure_share),
            ("micro.min_saving_share", self.micro.min_saving_share),
        ];
        check_all(shares, |share| (0.0..=1.0).contains(share), "set 0.0 to 1.0")?;
        self.room.check()?;
        let ThresholdSettings { percent, min_percent, .. } = self.threshold;
        let percents = [("threshold.percent", percent), ("threshold.min_percent", min_percent)];
        check_all(percents, |percent| *percent <= 100, "set 0 to 100")
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
