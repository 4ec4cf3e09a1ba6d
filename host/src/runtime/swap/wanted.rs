//! What a config wants in the slot, as far as a running host follows it.

use crate::config::Config;
use crate::engine::{EngineSpec, OnEngineError, Source, Timeouts, inspect};
use crate::runtime::roster::{Roster, RosterError};
use crate::runtime::setup::Setup;
use crate::runtime::workspace::WorkspaceRules;

/// What a config wants in the slot.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::runtime) struct Wanted {
    engine: EngineSpec,
    legacy: EngineSpec,
    on_error: OnEngineError,
    timeouts: Timeouts,
    /// The digest of the engine's library: the same path may hold other bytes.
    sha256: Option<String>,
}

impl Wanted {
    /// What this config wants.
    ///
    /// # Errors
    ///
    /// [`RosterError`] where its slot names no engine that there is.
    pub(in crate::runtime) fn of(
        config: &Config,
        rules: Option<&WorkspaceRules>,
    ) -> Result<Wanted, RosterError> {
        let engine = engine_of(config, &config.slot().engine, rules)?;
        let sha256 = match &engine.source {
            // One that cannot be read is told of when it is opened.
            Source::File(path) => inspect(path).ok().map(|file| file.sha256),
            Source::Bundled | Source::Linked(_) => None,
        };
        Ok(Wanted {
            engine,
            legacy: legacy_of(config, rules),
            on_error: config.plugins.on_engine_error,
            timeouts: config.timeouts.clone(),
            sha256,
        })
    }

    /// The engine to open.
    pub(super) fn engine(&self) -> EngineSpec {
        self.engine.clone()
    }

    /// What to open it with.
    pub(super) fn setup(&self, setup: &Setup) -> Setup {
        Setup {
            on_error: self.on_error,
            legacy: self.legacy.clone(),
            timeouts: self.timeouts.clone(),
            ..setup.clone()
        }
    }
}

/// An engine of a config, with the rules of the workspace where it takes them.
///
/// # Errors
///
/// [`RosterError`].
pub(in crate::runtime) fn engine_of(
    config: &Config,
    name: &str,
    rules: Option<&WorkspaceRules>,
) -> Result<EngineSpec, RosterError> {
    let mut engine = Roster::of(config).spec(config, name)?;
    if let Some(rules) = rules {
        rules.give(&mut engine);
    }
    Ok(engine)
}

/// The engine that stands in, with the same rules.
pub(in crate::runtime) fn legacy_of(config: &Config, rules: Option<&WorkspaceRules>) -> EngineSpec {
    let mut legacy = Roster::of(config).legacy(config);
    if let Some(rules) = rules {
        rules.give(&mut legacy);
    }
    legacy
}
