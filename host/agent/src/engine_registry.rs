//! The engines a config knows: bundled, named in its entries, found in its folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ctxhost_engine_api::border::EngineMetadata;

use ctxhost_config::{Config, closest_name};
use ctxhost_engine::{
    BUNDLED, ChainSpecError, EngineSource, EngineSpec, Isolation, LEGACY, LoadError, inspect,
    parse_chain,
};
use ctxhost_trust::{TrustPolicy, TrustVerdict, unreadable_reason};

/// Why a name is no engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineRegistryError {
    /// Nothing of that name is installed.
    #[error("no engine {name:?}{} (installed: {})", suggestion(name, installed), installed.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// What there is.
        installed: Vec<String>,
    },
    /// Several names that make no row.
    #[error("{name:?}: a chain of engines {error}")]
    Chain {
        /// The names as one word.
        name: String,
        /// Why not.
        error: ChainSpecError,
    },
    /// The config does not let it serve.
    #[error("engine {name:?} is installed but does not serve: {reason}")]
    Refused {
        /// The name.
        name: String,
        /// Why.
        reason: String,
    },
}

/// What somebody meant by a name that nothing has, where that can be guessed.
fn suggestion(name: &str, installed: &[String]) -> String {
    if name.contains(',') {
        return "; several in a row are written as mask+legacy".into();
    }
    let installed: Vec<&str> = installed.iter().map(String::as_str).collect();
    let near = closest_name(name, &installed);
    near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"))
}

/// An engine that is there.
#[derive(Clone, Debug)]
pub struct RegisteredEngine {
    /// Its id.
    pub id: String,
    /// Its version; empty when its file cannot be read.
    pub version: String,
    /// Where it comes from.
    pub source: EngineSource,
    /// How far it is kept from the host.
    pub isolation: Isolation,
    /// How its file stands to the bytes that were found good.
    pub standing: TrustVerdict,
    /// The SHA-256 of its file, in hex; `None` for one that is linked in, or cannot be read.
    pub sha256: Option<String>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// All engines that a config knows, by id.
#[derive(Debug)]
pub struct EngineRegistry {
    engines: BTreeMap<String, RegisteredEngine>,
    policy: TrustPolicy,
}

/// What a config demands of engine files.
pub fn file_policy(config: &Config) -> TrustPolicy {
    TrustPolicy::load(Path::new(config.name()), &config.plugins.trust_demands())
}

impl EngineRegistry {
    /// Looks for engines. Files are read, never loaded. A name in the entries wins over a bundled
    /// engine, and that over a file in a folder: only an entry replaces one by a file.
    pub fn load(config: &Config) -> EngineRegistry {
        let policy = file_policy(config);
        let mut engines: BTreeMap<String, RegisteredEngine> =
            BUNDLED.iter().map(|id| ((*id).to_owned(), bundled_engine(config, id))).collect();
        for path in config.plugins.engine_dirs.iter().flat_map(|folder| libraries(folder)) {
            // A library in the folder that is no engine at all is nobody's business.
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

    /// An engine by its id.
    pub fn engine(&self, id: &str) -> Option<&RegisteredEngine> {
        self.engines.get(id)
    }

    /// What is demanded of files, and the pins.
    pub fn policy(&self) -> &TrustPolicy {
        &self.policy
    }

    /// The engines, by id.
    pub fn engines(&self) -> impl Iterator<Item = &RegisteredEngine> {
        self.engines.values()
    }

    /// What to open for a name, for the path of a library, or for several of them in a row:
    /// `mask+legacy`.
    ///
    /// # Errors
    ///
    /// [`EngineRegistryError`].
    pub fn chain(
        &self,
        config: &Config,
        name: &str,
    ) -> Result<Vec<EngineSpec>, EngineRegistryError> {
        let names = parse_chain(name);
        let names = names
            .map_err(|row| EngineRegistryError::Chain { name: name.to_owned(), error: row })?;
        names.into_iter().map(|name| self.spec(config, name)).collect()
    }

    /// What to open for a name, or for the path of a library.
    ///
    /// # Errors
    ///
    /// [`EngineRegistryError`].
    pub fn spec(&self, config: &Config, name: &str) -> Result<EngineSpec, EngineRegistryError> {
        if name.contains('/') || name.ends_with(".so") {
            let mut spec = file_spec(config, "", Path::new(name), serde_json::json!({}));
            // An engine that the config knows by its id keeps its settings when named by path.
            // So does what the config forbids of it, or pins in its entry; ctxhost.lock speaks of
            // the installed file, and this one was named by a person.
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

    /// The engine that serves where no other can.
    pub fn legacy(&self, config: &Config) -> EngineSpec {
        bundled_spec(config, LEGACY, config.engine_config(LEGACY))
    }
}

/// Refuses an engine that the config rules out. The bundled one cannot be: everything ends there.
fn check_allowed(config: &Config, id: &str) -> Result<(), EngineRegistryError> {
    match config.plugins.disabled_reason(id).filter(|_| id != LEGACY) {
        Some(reason) => Err(EngineRegistryError::Refused { name: id.into(), reason }),
        None => Ok(()),
    }
}

/// How far the engine of a file is kept from the host: as its entry says; else in a process where nothing
/// at the border can stop what goes wrong in it; else as the config wants it of all such.
pub fn isolation_for(config: &Config, file: &EngineMetadata) -> Isolation {
    let written = config.entry(&file.id).and_then(|entry| entry.isolation);
    written.unwrap_or(match file.needs_process() {
        true => Isolation::Process,
        false => config.plugins.isolation,
    })
}

/// An engine of the host's own, with the quotas of all.
fn bundled_spec(config: &Config, id: &str, settings: serde_json::Value) -> EngineSpec {
    let mut spec = EngineSpec::bundled(id, settings);
    spec.quotas = config.plugins.quotas.clone();
    spec
}

/// An engine in a file, with the limits of a process.
fn file_spec(config: &Config, id: &str, path: &Path, settings: serde_json::Value) -> EngineSpec {
    let mut spec = EngineSpec::file(id, path, settings);
    spec.isolation = config.plugins.isolation;
    spec.sandbox = config.plugins.worker.clone();
    spec.quotas = config.plugins.quotas.clone();
    spec
}

/// What was found out about a file is demanded of the bytes that are opened.
fn apply_trust(spec: &mut EngineSpec, standing: &TrustVerdict) {
    spec.sha256.clone_from(&standing.sha256);
    spec.pin_source = standing.pin_source;
    spec.untrusted_reason.clone_from(&standing.refusal);
}

fn bundled_engine(config: &Config, id: &str) -> RegisteredEngine {
    let written = config.entry(id).and_then(|entry| entry.isolation);
    RegisteredEngine {
        id: id.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        source: EngineSource::Bundled,
        isolation: written.unwrap_or(Isolation::Inline),
        standing: TrustVerdict::bundled(),
        sha256: None,
        problem: None,
    }
}

/// The file that serves under an id, read and judged.
fn file_engine(policy: &TrustPolicy, config: &Config, id: &str, path: &Path) -> RegisteredEngine {
    let written = config.entry(id).and_then(|entry| entry.sha256.as_deref());
    let (standing, found) = policy.evaluate(id, path, written);
    let isolation = match &found {
        Ok(found) => isolation_for(config, &found.meta),
        // It will not be opened.
        Err(_) => config.plugins.isolation,
    };
    let (version, sha256, problem) = match found {
        Ok(found) if found.meta.id == id => {
            (found.meta.version, Some(found.sha256), standing.refusal.clone())
        }
        Ok(found) => {
            let holds = found.meta.id;
            let problem = format!(
                "the file holds {holds:?}; an engine has one id everywhere: write [plugins.entries.{holds}]"
            );
            (found.meta.version, Some(found.sha256), Some(problem))
        }
        Err(LoadError::HashMismatch { expected, found, .. }) => {
            let problem = standing.pin_source.mismatch_message(id, &expected, &found);
            (String::new(), Some(found), Some(problem))
        }
        Err(error) => (String::new(), None, Some(error.to_string())),
    };
    let source = EngineSource::File(path.into());
    RegisteredEngine { id: id.into(), version, source, isolation, standing, sha256, problem }
}

fn libraries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut found: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "so")).collect();
    found.sort();
    found
}
