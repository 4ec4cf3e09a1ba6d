//! One engine after the other in the slot of a running host, without a call that fails for it.
//!
//! ```text
//!            turn takes its engine ──────────┐ all its calls see this one
//!                                            ▼
//!  swap ─► open the new one ─► [ current ] ◄─┴─ on trial: its first failure brings the old one back
//!             │ does not open       │ was current
//!             ▼                     ▼
//!          nothing changes      [ warm ] ─► a minute ─► drain: leases end, or 30 s ─► dispose ─► dropped
//! ```
//!
//! A turn holds an `Arc` of the active engine, one or several in a chain. Sessions are told of to the new engine at their next turn, from the
//! host's own transcript; what an engine keeps is found again by the next one of the same id.

mod canary;
mod drain;
mod follow;
mod stamp;
mod wanted;

use futures_util::future::BoxFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::agent::{Runtime, Shared};
use super::canary::CanaryError;
use super::engine_options::EngineOptions;
use super::event::What;
use super::listeners::Listeners;
use super::roster::RosterError;
use ctxhost_config::{Config, ConfigError, SwapSettings};
use ctxhost_engine::ActiveEngine;
use ctxhost_engine::{EngineSpec, Isolation, SlotError, Source};

pub(super) use self::canary::CanaryWatch;
pub(super) use self::follow::Followed;
pub(super) use self::stamp::Stamp;
pub(super) use self::wanted::{Wanted, engines_of, legacy_of};

/// An engine that took the place of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swapped {
    /// Its id.
    pub engine: String,
    /// The engine that served before.
    pub before: String,
    /// How many engines this runtime has opened, this one among them.
    pub generation: u64,
}

/// Why an engine did not take the place of the one that serves, which goes on.
#[derive(Debug, thiserror::Error)]
pub enum SwapError {
    /// The config cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The engine is none that the config knows, or lets serve.
    #[error(transparent)]
    Roster(#[from] RosterError),
    /// It does not open.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The state of the slot, where a canary is told of, cannot be used.
    #[error(transparent)]
    Canary(#[from] CanaryError),
    /// Opening it ended in a panic of the host.
    #[error("opening the engine broke off: {reason}")]
    BrokeOff {
        /// What it said.
        reason: String,
    },
}

/// The slots of a runtime over time. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: SwapSettings,
    seats: RwLock<Seats>,
    /// Held while an engine is opened: one change follows the other.
    changing: AsyncMutex<()>,
    generations: AtomicU64,
    warmed: AtomicU64,
    loaded: Mutex<Loaded>,
    listeners: Listeners,
    background: TaskTracker,
    closing: CancellationToken,
}

/// Who sits where.
#[derive(Debug)]
struct Seats {
    current: Arc<ActiveEngine>,
    /// Who sat there before, ready to serve again.
    warm: Option<Warm>,
    canary: Option<canary::Seat>,
    /// What the config wanted when it was followed last; `None` once that was rolled back.
    applied: Option<Wanted>,
}

#[derive(Debug)]
struct Warm {
    number: u64,
    slot: Arc<ActiveEngine>,
}

/// Libraries that this runtime has loaded. None is ever unloaded.
#[derive(Debug, Default)]
struct Loaded {
    libraries: u64,
    bytes: u64,
    is_told: bool,
}

impl Runtime {
    /// Puts another engine into the slot, or several in a row, from each session's next turn on. A turn that is under way ends
    /// with the engine it began with. The engine is opened while the old one serves; where the new one
    /// fails in its first requests, the old one answers them and serves again. Failures of an earlier run hold
    /// the engine no longer; crashes do.
    ///
    /// # Errors
    ///
    /// [`SwapError`]; the engine that served goes on.
    pub fn swap<'a>(
        &'a self,
        engines: &'a (impl AsRef<[EngineSpec]> + Sync + ?Sized),
    ) -> BoxFuture<'a, Result<Swapped, SwapError>> {
        Box::pin(async move {
            let shared = self.shared();
            let _alone = shared.slots.inner.changing.lock().await;
            let engines = engines.as_ref().to_vec();
            engines.iter().for_each(|engine| shared.engine_options.excuse(&engine.id));
            shared.open_and_seat(engines, shared.engine_options.clone(), None).await
        })
    }

    /// The same with an engine of a config, by its id or the path of its library, or with several: `mask+legacy`.
    ///
    /// # Errors
    ///
    /// [`SwapError`]; the engine that served goes on.
    pub fn swap_to<'a>(
        &'a self,
        config: &'a Config,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Swapped, SwapError>> {
        Box::pin(async move {
            let engines = engines_of(config, name, self.shared().rules.as_ref())?;
            self.swap(&engines).await
        })
    }

    /// How many engines this runtime has opened for its slot, one after the other.
    pub fn generation(&self) -> u64 {
        self.shared().slots.inner.generations.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Opens engines beside those that serve, and lets them take over. For whoever holds `changing`.
    async fn open_and_seat(
        &self,
        engines: Vec<EngineSpec>,
        options: EngineOptions,
        applied: Option<Wanted>,
    ) -> Result<Swapped, SwapError> {
        let slot = self.open_successor(engines, options).await?;
        Ok(self.slots.seat(slot, applied))
    }

    /// Opens engines on a thread that may wait for them.
    async fn open_successor(
        &self,
        engines: Vec<EngineSpec>,
        options: EngineOptions,
    ) -> Result<ActiveEngine, SwapError> {
        let (clock, known) = (self.clock().clone(), self.context.sessions.clone());
        let files: Vec<u64> = engines.iter().filter_map(file_bytes).collect();
        let opening =
            tokio::task::spawn_blocking(move || options.open_successor(&engines, &clock, known));
        let opened = opening.await;
        let slot = opened.map_err(|error| SwapError::BrokeOff { reason: error.to_string() })??;
        self.slots.inner.generations.fetch_add(1, Ordering::Relaxed);
        files.into_iter().for_each(|bytes| self.slots.count_library(bytes));
        Ok(slot)
    }
}

impl Slots {
    /// The first engines of a runtime.
    pub(super) fn new(
        first: ActiveEngine,
        engines: &[EngineSpec],
        applied: Option<Wanted>,
        settings: SwapSettings,
        shared: (&Listeners, &TaskTracker, &CancellationToken),
    ) -> Slots {
        let (listeners, background, closing) = shared;
        let seats = Seats { current: Arc::new(first), warm: None, canary: None, applied };
        let slots = Slots {
            inner: Arc::new(Inner {
                settings,
                seats: RwLock::new(seats),
                changing: AsyncMutex::default(),
                generations: AtomicU64::new(1),
                warmed: AtomicU64::new(0),
                loaded: Mutex::default(),
                listeners: listeners.clone(),
                background: background.clone(),
                closing: closing.clone(),
            }),
        };
        engines.iter().filter_map(file_bytes).for_each(|bytes| slots.count_library(bytes));
        slots
    }

    /// The slot as it is filled now, for sessions that no canary takes.
    pub(super) fn current(&self) -> Arc<ActiveEngine> {
        let seats = self.read();
        if seats.current.lost_trial().is_none() {
            return seats.current.clone();
        }
        drop(seats);
        let mut seats = self.write();
        self.settle(&mut seats);
        seats.current.clone()
    }

    /// A new engine takes over.
    fn seat(&self, slot: ActiveEngine, applied: Option<Wanted>) -> Swapped {
        let new = Arc::new(slot);
        let mut seats = self.write();
        // Whoever stood ready for the one that goes does so no more. A trial that is lost under our
        // hands is lost before this, and settled: none may be lost after it.
        seats.current.end_trial();
        self.settle(&mut seats);
        let before = std::mem::replace(&mut seats.current, new.clone());
        if applied.is_some() {
            seats.applied = applied;
        }
        let number = self.inner.warmed.fetch_add(1, Ordering::Relaxed);
        let earlier = seats.warm.replace(Warm { number, slot: before.clone() });
        new.begin_trial(before.clone(), self.inner.settings.proving_requests);
        drop(seats);
        if let Some(earlier) = earlier {
            self.drain(earlier.slot);
        }
        self.keep_warm(number);
        let (after, before) = (new.effective(), before.effective());
        tracing::info!(
            engine = after.id,
            version = after.version,
            before = before.id,
            before_version = before.version,
            "engine swapped"
        );
        let swapped = Swapped {
            engine: after.id,
            before: before.id,
            generation: self.inner.generations.load(Ordering::Relaxed),
        };
        let Swapped { engine, before, generation } = swapped.clone();
        self.tell(What::EngineChanged { engine, before, generation });
        swapped
    }

    /// Puts the engine back that serves again since the new one lost its trial.
    fn settle(&self, seats: &mut Seats) {
        while let Some(lost) = seats.current.lost_trial().cloned() {
            let failed = std::mem::replace(&mut seats.current, lost.before.clone());
            seats.warm.take_if(|warm| Arc::ptr_eq(&warm.slot, &lost.before));
            seats.applied = None;
            self.tell(What::EngineRolledBack {
                engine: failed.configured(),
                serving: lost.before.effective().id,
                why: format!("it failed in {}: {}", lost.record.operation, lost.record.reason),
            });
            self.drain(failed);
        }
    }

    /// Lets the slot that stands ready go when its time is up, or the program ends.
    fn keep_warm(&self, number: u64) {
        let slots = self.clone();
        self.inner.background.spawn(async move {
            let time = tokio::time::sleep(Duration::from_millis(slots.inner.settings.warm_ms));
            let _ = slots.inner.closing.run_until_cancelled(time).await;
            let mut seats = slots.write();
            // As above: once the one that stands ready is let go, no trial may be lost to it.
            if seats.warm.as_ref().is_some_and(|warm| warm.number == number) {
                seats.current.end_trial();
            }
            slots.settle(&mut seats);
            let warm = seats.warm.take_if(|warm| warm.number == number);
            drop(seats);
            if let Some(warm) = warm {
                slots.drain(warm.slot);
            }
        });
    }

    /// Lets a slot go once nobody holds it, or when its time is up.
    fn drain(&self, slot: Arc<ActiveEngine>) {
        let limit = Duration::from_millis(self.inner.settings.drain_ms);
        self.inner.background.spawn(drain::drain(slot, limit));
    }

    /// Disposes of every engine, at the end of the program. One that is being let go already is disposed
    /// of by whoever lets it go.
    pub(super) async fn dispose(&self) {
        let slots = {
            let mut seats = self.write();
            self.settle(&mut seats);
            let warm = seats.warm.take().map(|warm| warm.slot);
            let canary = seats.canary.as_ref().map(canary::Seat::slot);
            [Some(seats.current.clone()), warm, canary]
        };
        for slot in slots.into_iter().flatten() {
            slot.dispose().await;
        }
    }

    /// Counts a library that was loaded, by the size of its file; says once when there are many.
    fn count_library(&self, bytes: u64) {
        const MIB: u64 = 1024 * 1024;
        let settings = &self.inner.settings;
        let mut loaded = self.inner.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.libraries += 1;
        loaded.bytes += bytes;
        let is_much = loaded.libraries > settings.generations_hint
            || loaded.bytes > settings.loaded_hint_bytes;
        if is_much && !loaded.is_told {
            loaded.is_told = true;
            let (libraries, mib) = (loaded.libraries, loaded.bytes / MIB);
            tracing::warn!(libraries, mib, "no library is ever unloaded; restart the host");
            self.tell(What::RestartAdvised { libraries, mib });
        }
    }

    /// Tells whoever listens of what belongs to no session.
    fn tell(&self, what: What) {
        self.inner.listeners.tell("", what);
    }

    fn read(&self) -> RwLockReadGuard<'_, Seats> {
        self.inner.seats.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Seats> {
        self.inner.seats.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What loading an engine into this process takes; `None` where nothing is: a process of its own takes
/// its library along when it ends.
fn file_bytes(engine: &EngineSpec) -> Option<u64> {
    match &engine.source {
        Source::File(_) if engine.isolation == Isolation::Process => None,
        Source::File(path) => Some(std::fs::metadata(path).map_or(0, |file| file.len())),
        Source::Bundled | Source::Linked(_) => None,
    }
}

#[cfg(test)]
mod tests;
