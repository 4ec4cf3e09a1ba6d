//! The engines a config knows: bundled, named in its entries, found in its folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ctxhost_engine_api::border::Meta;

use ctxhost_config::{Config, nearest};
use ctxhost_engine::{
    BUNDLED, EngineSpec, Isolation, LEGACY, LoadError, RowError, Source, inspect, read_row,
};
use ctxhost_trust::{Policy, Standing, unjudged};

/// Why a name is no engine.
#[derive(Debug, thiserror::Error)]
pub enum RosterError {
    /// Nothing of that name is installed.
    #[error("no engine {name:?}{} (installed: {})", meant(name, installed), installed.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// What there is.
        installed: Vec<String>,
    },
    /// Several names that make no row.
    #[error("{name:?}: a row of engines {row}")]
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

/// What somebody meant by a name that nothing has, where that can be guessed.
fn meant(name: &str, installed: &[String]) -> String {
    if name.contains(',') {
        return "; several in a row are written as mask+legacy".into();
    }
    let installed: Vec<&str> = installed.iter().map(String::as_str).collect();
    let near = nearest(name, &installed);
    near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"))
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
    /// How far it is kept from the host.
    pub isolation: Isolation,
    /// How its file stands to the bytes that were found good.
    pub standing: Standing,
    /// The SHA-256 of its file, in hex; `None` for one that is linked in, or cannot be read.
    pub sha256: Option<String>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// All engines that a config knows, by id.
#[derive(Debug)]
pub struct Roster {
    engines: BTreeMap<String, Installed>,
    policy: Policy,
}

/// What a config demands of engine files.
pub fn policy(config: &Config) -> Policy {
    Policy::of(Path::new(config.name()), &config.plugins.demands())
}

impl Roster {
    /// Looks for engines. Files are read, never loaded. A name in the entries wins over a bundled
    /// engine, and that over a file in a folder: only an entry replaces one by a file.
    pub fn of(config: &Config) -> Roster {
        let policy = policy(config);
        let mut engines: BTreeMap<String, Installed> =
            BUNDLED.iter().map(|id| ((*id).to_owned(), bundled(config, id))).collect();
        for path in config.plugins.engine_dirs.iter().flat_map(|folder| libraries(folder)) {
            // A library in the folder that is no engine at all is nobody's business.
            let Ok(found) = inspect(&path) else { continue };
            let id = found.meta.id;
            if !engines.contains_key(&id) {
                engines.insert(id.clone(), of_file(&policy, config, &id, &path));
            }
        }
        for (id, entry) in &config.plugins.entries {
            let Some(path) = &entry.path else { continue };
            engines.insert(id.clone(), of_file(&policy, config, id, path));
        }
        for engine in engines.values_mut() {
            if engine.problem.is_none() && engine.id != LEGACY {
                engine.problem = config.plugins.refusal(&engine.id);
            }
        }
        Roster { engines, policy }
    }

    /// An engine by its id.
    pub fn engine(&self, id: &str) -> Option<&Installed> {
        self.engines.get(id)
    }

    /// What is demanded of files, and the pins.
    pub fn policy(&self) -> &Policy {
        &self.policy
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
        let names = read_row(name);
        let names = names.map_err(|row| RosterError::Row { name: name.to_owned(), row })?;
        names.into_iter().map(|name| self.spec(config, name)).collect()
    }

    /// What to open for a name, or for the path of a library.
    ///
    /// # Errors
    ///
    /// [`RosterError`].
    pub fn spec(&self, config: &Config, name: &str) -> Result<EngineSpec, RosterError> {
        if name.contains('/') || name.ends_with(".so") {
            let mut spec = in_file(config, "", Path::new(name), serde_json::json!({}));
            // An engine that the config knows by its id keeps its settings when named by path.
            // So does what the config forbids of it, or pins in its entry; ctxhost.lock speaks of
            // the installed file, and this one was named by a person.
            match inspect(Path::new(name)) {
                Ok(found) => {
                    let id = &found.meta.id;
                    permit(config, id)?;
                    spec.id.clone_from(id);
                    spec.config = config.engine_config(id);
                    let written = config.entry(id).and_then(|entry| entry.sha256.as_deref());
                    demand(&mut spec, &self.policy.judge_named(&found, written));
                    spec.isolation = isolation(config, &found.meta);
                }
                Err(error) => spec.distrust = Some(unjudged(&error)),
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
            Source::Bundled | Source::Linked(_) => linked_in(config, name, settings),
            Source::File(path) => in_file(config, name, path, settings),
        };
        demand(&mut spec, &engine.standing);
        spec.isolation = engine.isolation;
        Ok(spec)
    }

    /// The engine that serves where no other can.
    pub fn legacy(&self, config: &Config) -> EngineSpec {
        linked_in(config, LEGACY, config.engine_config(LEGACY))
    }
}

/// Refuses an engine that the config rules out. The bundled one cannot be: everything ends there.
fn permit(config: &Config, id: &str) -> Result<(), RosterError> {
    match config.plugins.refusal(id).filter(|_| id != LEGACY) {
        Some(reason) => Err(RosterError::Refused { name: id.into(), reason }),
        None => Ok(()),
    }
}

/// How far the engine of a file is kept from the host: as its entry says; else in a process where nothing
/// at the border can stop what goes wrong in it; else as the config wants it of all such.
pub fn isolation(config: &Config, file: &Meta) -> Isolation {
    let written = config.entry(&file.id).and_then(|entry| entry.isolation);
    written.unwrap_or(match file.wants_a_process() {
        true => Isolation::Process,
        false => config.plugins.isolation,
    })
}

/// An engine of the host's own, with the quotas of all.
fn linked_in(config: &Config, id: &str, settings: serde_json::Value) -> EngineSpec {
    let mut spec = EngineSpec::bundled(id, settings);
    spec.quotas = config.plugins.quotas.clone();
    spec
}

/// An engine in a file, with the limits of a process.
fn in_file(config: &Config, id: &str, path: &Path, settings: serde_json::Value) -> EngineSpec {
    let mut spec = EngineSpec::file(id, path, settings);
    spec.isolation = config.plugins.isolation;
    spec.worker = config.plugins.worker.clone();
    spec.quotas = config.plugins.quotas.clone();
    spec
}

/// What was found out about a file is demanded of the bytes that are opened.
fn demand(spec: &mut EngineSpec, standing: &Standing) {
    spec.sha256.clone_from(&standing.sha256);
    spec.pinned_by = standing.pinned_by;
    spec.distrust.clone_from(&standing.refusal);
}

fn bundled(config: &Config, id: &str) -> Installed {
    let written = config.entry(id).and_then(|entry| entry.isolation);
    Installed {
        id: id.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        source: Source::Bundled,
        isolation: written.unwrap_or(Isolation::Inline),
        standing: Standing::bundled(),
        sha256: None,
        problem: None,
    }
}

/// The file that serves under an id, read and judged.
fn of_file(policy: &Policy, config: &Config, id: &str, path: &Path) -> Installed {
    let written = config.entry(id).and_then(|entry| entry.sha256.as_deref());
    let (standing, found) = policy.judge(id, path, written);
    let isolation = match &found {
        Ok(found) => isolation(config, &found.meta),
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
            let problem = standing.pinned_by.changed(id, &expected, &found);
            (String::new(), Some(found), Some(problem))
        }
        Err(error) => (String::new(), None, Some(error.to_string())),
    };
    let source = Source::File(path.into());
    Installed { id: id.into(), version, source, isolation, standing, sha256, problem }
}

fn libraries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut found: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "so")).collect();
    found.sort();
    found
}
