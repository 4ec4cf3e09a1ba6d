//! Settings of the four layers: `[plugins.entries.legacy.config]`.

mod compaction;
mod duration;
mod pruning;
mod results;
mod window;

use ctxhost_engine_api::Result;
use ctxhost_engine_api::settings::SettingKind;
use ctxhost_engine_kit::budget::RoomSettings;
pub(crate) use ctxhost_engine_kit::settings::share_of;
use ctxhost_engine_kit::settings::{check_numbers, parse, setting_error};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use compaction::{CompactionSettings, IdentifierPolicy, SummariserChoice};
pub use duration::ConfigDuration;
pub use pruning::{PruningMode, PruningSettings};
pub use results::ToolResultSettings;
#[cfg(test)]
pub(crate) use window::WindowLimits;
pub use window::{WindowRule, WindowSettings};

/// Weighted characters per token.
pub(crate) const CHARS_PER_TOKEN: u64 = 4;

ctxhost_engine_api::settings! {
    /// The settings of the engine, one table per layer.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Settings {
        /// Layer 1: minimum size of the window.
        pub window: WindowSettings = WindowSettings::default(), Table(WindowSettings::SETTINGS);
        /// Layer 2: limits of tool output.
        pub tool_results: ToolResultSettings = ToolResultSettings::default(),
            Table(ToolResultSettings::SETTINGS);
        /// Layer 3: summaries of older history.
        pub compaction: CompactionSettings = CompactionSettings::default(),
            Table(CompactionSettings::SETTINGS);
        /// Limits of the ledger of a summary.
        pub room: RoomSettings = RoomSettings::default(), Table(RoomSettings::SETTINGS);
        /// Layer 4: pruning of old tool output.
        pub pruning: PruningSettings = PruningSettings::default(), Table(PruningSettings::SETTINGS);
    }
}

impl Settings {
    /// Parses and checks the table of the engine.
    ///
    /// # Errors
    ///
    /// A config error that names the key.
    pub fn from_config(config: &Value) -> Result<Settings> {
        let settings: Settings = parse(config)?;
        check_numbers("", &settings, Self::SETTINGS, |allowed| match allowed {
            SettingKind::Share => Some("a share is above 0 and at most 1".to_owned()),
            _ => None,
        })?;
        settings.room.check()?;
        // The ranges of single settings are checked above; these rules compare or bound special
        // ones.
        if settings.window.warn_tokens < settings.window.block_tokens {
            return Err(setting_error(
                "window.warn_tokens",
                "must not be below window.block_tokens",
            ));
        }
        if !(0.0..=1.0).contains(&settings.compaction.backoff_jitter) {
            return Err(setting_error("compaction.backoff_jitter", "must be from 0 to 1"));
        }
        if settings.compaction.chunk_margin < 1.0 {
            return Err(setting_error("compaction.chunk_margin", "must be at least 1"));
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_defaults_pass_their_own_check_and_survive_json() {
        let written = serde_json::to_value(Settings::default()).unwrap();
        assert_eq!(Settings::from_config(&written).unwrap(), Settings::default());
        assert_eq!(Settings::from_config(&json!({})).unwrap(), Settings::default());
    }

    #[test]
    fn a_wrong_setting_is_named() {
        for (config, key) in [
            (json!({"compaction": {"keep_recent_share": 1.5}}), "compaction.keep_recent_share"),
            (json!({"pruning": {"mode": "sometimes"}}), "pruning.mode"),
            (json!({"window": {"warn_tokens": 1}}), "window.warn_tokens"),
            (json!({"tool_results": {"cap_shore": 0.2}}), "tool_results.cap_shore"),
        ] {
            let error = Settings::from_config(&config).unwrap_err();
            assert_eq!(error.detail["key"], key, "{}", error.message);
        }
    }

    #[test]
    fn case_44_and_59_counts_are_clamped() {
        let settings =
            CompactionSettings { quality_retries: 9, recent_turns: 40, ..Default::default() };
        assert_eq!((settings.quality_tries(), settings.preserved_turns()), (4, 12));
    }
}
