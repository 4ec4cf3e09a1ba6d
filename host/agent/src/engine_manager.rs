//! The active engine of a running host, its standby predecessor, and a canary.
//!
//! ```text
//!            a turn takes its engine ────────┐ and uses it for all its calls
//!                                            ▼
//!  new engine opened ───────► [ current ] ◄──┴─ on trial: its first failure restores the predecessor
//!                                  │ replaced
//!                                  ▼
//!                             [ standby ] ─► swap.warm_ms ─► drain: last user, or swap.drain_ms ─► dispose
//! ```
//!
//! A turn holds an `Arc` of its engine, which may be a chain. A new engine bootstraps each session at the session's
//! next turn, from the host's transcript.

pub(crate) mod canary;
mod drain;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::canary::ActiveCanary;
use crate::event::EventKind;
use crate::event_bus::EventBus;
use crate::reload::engine_selection::EngineSelection;
use ctxhost_config::SwapSettings;
use ctxhost_engine::{ActiveEngine, EngineSource, EngineSpec, Isolation, TrialFailure};

/// An engine that replaced another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineChange {
    /// The id of the new engine.
    pub engine: String,
    /// The engine that served before.
    pub previous: String,
    /// The number of engines that this runtime has opened, including this one.
    pub generation: u64,
}

/// The engines of a runtime. Clones share their state.
#[derive(Clone, Debug)]
pub(crate) struct EngineManager {
    state: Arc<ManagerState>,
}

#[derive(Debug)]
struct ManagerState {
    settings: SwapSettings,
    slots: RwLock<EngineSlots>,
    /// Held while an engine is opened, so that changes happen one after the other.
    change_lock: AsyncMutex<()>,
    generations: AtomicU64,
    standby_count: AtomicU64,
    library_counts: Mutex<LibraryCounts>,
    event_bus: EventBus,
    background: TaskTracker,
    shutdown: CancellationToken,
}

#[derive(Debug)]
struct EngineSlots {
    current: Arc<ActiveEngine>,
    /// The predecessor, ready to serve again.
    standby: Option<StandbyEngine>,
    canary: Option<ActiveCanary>,
    /// The config's selection that was applied last; `None` after a rollback, so that the same
    /// selection is tried again when the file changes.
    applied: Option<EngineSelection>,
}

#[derive(Debug)]
struct StandbyEngine {
    number: u64,
    engine: Arc<ActiveEngine>,
}

impl EngineSlots {
    /// Restores the predecessors of engines that failed their trial; the caller reports them.
    #[must_use]
    fn apply_rollbacks(&mut self) -> Vec<EngineRollback> {
        let mut rollbacks = Vec::new();
        // A loop: the predecessor may have been on trial itself when it was replaced.
        while let Some(failure) = self.current.trial_failure().cloned() {
            let failed = std::mem::replace(&mut self.current, failure.previous.clone());
            self.standby.take_if(|standby| Arc::ptr_eq(&standby.engine, &failure.previous));
            self.applied = None;
            rollbacks.push(EngineRollback { failed, failure });
        }
        rollbacks
    }
}

/// An engine that failed its trial, and the failure.
#[derive(Debug)]
struct EngineRollback {
    failed: Arc<ActiveEngine>,
    failure: TrialFailure,
}

/// The libraries that this runtime has loaded. Libraries are never unloaded.
#[derive(Debug, Default)]
struct LibraryCounts {
    libraries: u64,
    bytes: u64,
    is_reported: bool,
}

impl EngineManager {
    /// A manager whose current engine is `first`, opened from `engines`.
    pub(crate) fn new(
        first: ActiveEngine,
        engines: &[EngineSpec],
        applied: Option<EngineSelection>,
        settings: SwapSettings,
        services: (&EventBus, &TaskTracker, &CancellationToken),
    ) -> EngineManager {
        let (event_bus, background, shutdown) = services;
        let slots = EngineSlots { current: Arc::new(first), standby: None, canary: None, applied };
        let manager = EngineManager {
            state: Arc::new(ManagerState {
                settings,
                slots: RwLock::new(slots),
                change_lock: AsyncMutex::default(),
                generations: AtomicU64::new(0),
                standby_count: AtomicU64::new(0),
                library_counts: Mutex::default(),
                event_bus: event_bus.clone(),
                background: background.clone(),
                shutdown: shutdown.clone(),
            }),
        };
        manager.count_opened(engines);
        manager
    }

    /// The current engine, for sessions outside the canary's share.
    pub(crate) fn current(&self) -> Arc<ActiveEngine> {
        // Usually the read lock suffices: this runs for every turn.
        let slots = self.state.slots.read();
        if slots.current.trial_failure().is_none() {
            return slots.current.clone();
        }
        drop(slots);
        let (current, rollbacks) = {
            let mut slots = self.state.slots.write();
            let rollbacks = slots.apply_rollbacks();
            (slots.current.clone(), rollbacks)
        };
        self.report_rollbacks(rollbacks);
        current
    }

    /// Excludes other changes of the engine until the guard is dropped.
    pub(crate) async fn lock_changes(&self) -> AsyncMutexGuard<'_, ()> {
        self.state.change_lock.lock().await
    }

    /// How many engines were opened for the slot.
    pub(crate) fn generation(&self) -> u64 {
        self.state.generations.load(Ordering::Relaxed)
    }

    /// How often a watched config is checked; zero for never.
    pub(crate) fn watch_interval(&self) -> Duration {
        Duration::from_millis(self.state.settings.watch_ms)
    }

    /// Whether the config's selection is in effect.
    pub(crate) fn is_applied(&self, selection: &EngineSelection) -> bool {
        self.state.slots.read().applied.as_ref() == Some(selection)
    }

    /// Makes a newly opened engine current, on trial; the caller holds the change lock.
    pub(crate) fn activate(
        &self,
        engine: ActiveEngine,
        applied: Option<EngineSelection>,
    ) -> EngineChange {
        let new = Arc::new(engine);
        let mut slots = self.state.slots.write();
        // Ends the trial of the engine that leaves, before its standby is dropped: no request may roll back to a
        // predecessor that is being drained. A trial that was lost before this point is applied first.
        slots.current.end_trial();
        let rollbacks = slots.apply_rollbacks();
        let previous = std::mem::replace(&mut slots.current, new.clone());
        if applied.is_some() {
            slots.applied = applied;
        }
        let number = self.state.standby_count.fetch_add(1, Ordering::Relaxed);
        let standby = StandbyEngine { number, engine: previous.clone() };
        let outdated = slots.standby.replace(standby);
        new.begin_trial(previous.clone(), self.state.settings.trial_requests);
        drop(slots);
        self.report_rollbacks(rollbacks);
        if let Some(outdated) = outdated {
            self.drain(outdated.engine);
        }
        self.schedule_standby_drain(number);
        let (engine, previous) = (new.serving_info(), previous.serving_info());
        tracing::info!(
            engine = engine.id,
            version = engine.version,
            previous = previous.id,
            previous_version = previous.version,
            "engine replaced"
        );
        let generation = self.generation();
        let change = EngineChange { engine: engine.id, previous: previous.id, generation };
        let EngineChange { engine, previous, generation } = change.clone();
        self.emit(EventKind::EngineChanged { engine, previous, generation });
        change
    }

    /// Reports failed trials and drains their engines. Called without the lock: a listener may ask for the engine.
    fn report_rollbacks(&self, rollbacks: Vec<EngineRollback>) {
        for EngineRollback { failed, failure } in rollbacks {
            let (operation, reason) = (&failure.record.operation, &failure.record.reason);
            self.emit(EventKind::EngineRolledBack {
                engine: failed.configured_id(),
                serving: failure.previous.serving_info().id,
                why: format!("it failed in {operation}: {reason}"),
            });
            self.drain(failed);
        }
    }

    /// Drains the standby engine after `swap.warm_ms`, or at shutdown.
    fn schedule_standby_drain(&self, number: u64) {
        let manager = self.clone();
        self.state.background.spawn(async move {
            let pause = tokio::time::sleep(Duration::from_millis(manager.state.settings.warm_ms));
            let _ = manager.state.shutdown.run_until_cancelled(pause).await;
            let mut slots = manager.state.slots.write();
            // As in `activate`: without a standby engine no trial may be lost.
            if slots.standby.as_ref().is_some_and(|standby| standby.number == number) {
                slots.current.end_trial();
            }
            let rollbacks = slots.apply_rollbacks();
            let standby = slots.standby.take_if(|standby| standby.number == number);
            drop(slots);
            manager.report_rollbacks(rollbacks);
            if let Some(standby) = standby {
                manager.drain(standby.engine);
            }
        });
    }

    /// Disposes of an engine once nothing uses it, or after `swap.drain_ms`.
    fn drain(&self, engine: Arc<ActiveEngine>) {
        let limit = Duration::from_millis(self.state.settings.drain_ms);
        self.state.background.spawn(drain::drain(engine, limit));
    }

    /// Disposes of every engine at shutdown, except those being drained: their drain disposes of them.
    pub(crate) async fn dispose(&self) {
        let (engines, rollbacks) = {
            let mut slots = self.state.slots.write();
            let rollbacks = slots.apply_rollbacks();
            let standby = slots.standby.take().map(|standby| standby.engine);
            let canary = slots.canary.as_ref().map(ActiveCanary::engine);
            ([Some(slots.current.clone()), standby, canary], rollbacks)
        };
        self.report_rollbacks(rollbacks);
        for engine in engines.into_iter().flatten() {
            engine.dispose().await;
        }
    }

    /// Counts an opened chain and the libraries it loaded. Recommends a restart once there are many.
    pub(crate) fn count_opened(&self, engines: &[EngineSpec]) {
        self.state.generations.fetch_add(1, Ordering::Relaxed);
        engines.iter().filter_map(library_bytes).for_each(|bytes| self.count_library(bytes));
    }

    fn count_library(&self, bytes: u64) {
        const MIB: u64 = 1024 * 1024;
        let settings = &self.state.settings;
        let mut counts = self.state.library_counts.lock();
        counts.libraries += 1;
        counts.bytes += bytes;
        let is_over_limit = counts.libraries > settings.generations_hint
            || counts.bytes > settings.loaded_hint_bytes;
        let is_new = is_over_limit && !std::mem::replace(&mut counts.is_reported, is_over_limit);
        let (libraries, mib) = (counts.libraries, counts.bytes / MIB);
        drop(counts);
        if is_new {
            tracing::warn!(
                libraries,
                mib,
                "many engine libraries are loaded, and libraries are never unloaded; restart the host \
                 (limits: swap.generations_hint, swap.loaded_hint_bytes)"
            );
            self.emit(EventKind::RestartAdvised { libraries, mib });
        }
    }

    /// Emits an event that belongs to no session.
    pub(crate) fn emit(&self, kind: EventKind) {
        self.state.event_bus.emit("", kind);
    }
}

/// The size of the library that an engine loads into this process; `None` for linked engines and for sandboxed
/// ones, whose library goes with their process.
pub(crate) fn library_bytes(engine: &EngineSpec) -> Option<u64> {
    match &engine.source {
        EngineSource::File(_) if engine.isolation == Isolation::Process => None,
        EngineSource::File(path) => Some(std::fs::metadata(path).map_or(0, |file| file.len())),
        EngineSource::Bundled | EngineSource::Linked(_) => None,
    }
}
