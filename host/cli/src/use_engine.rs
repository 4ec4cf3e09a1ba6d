//! `ctxhost use`: another engine in the slot, proved by loading it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::config::find_config_file;
use super::engine_open;
use super::engines::EffectiveEngine;
use super::error::CliError;
use super::output::Output;
use super::slot::SlotConfig;
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_config::{Config, FILE_NAME, set_slot_spec};
use ctxhost_engine::EngineInstance;
use ctxhost_trust::PinState;

/// What a change of the slot comes to.
pub(super) const HOSTS_RELOAD: &str =
    "hosts that run with this config swap to it between two turns";

/// The same where the slot holds the engine already.
const HOSTS_REOPEN: &str =
    "hosts that run with this config open it anew if its bytes or settings have changed";

/// The setting that is changed.
const SLOT: &str = "plugins.slots.context_engine";

/// Put an engine into the slot. The config keeps its comments; if the engine does not load, the config
/// is as it was.
#[derive(Debug, clap::Args)]
pub(super) struct UseArgs {
    /// The engine's id; several in a row as mask+legacy.
    pub(super) engine: String,
}

impl UseArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let path = config_target(config_path);
        let before = if path.exists() { Config::load(&path)? } else { Config::default() };
        refuse_path(&self.engine, &path)?;
        // Before the config is touched: an engine that takes this process down leaves it as it was.
        let engines = engine_open::inspect_chain(&before, &self.engine)
            .and_then(|()| engine_open::open_chain(&before, &self.engine))
            .map_err(|failure| with_unchanged_slot(failure, &before))?;
        let edit = set_slot_spec(&path, &self.engine)?;
        let config = match Config::load(&path) {
            Ok(config) => config,
            Err(error) => {
                edit.restore()?;
                return Err(with_unchanged_slot(error.into(), &before));
            }
        };
        let configured = before.slot().configured;
        let told: Vec<String> =
            engines.iter().map(|engine| describe_engine(&config, engine)).collect();
        let (noun, them) = if engines.len() == 1 { ("engine", "it") } else { ("engines", "them") };
        output.print(&format!(
            "{}: [plugins.slots] context_engine {}\n\
             effective {noun}: {} - checked by loading {them}\n\
             {}\n",
            path.display(),
            self.describe_change(&configured),
            told.join(", then "),
            if configured == self.engine { HOSTS_REOPEN } else { HOSTS_RELOAD },
        ))?;
        // The slot is filled, whatever is the matter with the notes beside it.
        if let Err(failure) =
            SlotConfig::new(&path, before).record_replacement(&self.engine, output)
        {
            output.note(&failure.to_string());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn describe_change(&self, old: &str) -> String {
        if old == self.engine {
            return format!("is {old:?} already");
        }
        format!("{old:?} -> {:?}", self.engine)
    }
}

fn describe_engine(config: &Config, engine: &EngineInstance) -> String {
    let info = engine.info();
    format!("{} {} ({})", info.id, info.version, trust_or_source(config, engine))
}

/// Who answers for the bytes that were loaded: the lock, or the place they came from.
fn trust_or_source(config: &Config, engine: &EngineInstance) -> String {
    let roster = EngineRegistry::load(config);
    match roster.engine(engine.id()).map(|it| &it.standing.state) {
        Some(PinState::Pinned) => PinState::Pinned.label().to_owned(),
        _ => engine.source().to_string(),
    }
}

/// The slot holds an id, which an entry leads to its file, so that settings find their engine.
pub(super) fn refuse_path(engine: &str, config: &Path) -> Result<(), CliError> {
    if !engine.contains('/') && !engine.ends_with(".so") {
        return Ok(());
    }
    let message = format!("{engine:?} is a path, and the slot holds an id");
    Err(CliError::user(message).hint(format!(
        "`ctxhost install {engine}` pins it and names it in {}; then `ctxhost use <id>`",
        config.display(),
    )))
}

/// What a refusal leaves as it was.
fn with_unchanged_slot(failure: CliError, config: &Config) -> CliError {
    let failure = match failure.is_untrusted() {
        true => failure.hint(format!(
            "effective engine stays {}",
            EffectiveEngine::from_config(config).effective()
        )),
        false => failure,
    };
    let old = config.slot().configured;
    failure.hint(match engine_open::setting_location(config, SLOT) {
        Some(place) => format!("the slot still says {old:?} ({place})"),
        None => format!("the slot still says {old:?}"),
    })
}

/// The file that was named, else the nearest one, else a new one here.
pub(super) fn config_target(given: Option<&Path>) -> PathBuf {
    given.map(Path::to_owned).or_else(find_config_file).unwrap_or_else(|| PathBuf::from(FILE_NAME))
}
