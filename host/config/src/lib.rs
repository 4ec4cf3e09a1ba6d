//! The configuration file: read with its places kept, resolved with a reason for every choice.
//!
//! A file becomes a [`Config`] in three steps: `places` parses it and remembers where every key
//! stands, `check` compares it with the `catalogue` of settings and points at the first mistake,
//! and serde fills the tables, each of which knows its own defaults. Nothing in a file is ignored.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

mod accounting;
mod agent;
mod budget;
mod catalogue;
mod check;
mod compaction;
mod edit;
mod error;
mod explain;
mod failover;
mod gateway;
pub mod import;
mod places;
mod plugins;
mod providers;
mod session;
mod shadow;
mod slots;
mod swap;
mod tables;
mod telemetry;
mod windows;

pub use accounting::AccountingSettings;
pub use agent::AgentSettings;
pub use budget::{BudgetSettings, RESERVE_FLOOR_TOKENS};
pub use catalogue::{Allowed, SETTINGS, Setting};
pub use check::nearest;
pub use compaction::{CompactionSettings, Timing};
pub use edit::entry::{EntryEdit, drop_entry_path, set_entry_path};
pub use edit::{SlotEdit, set_row, set_slot, set_stack};
pub use error::{ConfigError, Mistake};
pub use explain::{ExplainRow, explain};
pub use failover::FailoverSettings;
pub use gateway::{GatewaySettings, is_address};
pub use plugins::{Entry, Plugins, SlotChoice, Slots};
pub use session::{MediaPlace, RetentionSettings, SessionSettings};
pub use shadow::ShadowSettings;
pub use swap::SwapSettings;
pub use tables::{ModelDefaults, ModelSettings, SummariserSettings};
pub use telemetry::TelemetrySettings;
pub use windows::{
    LONG_MARK, MAX_WINDOW_TOKENS, ModelWindow, WindowHints, WindowSource, bare_model_name,
    table_window,
};

use places::Places;

use ctxhost_engine::Timeouts;
use ctxhost_law::LawSettings;
use ctxhost_provider::ProviderSettings;
use ctxhost_store::StoreSettings;
use ctxhost_tool::{McpSettings, ToolSettings};

/// The name of the file that [`Config::discover`] looks for.
pub const FILE_NAME: &str = "ctxhost.toml";

/// The configuration, resolved: every setting has a value, every path is whole.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Engines and the slots they fill.
    pub plugins: Plugins,
    /// How a window becomes a budget.
    pub budget: BudgetSettings,
    /// The limits of the law.
    pub law: LawSettings,
    /// How long an engine may take.
    pub timeouts: Timeouts,
    /// Providers of models, by their names.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// Windows of named models.
    pub models: BTreeMap<String, ModelSettings>,
    /// What holds for a model that nobody names.
    pub model: ModelDefaults,
    /// How engines follow each other on a running host.
    pub swap: SwapSettings,
    /// Who answers.
    pub agent: AgentSettings,
    /// How sessions are kept.
    pub session: SessionSettings,
    /// What may be cleared away.
    pub retention: RetentionSettings,
    /// When compactions happen.
    pub compaction: CompactionSettings,
    /// Engines that run beside the slot's own.
    pub shadow: ShadowSettings,
    /// How long models rest that gave no answer.
    pub failover: FailoverSettings,
    /// How the sizes of requests are learned.
    pub accounting: AccountingSettings,
    /// Where sessions are kept.
    pub store: StoreSettings,
    /// The model behind `Host::complete`, where there is one.
    pub summariser: Option<SummariserSettings>,
    /// Which tools there are, and what they may do.
    pub tools: ToolSettings,
    /// Servers that bring more of them.
    pub mcp: BTreeMap<String, McpSettings>,
    /// How the gateway listens, and whom it asks.
    pub gateway: GatewaySettings,
    /// What a running gateway tells about itself.
    pub telemetry: TelemetrySettings,
    origin: Origin,
}

/// Where a configuration was read from.
#[derive(Clone, Debug, Default)]
struct Origin {
    name: String,
    text: Arc<str>,
    places: Places,
}

/// The file as written: every table may be missing, and nothing may stand there that we do not know.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    plugins: Plugins,
    budget: BudgetSettings,
    law: LawSettings,
    timeouts: Timeouts,
    providers: BTreeMap<String, ProviderSettings>,
    models: BTreeMap<String, ModelSettings>,
    model: ModelDefaults,
    swap: SwapSettings,
    agent: AgentSettings,
    session: SessionSettings,
    retention: RetentionSettings,
    compaction: CompactionSettings,
    shadow: ShadowSettings,
    failover: FailoverSettings,
    accounting: AccountingSettings,
    store: StoreSettings,
    summariser: Option<SummariserSettings>,
    tools: ToolSettings,
    mcp: BTreeMap<String, McpSettings>,
    gateway: GatewaySettings,
    telemetry: TelemetrySettings,
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
        let places = Places::read(name, text)?;
        let origin = Origin { name: name.to_owned(), text: text.into(), places };
        check::settings(&origin)?;
        let written: Written =
            toml::from_str(text).map_err(|error| Mistake::from_toml(name, text, &error))?;
        let config = written.resolve(origin);
        check::together(&config)?;
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
    pub fn entry(&self, id: &str) -> Option<&Entry> {
        self.plugins.entries.get(id)
    }

    /// The engine's own table as JSON, unread; `{}` where there is none.
    pub fn engine_config(&self, id: &str) -> serde_json::Value {
        self.entry(id).map_or_else(|| serde_json::json!({}), Entry::config_json)
    }

    /// Where a setting stands in the file, in bytes: `key = value` whole, of a table its name.
    ///
    /// Names with dots stand in quotes: `models."openai/gpt-4.1".window_tokens`.
    pub fn span_of(&self, dotted_path: &str) -> Option<Range<usize>> {
        self.origin.places.find(&places::segments(dotted_path)).map(places::Place::assignment)
    }

    /// The line of a setting, from 1.
    pub fn line_of(&self, dotted_path: &str) -> Option<usize> {
        let start = self.span_of(dotted_path)?.start;
        Some(places::line_and_column(&self.origin.text, start).0)
    }
}

impl Written {
    fn resolve(self, origin: Origin) -> Config {
        let folder = Path::new(&origin.name).parent().unwrap_or(Path::new("")).to_owned();
        let servers = self.mcp.into_iter();
        Config {
            plugins: self.plugins.with_paths_from(&folder),
            budget: self.budget,
            law: self.law,
            timeouts: self.timeouts,
            providers: self.providers,
            models: self.models,
            model: self.model,
            swap: self.swap,
            agent: self.agent,
            session: self.session,
            retention: self.retention,
            compaction: self.compaction,
            shadow: self.shadow,
            failover: self.failover,
            accounting: self.accounting,
            store: self.store,
            summariser: self.summariser,
            tools: self.tools.with_paths_from(&folder),
            mcp: servers.map(|(name, it)| (name, it.with_paths_from(&folder))).collect(),
            gateway: self.gateway.with_paths_from(&folder),
            telemetry: self.telemetry,
            origin,
        }
    }
}

#[cfg(test)]
mod tests;
