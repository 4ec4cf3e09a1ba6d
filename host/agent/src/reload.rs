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
mod config_watch;
mod drain;
mod engine_selection;
mod file_stamp;

use futures_util::future::BoxFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::canary::CanaryError;
use super::engine_options::EngineOptions;
use super::engine_registry::EngineRegistryError;
use super::event::EventKind;
use super::event_bus::EventBus;
use super::runtime::{Runtime, RuntimeState};
use ctxhost_config::{Config, ConfigError, SwapSettings};
use ctxhost_engine::ActiveEngine;
use ctxhost_engine::{EngineSource, EngineSpec, Isolation, SlotError};

pub(super) use self::canary::CanaryRecorder;
pub(super) use self::config_watch::ConfigWatch;
pub(super) use self::engine_selection::{EngineSelection, engine_chain, fallback_engine};
pub(super) use self::file_stamp::FileStamp;

/// An engine that took the place of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineChange {
    /// Its id.
    pub engine: String,
    /// The engine that served before.
    pub previous: String,
    /// How many engines this runtime has opened, this one among them.
    pub generation: u64,
}

/// Why an engine did not take the place of the one that serves, which goes on.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The config cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The engine is none that the config knows, or lets serve.
    #[error(transparent)]
    Registry(#[from] EngineRegistryError),
    /// It does not open.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The state of the slot, where a canary is told of, cannot be used.
    #[error(transparent)]
    Canary(#[from] CanaryError),
    /// Opening it ended in a panic of the host.
    #[error("opening the engine broke off: {reason}")]
    Panicked {
        /// What it said.
        reason: String,
    },
}

/// The slots of a runtime over time. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct EngineManager {
    state: Arc<ManagerState>,
}

#[derive(Debug)]
struct ManagerState {
    settings: SwapSettings,
    slots: RwLock<EngineSlots>,
    /// Held while an engine is opened: one change follows the other.
    change_lock: AsyncMutex<()>,
    generations: AtomicU64,
    standby_count: AtomicU64,
    library_counts: Mutex<LibraryCounts>,
    event_bus: EventBus,
    background: TaskTracker,
    shutdown: CancellationToken,
}

/// Who sits where.
#[derive(Debug)]
struct EngineSlots {
    current: Arc<ActiveEngine>,
    /// Who sat there before, ready to serve again.
    standby: Option<StandbyEngine>,
    canary: Option<canary::ActiveCanary>,
    /// What the config wanted when it was followed last; `None` once that was rolled back.
    applied: Option<EngineSelection>,
}

#[derive(Debug)]
struct StandbyEngine {
    number: u64,
    engine: Arc<ActiveEngine>,
}

/// Libraries that this runtime has loaded. None is ever unloaded.
#[derive(Debug, Default)]
struct LibraryCounts {
    libraries: u64,
    bytes: u64,
    is_reported: bool,
}

impl Runtime {
    /// Puts another engine into the slot, or several in a row, from each session's next turn on. A turn that is under way ends
    /// with the engine it began with. The engine is opened while the old one serves; where the new one
    /// fails in its first requests, the old one answers them and serves again. Failures of an earlier run hold
    /// the engine no longer; crashes do.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; the engine that served goes on.
    pub fn replace_engine<'a>(
        &'a self,
        engines: &'a (impl AsRef<[EngineSpec]> + Sync + ?Sized),
    ) -> BoxFuture<'a, Result<EngineChange, ReloadError>> {
        Box::pin(async move {
            let shared = self.state();
            let _alone = shared.engines.state.change_lock.lock().await;
            let engines = engines.as_ref().to_vec();
            engines.iter().for_each(|engine| shared.engine_options.lift_quarantine(&engine.id));
            shared.open_and_activate(engines, shared.engine_options.clone(), None).await
        })
    }

    /// The same with an engine of a config, by its id or the path of its library, or with several: `mask+legacy`.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; the engine that served goes on.
    pub fn replace_engine_by_name<'a>(
        &'a self,
        config: &'a Config,
        name: &'a str,
    ) -> BoxFuture<'a, Result<EngineChange, ReloadError>> {
        Box::pin(async move {
            let engines = engine_chain(config, name, self.state().workspace_rules.as_ref())?;
            self.replace_engine(&engines).await
        })
    }

    /// How many engines this runtime has opened for its slot, one after the other.
    pub fn generation(&self) -> u64 {
        self.state().engines.state.generations.load(Ordering::Relaxed)
    }
}

impl RuntimeState {
    /// Opens engines beside those that serve, and lets them take over. For whoever holds `change_lock`.
    async fn open_and_activate(
        &self,
        engines: Vec<EngineSpec>,
        options: EngineOptions,
        applied: Option<EngineSelection>,
    ) -> Result<EngineChange, ReloadError> {
        let slot = self.open_successor(engines, options).await?;
        Ok(self.engines.activate(slot, applied))
    }

    /// Opens engines on a thread that may wait for them.
    async fn open_successor(
        &self,
        engines: Vec<EngineSpec>,
        options: EngineOptions,
    ) -> Result<ActiveEngine, ReloadError> {
        let (clock, known) = (self.clock().clone(), self.context.sessions.clone());
        let files: Vec<u64> = engines.iter().filter_map(file_bytes).collect();
        let opening =
            tokio::task::spawn_blocking(move || options.open_successor(&engines, &clock, known));
        let opened = opening.await;
        let slot =
            opened.map_err(|error| ReloadError::Panicked { reason: error.to_string() })??;
        self.engines.state.generations.fetch_add(1, Ordering::Relaxed);
        files.into_iter().for_each(|bytes| self.engines.count_library(bytes));
        Ok(slot)
    }
}

impl EngineManager {
    /// The first engines of a runtime.
    pub(super) fn new(
        first: ActiveEngine,
        engines: &[EngineSpec],
        applied: Option<EngineSelection>,
        settings: SwapSettings,
        shared: (&EventBus, &TaskTracker, &CancellationToken),
    ) -> EngineManager {
        let (listeners, background, closing) = shared;
        let seats = EngineSlots { current: Arc::new(first), standby: None, canary: None, applied };
        let slots = EngineManager {
            state: Arc::new(ManagerState {
                settings,
                slots: RwLock::new(seats),
                change_lock: AsyncMutex::default(),
                generations: AtomicU64::new(1),
                standby_count: AtomicU64::new(0),
                library_counts: Mutex::default(),
                event_bus: listeners.clone(),
                background: background.clone(),
                shutdown: closing.clone(),
            }),
        };
        engines.iter().filter_map(file_bytes).for_each(|bytes| slots.count_library(bytes));
        slots
    }

    /// The slot as it is filled now, for sessions that no canary takes.
    pub(super) fn current(&self) -> Arc<ActiveEngine> {
        let seats = self.read();
        if seats.current.trial_failure().is_none() {
            return seats.current.clone();
        }
        drop(seats);
        let mut seats = self.write();
        self.apply_rollbacks(&mut seats);
        seats.current.clone()
    }

    /// A new engine takes over.
    fn activate(&self, slot: ActiveEngine, applied: Option<EngineSelection>) -> EngineChange {
        let new = Arc::new(slot);
        let mut seats = self.write();
        // Whoever stood ready for the one that goes does so no more. A trial that is lost under our
        // hands is lost before this, and settled: none may be lost after it.
        seats.current.end_trial();
        self.apply_rollbacks(&mut seats);
        let before = std::mem::replace(&mut seats.current, new.clone());
        if applied.is_some() {
            seats.applied = applied;
        }
        let number = self.state.standby_count.fetch_add(1, Ordering::Relaxed);
        let earlier = seats.standby.replace(StandbyEngine { number, engine: before.clone() });
        new.begin_trial(before.clone(), self.state.settings.trial_requests);
        drop(seats);
        if let Some(earlier) = earlier {
            self.drain(earlier.engine);
        }
        self.schedule_standby_drain(number);
        let (after, before) = (new.serving_info(), before.serving_info());
        tracing::info!(
            engine = after.id,
            version = after.version,
            before = before.id,
            before_version = before.version,
            "engine swapped"
        );
        let swapped = EngineChange {
            engine: after.id,
            previous: before.id,
            generation: self.state.generations.load(Ordering::Relaxed),
        };
        let EngineChange { engine, previous: before, generation } = swapped.clone();
        self.emit(EventKind::EngineChanged { engine, previous: before, generation });
        swapped
    }

    /// Puts the engine back that serves again since the new one lost its trial.
    fn apply_rollbacks(&self, seats: &mut EngineSlots) {
        while let Some(lost) = seats.current.trial_failure().cloned() {
            let failed = std::mem::replace(&mut seats.current, lost.previous.clone());
            seats.standby.take_if(|warm| Arc::ptr_eq(&warm.engine, &lost.previous));
            seats.applied = None;
            self.emit(EventKind::EngineRolledBack {
                engine: failed.configured_id(),
                serving: lost.previous.serving_info().id,
                why: format!("it failed in {}: {}", lost.record.operation, lost.record.reason),
            });
            self.drain(failed);
        }
    }

    /// Lets the slot that stands ready go when its time is up, or the program ends.
    fn schedule_standby_drain(&self, number: u64) {
        let slots = self.clone();
        self.state.background.spawn(async move {
            let time = tokio::time::sleep(Duration::from_millis(slots.state.settings.warm_ms));
            let _ = slots.state.shutdown.run_until_cancelled(time).await;
            let mut seats = slots.write();
            // As above: once the one that stands ready is let go, no trial may be lost to it.
            if seats.standby.as_ref().is_some_and(|warm| warm.number == number) {
                seats.current.end_trial();
            }
            slots.apply_rollbacks(&mut seats);
            let warm = seats.standby.take_if(|warm| warm.number == number);
            drop(seats);
            if let Some(warm) = warm {
                slots.drain(warm.engine);
            }
        });
    }

    /// Lets a slot go once nobody holds it, or when its time is up.
    fn drain(&self, slot: Arc<ActiveEngine>) {
        let limit = Duration::from_millis(self.state.settings.drain_ms);
        self.state.background.spawn(drain::drain(slot, limit));
    }

    /// Disposes of every engine, at the end of the program. One that is being let go already is disposed
    /// of by whoever lets it go.
    pub(super) async fn dispose(&self) {
        let slots = {
            let mut seats = self.write();
            self.apply_rollbacks(&mut seats);
            let warm = seats.standby.take().map(|warm| warm.engine);
            let canary = seats.canary.as_ref().map(canary::ActiveCanary::engine);
            [Some(seats.current.clone()), warm, canary]
        };
        for slot in slots.into_iter().flatten() {
            slot.dispose().await;
        }
    }

    /// Counts a library that was loaded, by the size of its file; says once when there are many.
    fn count_library(&self, bytes: u64) {
        const MIB: u64 = 1024 * 1024;
        let settings = &self.state.settings;
        let mut loaded = self.state.library_counts.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.libraries += 1;
        loaded.bytes += bytes;
        let is_much = loaded.libraries > settings.generations_hint
            || loaded.bytes > settings.loaded_hint_bytes;
        if is_much && !loaded.is_reported {
            loaded.is_reported = true;
            let (libraries, mib) = (loaded.libraries, loaded.bytes / MIB);
            tracing::warn!(libraries, mib, "no library is ever unloaded; restart the host");
            self.emit(EventKind::RestartAdvised { libraries, mib });
        }
    }

    /// Tells whoever listens of what belongs to no session.
    fn emit(&self, what: EventKind) {
        self.state.event_bus.emit("", what);
    }

    fn read(&self) -> RwLockReadGuard<'_, EngineSlots> {
        self.state.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, EngineSlots> {
        self.state.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What loading an engine into this process takes; `None` where nothing is: a process of its own takes
/// its library along when it ends.
fn file_bytes(engine: &EngineSpec) -> Option<u64> {
    match &engine.source {
        EngineSource::File(_) if engine.isolation == Isolation::Process => None,
        EngineSource::File(path) => Some(std::fs::metadata(path).map_or(0, |file| file.len())),
        EngineSource::Bundled | EngineSource::Linked(_) => None,
    }
}

#[cfg(test)]
mod tests;
