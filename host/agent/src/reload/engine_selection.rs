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
        let mut engines = engine_chain(config, &config.slot().engine, rules)?;
        // The same file is the same engine, whatever path names it: a program may read its config by a relative path, and
        // watches it by an absolute one.
        for engine in &mut engines {
            if let EngineSource::File(path) = &mut engine.source
                && let Ok(absolute) = std::path::absolute(&*path)
            {
                *path = absolute;
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_read_by_another_path_selects_the_same_engines() {
        let text = "[plugins.slots]\ncontext_engine = \"mine\"\n[plugins.entries.mine]\npath = \"Cargo.toml\"\n";
        // Any file that exists: the reason why another one is refused would name its path.
        let selection = |name: &str| {
            EngineSelection::from_config(&Config::parse(name, text).unwrap(), None).unwrap()
        };
        let absolute = std::path::absolute("ctxhost.toml").unwrap();
        assert_eq!(selection("ctxhost.toml"), selection(absolute.to_str().unwrap()));
        assert_ne!(selection("ctxhost.toml"), selection("elsewhere/ctxhost.toml"));
    }
}
