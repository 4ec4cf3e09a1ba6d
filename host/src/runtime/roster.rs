//! The engines a config knows: bundled, named in its entries, found in its folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::engine::{BUNDLED, EngineSpec, LEGACY, RowError, Source, check_row, inspect, stages};

/// Why a name is no engine.
#[derive(Debug, thiserror::Error)]
pub enum RosterError {
    /// Nothing of that name is installed.
    #[error("no engine {name:?} (installed: {})", installed.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// What there is.
        installed: Vec<String>,
    },
    /// Several names that make no stack.
    #[error("{name:?}: a stack of engines {row}")]
    Row {
        /// The names as one word.
        name: String,
        /// Why not.
        row: RowError,
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

/// An engine that is there.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Its id.
    pub id: String,
    /// Its version; empty when its file cannot be read.
    pub version: String,
    /// Where it comes from.
    pub source: Source,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// All engines that a config knows, by id.
#[derive(Debug)]
pub struct Roster {
    engines: BTreeMap<String, Installed>,
}

impl Roster {
    /// Looks for engines. Files are read, never loaded. A name in the entries wins over a bundled
    /// engine, and that over a file in a folder: only an entry replaces one by a file.
    pub fn of(config: &Config) -> Roster {
        let mut engines = BTreeMap::new();
        for id in BUNDLED {
            let version = env!("CARGO_PKG_VERSION").to_owned();
            let source = Source::Bundled;
            engines.insert(id.into(), Installed { id: id.into(), version, source, problem: None });
        }
        for path in config.plugins.engine_dirs.iter().flat_map(|folder| libraries(folder)) {
            // A library in the folder that is no engine at all is nobody's business.
            if let Ok(found) = inspect(&path) {
                let id = found.meta.id.clone();
                let version = found.meta.version;
                let source = Source::File(path);
                engines.entry(id.clone()).or_insert(Installed {
                    id,
                    version,
                    source,
                    problem: None,
                });
            }
        }
        for (id, entry) in &config.plugins.entries {
            let Some(path) = &entry.path else { continue };
            engines.insert(id.clone(), named(id, path));
        }
        for engine in engines.values_mut() {
            if engine.problem.is_none() && engine.id != LEGACY {
                engine.problem = config.plugins.refusal(&engine.id);
            }
        }
        Roster { engines }
    }

    /// The engines, by id.
    pub fn engines(&self) -> impl Iterator<Item = &Installed> {
        self.engines.values()
    }

    /// What to open for a name, for the path of a library, or for several of them in a row:
    /// `mask+legacy`.
    ///
    /// # Errors
    ///
    /// [`RosterError`].
    pub fn stack(&self, config: &Config, name: &str) -> Result<Vec<EngineSpec>, RosterError> {
        let names = stages(name);
        check_row(&names).map_err(|row| RosterError::Row { name: name.to_owned(), row })?;
        names.into_iter().map(|name| self.spec(config, name)).collect()
    }

    /// What to open for a name, or for the path of a library.
    ///
    /// # Errors
    ///
    /// [`RosterError`].
    pub fn spec(&self, config: &Config, name: &str) -> Result<EngineSpec, RosterError> {
        if name.contains('/') || name.ends_with(".so") {
            let mut spec = installed(config, "", Path::new(name), serde_json::json!({}));
            // An engine that the config knows by its id keeps its settings when named by path.
            // So does what the config forbids or pins of it.
            if let Ok(found) = inspect(Path::new(name)) {
                let id = &found.meta.id;
                permit(config, id)?;
                spec.config = config.engine_config(id);
                spec.sha256 = config.entry(id).and_then(|entry| entry.sha256.clone());
                if let Some(isolation) = config.entry(id).and_then(|entry| entry.isolation) {
                    spec.isolation = isolation;
                }
            }
            return Ok(spec);
        }
        let unknown = || RosterError::Unknown {
            name: name.into(),
            installed: self.engines.keys().cloned().collect(),
        };
        let engine = self.engines.get(name).ok_or_else(unknown)?;
        permit(config, name)?;
        let settings = config.engine_config(name);
        let mut spec = match &engine.source {
            Source::Bundled | Source::Linked(_) => EngineSpec::bundled(name, settings),
            Source::File(path) => installed(config, name, path, settings),
        };
        if let Some(entry) = config.entry(name) {
            spec.sha256 = entry.sha256.clone();
            if let Some(isolation) = entry.isolation {
                spec.isolation = isolation;
            }
        }
        Ok(spec)
    }

    /// The engine that serves where no other can.
    pub fn legacy(&self, config: &Config) -> EngineSpec {
        EngineSpec::bundled(LEGACY, config.engine_config(LEGACY))
    }
}

/// Refuses an engine that the config rules out. The bundled one cannot be: everything ends there.
fn permit(config: &Config, id: &str) -> Result<(), RosterError> {
    match config.plugins.refusal(id).filter(|_| id != LEGACY) {
        Some(reason) => Err(RosterError::Refused { name: id.into(), reason }),
        None => Ok(()),
    }
}

/// An engine in a file, kept from the host as far as the config wants it of all such.
fn installed(config: &Config, id: &str, path: &Path, settings: serde_json::Value) -> EngineSpec {
    let mut spec = EngineSpec::file(id, path, settings);
    spec.isolation = config.plugins.isolation;
    spec.worker = config.plugins.worker.clone();
    spec
}

fn named(id: &str, path: &Path) -> Installed {
    let source = Source::File(path.into());
    let (version, problem) = match inspect(path) {
        Ok(found) if found.meta.id == id => (found.meta.version, None),
        Ok(found) => (found.meta.version, Some(format!("the file holds {:?}", found.meta.id))),
        Err(error) => (String::new(), Some(error.to_string())),
    };
    Installed { id: id.into(), version, source, problem }
}

fn libraries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut found: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "so")).collect();
    found.sort();
    found
}
