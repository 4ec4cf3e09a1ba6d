//! An engine that sits in a worker: the worker of the moment, and another one when that died.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ctxhost_engine_api::*;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::confinement::Confinement;
use super::link::Link;
use super::start::{Start, StartError, Started, dead};
use super::told::Told;
use super::{WorkerFacts, WorkerSettings};
use crate::calls::{CallGuard, Calls, Limit};
use crate::environment::Environment;
use crate::library::Inspected;
use crate::opening::OpenError;
use crate::services::Services;
use crate::spec::EngineSpec;
use crate::threads::{threads, too_late, until_deadline};
use crate::timeouts::Timeouts;
use crate::watch::Watch;
use ctxhost_engine_api::border::{EngineCall, EngineReply};

/// What became of a worker whose engine was let go.
const ENDED: &str = "was ended with its engine";

/// An engine in a worker process.
pub(crate) struct Sandbox {
    start: Arc<Start>,
    timeouts: Timeouts,
    /// Whoever waits for the next worker holds it; the others wait for that one.
    current: tokio::sync::Mutex<Current>,
    known: Mutex<Known>,
    told: Mutex<Told>,
    /// For services of the host, which the engine asks for from elsewhere.
    _helpers: Helpers,
}

/// Threads that nobody waits for when they are not needed any more: one may block in a store.
struct Helpers(Option<Runtime>);

impl Drop for Helpers {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The worker of the moment.
struct Current {
    link: Link,
    /// The next one. It stays here when whoever asked for it goes away.
    coming: Option<Coming>,
}

/// A worker that is being started.
type Coming = oneshot::Receiver<Result<Started, StartError>>;

/// What can be told of the workers without asking them.
struct Known {
    link: Link,
    confinement: Confinement,
    respawned: VecDeque<Instant>,
    respawns: u64,
    closed: bool,
}

impl Known {
    fn may_start_another(&mut self, settings: &WorkerSettings) -> bool {
        let window = settings.respawn_window();
        self.respawned.retain(|at| at.elapsed() < window);
        !self.closed && (self.respawned.len() as u64) < settings.respawns
    }
}

/// Why a call has no answer.
enum Lost {
    /// The engine said so, or took too long.
    Said(EngineError),
    /// The worker died over it.
    Died(String),
}

impl Sandbox {
    /// Starts the first worker of an engine.
    pub(crate) fn open(
        spec: &EngineSpec,
        file: Inspected,
        environment: &Environment,
        calls: &Arc<Calls>,
    ) -> Result<(EngineInfo, Sandbox), OpenError> {
        let id = file.meta.id.clone();
        // Nothing of the engine runs on them.
        let runtime = threads(&id, &Watch::default())
            .map_err(|source| OpenError::Threads { id: id.clone(), source })?;
        let handle = runtime.handle().clone();
        let helpers = Helpers(Some(runtime));
        let start = Arc::new(Start {
            services: Arc::new(Services::new(&id, environment, &spec.quotas, calls.clone())),
            file,
            copies_folder: environment.copies_folder.clone(),
            settings: spec.worker.clone(),
            config: spec.config.clone(),
            calls: calls.clone(),
            create: Duration::from_millis(environment.timeouts.create_ms),
            recorded_clock: environment.clock.is_recorded(),
            runtime: handle,
        });
        let started = start.begin(0).map_err(|error| refusal(id.clone(), error))?;
        let Started { link, info, confinement, unclaimed } = started;
        for missing in &confinement.missing {
            tracing::warn!(engine = id, missing, "a worker is not held by");
        }
        tracing::info!(engine = id, pid = link.pid(), applied = ?confinement.applied, "worker");
        let known = Known {
            link: link.clone(),
            confinement,
            respawned: VecDeque::new(),
            respawns: 0,
            closed: false,
        };
        let far = Sandbox {
            start,
            timeouts: environment.timeouts.clone(),
            current: tokio::sync::Mutex::new(Current { link, coming: None }),
            known: Mutex::new(known),
            told: Mutex::default(),
            _helpers: helpers,
        };
        unclaimed.stands();
        Ok((info, far))
    }

    /// Asks the engine. Where its worker died, another one is asked, once, if that is harmless.
    pub(crate) async fn call(
        &self,
        call: &CallGuard,
        view: Transcript,
        question: EngineCall,
    ) -> Result<EngineReply> {
        if matches!(question, EngineCall::Dispose(_)) && self.known().link.crashed().is_some() {
            // Nothing is left of it that could be let go.
            return Ok(EngineReply::Dispose(()));
        }
        let mut may_repeat = question.may_repeat();
        loop {
            let link = self.link(call).await?;
            match self.tell_and_ask(&link, call, &view, &question).await {
                Ok(answer) => return Ok(answer),
                Err(Lost::Said(error)) => return Err(error),
                Err(Lost::Died(reason)) if may_repeat => {
                    tracing::warn!(engine = self.id(), reason, "its worker died; asked again");
                    may_repeat = false;
                }
                Err(Lost::Died(reason)) => return Err(dead(&reason)),
            }
        }
    }

    /// What is known of its process.
    pub(crate) fn facts(&self) -> WorkerFacts {
        let known = self.known();
        WorkerFacts {
            pid: known.link.crashed().is_none().then(|| known.link.pid()),
            respawns: known.respawns,
            confinement: known.confinement.clone(),
        }
    }

    /// Whether there may be another worker, should this one die.
    pub(crate) fn may_start_another(&self) -> bool {
        self.known().may_start_another(self.settings())
    }

    /// Ends the worker. There will be no other.
    pub(crate) fn close(&self) {
        {
            let mut known = self.known();
            known.closed = true;
            known.link.kill(Some(ENDED));
        }
        // Where somebody waits for the next one, that one sees that it is too late.
        if let Ok(mut current) = self.current.try_lock() {
            current.coming = None;
        }
    }

    async fn tell_and_ask(
        &self,
        link: &Link,
        call: &CallGuard,
        view: &Transcript,
        question: &EngineCall,
    ) -> Result<EngineReply, Lost> {
        let missing = self.told().missing(link.number(), question, view);
        if !missing.is_empty() {
            let began = Instant::now();
            for told in missing {
                self.tell(link, view, told).await?;
            }
            self.start.calls.excuse(call.id, began.elapsed());
        }
        let answer = self.within_time(link, call, view, question.clone()).await?;
        self.told().note(link.number(), question, view.epoch());
        Ok(answer)
    }

    /// Tells a new worker what an old one knew, within that call's own time.
    async fn tell(&self, link: &Link, view: &Transcript, mut told: EngineCall) -> Result<(), Lost> {
        let Some(session) = told.session().cloned() else { return Ok(()) };
        let (limit_ms, _) = self.timeouts.of(&told);
        let limit = Limit::fixed(Duration::from_millis(limit_ms));
        let call = self.start.calls.begin(limit, Some(view.clone())).in_session(&session);
        told.set_id(call.id);
        self.within_time(link, &call, view, told).await.map(drop)
    }

    async fn within_time(
        &self,
        link: &Link,
        call: &CallGuard,
        view: &Transcript,
        question: EngineCall,
    ) -> Result<EngineReply, Lost> {
        let mut flight = link.ask(call, view, question);
        match until_deadline(call, flight.answer()).await {
            Some(Some(answer)) => answer.map_err(Lost::Said),
            Some(None) => {
                let reason = link.crashed().unwrap_or_else(|| "closed its wire".into());
                Err(Lost::Died(reason))
            }
            None => {
                let mut error = too_late();
                if flight.give_up(self.settings().letting_go()).await {
                    error.message += "; its worker was killed";
                }
                Err(Lost::Said(error))
            }
        }
    }

    /// The worker that lives, started now if need be. Whoever starts it, all wait through no fault of
    /// the engine.
    async fn link(&self, call: &CallGuard) -> Result<Link> {
        let began = Instant::now();
        let link = self.living().await;
        self.start.calls.excuse(call.id, began.elapsed());
        link
    }

    async fn living(&self) -> Result<Link> {
        let mut current = self.current.lock().await;
        let Some(reason) = current.link.crashed() else { return Ok(current.link.clone()) };
        let coming = match current.coming.take() {
            Some(coming) => coming,
            None => self.respawn(current.link.number(), &reason)?,
        };
        let started = current.coming.insert(coming).await;
        current.coming = None;
        let started = started.map_err(|_| dead("died, and the next one did not start"))?;
        let Started { link, confinement, unclaimed, .. } = started
            .map_err(|error| dead(&format!("died, and the next one did not start: {error}")))?;
        let mut known = self.known();
        if known.closed {
            return Err(dead(ENDED));
        }
        current.link = link.clone();
        known.link = link.clone();
        known.confinement = confinement;
        unclaimed.stands();
        Ok(link)
    }

    /// Starts the worker after number `last`, where there may be one. Starting blocks, so a thread of
    /// its own does it.
    fn respawn(&self, last: u64, reason: &str) -> Result<Coming> {
        let number = self.next_number(last, reason)?;
        tracing::warn!(engine = self.id(), reason, number, "worker died; another one starts");
        let (deliver, delivered) = oneshot::channel();
        let start = self.start.clone();
        let thread = std::thread::Builder::new().name("worker-start".into());
        // What nobody takes over ends with the message that it came in.
        let begun = thread.spawn(move || drop(deliver.send(start.begin(number))));
        begun.map_err(|error| dead(&format!("died, and there is no thread: {error}")))?;
        Ok(delivered)
    }

    /// The number of the next worker, where there may be one.
    fn next_number(&self, last: u64, reason: &str) -> Result<u64> {
        let settings = self.settings();
        let mut known = self.known();
        if known.closed {
            return Err(dead(ENDED));
        }
        if !known.may_start_another(settings) {
            let times = settings.respawns.saturating_add(1);
            let seconds = settings.respawn_window().as_secs();
            return Err(dead(&format!(
                "{reason}; it died {times} times within {seconds} s and is not started again"
            )));
        }
        known.respawned.push_back(Instant::now());
        known.respawns += 1;
        Ok(last + 1)
    }

    fn id(&self) -> &str {
        &self.start.file.meta.id
    }

    fn settings(&self) -> &WorkerSettings {
        &self.start.settings
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.close();
        // Threads that still hold the services may outlive the last line of this process.
        self.start.services.log_left_out();
    }
}

fn refusal(id: String, error: StartError) -> OpenError {
    match error {
        StartError::Load(error) => OpenError::Load(error),
        StartError::Missing(missing) => OpenError::Missing { id, missing },
        StartError::Create(error) => OpenError::Create { id, error: Box::new(error) },
        StartError::Worker(source) => OpenError::Worker { id, source },
    }
}
