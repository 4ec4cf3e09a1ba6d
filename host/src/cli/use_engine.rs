//! `ctxhost use`: another engine in the slot, proved by loading it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::config::nearest;
use super::failure::Failure;
use super::opening;
use super::output::Output;
use crate::config::{Config, FILE_NAME, set_slot};
use crate::engine::{LEGACY, LiveEngine, OnEngineError};
use crate::runtime::roster::Roster;
use crate::trust::State;

/// The setting that is changed.
const SLOT: &str = "plugins.slots.context_engine";

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
        self.refuse_path(&path)?;
        opening::find(&before, &self.engine).map_err(|failure| unchanged(failure, &before, &self.engine))?;
        let edit = set_slot(&path, &self.engine)?;
        let opened = Config::load(&path)
            .map_err(Failure::from)
            .and_then(|config| opening::open(&config, &self.engine));
        match opened {
            Ok(engine) => {
                let info = engine.info();
                output.print(&format!(
                    "{}: [plugins.slots] context_engine {}\n\
                     effective engine: {} {} ({}) - checked by loading it\n",
                    path.display(),
                    self.change(&before.slot().configured),
                    info.id,
                    info.version,
                    vouched(&path, &engine)?,
                ))?;
                Ok(ExitCode::SUCCESS)
            }
            Err(failure) => {
                edit.restore()?;
                Err(unchanged(failure, &before, &self.engine))
            }
        }
    }

    /// The slot holds an id, which an entry leads to its file, so that settings find their engine.
    fn refuse_path(&self, config: &Path) -> Result<(), Failure> {
        if !self.engine.contains('/') && !self.engine.ends_with(".so") {
            return Ok(());
        }
        let message = format!("{:?} is a path, and the slot holds an id", self.engine);
        Err(Failure::caller(message).hint(format!(
            "`ctxhost install {}` pins it and names it in {}; then `ctxhost use <id>`",
            self.engine,
            config.display(),
        )))
    }

    fn change(&self, old: &str) -> String {
        if old == self.engine {
            return format!("is {old:?} already");
        }
        format!("{old:?} -> {:?}", self.engine)
    }
}

/// Who answers for the bytes that were loaded: the lock, or the place they came from.
fn vouched(path: &Path, engine: &LiveEngine) -> Result<String, Failure> {
    let roster = Roster::of(&Config::load(path)?);
    let standing = roster.engine(engine.id()).map(|it| &it.standing.state);
    Ok(match standing {
        Some(State::Pinned) => State::Pinned.word().to_owned(),
        _ => engine.source().to_string(),
    })
}

/// What a refusal leaves as it was. Where the slot held the refused engine already, the bundled one
/// stands in for it, or nobody may.
fn unchanged(failure: Failure, config: &Config, refused: &str) -> Failure {
    let slot = config.slot();
    let failure = match (failure.is_distrust(), slot.engine == refused) {
        (false, _) => failure,
        (true, false) => failure.hint(format!("effective engine stays {}", slot.engine)),
        (true, true) if config.plugins.on_engine_error == OnEngineError::Fail => {
            failure.hint("effective engine stays none: on_engine_error is fail")
        }
        (true, true) => failure.hint(format!("effective engine stays {LEGACY}")),
    };
    let old = slot.configured;
    failure.hint(match opening::place(config, SLOT) {
        Some(place) => format!("the slot still says {old:?} ({place})"),
        None => format!("the slot still says {old:?}"),
    })
}

/// The file that was named, else the nearest one, else a new one here.
pub(super) fn target(given: Option<&Path>) -> PathBuf {
    given.map(Path::to_owned).or_else(nearest).unwrap_or_else(|| PathBuf::from(FILE_NAME))
}
