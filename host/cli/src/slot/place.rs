//! A config and what is known of its slot beside it.

use std::path::{Path, PathBuf};

use crate::config::nearest;
use crate::engines::Serving;
use crate::failure::Failure;
use crate::output::Output;
use ctxhost_config::{Config, FILE_NAME};
use ctxhost_engine::{Clock, joined, stages, state_folder};
use ctxhost_runtime::canary::{Canary, CanaryError, CanaryHome};

/// A config and what is known of its slot.
pub(crate) struct Place {
    pub(super) path: PathBuf,
    pub(super) config: Config,
    pub(super) home: CanaryHome,
    pub(super) now_ms: i64,
}

impl Place {
    /// A canary is one of a config, since that is what hosts follow.
    pub(super) fn find(config_path: Option<&Path>) -> Result<Place, Failure> {
        let missing = || {
            Failure::caller(format!("no {FILE_NAME} here or above"))
                .hint("`ctxhost use legacy` begins one")
        };
        let path = config_path.map(Path::to_owned).or_else(nearest).ok_or_else(missing)?;
        let config = Config::load(&path)?;
        Ok(Place::of(&path, config))
    }

    /// That of a config that was read from here.
    pub(crate) fn of(path: &Path, config: Config) -> Place {
        let home = CanaryHome::of(&state_folder(), path);
        Place { path: path.to_owned(), config, home, now_ms: Clock::default().now_ms() }
    }

    /// What the config puts into the slot.
    pub(super) fn engine(&self) -> String {
        self.config.slot().engine
    }

    /// Who serves there.
    pub(super) fn serving(&self) -> Serving {
        Serving::of(&self.config)
    }

    /// The canary that is on.
    pub(super) fn canary(&self) -> Result<Option<Canary>, Failure> {
        Ok(self.home.read()?.canary)
    }

    pub(super) fn begin(&self, canary: &Canary) -> Result<(), CanaryError> {
        self.home.change(|state| match &state.canary {
            Some(running) => Err(CanaryError::Running { engine: running.engine.clone() }),
            None => {
                state.canary = Some(canary.clone());
                Ok(())
            }
        })
    }

    /// The canary has the slot, which held what the config said when it was read.
    pub(super) fn promoted(&self, canary: &Canary, why: &str) -> Result<(), CanaryError> {
        let before = self.engine();
        self.home.change(|state| {
            state.promote(&canary.run, &before, why, self.now_ms);
            Ok(())
        })
    }

    /// Another engine was put into the slot: a canary that is the very one has all of it now, any other
    /// one goes on, and that is said.
    pub(crate) fn replaced_by(&self, engine: &str, output: &mut Output) -> Result<(), Failure> {
        let Some(canary) = self.canary()? else { return Ok(()) };
        let Canary { engine: name, share, .. } = &canary;
        if is_same(name, engine) {
            self.promoted(&canary, "it was promoted by `ctxhost use`")?;
            output.remark(&format!("the canary {name} has the whole slot now, as if promoted"));
        } else {
            output.remark(&format!(
                "the canary goes on: {name} on {share} of new sessions; \
                 `ctxhost slot promote` or `ctxhost slot rollback` ends it"
            ));
        }
        Ok(())
    }
}

/// Whether two names are of the same engine or row, however they are spaced.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    joined(stages(one)) == joined(stages(other))
}
