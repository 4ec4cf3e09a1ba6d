//! `ctxhost use`: another engine in the slot, proved by loading it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::config::nearest;
use super::engines::Serving;
use super::failure::Failure;
use super::opening;
use super::output::Output;
use super::slot::Place;
use ctxhost_config::{Config, FILE_NAME, set_row};
use ctxhost_engine::EngineInstance;
use ctxhost_runtime::roster::Roster;
use ctxhost_trust::State;

/// What a change of the slot comes to.
pub(super) const HOSTS_SWAP: &str = "hosts that run with this config swap to it between two turns";

/// The same where the slot holds the engine already.
const HOSTS_KEEP: &str =
    "hosts that run with this config open it anew if its bytes or settings have changed";

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
        // Before the config is touched: an engine that takes this process down leaves it as it was.
        let engines = opening::find_all(&before, &self.engine)
            .and_then(|()| opening::open_all(&before, &self.engine))
            .map_err(|failure| unchanged(failure, &before))?;
        let edit = set_row(&path, &self.engine)?;
        let config = match Config::load(&path) {
            Ok(config) => config,
            Err(error) => {
                edit.restore()?;
                return Err(unchanged(error.into(), &before));
            }
        };
        let configured = before.slot().configured;
        let told: Vec<String> = engines.iter().map(|engine| told(&config, engine)).collect();
        let (noun, them) = if engines.len() == 1 { ("engine", "it") } else { ("engines", "them") };
        output.print(&format!(
            "{}: [plugins.slots] context_engine {}\n\
             effective {noun}: {} - checked by loading {them}\n\
             {}\n",
            path.display(),
            self.change(&configured),
            told.join(", then "),
            if configured == self.engine { HOSTS_KEEP } else { HOSTS_SWAP },
        ))?;
        // The slot is filled, whatever is the matter with the notes beside it.
        if let Err(failure) = Place::of(&path, before).replaced_by(&self.engine, output) {
            output.remark(&failure.to_string());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn change(&self, old: &str) -> String {
        if old == self.engine {
            return format!("is {old:?} already");
        }
        format!("{old:?} -> {:?}", self.engine)
    }
}

fn told(config: &Config, engine: &EngineInstance) -> String {
    let info = engine.info();
    format!("{} {} ({})", info.id, info.version, vouched(config, engine))
}

/// Who answers for the bytes that were loaded: the lock, or the place they came from.
fn vouched(config: &Config, engine: &EngineInstance) -> String {
    let roster = Roster::of(config);
    match roster.engine(engine.id()).map(|it| &it.standing.state) {
        Some(State::Pinned) => State::Pinned.word().to_owned(),
        _ => engine.source().to_string(),
    }
}

/// The slot holds an id, which an entry leads to its file, so that settings find their engine.
pub(super) fn refuse_path(engine: &str, config: &Path) -> Result<(), Failure> {
    if !engine.contains('/') && !engine.ends_with(".so") {
        return Ok(());
    }
    let message = format!("{engine:?} is a path, and the slot holds an id");
    Err(Failure::caller(message).hint(format!(
        "`ctxhost install {engine}` pins it and names it in {}; then `ctxhost use <id>`",
        config.display(),
    )))
}

/// What a refusal leaves as it was.
fn unchanged(failure: Failure, config: &Config) -> Failure {
    let failure = match failure.is_distrust() {
        true => failure.hint(format!("effective engine stays {}", Serving::of(config).effective())),
        false => failure,
    };
    let old = config.slot().configured;
    failure.hint(match opening::place(config, SLOT) {
        Some(place) => format!("the slot still says {old:?} ({place})"),
        None => format!("the slot still says {old:?}"),
    })
}

/// The file that was named, else the nearest one, else a new one here.
pub(super) fn target(given: Option<&Path>) -> PathBuf {
    given.map(Path::to_owned).or_else(nearest).unwrap_or_else(|| PathBuf::from(FILE_NAME))
}
