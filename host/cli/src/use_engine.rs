//! `ctxhost use`: sets the active engine after loading it once.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::config::given_or_found;
use super::engine_open;
use super::engines::{EffectiveEngine, duplicate_notes, ended_quarantines};
use super::error::CliError;
use super::output::Output;
use super::slot::SlotConfig;
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_config::{Config, FILE_NAME, set_slot_spec};
use ctxhost_engine::{EngineInstance, is_library_path};
use ctxhost_trust::PinState;

/// The effect of a changed slot on running hosts.
pub(super) const HOSTS_RELOAD: &str =
    "running hosts with this config switch to it between two turns";

/// The same if the slot already holds this engine.
const HOSTS_REOPEN: &str =
    "running hosts with this config reload it if its bytes or settings have changed";

/// The setting to change.
const SLOT: &str = "plugins.slots.context_engine";

/// Set the active engine in ctxhost.toml.
///
/// Comments are kept. If the engine does not load, the file is not changed.
#[derive(Debug, clap::Args)]
pub(super) struct UseArgs {
    /// Engine id; a chain as mask+legacy.
    pub(super) engine: String,
}

impl UseArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let path = config_target(config_path)?;
        // A missing config is not an error here: `ctxhost use` is how one is created.
        let before = if path.exists() { Config::load(&path)? } else { Config::default() };
        refuse_path(&self.engine, &path)?;
        // Loads the engine before the config is written: if it crashes this process, the config is
        // unchanged.
        let engines = engine_open::inspect_chain(&before, &self.engine)
            .and_then(|()| engine_open::open_chain(&before, &self.engine))
            .map_err(|error| with_unchanged_slot(error, &before))?;
        let edit = set_slot_spec(&path, &self.engine)?;
        // Loaded again from disk: what counts is what a host will read, not what was edited in
        // memory.
        let config = match Config::load(&path) {
            Ok(config) => config,
            Err(error) => {
                // The edit itself can make the file invalid, for example by a duplicate in a chain.
                edit.restore()?;
                return Err(with_unchanged_slot(error.into(), &before));
            }
        };
        let configured = before.slot().configured;
        let described: Vec<String> =
            engines.iter().map(|engine| describe_engine(&config, engine)).collect();
        let (noun, them) = if engines.len() == 1 { ("engine", "it") } else { ("engines", "them") };
        output.print(&format!(
            "{}: [plugins.slots] context_engine {}\n\
             active {noun}: {} - checked by loading {them}\n\
             {}\n",
            path.display(),
            self.describe_change(&configured),
            described.join(", then "),
            if configured == self.engine { HOSTS_REOPEN } else { HOSTS_RELOAD },
        ))?;
        let ids: Vec<&str> = engines.iter().map(EngineInstance::id).collect();
        let notes = ended_quarantines(&config, &self.engine).into_iter();
        notes.chain(duplicate_notes(&config, Some(&ids))).for_each(|note| output.note(&note));
        // The slot is set already, so an unreadable canary state is only a note.
        if let Err(error) = SlotConfig::new(&path, before).record_replacement(&self.engine, output)
        {
            output.note(&error.to_string());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn describe_change(&self, old: &str) -> String {
        if old == self.engine {
            return format!("is already {old:?}");
        }
        format!("{old:?} → {:?}", self.engine)
    }
}

fn describe_engine(config: &Config, engine: &EngineInstance) -> String {
    let info = engine.info();
    format!("{} {} ({})", info.id, info.version, trust_or_source(config, engine))
}

/// Why the loaded bytes are trusted: the lock file, or their source.
fn trust_or_source(config: &Config, engine: &EngineInstance) -> String {
    let registry = EngineRegistry::load(config);
    match registry.engine(engine.id()).map(|entry| &entry.standing.state) {
        Some(PinState::Pinned) => PinState::Pinned.label().to_owned(),
        _ => engine.source().to_string(),
    }
}

/// Refuses a path: the slot holds an id, so that the engine's settings can be found by it.
pub(super) fn refuse_path(engine: &str, config: &Path) -> Result<(), CliError> {
    if !is_library_path(engine) {
        return Ok(());
    }
    let message = format!("{engine:?} is a path; the slot needs an id");
    Err(CliError::user(message).hint(format!(
        "run `ctxhost install {engine}`, which adds it to {}, then `ctxhost use <id>`",
        config.display(),
    )))
}

/// Adds to an error that the slot was not changed.
fn with_unchanged_slot(error: CliError, config: &Config) -> CliError {
    let error = if error.is_untrusted() {
        let effective = EffectiveEngine::from_config(config);
        error.hint(format!("the active engine is still {}", effective.active()))
    } else {
        error
    };
    let old = config.slot().configured;
    error.hint(match engine_open::setting_location(config, SLOT) {
        Some(location) => format!("the slot is still {old:?} ({location})"),
        None => format!("the slot is still {old:?}"),
    })
}

/// The config to write: the given one, else the nearest, else a new one in the current folder.
pub(super) fn config_target(given: Option<&Path>) -> Result<PathBuf, CliError> {
    Ok(given_or_found(given)?.unwrap_or_else(|| PathBuf::from(FILE_NAME)))
}
