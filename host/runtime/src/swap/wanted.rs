//! What a config wants in the slot, as far as a running host follows it.

use crate::engine_options::EngineOptions;
use crate::roster::{Roster, RosterError};
use crate::workspace::WorkspaceRules;
use ctxhost_config::Config;
use ctxhost_engine::{EngineSpec, OnEngineError, Source, Timeouts, inspect};

/// What a config wants in the slot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    engines: Vec<EngineSpec>,
    legacy: EngineSpec,
    on_error: OnEngineError,
    timeouts: Timeouts,
    /// The digests of the engines' libraries: the same path may hold other bytes.
    sha256: Vec<Option<String>>,
}

impl Wanted {
    /// What this config wants.
    ///
    /// # Errors
    ///
    /// [`RosterError`] where its slot names no engine that there is.
    pub(crate) fn of(
        config: &Config,
        rules: Option<&WorkspaceRules>,
    ) -> Result<Wanted, RosterError> {
        let engines = engines_of(config, &config.slot().engine, rules)?;
        let sha256 = |engine: &EngineSpec| match &engine.source {
            // One that cannot be read is told of when it is opened.
            Source::File(path) => inspect(path).ok().map(|file| file.sha256),
            Source::Bundled | Source::Linked(_) => None,
        };
        Ok(Wanted {
            sha256: engines.iter().map(sha256).collect(),
            engines,
            legacy: legacy_of(config, rules),
            on_error: config.plugins.on_engine_error,
            timeouts: config.timeouts.clone(),
        })
    }

    /// The engines to open.
    pub(super) fn engines(&self) -> Vec<EngineSpec> {
        self.engines.clone()
    }

    /// What to open it with.
    pub(super) fn options(&self, options: &EngineOptions) -> EngineOptions {
        EngineOptions {
            on_error: self.on_error,
            legacy: self.legacy.clone(),
            timeouts: self.timeouts.clone(),
            ..options.clone()
        }
    }
}

/// The engines of a name, one or several in a row, with the rules of the workspace where they take them.
///
/// # Errors
///
/// [`RosterError`].
pub(crate) fn engines_of(
    config: &Config,
    name: &str,
    rules: Option<&WorkspaceRules>,
) -> Result<Vec<EngineSpec>, RosterError> {
    let mut engines = Roster::of(config).stack(config, name)?;
    if let Some(rules) = rules {
        engines.iter_mut().for_each(|engine| _ = rules.give(engine));
    }
    Ok(engines)
}

/// The engine that stands in, with the same rules.
pub(crate) fn legacy_of(config: &Config, rules: Option<&WorkspaceRules>) -> EngineSpec {
    let mut legacy = Roster::of(config).legacy(config);
    if let Some(rules) = rules {
        rules.give(&mut legacy);
    }
    legacy
}
