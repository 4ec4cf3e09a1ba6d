//! A running host follows its config: a change of the file becomes a swap, or a loud remark and nothing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::{Stamp, SwapError, Swapped, Wanted};
use crate::agent::{Runtime, Shared};
use crate::canary::CanaryHome;
use crate::event::What;
use ctxhost_config::Config;

/// A config that is followed.
#[derive(Debug)]
pub(crate) struct Followed {
    path: PathBuf,
    /// Where canaries are told of.
    pub(super) home: CanaryHome,
    seen: Mutex<Seen>,
}

/// The stamps of what was taken in last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    config: Option<Stamp>,
    canary: Option<Stamp>,
}

impl Followed {
    /// A config file, and the state folder of the host.
    pub(crate) fn new(config: &Path, state: &Path) -> Followed {
        // The folder that the process works in may change; the file does not.
        let path = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
        let home = CanaryHome::of(state, &path);
        Followed { path, home, seen: Mutex::default() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn now(&self) -> Seen {
        Seen { config: Stamp::of(&self.path), canary: self.home.stamp() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime {
    /// Looks at the config that is followed, and at the canary of its slot, and takes in what has changed
    /// since this was done last. A watching runtime does so by itself; a program may do so when it knows
    /// of a change. `None` where the engine of the slot stays.
    ///
    /// # Errors
    ///
    /// [`SwapError`]; the engines that served go on, and the event is told.
    pub async fn reload(&self) -> Result<Option<Swapped>, SwapError> {
        let shared = self.shared();
        let Some(followed) = &shared.followed else { return Ok(None) };
        let _alone = shared.slots.inner.changing.lock().await;
        let now = followed.now();
        let seen = std::mem::replace(&mut *followed.seen(), now);
        let mut swapped = Ok(None);
        if now.config != seen.config {
            swapped = shared.follow_config(followed).await;
            shared.tell_refused(swapped.as_ref().err());
        }
        if now.canary != seen.canary {
            let seated = shared.follow_canary(followed).await;
            shared.tell_refused(seated.as_ref().err());
            seated?;
        }
        swapped
    }

    /// Looks at what is followed from time to time, as long as the runtime lives.
    pub(crate) fn watch(&self) {
        let interval = Duration::from_millis(self.shared().slots.inner.settings.watch_ms);
        if interval.is_zero() || self.shared().followed.is_none() {
            return;
        }
        let closing = self.shared().closing.clone();
        let watched = self.downgrade();
        tokio::spawn(async move {
            let mut last = None;
            while closing.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
                let Some(runtime) = watched.upgrade() else { return };
                let Some(followed) = &runtime.shared().followed else { return };
                let now = followed.now();
                // A file that is still being written is looked at when it has been left alone.
                let is_new = now != *followed.seen();
                if is_new && last == Some(now) {
                    // What went wrong was told.
                    let _ = runtime.reload().await;
                }
                last = Some(now);
            }
        });
    }
}

impl Shared {
    async fn follow_config(&self, followed: &Followed) -> Result<Option<Swapped>, SwapError> {
        let config = Config::load(&followed.path)?;
        let rules = self.rules.clone();
        let wanted = tokio::task::spawn_blocking(move || Wanted::of(&config, rules.as_ref()));
        let wanted = wanted.await;
        let wanted =
            wanted.map_err(|error| SwapError::BrokeOff { reason: error.to_string() })??;
        if self.slots.read().applied.as_ref() == Some(&wanted) {
            return Ok(None);
        }
        let (engines, options) = (wanted.engines(), wanted.options(&self.engine_options));
        Ok(Some(self.open_and_seat(engines, options, Some(wanted)).await?))
    }

    fn tell_refused(&self, error: Option<&SwapError>) {
        let Some(error) = error else { return };
        let serving = self.slots.current().effective().id;
        tracing::warn!(%error, serving, "the change of the config is not taken in");
        let why = in_one_line(error);
        self.slots.tell(What::SwapRefused { why, serving });
    }
}

/// A runtime that may be gone.
struct WeakRuntime(Weak<Shared>);

impl WeakRuntime {
    fn upgrade(&self) -> Option<Runtime> {
        self.0.upgrade().map(Runtime::of)
    }
}

impl Runtime {
    fn downgrade(&self) -> WeakRuntime {
        WeakRuntime(Arc::downgrade(self.shared()))
    }
}

/// What went wrong, with what lies behind it.
fn in_one_line(error: &SwapError) -> String {
    error.to_string().lines().map(str::trim).collect::<Vec<_>>().join(" ")
}
