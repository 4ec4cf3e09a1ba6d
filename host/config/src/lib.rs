//! The config file: parsed with positions, validated, resolved with a reason for every value.
//!
//! `spans` parses a file and records the position of every key, `check` compares it with
//! `all_settings` and collects the errors, and serde fills the tables. Each setting is defined
//! once, as a field of its table; checks, JSON Schema, explanations and documentation are derived
//! from it.

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
mod closest_name;
mod compaction;
mod edit;
mod embedder;
mod engine_settings;
mod error;
mod explain;
mod failover;
mod gateway;
pub mod import;
mod json_schema;
mod model;
mod plugins;
mod providers;
mod renamed;
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
pub use closest_name::closest_name;
pub use compaction::{CompactionSettings, CompactionTiming};
pub use edit::entry::{EntryEdit, remove_entry_path, set_entry_path};
pub use edit::{SlotEdit, set_slot, set_slot_chain, set_slot_spec};
pub use embedder::{EmbedderChoice, EmbedderSettings};
pub use error::{ConfigDiagnostic, ConfigError};
pub use explain::{ExplainRow, UnknownSetting, explain, explain_key};
pub use failover::FailoverSettings;
pub use gateway::{GatewaySettings, is_url};
pub use json_schema::{SCHEMA_LINE, json_schema};
pub use model::{ModelDefaults, ModelSettings};
pub use plugins::{EngineEntry, PluginSettings, SlotChoice, SlotSettings};
pub use providers::SummariserSettings;
pub use renamed::{ignored_variables, new_metric_name};
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

/// The file name that [`Config::discover`] searches for.
pub const FILE_NAME: &str = "ctxhost.toml";

ctxhost_engine_api::settings! {
    /// The resolved config: every setting has a value, every path is absolute or relative to the
    /// current folder. The file may contain nothing else.
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Config {
        /// Engines and their slots.
        pub plugins: PluginSettings = PluginSettings::default(), Table(PluginSettings::SETTINGS);
        /// Limits of shadow engines.
        pub shadow: ShadowSettings = ShadowSettings::default(), Table(ShadowSettings::SETTINGS);
        /// From a window to a budget.
        pub budget: BudgetSettings = BudgetSettings::default(), Table(BudgetSettings::SETTINGS);
        /// Limits of the invariants.
        pub invariants: InvariantSettings = InvariantSettings::default(), Table(InvariantSettings::SETTINGS);
        /// Time limits of engine calls.
        pub timeouts: EngineTimeouts = EngineTimeouts::default(), Table(EngineTimeouts::SETTINGS);
        /// Windows of named models, as `provider/model`.
        pub models: BTreeMap<String, ModelSettings> = BTreeMap::new(),
            Tables(ModelSettings::SETTINGS);
        /// Defaults for models without an entry.
        pub model: ModelDefaults = ModelDefaults::default(), Table(ModelDefaults::SETTINGS);
        /// Reloading of engines on a running host.
        pub swap: SwapSettings = SwapSettings::default(), Table(SwapSettings::SETTINGS);
        /// The agent and the limits of its turns.
        pub agent: AgentSettings = AgentSettings::default(), Table(AgentSettings::SETTINGS);
        /// Storage of sessions.
        pub session: SessionSettings = SessionSettings::default(), Table(SessionSettings::SETTINGS);
        /// What `ctxhost gc` may remove.
        pub retention: RetentionSettings = RetentionSettings::default(),
            Table(RetentionSettings::SETTINGS);
        /// When to compact.
        pub compaction: CompactionSettings = CompactionSettings::default(),
            Table(CompactionSettings::SETTINGS);
        /// Cooldowns of failed models.
        pub failover: FailoverSettings = FailoverSettings::default(),
            Table(FailoverSettings::SETTINGS);
        /// Learning token factors from providers' counts.
        pub accounting: AccountingSettings = AccountingSettings::default(),
            Table(AccountingSettings::SETTINGS);
        /// Session storage: files, or a PostgreSQL database that several machines share.
        pub store: StoreSettings = StoreSettings::default(), Table(StoreSettings::SETTINGS);
        /// Model providers by name.
        pub providers: BTreeMap<String, ProviderSettings> = BTreeMap::new(),
            Tables(ProviderSettings::SETTINGS);
        /// The model for summaries; without it summaries are extracted offline.
        pub summariser: Option<SummariserSettings> = None, Table(SummariserSettings::SETTINGS);
        /// The model for vectors of texts; off by default.
        pub embedder: EmbedderSettings = EmbedderSettings::default(),
            Table(EmbedderSettings::SETTINGS);
        /// The HTTP gateway.
        pub gateway: GatewaySettings = GatewaySettings::default(), Table(GatewaySettings::SETTINGS);
        /// Traces and dashboard of a gateway.
        pub telemetry: TelemetrySettings = TelemetrySettings::default(),
            Table(TelemetrySettings::SETTINGS);
        /// Tools of the agent.
        pub tools: ToolSettings = ToolSettings::default(), Table(ToolSettings::SETTINGS);
        /// MCP servers by name.
        pub mcp: BTreeMap<String, McpSettings> = BTreeMap::new(), Tables(McpSettings::SETTINGS);
        #[serde(skip)]
        origin: ConfigSource = ConfigSource::default();
    }
}

/// Where a config was read from.
#[derive(Clone, Debug, Default)]
struct ConfigSource {
    name: String,
    text: Arc<str>,
    spans: KeySpans,
}

impl Config {
    /// Reads and resolves a file.
    pub fn load(path: impl AsRef<Path>) -> Result<Config, ConfigError> {
        let path = path.as_ref();
        let text = read_text(path)?;
        Config::parse(&path.display().to_string(), &text)
    }

    /// Resolves the text of a file. Its paths are relative to the folder of `name`.
    pub fn parse(name: &str, text: &str) -> Result<Config, ConfigError> {
        let spans = KeySpans::parse(name, text)?;
        let origin = ConfigSource { name: name.to_owned(), text: text.into(), spans };
        let origin = check::hide_keys(origin);
        // Before serde, whose messages have no suggestion and stop at the first type error.
        let mut errors = check::check_keys(&origin);
        if !errors.is_empty() {
            // So that one run of `config check` shows them together.
            errors.extend(check::check_combinations_without(&origin, &errors));
            errors.extend(engine_settings::check_engine_settings(&origin));
            ConfigDiagnostic::combine(errors)?;
        }
        ConfigDiagnostic::combine(providers::check_dialects(&origin))?;
        let config: Config = toml::from_str(text)
            .map_err(|error| Box::new(ConfigDiagnostic::from_toml(name, text, &error)))?;
        let config = config.resolved(origin);
        // After the tables are filled, since defaults take part in these rules.
        let mut errors = check::check_combinations(&config);
        if !errors.is_empty() {
            errors.extend(engine_settings::check_engine_settings(&config.origin));
        }
        ConfigDiagnostic::combine(errors)?;
        Ok(config)
    }

    /// The nearest `ctxhost.toml`, from `start_dir` upwards.
    pub fn discover(start_dir: impl AsRef<Path>) -> Option<PathBuf> {
        // Like .git or Cargo.toml, so that a project can have its own config.
        let candidates = start_dir.as_ref().ancestors().map(|folder| folder.join(FILE_NAME));
        // Also a broken link, a folder or a pipe: reading it says what is wrong, where the defaults would be a surprise.
        candidates.into_iter().find(|path| path.symlink_metadata().is_ok())
    }

    /// The name of the file, as given; empty for [`Config::default`].
    pub fn name(&self) -> &str {
        &self.origin.name
    }

    /// The active engine, and why it differs from the configured one.
    pub fn slot(&self) -> SlotChoice {
        self.plugins.context_engine()
    }

    /// The shadow engines.
    pub fn shadows(&self) -> Vec<String> {
        self.plugins.shadows()
    }

    /// The engine of the memory slot; `None` if it is off.
    pub fn memory(&self) -> Option<String> {
        self.plugins.memory()
    }

    /// The entry of an engine.
    pub fn entry(&self, id: &str) -> Option<&EngineEntry> {
        self.plugins.entries.get(id)
    }

    /// The engine's own table as JSON; `{}` without one.
    pub fn engine_config(&self, id: &str) -> serde_json::Value {
        self.entry(id).map_or_else(|| serde_json::json!({}), EngineEntry::config_json)
    }

    /// The position of a setting, in bytes: the whole `key = value`, or the name of a table.
    ///
    /// Names with dots are quoted: `models."openai/gpt-4.1".window_tokens`.
    pub fn setting_span(&self, dotted_path: &str) -> Option<Range<usize>> {
        self.origin.spans.find(&spans::split_path(dotted_path)).map(spans::KeySpan::assignment)
    }

    /// With every path relative to the folder of the file.
    fn resolved(self, origin: ConfigSource) -> Config {
        // Relative to the file, not to the current folder: a host may be started from anywhere.
        let folder = Path::new(&origin.name).parent().unwrap_or(Path::new("")).to_owned();
        let servers = self.mcp.into_iter();
        Config {
            plugins: self.plugins.with_paths_from(&folder),
            tools: self.tools.with_paths_from(&folder),
            mcp: servers.map(|(name, server)| (name, server.with_paths_from(&folder))).collect(),
            gateway: self.gateway.with_paths_from(&folder),
            embedder: self.embedder.with_paths_from(&folder),
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

/// Reads a config, which is UTF-8 text.
fn read_text(path: &Path) -> Result<String, ConfigError> {
    let bytes = ctxhost_files::read(path, ctxhost_files::SMALL_FILE_BYTES)
        .map_err(|cause| ConfigError::Unreadable { path: path.to_owned(), cause })?;
    let decoded = String::from_utf8(bytes);
    decoded
        .map_err(|error| ConfigDiagnostic::from_bytes(&path.display().to_string(), &error).into())
}

#[cfg(test)]
mod tests;
