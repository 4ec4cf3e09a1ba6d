//! A running host follows its config: a change of the file becomes a swap, or a loud remark and nothing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::{EngineChange, EngineSelection, FileStamp, ReloadError};
use crate::canary::CanaryFolder;
use crate::event::EventKind;
use crate::runtime::{Runtime, RuntimeState};
use ctxhost_config::Config;

/// A config that is followed.
#[derive(Debug)]
pub(crate) struct ConfigWatch {
    path: PathBuf,
    /// Where canaries are told of.
    pub(super) canary_folder: CanaryFolder,
    applied: Mutex<WatchedStamps>,
}

/// The stamps of what was taken in last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WatchedStamps {
    config: Option<FileStamp>,
    canary: Option<FileStamp>,
}

impl ConfigWatch {
    /// A config file, and the state folder of the host.
    pub(crate) fn new(config: &Path, state: &Path) -> ConfigWatch {
        // The folder that the process works in may change; the file does not.
        let path = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
        let home = CanaryFolder::for_config(state, &path);
        ConfigWatch { path, canary_folder: home, applied: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn current_stamps(&self) -> WatchedStamps {
        WatchedStamps { config: FileStamp::read(&self.path), canary: self.canary_folder.stamp() }
    }

    fn applied(&self) -> MutexGuard<'_, WatchedStamps> {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime {
    /// Looks at the config that is followed, and at the canary of its slot, and takes in what has changed
    /// since this was done last. A watching runtime does so by itself; a program may do so when it knows
    /// of a change. `None` where the engine of the slot stays.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; the engines that served go on, and the event is told.
    pub async fn reload(&self) -> Result<Option<EngineChange>, ReloadError> {
        let shared = self.state();
        let Some(followed) = &shared.config_watch else { return Ok(None) };
        let _alone = shared.engines.state.change_lock.lock().await;
        let now = followed.current_stamps();
        let seen = std::mem::replace(&mut *followed.applied(), now);
        let mut swapped = Ok(None);
        if now.config != seen.config {
            swapped = shared.reload_config(followed).await;
            shared.report_rejection(swapped.as_ref().err());
        }
        if now.canary != seen.canary {
            let seated = shared.reload_canary(followed).await;
            shared.report_rejection(seated.as_ref().err());
            seated?;
        }
        swapped
    }

    /// Looks at what is followed from time to time, as long as the runtime lives.
    pub(crate) fn start_config_watch(&self) {
        let interval = Duration::from_millis(self.state().engines.state.settings.watch_ms);
        if interval.is_zero() || self.state().config_watch.is_none() {
            return;
        }
        let closing = self.state().shutdown.clone();
        let watched = self.downgrade();
        tokio::spawn(async move {
            let mut last = None;
            while closing.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
                let Some(runtime) = watched.upgrade() else { return };
                let Some(followed) = &runtime.state().config_watch else { return };
                let now = followed.current_stamps();
                // A file that is still being written is looked at when it has been left alone.
                let is_new = now != *followed.applied();
                if is_new && last == Some(now) {
                    // What went wrong was told.
                    let _ = runtime.reload().await;
                }
                last = Some(now);
            }
        });
    }
}

impl RuntimeState {
    async fn reload_config(
        &self,
        followed: &ConfigWatch,
    ) -> Result<Option<EngineChange>, ReloadError> {
        let config = Config::load(&followed.path)?;
        let rules = self.workspace_rules.clone();
        let wanted = tokio::task::spawn_blocking(move || {
            EngineSelection::from_config(&config, rules.as_ref())
        });
        let wanted = wanted.await;
        let wanted =
            wanted.map_err(|error| ReloadError::Panicked { reason: error.to_string() })??;
        if self.engines.read().applied.as_ref() == Some(&wanted) {
            return Ok(None);
        }
        let (engines, options) = (wanted.engines(), wanted.options(&self.engine_options));
        Ok(Some(self.open_and_activate(engines, options, Some(wanted)).await?))
    }

    fn report_rejection(&self, error: Option<&ReloadError>) {
        let Some(error) = error else { return };
        let serving = self.engines.current().serving_info().id;
        tracing::warn!(%error, serving, "the change of the config is not taken in");
        let why = one_line_message(error);
        self.engines.emit(EventKind::ReloadRejected { why, serving });
    }
}

/// A runtime that may be gone.
struct WeakRuntime(Weak<RuntimeState>);

impl WeakRuntime {
    fn upgrade(&self) -> Option<Runtime> {
        self.0.upgrade().map(Runtime::from_state)
    }
}

impl Runtime {
    fn downgrade(&self) -> WeakRuntime {
        WeakRuntime(Arc::downgrade(self.state()))
    }
}

/// What went wrong, with what lies behind it.
fn one_line_message(error: &ReloadError) -> String {
    error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ")
}
