//! Opens a context for a program that calls the model itself.

use std::sync::Arc;

use super::engine_options::EngineOptions;
use super::engine_registry::{EngineRegistry, EngineRegistryError};
use super::reload::engine_selection;
use ctxhost_config::Config;
use ctxhost_context::{Context, ContextError, ContextSettings};
use ctxhost_engine::EngineSpec;
use ctxhost_session::Session;

/// Opens a context of a session with an engine or a chain. Engines store nothing on disk.
///
/// # Errors
///
/// [`ContextError::Slot`] if an engine does not open.
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

/// The engine chain of a config's slot.
///
/// # Errors
///
/// [`EngineRegistryError`] if the slot names an unknown engine.
pub fn slot_engines(config: &Config) -> Result<Vec<EngineSpec>, EngineRegistryError> {
    engine_selection::engine_chain(config, &config.slot().engine, None)
}
