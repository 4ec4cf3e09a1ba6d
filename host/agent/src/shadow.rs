//! Engines in the shadow: asked what they would make of each request, after it was shaped, without
//! effect.
//!
//! ```text
//!  request ─► slot ─► law ─► sent                     nobody waits for what is below
//!                       │
//!                       └─ snapshot ─► place of the session free? ─ no ─► skipped, counted
//!                                             │ yes
//!                                             ▼
//!                                      a thread of its own: each shadow ─► law ─► a line in the ledger
//! ```
//!
//! A shadow reads the same snapshots as the engine of the slot. Its plan is judged and thrown away, its
//! notes stand in a namespace of their own, and where it fails nobody else hears of it. At most one
//! request of a session waits, so that a slow shadow misses requests and never delays one.

pub mod log;
pub mod report;
mod runner;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctxhost_engine_api::{AssembleRequest, Transcript};
use tokio::sync::{mpsc, oneshot};

use self::log::{EngineOutcome, ShadowLog, ShadowRecord};
use self::runner::ShadowRunner;
use ctxhost_context::Prompt;
use ctxhost_engine::ActiveEngine;
use ctxhost_engine::store::EngineStore;
use ctxhost_engine::{EngineEnvironment, EngineSpec, EngineStores, OnEngineError, join_ids};
use ctxhost_invariants::{EnforcedPlan, InvariantSettings};

/// Where the stores of shadows stand, below those of engines that serve.
const NAMESPACE: &str = "shadow";

/// Engines that run beside the slot's own.
#[derive(Debug)]
pub struct ShadowEngines {
    invariants: InvariantSettings,
    pending: Arc<PendingSessions>,
    jobs: mpsc::UnboundedSender<ShadowJob>,
}

/// What the thread of the shadows is asked for.
enum ShadowJob {
    Assemble(Box<ShadowRequest>),
    Flush(oneshot::Sender<()>),
    Dispose(oneshot::Sender<()>),
}

/// A request that was shaped, for those who would have shaped it otherwise.
pub(super) struct ShadowRequest {
    request: AssembleRequest,
    view: Transcript,
    invariants: InvariantSettings,
    /// What the slot's own engine made of it.
    engine: String,
    checked: EnforcedPlan,
    took_us: u64,
    has_compacted: bool,
    rejected_plans: u64,
}

impl ShadowEngines {
    /// Opens engines, each a row of its own, on a thread of their own. One that does not open is told of
    /// in every line. What they see is written down in the ledger.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn open(
        rows: &[Vec<EngineSpec>],
        legacy: &EngineSpec,
        surroundings: &ShadowServices,
        law: &InvariantSettings,
        ledger: ShadowLog,
    ) -> std::io::Result<ShadowEngines> {
        let named = |row: &Vec<EngineSpec>| {
            let names: Vec<String> = row.iter().map(chain_link_name).collect();
            let name = join_ids(names.iter().map(String::as_str));
            let environment = surroundings.for_shadow(row.len(), &name);
            // What fails in a shadow fails there: nobody stands in for it.
            let stack = ActiveEngine::open(row, legacy, OnEngineError::Fail, &environment);
            ShadowRunner::new(name, stack)
        };
        let beside: Vec<ShadowRunner> = rows.iter().map(named).collect();
        let (work, jobs) = mpsc::unbounded_channel();
        let places = Arc::new(PendingSessions::default());
        let lane = ShadowWorker { runners: beside, log: ledger, pending: places.clone() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("shadows".into())
            .spawn(move || runtime.block_on(lane.run(jobs)))?;
        Ok(ShadowEngines { invariants: law.clone(), pending: places, jobs: work })
    }

    /// Shows them a request that was prompt. Returns at once, and skips it where one of the session waits
    /// already.
    pub(super) fn submit(&self, request: AssembleRequest, prompt: &Prompt) {
        if !self.pending.try_reserve(&request.session.id) {
            return;
        }
        let shown = ShadowRequest {
            request,
            view: prompt.view.clone(),
            invariants: self.invariants.clone(),
            engine: prompt.engine.clone(),
            checked: prompt.checked.clone(),
            took_us: u64::try_from(prompt.took.as_micros()).unwrap_or(u64::MAX),
            has_compacted: !prompt.compactions.is_empty(),
            rejected_plans: prompt.rejected_plans,
        };
        // A thread that is gone has said why.
        let _ = self.jobs.send(ShadowJob::Assemble(Box::new(shown)));
    }

    /// Waits until all that was shown has been looked at and written down.
    pub async fn flush(&self) {
        let (tell, told) = oneshot::channel();
        if self.jobs.send(ShadowJob::Flush(tell)).is_ok() {
            let _ = told.await;
        }
    }

    /// Disposes of all of them; what is shown afterwards is not looked at.
    pub(super) async fn dispose(&self) {
        let (tell, told) = oneshot::channel();
        if self.jobs.send(ShadowJob::Dispose(tell)).is_ok() {
            let _ = told.await;
        }
    }
}

/// Its id, or the path that it is named by: two builds of one engine are two shadows.
fn chain_link_name(spec: &EngineSpec) -> String {
    match spec.id.as_str() {
        "" => spec.source.to_string(),
        id => id.to_owned(),
    }
}

/// What engines in the shadow may use: what those of the slot use, but their notes stand apart, and no
/// model is asked for them unless they may.
#[derive(Debug)]
pub struct ShadowServices {
    /// Of the engines that serve.
    pub active: EngineEnvironment,
    /// Whether they may ask the model for summaries.
    pub may_complete: bool,
}

impl ShadowServices {
    /// Of one row and its name. Rows and files may hold the same engine, each with its own notes.
    fn for_shadow(&self, stages: usize, name: &str) -> EngineEnvironment {
        let folder = folder_name(name);
        let namespace = match stages {
            0 | 1 if folder == name => NAMESPACE.to_owned(),
            _ => format!("{NAMESPACE}/{folder}"),
        };
        let serving = &self.active;
        let mut environment =
            EngineEnvironment::new(serving.timeouts.clone(), serving.clock.clone());
        environment.copies_folder.clone_from(&serving.copies_folder);
        environment.sessions.clone_from(&serving.sessions);
        // What took hosts down is not opened here either, and what takes this one down is told of. A call
        // that merely fails here must not hold an engine that serves well.
        environment.failure_log.clone_from(&serving.failure_log);
        environment.log_only_crashes = true;
        environment.completer = serving.completer.clone().filter(|_| self.may_complete);
        let folder = serving.store_folder.as_ref();
        environment.store_folder = folder.map(|folder| folder.join(&namespace));
        environment.stores = serving.stores.clone().map(|stores| {
            let stores: Arc<dyn EngineStores> = Arc::new(ShadowStores { stores, namespace });
            stores
        });
        environment
    }
}

/// A name as that of one folder: a path in it leads nowhere.
fn folder_name(name: &str) -> String {
    name.replace(['/', '.'], "-")
}

/// Stores of engines in the shadow, beside those of the same engines where they serve.
#[derive(Debug)]
struct ShadowStores {
    stores: Arc<dyn EngineStores>,
    namespace: String,
}

impl EngineStores for ShadowStores {
    fn open_store(&self, engine: &str) -> Arc<dyn EngineStore> {
        self.stores.open_store(&format!("{}/{engine}", self.namespace))
    }
}

/// One place for each session that has a request waiting; how many found it taken.
#[derive(Debug, Default)]
struct PendingSessions(Mutex<HashMap<String, u64>>);

impl PendingSessions {
    /// Whether the place of a session was free, and is taken now.
    fn try_reserve(&self, session: &str) -> bool {
        let mut waiting = self.pending();
        match waiting.get_mut(session) {
            Some(skipped) => {
                *skipped += 1;
                false
            }
            None => waiting.insert(session.to_owned(), 0).is_none(),
        }
    }

    /// Frees the place of a session; how many found it taken meanwhile.
    fn release(&self, session: &str) -> u64 {
        self.pending().remove(session).unwrap_or_default()
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread of the shadows at work.
struct ShadowWorker {
    runners: Vec<ShadowRunner>,
    log: ShadowLog,
    pending: Arc<PendingSessions>,
}

impl ShadowWorker {
    async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<ShadowJob>) {
        let mut epochs = HashMap::new();
        while let Some(work) = jobs.recv().await {
            match work {
                ShadowJob::Assemble(shown) => self.assemble(&shown, &mut epochs).await,
                ShadowJob::Flush(done) => _ = done.send(()),
                ShadowJob::Dispose(done) => {
                    for beside in &self.runners {
                        beside.dispose().await;
                    }
                    // Best effort: who asked may be gone, and the work is done all the same.
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    async fn assemble(&mut self, shown: &ShadowRequest, epochs: &mut HashMap<String, u64>) {
        let session = &shown.request.session.id;
        let skipped = self.pending.release(session);
        // A compaction between two turns is one too.
        let before = epochs.insert(session.clone(), shown.view.epoch());
        let has_compacted = before.map_or(shown.has_compacted, |epoch| epoch < shown.view.epoch());
        let mut shadows = Vec::with_capacity(self.runners.len());
        for beside in &mut self.runners {
            shadows.push(beside.assemble(shown).await);
        }
        let line = ShadowRecord {
            at_ms: shown.request.now_ms,
            config: self.log.config().to_owned(),
            session: session.clone(),
            active: EngineOutcome::from_active(shown, has_compacted),
            shadows,
            skipped,
        };
        if let Err(error) = self.log.append(&line) {
            tracing::warn!(%error, "what engines in the shadow saw is not written down");
        }
    }
}
