//! The engine settings of a config that a running host applies without a restart.

use crate::engine_options::EngineOptions;
use crate::engine_registry::{EngineRegistry, EngineRegistryError};
use crate::workspace::WorkspaceRules;
use ctxhost_config::Config;
use ctxhost_engine::{EngineSource, EngineSpec, EngineTimeouts, OnEngineError, inspect};

/// The engines of a config's slot and how they are opened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EngineSelection {
    engines: Vec<EngineSpec>,
    legacy: EngineSpec,
    on_error: OnEngineError,
    timeouts: EngineTimeouts,
    /// The digests of the libraries, since a file may be replaced under the same path.
    sha256: Vec<Option<String>>,
}

impl EngineSelection {
    /// Reads the selection of a config.
    ///
    /// # Errors
    ///
    /// [`EngineRegistryError`] if the slot names an unknown engine.
    pub(crate) fn from_config(
        config: &Config,
        rules: Option<&WorkspaceRules>,
    ) -> Result<EngineSelection, EngineRegistryError> {
        let engines = engine_chain(config, &config.slot().engine, rules)?;
        let sha256 = |engine: &EngineSpec| match &engine.source {
            // An unreadable file is reported when the engine is opened.
            EngineSource::File(path) => inspect(path).ok().map(|file| file.sha256),
            EngineSource::Bundled | EngineSource::Linked(_) => None,
        };
        Ok(EngineSelection {
            sha256: engines.iter().map(sha256).collect(),
            engines,
            legacy: fallback_engine(config, rules),
            on_error: config.plugins.on_engine_error,
            timeouts: config.timeouts.clone(),
        })
    }

    pub(super) fn engines(&self) -> Vec<EngineSpec> {
        self.engines.clone()
    }

    /// The options to open the engines with.
    pub(super) fn options(&self, options: &EngineOptions) -> EngineOptions {
        EngineOptions {
            on_error: self.on_error,
            legacy: self.legacy.clone(),
            timeouts: self.timeouts.clone(),
            ..options.clone()
        }
    }
}

/// The engines of a name (an id, a path, or a chain), with the workspace rules for those that take them.
pub(crate) fn engine_chain(
    config: &Config,
    name: &str,
    rules: Option<&WorkspaceRules>,
) -> Result<Vec<EngineSpec>, EngineRegistryError> {
    let mut engines = EngineRegistry::load(config).chain(config, name)?;
    if let Some(rules) = rules {
        engines.iter_mut().for_each(|engine| _ = rules.apply_to(engine));
    }
    Ok(engines)
}

/// The bundled engine that serves as fallback, with the workspace rules.
pub(crate) fn fallback_engine(config: &Config, rules: Option<&WorkspaceRules>) -> EngineSpec {
    let mut legacy = EngineRegistry::load(config).legacy(config);
    if let Some(rules) = rules {
        rules.apply_to(&mut legacy);
    }
    legacy
}
