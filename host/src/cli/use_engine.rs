//! `ctxhost use`: another engine in the slot, proved by loading it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::config::nearest;
use super::failure::Failure;
use super::opening;
use super::output::Output;
use crate::config::{Config, FILE_NAME, set_row};
use crate::engine::LiveEngine;

/// The setting that is changed.
const SLOT: &str = "plugins.slots.context_engine";

/// Put an engine into the slot. The config keeps its comments; if the engine does not load, the config
/// is as it was.
#[derive(Debug, clap::Args)]
pub(super) struct Use {
    /// The engine's id; several in a row as mask+legacy.
    pub(super) engine: String,
}

impl Use {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let path = target(config_path);
        let before = if path.exists() { Config::load(&path)? } else { Config::default() };
        refuse_path(&self.engine, &path)?;
        opening::find_all(&before, &self.engine).map_err(|failure| unchanged(failure, &before))?;
        let edit = set_row(&path, &self.engine)?;
        let opened = Config::load(&path)
            .map_err(Failure::from)
            .and_then(|config| opening::open_all(&config, &self.engine));
        match opened {
            Ok(engines) => {
                let told: Vec<String> = engines.iter().map(told).collect();
                let (noun, them) = match engines.len() {
                    1 => ("engine", "it"),
                    _ => ("engines", "them"),
                };
                output.print(&format!(
                    "{}: [plugins.slots] context_engine {}\n\
                     effective {noun}: {} - checked by loading {them}\n\
                     hosts that run with this config swap to it between two turns\n",
                    path.display(),
                    self.change(&before.slot().configured),
                    told.join(", then "),
                ))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(failure) => {
                edit.restore()?;
                Err(unchanged(failure, &before))
            }
        }
    }

    fn change(&self, old: &str) -> String {
        if old == self.engine {
            return format!("is {old:?} already");
        }
        format!("{old:?} -> {:?}", self.engine)
    }
}

/// The slot holds an id, which an entry leads to its file, so that settings find their engine.
pub(super) fn refuse_path(engine: &str, config: &Path) -> Result<(), Failure> {
    if !engine.contains('/') && !engine.ends_with(".so") {
        return Ok(());
    }
    let message = format!("{engine:?} is a path, and the slot holds an id");
    Err(Failure::caller(message).hint(format!(
        "write [plugins.entries.<id>] with path = {engine:?} into {}, then `ctxhost use <id>`",
        config.display(),
    )))
}

fn told(engine: &LiveEngine) -> String {
    let info = engine.info();
    format!("{} {} ({})", info.id, info.version, engine.source())
}

fn unchanged(failure: Failure, config: &Config) -> Failure {
    let old = config.slot().configured;
    failure.hint(match opening::place(config, SLOT) {
        Some(place) => format!("the slot still says {old:?} ({place})"),
        None => format!("the slot still says {old:?}"),
    })
}

/// The file that was named, else the nearest one, else a new one here.
fn target(given: Option<&Path>) -> PathBuf {
    given.map(Path::to_owned).or_else(nearest).unwrap_or_else(|| PathBuf::from(FILE_NAME))
}
