//! A context for a program that asks its model itself.

use std::sync::Arc;

use super::engine_options::EngineOptions;
use super::engine_registry::{EngineRegistry, EngineRegistryError};
use super::reload;
use ctxhost_config::Config;
use ctxhost_context::{Context, ContextError, ContextSettings};
use ctxhost_engine::EngineSpec;
use ctxhost_session::Session;

/// A context of a session with an engine, or a chain of several, as a config says. Engines store nothing on a disk.
///
/// # Errors
///
/// [`ContextError::Slot`] where an engine does not open.
pub fn open_context(
    config: &Config,
    engines: &(impl AsRef<[EngineSpec]> + ?Sized),
    session: Session,
) -> Result<Context, ContextError> {
    let settings = ContextSettings::from_config(config);
    let options = EngineOptions::new(config, EngineRegistry::load(config).legacy(config));
    let engine = options.open(engines, &settings.clock, settings.sessions.clone())?;
    Ok(Context::new(session, Arc::new(engine), Arc::new(settings)))
}

/// The engines that a config's slot names.
///
/// # Errors
///
/// [`EngineRegistryError`] where it names none that there is.
pub fn slot_engines(config: &Config) -> Result<Vec<EngineSpec>, EngineRegistryError> {
    reload::engine_chain(config, &config.slot().engine, None)
}
