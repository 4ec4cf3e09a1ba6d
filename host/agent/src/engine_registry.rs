//! The registry of engines: bundled, named in the config, or found in its engine folders.

use std::collections::BTreeMap;
use std::env::consts::DLL_EXTENSION;
use std::path::{Path, PathBuf};

use ctxhost_engine_api::border::EngineMetadata;

use ctxhost_config::{Config, closest_name};
use ctxhost_engine::{
    BUNDLED, ChainSpecError, EngineSource, EngineSpec, Isolation, LEGACY, LoadError, inspect,
    is_library_path, parse_chain,
};
use ctxhost_trust::{TrustPolicy, TrustVerdict, unreadable_reason};

/// Why a name is not a usable engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineRegistryError {
    /// No engine has this name.
    #[error("no engine {name:?}{} (installed: {})", suggestion(name, installed), installed.join(", "))]
    Unknown {
        name: String,
        /// The names of all engines.
        installed: Vec<String>,
    },
    /// The names do not form a chain.
    #[error("{name:?}: a chain of engines {error}")]
    Chain {
        /// The chain as written.
        name: String,
        error: ChainSpecError,
    },
    /// The config does not allow the engine.
    #[error("engine {name:?} is installed but not allowed: {reason}")]
    Refused { name: String, reason: String },
}

/// A hint for an unknown name: the chain syntax, or a similar name.
fn suggestion(name: &str, installed: &[String]) -> String {
    if name.contains(',') {
        return "; write a chain as mask+legacy".into();
    }
    let installed: Vec<&str> = installed.iter().map(String::as_str).collect();
    let near = closest_name(name, &installed);
    near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"))
}

/// An engine of the registry.
#[derive(Clone, Debug)]
pub struct RegisteredEngine {
    pub id: String,
    /// Its version; empty if its file cannot be read.
    pub version: String,
    pub source: EngineSource,
    /// Its isolation from the host.
    pub isolation: Isolation,
    /// The trust judgement on its file.
    pub standing: TrustVerdict,
    /// The SHA-256 of its file, in hex; `None` for a linked engine or an unreadable file.
    pub sha256: Option<String>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// All engines of a config, by id.
#[derive(Debug)]
pub struct EngineRegistry {
    engines: BTreeMap<String, RegisteredEngine>,
    policy: TrustPolicy,
}

/// The trust policy of a config for engine files.
pub fn file_policy(config: &Config) -> TrustPolicy {
    TrustPolicy::load(Path::new(config.name()), &config.plugins.trust_demands())
}

impl EngineRegistry {
    /// Searches for engines; reads files without loading them. A config entry overrides a bundled engine, and a bundled
    /// engine overrides a file in an engine folder.
    pub fn load(config: &Config) -> EngineRegistry {
        let policy = file_policy(config);
        let mut engines: BTreeMap<String, RegisteredEngine> =
            BUNDLED.iter().map(|id| ((*id).to_owned(), bundled_engine(config, id))).collect();
        for path in config.plugins.engine_dirs.iter().flat_map(|folder| libraries(folder)) {
            // Other libraries in the folder are ignored.
            let Ok(found) = inspect(&path) else { continue };
            let id = found.meta.id;
            if !engines.contains_key(&id) {
                engines.insert(id.clone(), file_engine(&policy, config, &id, &path));
            }
        }
        for (id, entry) in &config.plugins.entries {
            let Some(path) = &entry.path else { continue };
            engines.insert(id.clone(), file_engine(&policy, config, id, path));
        }
        for engine in engines.values_mut() {
            if engine.problem.is_none() && engine.id != LEGACY {
                engine.problem = config.plugins.disabled_reason(&engine.id);
            }
        }
        EngineRegistry { engines, policy }
    }

    /// Finds an engine by its id.
    pub fn engine(&self, id: &str) -> Option<&RegisteredEngine> {
        self.engines.get(id)
    }

    /// The trust policy for files, with the pins.
    pub fn policy(&self) -> &TrustPolicy {
        &self.policy
    }

    /// The engines, by id.
    pub fn engines(&self) -> impl Iterator<Item = &RegisteredEngine> {
        self.engines.values()
    }

    /// The specs to open for a name, the path of a library, or a chain such as `mask+legacy`.
    pub fn chain(
        &self,
        config: &Config,
        name: &str,
    ) -> Result<Vec<EngineSpec>, EngineRegistryError> {
        let names = parse_chain(name)
            .map_err(|error| EngineRegistryError::Chain { name: name.to_owned(), error })?;
        names.into_iter().map(|name| self.spec(config, name)).collect()
    }

    /// The spec to open for a name or the path of a library.
    pub fn spec(&self, config: &Config, name: &str) -> Result<EngineSpec, EngineRegistryError> {
        if is_library_path(name) {
            let mut spec = file_spec(config, "", Path::new(name), serde_json::json!({}));
            // An engine named by path keeps the settings, restrictions and pin of its config entry. The pins of
            // ctxhost.lock do not apply: they are for the installed file, and the user chose this one.
            match inspect(Path::new(name)) {
                Ok(found) => {
                    let id = &found.meta.id;
                    check_allowed(config, id)?;
                    spec.id.clone_from(id);
                    spec.config = config.engine_config(id);
                    let written = config.entry(id).and_then(|entry| entry.sha256.as_deref());
                    apply_trust(&mut spec, &self.policy.evaluate_named(&found, written));
                    spec.isolation = isolation_for(config, &found.meta);
                }
                // Reported when the spec is opened.
                Err(error) => spec.untrusted_reason = Some(unreadable_reason(&error)),
            }
            return Ok(spec);
        }
        let unknown = || EngineRegistryError::Unknown {
            name: name.into(),
            installed: self.engines.keys().cloned().collect(),
        };
        let engine = self.engines.get(name).ok_or_else(unknown)?;
        check_allowed(config, name)?;
        let settings = config.engine_config(name);
        let mut spec = match &engine.source {
            EngineSource::Bundled | EngineSource::Linked(_) => bundled_spec(config, name, settings),
            EngineSource::File(path) => file_spec(config, name, path, settings),
        };
        apply_trust(&mut spec, &engine.standing);
        spec.isolation = engine.isolation;
        Ok(spec)
    }

    /// The fallback engine.
    pub fn legacy(&self, config: &Config) -> EngineSpec {
        bundled_spec(config, LEGACY, config.engine_config(LEGACY))
    }
}

/// Rejects an engine that the config does not allow. `legacy` is always allowed, as the fallback.
fn check_allowed(config: &Config, id: &str) -> Result<(), EngineRegistryError> {
    match config.plugins.disabled_reason(id).filter(|_| id != LEGACY) {
        Some(reason) => Err(EngineRegistryError::Refused { name: id.into(), reason }),
        None => Ok(()),
    }
}

/// The isolation of an engine file: that of its config entry; else a process if the ABI cannot contain its failures;
/// else the config's default.
pub fn isolation_for(config: &Config, file: &EngineMetadata) -> Isolation {
    let configured = config.entry(&file.id).and_then(|entry| entry.isolation);
    let default = if file.needs_process() { Isolation::Process } else { config.plugins.isolation };
    configured.unwrap_or(default)
}

/// The spec of a bundled engine.
fn bundled_spec(config: &Config, id: &str, settings: serde_json::Value) -> EngineSpec {
    let mut spec = EngineSpec::bundled(id, settings);
    spec.quotas = config.plugins.quotas.clone();
    spec
}

/// The spec of an engine file.
fn file_spec(config: &Config, id: &str, path: &Path, settings: serde_json::Value) -> EngineSpec {
    let mut spec = EngineSpec::file(id, path, settings);
    spec.isolation = config.plugins.isolation;
    spec.sandbox = config.plugins.sandbox.clone();
    spec.quotas = config.plugins.quotas.clone();
    spec
}

/// Binds a spec to the judged bytes: opening it fails if the file has changed since.
fn apply_trust(spec: &mut EngineSpec, standing: &TrustVerdict) {
    spec.sha256.clone_from(&standing.sha256);
    spec.pin_source = standing.pin_source;
    spec.untrusted_reason.clone_from(&standing.refusal);
}

fn bundled_engine(config: &Config, id: &str) -> RegisteredEngine {
    let configured = config.entry(id).and_then(|entry| entry.isolation);
    RegisteredEngine {
        id: id.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        source: EngineSource::Bundled,
        isolation: configured.unwrap_or(Isolation::Inline),
        standing: TrustVerdict::bundled(),
        sha256: None,
        problem: None,
    }
}

/// An engine file, read and judged by the trust policy.
fn file_engine(policy: &TrustPolicy, config: &Config, id: &str, path: &Path) -> RegisteredEngine {
    let pinned = config.entry(id).and_then(|entry| entry.sha256.as_deref());
    let (standing, found) = policy.evaluate(id, path, pinned);
    let isolation = match &found {
        Ok(found) => isolation_for(config, &found.meta),
        // Not relevant: an unreadable file is not opened.
        Err(_) => config.plugins.isolation,
    };
    let (version, sha256, problem) = match found {
        Ok(found) if found.meta.id == id => {
            (found.meta.version, Some(found.sha256), standing.refusal.clone())
        }
        Ok(found) => {
            let actual = found.meta.id;
            let problem = format!(
                "the file contains the engine {actual:?}; rename the entry to [plugins.entries.{actual}]"
            );
            (found.meta.version, Some(found.sha256), Some(problem))
        }
        Err(LoadError::HashMismatch { expected, found, .. }) => {
            let problem = standing.pin_source.mismatch_message(id, &expected, &found);
            (String::new(), Some(found), Some(problem))
        }
        Err(error) => (String::new(), None, Some(standing.pin_source.explain(error).to_string())),
    };
    let source = EngineSource::File(path.into());
    RegisteredEngine { id: id.into(), version, source, isolation, standing, sha256, problem }
}

fn libraries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut found: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == DLL_EXTENSION)).collect();
    // The order of a folder differs between machines.
    found.sort();
    found
}
