//! The configuration file: read with its places kept, resolved with a reason for every choice.
//!
//! A file becomes a [`Config`] in three steps: `spans` parses it and remembers where every key
//! stands, `check` compares it with the `all_settings` of settings and points at the first mistake,
//! and serde fills the tables. Each setting is defined once, as a field of its table, with default,
//! unit and reason; catalogue, schema, explanation and documents are derived from that.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

mod accounting;
mod agent;
mod all_settings;
mod budget;
mod check;
mod compaction;
mod edit;
mod error;
mod explain;
mod failover;
mod gateway;
pub mod import;
mod json_schema;
mod model;
mod plugins;
mod providers;
mod session;
mod shadow;
mod slots;
mod spans;
mod swap;
mod telemetry;
mod windows;

pub use accounting::AccountingSettings;
pub use agent::AgentSettings;
pub use all_settings::{SettingRow, all_settings};
pub use budget::{BudgetSettings, RESERVE_FLOOR_TOKENS};
pub use check::closest_name;
pub use compaction::{CompactionSettings, CompactionTiming};
pub use edit::entry::{EntryEdit, remove_entry_path, set_entry_path};
pub use edit::{SlotEdit, set_slot, set_slot_chain, set_slot_spec};
pub use error::{ConfigDiagnostic, ConfigError};
pub use explain::{ExplainRow, explain};
pub use failover::FailoverSettings;
pub use gateway::{GatewaySettings, is_url};
pub use json_schema::json_schema;
pub use model::{ModelDefaults, ModelSettings};
pub use plugins::{EngineEntry, PluginSettings, SlotChoice, SlotSettings};
pub use providers::SummariserSettings;
pub use session::{ImageStorage, RetentionSettings, SessionSettings};
pub use shadow::ShadowSettings;
pub use swap::SwapSettings;
pub use telemetry::TelemetrySettings;
pub use windows::{
    LONG_WINDOW_SUFFIX, MAX_WINDOW_TOKENS, ModelWindow, WindowHints, WindowSource, bare_model_name,
    table_window,
};

use spans::KeySpans;

use ctxhost_engine::EngineTimeouts;
use ctxhost_invariants::InvariantSettings;
use ctxhost_provider::ProviderSettings;
use ctxhost_store::StoreSettings;
use ctxhost_tools::{McpSettings, ToolSettings};

/// The name of the file that [`Config::discover`] looks for.
pub const FILE_NAME: &str = "ctxhost.toml";

ctxhost_engine_api::settings! {
    /// The configuration, resolved: every setting has a value, every path is whole. Nothing may be in the file that is
    /// not here.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Config {
        /// Engines and the slots they fill.
        pub plugins: PluginSettings = PluginSettings::default(), Table(PluginSettings::SETTINGS);
        /// What engines in the shadow of the slot may do.
        pub shadow: ShadowSettings = ShadowSettings::default(), Table(ShadowSettings::SETTINGS);
        /// How a window becomes a budget.
        pub budget: BudgetSettings = BudgetSettings::default(), Table(BudgetSettings::SETTINGS);
        /// The limits of the law.
        pub law: InvariantSettings = InvariantSettings::default(), Table(InvariantSettings::SETTINGS);
        /// How long an engine may take.
        pub timeouts: EngineTimeouts = EngineTimeouts::default(), Table(EngineTimeouts::SETTINGS);
        /// Windows of named models, as `provider/model`.
        pub models: BTreeMap<String, ModelSettings> = BTreeMap::new(),
            Tables(ModelSettings::SETTINGS);
        /// What holds for a model that nobody names.
        pub model: ModelDefaults = ModelDefaults::default(), Table(ModelDefaults::SETTINGS);
        /// How engines follow each other on a running host.
        pub swap: SwapSettings = SwapSettings::default(), Table(SwapSettings::SETTINGS);
        /// Who answers, and how long a turn may go on.
        pub agent: AgentSettings = AgentSettings::default(), Table(AgentSettings::SETTINGS);
        /// How sessions are kept.
        pub session: SessionSettings = SessionSettings::default(), Table(SessionSettings::SETTINGS);
        /// What `ctxhost gc` may clear away.
        pub retention: RetentionSettings = RetentionSettings::default(),
            Table(RetentionSettings::SETTINGS);
        /// When compactions happen.
        pub compaction: CompactionSettings = CompactionSettings::default(),
            Table(CompactionSettings::SETTINGS);
        /// How long models rest that gave no answer.
        pub failover: FailoverSettings = FailoverSettings::default(),
            Table(FailoverSettings::SETTINGS);
        /// How the sizes of requests are learned from what providers count.
        pub accounting: AccountingSettings = AccountingSettings::default(),
            Table(AccountingSettings::SETTINGS);
        /// Where sessions are kept: files of this machine, or a PostgreSQL database that many machines share.
        pub store: StoreSettings = StoreSettings::default(), Table(StoreSettings::SETTINGS);
        /// Providers of models, by their names.
        pub providers: BTreeMap<String, ProviderSettings> = BTreeMap::new(),
            Tables(ProviderSettings::SETTINGS);
        /// A model that engines may ask for summaries; without this table summaries are made offline.
        pub summariser: Option<SummariserSettings> = None, Table(SummariserSettings::SETTINGS);
        /// How the gateway listens, and whom it asks.
        pub gateway: GatewaySettings = GatewaySettings::default(), Table(GatewaySettings::SETTINGS);
        /// What a running gateway tells about itself.
        pub telemetry: TelemetrySettings = TelemetrySettings::default(),
            Table(TelemetrySettings::SETTINGS);
        /// Which tools the model may call, and what they may do.
        pub tools: ToolSettings = ToolSettings::default(), Table(ToolSettings::SETTINGS);
        /// Servers that bring more tools, each under a name.
        pub mcp: BTreeMap<String, McpSettings> = BTreeMap::new(), Tables(McpSettings::SETTINGS);
        #[serde(skip)]
        origin: ConfigSource = ConfigSource::default();
    }
}

/// Where a configuration was read from.
#[derive(Clone, Debug, Default)]
struct ConfigSource {
    name: String,
    text: Arc<str>,
    places: KeySpans,
}

impl Config {
    /// Reads and resolves a file.
    pub fn load(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
        let path = path.as_ref();
        let text = ctxhost_files::read_text(path, ctxhost_files::SMALL_FILE_BYTES)
            .map_err(|cause| ConfigError::Unreadable { path: path.to_owned(), cause })?;
        Config::parse(&path.display().to_string(), &text)
    }

    /// Resolves the text of a file. Paths in it are meant relative to the folder of `name`.
    pub fn parse(name: &str, text: &str) -> Result<Config, ConfigError> {
        let places = KeySpans::parse(name, text)?;
        let origin = ConfigSource { name: name.to_owned(), text: text.into(), places };
        check::check_keys(&origin)?;
        let config: Config = toml::from_str(text)
            .map_err(|error| ConfigDiagnostic::from_toml(name, text, &error))?;
        let config = config.resolved(origin);
        check::check_combinations(&config)?;
        Ok(config)
    }

    /// The nearest `ctxhost.toml`, from `start_dir` upwards.
    pub fn discover(start_dir: impl AsRef<Path>) -> Option<PathBuf> {
        let candidates = start_dir.as_ref().ancestors().map(|folder| folder.join(FILE_NAME));
        candidates.into_iter().find(|path| path.is_file())
    }

    /// The name of the file, as it was given; empty for [`Config::default`].
    pub fn name(&self) -> &str {
        &self.origin.name
    }

    /// The engine that the context-engine slot ends at, and why.
    pub fn slot(&self) -> SlotChoice {
        self.plugins.context_engine()
    }

    /// The engines that run beside the slot's own, without effect.
    pub fn shadows(&self) -> Vec<String> {
        self.plugins.shadows()
    }

    /// The engine of the memory slot; `None` while it is off.
    pub fn memory(&self) -> Option<String> {
        self.plugins.memory()
    }

    /// What is configured about an engine.
    pub fn entry(&self, id: &str) -> Option<&EngineEntry> {
        self.plugins.entries.get(id)
    }

    /// The engine's own table as JSON, unread; `{}` where there is none.
    pub fn engine_config(&self, id: &str) -> serde_json::Value {
        self.entry(id).map_or_else(|| serde_json::json!({}), EngineEntry::config_json)
    }

    /// Where a setting stands in the file, in bytes: `key = value` whole, of a table its name.
    ///
    /// Names with dots stand in quotes: `models."openai/gpt-4.1".window_tokens`.
    pub fn setting_span(&self, dotted_path: &str) -> Option<Range<usize>> {
        self.origin.places.find(&spans::split_path(dotted_path)).map(spans::KeySpan::assignment)
    }

    /// With every path taken from the folder of the file.
    fn resolved(self, origin: ConfigSource) -> Config {
        let folder = Path::new(&origin.name).parent().unwrap_or(Path::new("")).to_owned();
        let servers = self.mcp.into_iter();
        Config {
            plugins: self.plugins.with_paths_from(&folder),
            tools: self.tools.with_paths_from(&folder),
            mcp: servers.map(|(name, it)| (name, it.with_paths_from(&folder))).collect(),
            gateway: self.gateway.with_paths_from(&folder),
            origin,
            ..self
        }
    }

    /// The line of a setting, from 1.
    pub fn setting_line(&self, dotted_path: &str) -> Option<usize> {
        let start = self.setting_span(dotted_path)?.start;
        Some(spans::line_and_column(&self.origin.text, start).0)
    }
}

#[cfg(test)]
mod tests;
