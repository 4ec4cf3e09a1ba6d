//! Engines opened for a command: what is wrong with one is told with the file and line to mend.

use std::sync::Arc;

use toml::Value;

use ctxhost_config::{Config, ConfigError};
use ctxhost_engine::{
    Clock, EngineInstance, Environment, Inspected, LEGACY, OpenError, RowError, read_row, stages,
    state_folder,
};
use ctxhost_runtime::engine_options::failure_book;
use ctxhost_runtime::roster::{Roster, RosterError};

use super::failure::Failure;

/// Opens an engine by its id or by the path of its library, with its settings from the config.
pub(super) fn open(config: &Config, name: &str) -> Result<EngineInstance, Failure> {
    let spec =
        Roster::of(config).spec(config, name).map_err(|error| unlisted(config, name, error))?;
    let mut environment = Environment::new(config.timeouts.clone(), Clock::default());
    environment.failures = Some(Arc::new(failure_book(config, &state_folder())));
    EngineInstance::open(&spec, &environment).map_err(|error| unopened(config, name, error))
}

/// Opens the engines of a name: one engine, or several in a row.
pub(super) fn open_all(config: &Config, name: &str) -> Result<Vec<EngineInstance>, Failure> {
    stages(name).into_iter().map(|name| open(config, name)).collect()
}

/// Finds the engines of a name that may serve: of one engine, or of several in a row.
pub(super) fn find_all(config: &Config, name: &str) -> Result<(), Failure> {
    let names = read_row(name).map_err(|row| unlisted(config, name, row_error(name, row)))?;
    names.into_iter().try_for_each(|name| find(config, name).map(drop))
}

fn row_error(name: &str, row: RowError) -> RosterError {
    RosterError::Row { name: name.to_owned(), row }
}

/// Finds an engine that may serve without running anything of it: a library is read and held
/// against its entry, not loaded. `None` for a bundled engine.
pub(super) fn find(config: &Config, name: &str) -> Result<Option<Inspected>, Failure> {
    if let Some(reason) = config.plugins.refusal(name).filter(|_| name != LEGACY) {
        let error = RosterError::Refused { name: name.into(), reason };
        return Err(unlisted(config, name, error));
    }
    let spec =
        Roster::of(config).spec(config, name).map_err(|error| unlisted(config, name, error))?;
    let found = spec.read().map_err(|error| unopened(config, name, error))?;
    let id = found.as_ref().map_or(name, |file| file.meta.id.as_str());
    // Naming an engine in the slot is permission enough; elsewhere the list of the welcome counts.
    let in_slot = config.slot().engine;
    if id == LEGACY || stages(&in_slot).contains(&id) || config.plugins.welcomes(id) {
        return Ok(found);
    }
    let reason = "plugins.allow does not name it".into();
    Err(unlisted(config, name, RosterError::Refused { name: id.into(), reason }))
}

/// Why an engine could not be opened: a setting that it refuses is shown in its place.
pub(super) fn unopened(config: &Config, name: &str, error: OpenError) -> Failure {
    if let OpenError::Create { id, error } = &error
        && let Some(key) = error.detail.get("key").and_then(serde_json::Value::as_str)
    {
        return ConfigError::engine_setting(config, id, key, &error.message).into();
    }
    let failure = Failure::from(error);
    match place(config, &format!("plugins.entries.{name}.path")) {
        Some(place) => failure.hint(format!("{place} names this file for engine {name:?}")),
        None => failure,
    }
}

/// Why a name leads to no engine: where the config forbids it, the line that does.
pub(super) fn unlisted(config: &Config, name: &str, error: RosterError) -> Failure {
    let place = match &error {
        // A reason begins with the setting that it comes from.
        RosterError::Refused { reason, .. } => {
            reason.split(' ').next().and_then(|key| place(config, key))
        }
        RosterError::Unknown { .. } => {
            place(config, &format!("plugins.entries.{name}")).or_else(|| slot_of(config, name))
        }
        RosterError::Row { .. } => None,
    };
    let failure = Failure::from(error);
    match place {
        Some(place) => failure.hint(format!("see {place}")),
        None => failure,
    }
}

/// The line of the config that puts a name into a slot, alone or in a row.
fn slot_of(config: &Config, name: &str) -> Option<String> {
    let names = |written: &str| stages(written).contains(&name);
    let at = |list: &str, number: usize| place(config, &format!("plugins.slots.{list}.{number}"));
    let slots = &config.plugins.slots;
    let in_slot = match &slots.context_engine {
        Some(Value::String(text)) if names(text.trim()) => {
            place(config, "plugins.slots.context_engine")
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
pub(super) fn place(config: &Config, key: &str) -> Option<String> {
    let line = config.line_of(key)?;
    Some(format!("{}:{line}", config.name()))
}
