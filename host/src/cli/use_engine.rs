//! `ctxhost use`: another engine in the slot, proved by loading it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::config::prove;
use super::failure::Failure;
use super::output::Output;
use crate::config::{Config, set_slot};
use crate::runtime::roster::Roster;

/// Put an engine into the slot. The config keeps its comments; if the engine does not load, the config
/// is as it was.
#[derive(Debug, clap::Args)]
pub(super) struct Use {
    /// The engine's id.
    engine: String,
}

impl Use {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let path = target(config_path);
        let before = if path.exists() { Config::load(&path)? } else { Config::default() };
        let old = before.slot().configured;
        Roster::of(&before)
            .spec(&before, &self.engine)
            .map_err(|error| Failure::from(error).hint(format!("the slot still says {old:?}")))?;
        let edit = set_slot(&path, &self.engine)?;
        let proved = Config::load(&path).map_err(Failure::from).and_then(|config| prove(&config));
        match proved {
            Ok(engine) => {
                let info = engine.info();
                output.print(&format!(
                    "{}: [plugins.slots] context_engine {old:?} -> {:?}\n\
                     effective engine: {} {} ({}) - checked by loading it\n",
                    path.display(),
                    self.engine,
                    info.id,
                    info.version,
                    engine.source(),
                ))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(failure) => {
                edit.restore()?;
                Err(failure.hint(format!("the slot still says {old:?}")))
            }
        }
    }
}

/// The file that was named, else the nearest one, else a new one here.
fn target(given: Option<&Path>) -> PathBuf {
    let found = || std::env::current_dir().ok().and_then(Config::discover);
    let named = given.map(Path::to_owned).or_else(found);
    named.unwrap_or_else(|| PathBuf::from("ctxhost.toml"))
}
