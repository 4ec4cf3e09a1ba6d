//! A config and what is known of its slot beside it.

use std::path::{Path, PathBuf};

use crate::config::find_config_file;
use crate::engines::EffectiveEngine;
use crate::error::CliError;
use crate::output::Output;
use ctxhost_agent::canary::{Canary, CanaryError, CanaryFolder};
use ctxhost_config::{Config, FILE_NAME};
use ctxhost_engine::{HostClock, join_ids, split_ids, state_folder};

/// A config and what is known of its slot.
pub(crate) struct SlotConfig {
    pub(super) path: PathBuf,
    pub(super) config: Config,
    pub(super) home: CanaryFolder,
    pub(super) now_ms: i64,
}

impl SlotConfig {
    /// A canary is one of a config, since that is what hosts follow.
    pub(super) fn locate(config_path: Option<&Path>) -> Result<SlotConfig, CliError> {
        let missing = || {
            CliError::user(format!("no {FILE_NAME} here or above"))
                .hint("`ctxhost use legacy` begins one")
        };
        let path = config_path.map(Path::to_owned).or_else(find_config_file).ok_or_else(missing)?;
        let config = Config::load(&path)?;
        Ok(SlotConfig::new(&path, config))
    }

    /// That of a config that was read from here.
    pub(crate) fn new(path: &Path, config: Config) -> SlotConfig {
        let home = CanaryFolder::for_config(&state_folder(), path);
        SlotConfig { path: path.to_owned(), config, home, now_ms: HostClock::default().now_ms() }
    }

    /// What the config puts into the slot.
    pub(super) fn engine(&self) -> String {
        self.config.slot().engine
    }

    /// Who serves there.
    pub(super) fn effective_engine(&self) -> EffectiveEngine {
        EffectiveEngine::from_config(&self.config)
    }

    /// The canary that is on.
    pub(super) fn canary(&self) -> Result<Option<Canary>, CliError> {
        Ok(self.home.read()?.canary)
    }

    pub(super) fn start_canary(&self, canary: &Canary) -> Result<(), CanaryError> {
        self.home.update(|state| match &state.canary {
            Some(running) => Err(CanaryError::Running { engine: running.engine.clone() }),
            None => {
                state.canary = Some(canary.clone());
                Ok(())
            }
        })
    }

    /// The canary has the slot, which held what the config said when it was read.
    pub(super) fn record_promotion(&self, canary: &Canary, why: &str) -> Result<(), CanaryError> {
        let before = self.engine();
        self.home.update(|state| {
            state.promote(&canary.run, &before, why, self.now_ms);
            Ok(())
        })
    }

    /// Another engine was put into the slot: a canary that is the very one has all of it now, any other
    /// one goes on, and that is said.
    pub(crate) fn record_replacement(
        &self,
        engine: &str,
        output: &mut Output,
    ) -> Result<(), CliError> {
        let Some(canary) = self.canary()? else { return Ok(()) };
        let Canary { engine: name, share, .. } = &canary;
        if is_same_chain(name, engine) {
            self.record_promotion(&canary, "it was promoted by `ctxhost use`")?;
            output.note(&format!("the canary {name} has the whole slot now, as if promoted"));
        } else {
            output.note(&format!(
                "the canary goes on: {name} on {share} of new sessions; \
                 `ctxhost slot promote` or `ctxhost slot rollback` ends it"
            ));
        }
        Ok(())
    }
}

/// Whether two names are of the same engine or row, however they are spaced.
pub(super) fn is_same_chain(one: &str, other: &str) -> bool {
    join_ids(split_ids(one)) == join_ids(split_ids(other))
}
