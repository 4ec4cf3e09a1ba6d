//! The config of a slot and the state of its canary.

use std::path::{Path, PathBuf};

use crate::config::given_or_found;
use crate::engines::EffectiveEngine;
use crate::error::CliError;
use crate::output::Output;
use ctxhost_agent::canary::{Canary, CanaryError, CanaryFolder};
use ctxhost_config::{Config, FILE_NAME};
use ctxhost_engine::{HostClock, join_ids, split_ids, state_folder};

/// A config and the canary state that belongs to it.
pub(crate) struct SlotConfig {
    pub(super) path: PathBuf,
    pub(super) config: Config,
    pub(super) home: CanaryFolder,
    pub(super) now_ms: i64,
}

impl SlotConfig {
    /// Finds the config. A canary belongs to a config, since that is what hosts watch.
    pub(super) fn locate(config_path: Option<&Path>) -> Result<SlotConfig, CliError> {
        let missing = || {
            CliError::user(format!("no {FILE_NAME} in this folder or above"))
                .hint("create one with `ctxhost use legacy`")
        };
        let path = given_or_found(config_path)?.ok_or_else(missing)?;
        let config = Config::load(&path)?;
        Ok(SlotConfig::new(&path, config))
    }

    /// For a config that was loaded already.
    pub(crate) fn new(path: &Path, config: Config) -> SlotConfig {
        let home = CanaryFolder::for_config(&state_folder(), path);
        SlotConfig { path: path.to_owned(), config, home, now_ms: HostClock::default().now_ms() }
    }

    /// The engine that the config names.
    pub(super) fn engine(&self) -> String {
        self.config.slot().engine
    }

    /// The engine that the slot really uses.
    pub(super) fn effective_engine(&self) -> EffectiveEngine {
        EffectiveEngine::from_config(&self.config)
    }

    /// The running canary.
    pub(super) fn canary(&self) -> Result<Option<Canary>, CliError> {
        Ok(self.home.read()?.canary)
    }

    pub(super) fn start_canary(&self, canary: &Canary) -> Result<(), CanaryError> {
        self.home.update(|state| match &state.canary {
            // One canary at a time: guards compare it with the rest of the sessions, and two would
            // share that rest.
            Some(running) => Err(CanaryError::Running { engine: running.engine.clone() }),
            None => {
                state.canary = Some(canary.clone());
                Ok(())
            }
        })
    }

    /// Records that the canary became the active engine, in slot of the one in the config as it
    /// was read.
    pub(super) fn record_promotion(&self, canary: &Canary, why: &str) -> Result<(), CanaryError> {
        // The config as it was read, before the promotion was written into it.
        let before = self.engine();
        self.home.update(|state| {
            state.promote(&canary.run, &before, why, self.now_ms);
            Ok(())
        })
    }

    /// Records that another engine was put into the slot: a canary with the same engine is
    /// promoted, any other one continues, with a note.
    pub(crate) fn record_replacement(
        &self,
        engine: &str,
        output: &mut Output,
    ) -> Result<(), CliError> {
        let Some(canary) = self.canary()? else { return Ok(()) };
        let Canary { engine: name, share, .. } = &canary;
        if is_same_chain(name, engine) {
            self.record_promotion(&canary, "it was promoted by `ctxhost use`")?;
            output.note(&format!("the canary {name} is now the active engine, as if promoted"));
        } else {
            output.note(&format!(
                "the canary continues: {name} on {share} of new sessions; end it with \
                 `ctxhost slot promote` or `ctxhost slot rollback`"
            ));
        }
        Ok(())
    }
}

/// Whether two names mean the same engine or chain, ignoring spaces.
pub(super) fn is_same_chain(one: &str, other: &str) -> bool {
    // `mask + legacy` and `mask+legacy` are the same chain.
    join_ids(split_ids(one)) == join_ids(split_ids(other))
}
