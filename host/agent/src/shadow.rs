//! Shadow engines: they plan each request after it was shaped, without effect, for comparison.
//!
//! ```text
//!  request ─► active engine ─► invariants ─► sent             no request waits for the following
//!                                   │
//!                                   └─ snapshot ─► a request of the session waiting? ─ yes ─► skipped, counted
//!                                                             │ no
//!                                                             ▼
//!                                              own thread: each shadow ─► invariants ─► a line in the log
//! ```
//!
//! A shadow reads the same snapshots as the active engine. Its plan is checked and discarded, its key-value store has a
//! separate namespace, and its failures affect no one. At most one request per session waits, so a slow shadow misses
//! requests and delays none.

pub mod log;
pub mod report;
mod request;
mod runner;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use ctxhost_engine_api::AssembleRequest;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use self::log::{EngineOutcome, ShadowLog, ShadowRecord};
use self::request::ShadowRequest;
use self::runner::ShadowRunner;
use ctxhost_context::Prompt;
use ctxhost_engine::store::EngineStore;
use ctxhost_engine::{
    ActiveEngine, EngineEnvironment, EngineSpec, EngineStores, OnEngineError, join_ids,
};
use ctxhost_invariants::InvariantSettings;

/// The folder and namespace of shadow stores, below those of serving engines.
const NAMESPACE: &str = "shadow";

/// The shadow engines of a runtime.
#[derive(Debug)]
pub struct ShadowEngines {
    invariants: InvariantSettings,
    pending: Arc<PendingSessions>,
    jobs: mpsc::UnboundedSender<ShadowJob>,
}

/// A job of the shadow thread.
enum ShadowJob {
    Assemble(Box<ShadowRequest>),
    Flush(oneshot::Sender<()>),
    Dispose(oneshot::Sender<()>),
}

impl ShadowEngines {
    /// Opens engine chains on a thread of their own. A chain that does not open is reported in every line of the log.
    ///
    /// # Errors
    ///
    /// If the thread cannot be started.
    pub fn open(
        chains: &[Vec<EngineSpec>],
        legacy: &EngineSpec,
        services: &ShadowServices,
        invariants: &InvariantSettings,
        log: ShadowLog,
    ) -> std::io::Result<ShadowEngines> {
        let open_runner = |chain: &Vec<EngineSpec>| {
            let names: Vec<String> = chain.iter().map(chain_link_name).collect();
            let name = join_ids(names.iter().map(String::as_str));
            let environment = services.for_shadow(chain.len(), &name);
            // No fallback: it would hide the failures that the log is for.
            let engine = ActiveEngine::open(chain, legacy, OnEngineError::Fail, &environment);
            ShadowRunner::new(name, engine)
        };
        let runners: Vec<ShadowRunner> = chains.iter().map(open_runner).collect();
        let (jobs, receiver) = mpsc::unbounded_channel();
        let pending = Arc::new(PendingSessions::default());
        let worker = ShadowWorker { runners, log, pending: pending.clone() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("shadows".into())
            .spawn(move || runtime.block_on(worker.run(receiver)))?;
        Ok(ShadowEngines { invariants: invariants.clone(), pending, jobs })
    }

    /// Submits a shaped request and returns at once. Skips it if a request of the session is waiting.
    pub(super) fn submit(&self, request: AssembleRequest, prompt: &Prompt) {
        if !self.pending.try_reserve(&request.session.id) {
            return;
        }
        let request = ShadowRequest::new(request, prompt, &self.invariants);
        // Sending fails only if the thread panicked, which it has logged.
        let _ = self.jobs.send(ShadowJob::Assemble(Box::new(request)));
    }

    /// Waits until all submitted requests are processed and logged.
    pub async fn flush(&self) {
        let (done, finished) = oneshot::channel();
        if self.jobs.send(ShadowJob::Flush(done)).is_ok() {
            let _ = finished.await;
        }
    }

    /// Disposes of all shadow engines. Requests submitted afterwards are ignored.
    pub(super) async fn dispose(&self) {
        let (done, finished) = oneshot::channel();
        if self.jobs.send(ShadowJob::Dispose(done)).is_ok() {
            let _ = finished.await;
        }
    }
}

/// The id of an engine, or its path if it is named by one: two builds of one engine are two shadows.
fn chain_link_name(spec: &EngineSpec) -> String {
    match spec.id.as_str() {
        "" => spec.source.to_string(),
        id => id.to_owned(),
    }
}

/// The services for shadow engines: those of the active engine, with separate stores and restricted model calls.
#[derive(Debug)]
pub struct ShadowServices {
    /// The services of the active engine.
    pub active: EngineEnvironment,
    /// Whether shadows may request summaries from a model.
    pub may_complete: bool,
}

impl ShadowServices {
    /// The services of one chain.
    fn for_shadow(&self, chain_len: usize, name: &str) -> EngineEnvironment {
        let folder = folder_name(name);
        // Chains and files may contain the same engine, and each needs its own store.
        let namespace = match chain_len {
            0 | 1 if folder == name => NAMESPACE.to_owned(),
            _ => format!("{NAMESPACE}/{folder}"),
        };
        let active = &self.active;
        let mut environment = EngineEnvironment::new(active.timeouts.clone(), active.clock.clone());
        environment.copies_folder.clone_from(&active.copies_folder);
        environment.sessions.clone_from(&active.sessions);
        // The failure log is shared for crashes only: an engine that crashes hosts is not opened as
        // a shadow either. A failed call of a shadow must not quarantine an engine that serves.
        environment.failure_log.clone_from(&active.failure_log);
        environment.log_only_crashes = true;
        environment.completer = active.completer.clone().filter(|_| self.may_complete);
        environment.embedder = active.embedder.clone().filter(|_| self.may_complete);
        let folder = active.store_folder.as_ref();
        environment.store_folder = folder.map(|folder| folder.join(&namespace));
        environment.stores = active.stores.clone().map(|stores| {
            let stores: Arc<dyn EngineStores> = Arc::new(ShadowStores { stores, namespace });
            stores
        });
        environment
    }
}

/// A name as one folder name, without path separators.
fn folder_name(name: &str) -> String {
    name.replace(['/', '.'], "-")
}

/// Engine stores in the namespace of the shadows.
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

/// The sessions with a waiting request, and how many further requests each skipped.
#[derive(Debug, Default)]
struct PendingSessions(Mutex<HashMap<String, u64>>);

impl PendingSessions {
    /// Reserves a session; returns false and counts a skipped request if it is reserved.
    fn try_reserve(&self, session: &str) -> bool {
        let mut pending = self.0.lock();
        match pending.get_mut(session) {
            Some(skipped) => {
                *skipped += 1;
                false
            }
            None => pending.insert(session.to_owned(), 0).is_none(),
        }
    }

    /// Releases a session; returns the number of skipped requests.
    fn release(&self, session: &str) -> u64 {
        self.0.lock().remove(session).unwrap_or_default()
    }
}

/// The thread of the shadow engines.
struct ShadowWorker {
    runners: Vec<ShadowRunner>,
    log: ShadowLog,
    pending: Arc<PendingSessions>,
}

impl ShadowWorker {
    async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<ShadowJob>) {
        let mut epochs = HashMap::new();
        while let Some(job) = jobs.recv().await {
            match job {
                ShadowJob::Assemble(request) => self.assemble(&request, &mut epochs).await,
                ShadowJob::Flush(done) => _ = done.send(()),
                ShadowJob::Dispose(done) => {
                    for runner in &self.runners {
                        runner.dispose().await;
                    }
                    // Sending fails if the caller was dropped.
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    async fn assemble(&mut self, request: &ShadowRequest, epochs: &mut HashMap<String, u64>) {
        let session = &request.request.session.id;
        let skipped = self.pending.release(session);
        // A new epoch also shows a compaction between two turns.
        let epoch = request.view.epoch();
        let before = epochs.insert(session.clone(), epoch);
        let has_compacted = before.map_or(request.has_compacted, |before| before < epoch);
        let mut shadows = Vec::with_capacity(self.runners.len());
        for runner in &mut self.runners {
            shadows.push(runner.assemble(request).await);
        }
        let record = ShadowRecord {
            at_ms: request.request.now_ms,
            config: self.log.config().to_owned(),
            session: session.clone(),
            active: EngineOutcome::from_active(request, has_compacted),
            shadows,
            skipped,
        };
        if let Err(error) = self.log.append(&record) {
            tracing::warn!(%error, "cannot write the log of the shadow engines");
        }
    }
}
