//! Engines opened for a command: what is wrong with one is told with the file and line to mend.

use std::sync::Arc;

use toml::Value;

use ctxhost_agent::engine_options::failure_log;
use ctxhost_agent::engine_registry::{EngineRegistry, EngineRegistryError};
use ctxhost_config::{Config, ConfigError};
use ctxhost_engine::{
    ChainSpecError, EngineEnvironment, EngineFile, EngineInstance, EngineOpenError, HostClock,
    LEGACY, parse_chain, split_ids, state_folder,
};

use super::error::CliError;

/// Opens an engine by its id or by the path of its library, with its settings from the config.
pub(super) fn open_engine(config: &Config, name: &str) -> Result<EngineInstance, CliError> {
    let spec = EngineRegistry::load(config)
        .spec(config, name)
        .map_err(|error| registry_error(config, name, error))?;
    let mut environment = EngineEnvironment::new(config.timeouts.clone(), HostClock::default());
    environment.failure_log = Some(Arc::new(failure_log(config, &state_folder())));
    EngineInstance::open(&spec, &environment).map_err(|error| open_error(config, name, error))
}

/// Opens the engines of a name: one engine, or several in a row.
pub(super) fn open_chain(config: &Config, name: &str) -> Result<Vec<EngineInstance>, CliError> {
    split_ids(name).into_iter().map(|name| open_engine(config, name)).collect()
}

/// Finds the engines of a name that may serve: of one engine, or of several in a row.
pub(super) fn inspect_chain(config: &Config, name: &str) -> Result<(), CliError> {
    let names =
        parse_chain(name).map_err(|row| registry_error(config, name, row_error(name, row)))?;
    names.into_iter().try_for_each(|name| inspect_engine(config, name).map(drop))
}

fn row_error(name: &str, row: ChainSpecError) -> EngineRegistryError {
    EngineRegistryError::Chain { name: name.to_owned(), error: row }
}

/// Finds an engine that may serve without running anything of it: a library is read and held
/// against its entry, not loaded. `None` for a bundled engine.
pub(super) fn inspect_engine(config: &Config, name: &str) -> Result<Option<EngineFile>, CliError> {
    if let Some(reason) = config.plugins.disabled_reason(name).filter(|_| name != LEGACY) {
        let error = EngineRegistryError::Refused { name: name.into(), reason };
        return Err(registry_error(config, name, error));
    }
    let spec = EngineRegistry::load(config)
        .spec(config, name)
        .map_err(|error| registry_error(config, name, error))?;
    let found = spec.read_file().map_err(|error| open_error(config, name, error))?;
    let id = found.as_ref().map_or(name, |file| file.meta.id.as_str());
    // Naming an engine in the slot is permission enough; elsewhere the list of the welcome counts.
    let in_slot = config.slot().engine;
    if id == LEGACY || split_ids(&in_slot).contains(&id) || config.plugins.allows(id) {
        return Ok(found);
    }
    let reason = "plugins.allow does not name it".into();
    Err(registry_error(config, name, EngineRegistryError::Refused { name: id.into(), reason }))
}

/// Why an engine could not be opened: a setting that it refuses is shown in its place.
pub(super) fn open_error(config: &Config, name: &str, error: EngineOpenError) -> CliError {
    if let EngineOpenError::Create { id, error } = &error
        && let Some(key) = error.detail.get("key").and_then(serde_json::Value::as_str)
    {
        return ConfigError::engine_setting(config, id, key, &error.message).into();
    }
    let failure = CliError::from(error);
    match setting_location(config, &format!("plugins.entries.{name}.path")) {
        Some(place) => failure.hint(format!("{place} names this file for engine {name:?}")),
        None => failure,
    }
}

/// Why a name leads to no engine: where the config forbids it, the line that does.
pub(super) fn registry_error(config: &Config, name: &str, error: EngineRegistryError) -> CliError {
    let place = match &error {
        // A reason begins with the setting that it comes from.
        EngineRegistryError::Refused { reason, .. } => {
            reason.split(' ').next().and_then(|key| setting_location(config, key))
        }
        EngineRegistryError::Unknown { .. } => {
            setting_location(config, &format!("plugins.entries.{name}"))
                .or_else(|| slot_location(config, name))
        }
        EngineRegistryError::Chain { .. } => None,
    };
    let failure = CliError::from(error);
    match place {
        Some(place) => failure.hint(format!("see {place}")),
        None => failure,
    }
}

/// The line of the config that puts a name into a slot, alone or in a row.
fn slot_location(config: &Config, name: &str) -> Option<String> {
    let names = |written: &str| split_ids(written).contains(&name);
    let at = |list: &str, number: usize| {
        setting_location(config, &format!("plugins.slots.{list}.{number}"))
    };
    let slots = &config.plugins.slots;
    let in_slot = match &slots.context_engine {
        Some(Value::String(text)) if names(text.trim()) => {
            setting_location(config, "plugins.slots.context_engine")
        }
        Some(Value::Array(row)) => row
            .iter()
            .position(|item| item.as_str().is_some_and(|text| names(text.trim())))
            .and_then(|number| at("context_engine", number)),
        _ => None,
    };
    let in_shadow = || slots.shadow.iter().position(|shadow| names(shadow));
    in_slot.or_else(|| at("shadow", in_shadow()?))
}

/// `file:line` of a setting, where the config has it.
pub(super) fn setting_location(config: &Config, key: &str) -> Option<String> {
    let line = config.setting_line(key)?;
    Some(format!("{}:{line}", config.name()))
}
