//! Opens engines for commands; errors name the file and line of the config.

use std::sync::Arc;

use toml::Value;

use ctxhost_agent::engine_options::failure_log;
use ctxhost_agent::engine_registry::{EngineRegistry, EngineRegistryError};
use ctxhost_config::{Config, ConfigError};
use ctxhost_context::SessionDirectory;
use ctxhost_engine::{
    ChainSpecError, EngineEnvironment, EngineFile, EngineInstance, EngineOpenError, HostClock,
    LEGACY, parse_chain, split_ids, state_folder,
};
use ctxhost_engine_api::capability;

use super::chat::blob_dirs;
use super::error::CliError;
use super::run_setup;

/// Opens an engine by id or library path, with its settings from the config.
pub(super) fn open_engine(config: &Config, name: &str) -> Result<EngineInstance, CliError> {
    let spec = EngineRegistry::load(config)
        .spec(config, name)
        .map_err(|error| registry_error(config, name, error))?;
    let mut environment = EngineEnvironment::new(config.timeouts.clone(), HostClock::default());
    // Loading an engine can crash the process; the quarantine must know of it.
    environment.failure_log = Some(Arc::new(failure_log(config, &state_folder())));
    environment.sessions = Some(Arc::new(SessionDirectory::new(blob_dirs())));
    let mut opened = EngineInstance::open(&spec, &environment);
    // Only for an engine that requires one: a model may need a key that is set elsewhere, or read large files.
    if let Err(EngineOpenError::MissingCapabilities { missing, .. }) = &opened
        && offer_models(config, missing, &mut environment)?
    {
        opened = EngineInstance::open(&spec, &environment);
    }
    opened.map_err(|error| open_error(config, name, error))
}

/// Adds the models of the config that an engine requires, as `serve` and `replay` do; `false` if the config has none.
fn offer_models(
    config: &Config,
    missing: &[String],
    environment: &mut EngineEnvironment,
) -> Result<bool, CliError> {
    let requires = |name: &str| missing.iter().any(|missing| missing == name);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // A check sends nothing, so the runtime has to live as long as the models are made.
    let _entered = runtime.enter();
    if requires(capability::COMPLETE) {
        environment.completer = run_setup::open_completer(config)?;
    }
    if requires(capability::EMBED) {
        environment.embedder = run_setup::open_embedder(config)?;
    }
    Ok(environment.completer.is_some() || environment.embedder.is_some())
}

/// Opens one engine, or every engine of a chain.
pub(super) fn open_chain(config: &Config, name: &str) -> Result<Vec<EngineInstance>, CliError> {
    split_ids(name).into_iter().map(|name| open_engine(config, name)).collect()
}

/// Checks that an engine, or every engine of a chain, may be used.
pub(super) fn inspect_chain(config: &Config, name: &str) -> Result<(), CliError> {
    let names =
        parse_chain(name).map_err(|row| registry_error(config, name, row_error(name, row)))?;
    names.into_iter().try_for_each(|name| inspect_engine(config, name).map(drop))
}

fn row_error(name: &str, row: ChainSpecError) -> EngineRegistryError {
    EngineRegistryError::Chain { name: name.to_owned(), error: row }
}

/// Checks that an engine may be used without running it: a library is read and compared with its
/// entry, not loaded. `None` for a bundled engine.
pub(super) fn inspect_engine(config: &Config, name: &str) -> Result<Option<EngineFile>, CliError> {
    if let Some(reason) = config.plugins.disabled_reason(name).filter(|_| name != LEGACY) {
        let error = EngineRegistryError::Refused { name: name.into(), reason };
        return Err(registry_error(config, name, error));
    }
    let spec = EngineRegistry::load(config)
        .spec(config, name)
        .map_err(|error| registry_error(config, name, error))?;
    let found = spec.read_file().map_err(|error| open_error(config, name, error))?;
    // A path is checked under the id that its library states.
    let id = found.as_ref().map_or(name, |file| file.meta.id.as_str());
    // The engine in the slot needs no entry in plugins.allow.
    let in_slot = config.slot().engine;
    if id == LEGACY || split_ids(&in_slot).contains(&id) || config.plugins.allows(id) {
        return Ok(found);
    }
    let reason = "plugins.allow does not list it".into();
    Err(registry_error(config, name, EngineRegistryError::Refused { name: id.into(), reason }))
}

/// The error of an engine that cannot be opened, at the line of the setting that it rejects.
pub(super) fn open_error(config: &Config, name: &str, error: EngineOpenError) -> CliError {
    if let EngineOpenError::Create { id, error } = &error
        // By convention engines put the rejected key into the error's detail.
        && let Some(key) = error.detail.get("key").and_then(serde_json::Value::as_str)
    {
        return ConfigError::engine_setting(config, id, key, &error.message).into();
    }
    let error = CliError::from(error);
    match setting_location(config, &format!("plugins.entries.{name}.path")) {
        Some(location) => error.hint(format!("{location} sets this file for engine {name:?}")),
        None => error,
    }
}

/// The error of a name without a usable engine, with the line of the config that forbids it.
pub(super) fn registry_error(config: &Config, name: &str, error: EngineRegistryError) -> CliError {
    let location = match &error {
        // A reason starts with the key of its setting.
        EngineRegistryError::Refused { reason, .. } => {
            reason.split(' ').next().and_then(|key| setting_location(config, key))
        }
        EngineRegistryError::Unknown { .. } => {
            setting_location(config, &format!("plugins.entries.{name}"))
                .or_else(|| slot_location(config, name))
        }
        EngineRegistryError::Chain { .. } => None,
    };
    let error = CliError::from(error);
    match location {
        Some(location) => error.hint(format!("see {location}")),
        None => error,
    }
}

/// The line of the config that puts an engine into a slot, alone or in a chain.
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

/// `file:line` of a setting, if the config sets it.
pub(super) fn setting_location(config: &Config, key: &str) -> Option<String> {
    let line = config.setting_line(key)?;
    Some(format!("{}:{line}", config.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_requires_a_model_is_offered_that_of_the_config() {
        let offered = |text: &str, required: &str| {
            let config = Config::parse("ctxhost.toml", text).unwrap();
            let mut environment =
                EngineEnvironment::new(config.timeouts.clone(), HostClock::default());
            let has_models = offer_models(&config, &[required.to_owned()], &mut environment);
            (has_models.unwrap(), environment.capabilities().contains(&required.to_owned()))
        };
        let summariser = "[summariser]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n";
        let embedder = "[embedder]\nurl = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n";
        assert_eq!(offered(summariser, capability::COMPLETE), (true, true));
        assert_eq!(offered(embedder, capability::EMBED), (true, true));
        assert_eq!(offered(embedder, capability::COMPLETE), (false, false));
        assert_eq!(offered("", capability::COMPLETE), (false, false));
    }
}
