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

mod beside;
pub mod ledger;
pub mod report;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctxhost_engine_api::{AssembleRequest, Transcript};
use tokio::sync::{mpsc, oneshot};

use self::beside::Beside;
use self::ledger::{Ledger, Line, Seen};
use ctxhost_context::Prompt;
use ctxhost_engine::ActiveEngine;
use ctxhost_engine::store::EngineStore;
use ctxhost_engine::{EngineSpec, EngineStores, Environment, OnEngineError, joined};
use ctxhost_law::{LawSettings, Lawful};

/// Where the stores of shadows stand, below those of engines that serve.
const NAMESPACE: &str = "shadow";

/// Engines that run beside the slot's own.
#[derive(Debug)]
pub struct Shadows {
    law: LawSettings,
    places: Arc<Places>,
    work: mpsc::UnboundedSender<Work>,
}

/// What the thread of the shadows is asked for.
enum Work {
    Look(Box<Shown>),
    Tell(oneshot::Sender<()>),
    Dispose(oneshot::Sender<()>),
}

/// A request that was shaped, for those who would have shaped it otherwise.
pub(super) struct Shown {
    request: AssembleRequest,
    view: Transcript,
    law: LawSettings,
    /// What the slot's own engine made of it.
    engine: String,
    lawful: Lawful,
    took_us: u64,
    has_compacted: bool,
    refused: u64,
}

impl Shadows {
    /// Opens engines, each a row of its own, on a thread of their own. One that does not open is told of
    /// in every line. What they see is written down in the ledger.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub fn open(
        rows: &[Vec<EngineSpec>],
        legacy: &EngineSpec,
        surroundings: &Surroundings,
        law: &LawSettings,
        ledger: Ledger,
    ) -> std::io::Result<Shadows> {
        let named = |row: &Vec<EngineSpec>| {
            let names: Vec<String> = row.iter().map(name_of).collect();
            let name = joined(names.iter().map(String::as_str));
            let environment = surroundings.of(row.len(), &name);
            // What fails in a shadow fails there: nobody stands in for it.
            let stack = ActiveEngine::open(row, legacy, OnEngineError::Fail, &environment);
            Beside::of(name, stack)
        };
        let beside: Vec<Beside> = rows.iter().map(named).collect();
        let (work, jobs) = mpsc::unbounded_channel();
        let places = Arc::new(Places::default());
        let lane = Lane { beside, ledger, places: places.clone() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new()
            .name("shadows".into())
            .spawn(move || runtime.block_on(lane.run(jobs)))?;
        Ok(Shadows { law: law.clone(), places, work })
    }

    /// Shows them a request that was prompt. Returns at once, and skips it where one of the session waits
    /// already.
    pub(super) fn show(&self, request: AssembleRequest, prompt: &Prompt) {
        if !self.places.take(&request.session.id) {
            return;
        }
        let shown = Shown {
            request,
            view: prompt.view.clone(),
            law: self.law.clone(),
            engine: prompt.engine.clone(),
            lawful: prompt.lawful.clone(),
            took_us: u64::try_from(prompt.took.as_micros()).unwrap_or(u64::MAX),
            has_compacted: !prompt.compactions.is_empty(),
            refused: prompt.refused,
        };
        // A thread that is gone has said why.
        let _ = self.work.send(Work::Look(Box::new(shown)));
    }

    /// Waits until all that was shown has been looked at and written down.
    pub async fn settled(&self) {
        let (tell, told) = oneshot::channel();
        if self.work.send(Work::Tell(tell)).is_ok() {
            let _ = told.await;
        }
    }

    /// Disposes of all of them; what is shown afterwards is not looked at.
    pub(super) async fn dispose(&self) {
        let (tell, told) = oneshot::channel();
        if self.work.send(Work::Dispose(tell)).is_ok() {
            let _ = told.await;
        }
    }
}

/// Its id, or the path that it is named by: two builds of one engine are two shadows.
fn name_of(spec: &EngineSpec) -> String {
    match spec.id.as_str() {
        "" => spec.source.to_string(),
        id => id.to_owned(),
    }
}

/// What engines in the shadow may use: what those of the slot use, but their notes stand apart, and no
/// model is asked for them unless they may.
#[derive(Debug)]
pub struct Surroundings {
    /// Of the engines that serve.
    pub serving: Environment,
    /// Whether they may ask the model for summaries.
    pub may_complete: bool,
}

impl Surroundings {
    /// Of one row and its name. Rows and files may hold the same engine, each with its own notes.
    fn of(&self, stages: usize, name: &str) -> Environment {
        let folder = folder_name(name);
        let namespace = match stages {
            0 | 1 if folder == name => NAMESPACE.to_owned(),
            _ => format!("{NAMESPACE}/{folder}"),
        };
        let serving = &self.serving;
        let mut environment = Environment::new(serving.timeouts.clone(), serving.clock.clone());
        environment.copies_folder.clone_from(&serving.copies_folder);
        environment.sessions.clone_from(&serving.sessions);
        // What took hosts down is not opened here either, and what takes this one down is told of. A call
        // that merely fails here must not hold an engine that serves well.
        environment.failures.clone_from(&serving.failures);
        environment.fail_alone = true;
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
    fn of(&self, engine: &str) -> Arc<dyn EngineStore> {
        self.stores.of(&format!("{}/{engine}", self.namespace))
    }
}

/// One place for each session that has a request waiting; how many found it taken.
#[derive(Debug, Default)]
struct Places(Mutex<HashMap<String, u64>>);

impl Places {
    /// Whether the place of a session was free, and is taken now.
    fn take(&self, session: &str) -> bool {
        let mut waiting = self.waiting();
        match waiting.get_mut(session) {
            Some(skipped) => {
                *skipped += 1;
                false
            }
            None => waiting.insert(session.to_owned(), 0).is_none(),
        }
    }

    /// Frees the place of a session; how many found it taken meanwhile.
    fn free(&self, session: &str) -> u64 {
        self.waiting().remove(session).unwrap_or_default()
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread of the shadows at work.
struct Lane {
    beside: Vec<Beside>,
    ledger: Ledger,
    places: Arc<Places>,
}

impl Lane {
    async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Work>) {
        let mut epochs = HashMap::new();
        while let Some(work) = jobs.recv().await {
            match work {
                Work::Look(shown) => self.look(&shown, &mut epochs).await,
                Work::Tell(done) => _ = done.send(()),
                Work::Dispose(done) => {
                    for beside in &self.beside {
                        beside.dispose().await;
                    }
                    // Best effort: who asked may be gone, and the work is done all the same.
                    let _ = done.send(());
                    return;
                }
            }
        }
    }

    async fn look(&mut self, shown: &Shown, epochs: &mut HashMap<String, u64>) {
        let session = &shown.request.session.id;
        let skipped = self.places.free(session);
        // A compaction between two turns is one too.
        let before = epochs.insert(session.clone(), shown.view.epoch());
        let has_compacted = before.map_or(shown.has_compacted, |epoch| epoch < shown.view.epoch());
        let mut shadows = Vec::with_capacity(self.beside.len());
        for beside in &mut self.beside {
            shadows.push(beside.look(shown).await);
        }
        let line = Line {
            at_ms: shown.request.now_ms,
            config: self.ledger.config().to_owned(),
            session: session.clone(),
            active: Seen::of_active(shown, has_compacted),
            shadows,
            skipped,
        };
        if let Err(error) = self.ledger.append(&line) {
            tracing::warn!(%error, "what engines in the shadow saw is not written down");
        }
    }
}
