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
use crate::engine::calls::{CallGuard, Calls, Limit};
use crate::engine::environment::Environment;
use crate::engine::lane::{threads, too_late, until_deadline};
use crate::engine::library::Inspected;
use crate::engine::opening::OpenError;
use crate::engine::question::{Answer, Question};
use crate::engine::services::Services;
use crate::engine::spec::EngineSpec;
use crate::engine::timeouts::Timeouts;
use crate::engine::watch::Watch;

/// An engine in a worker process.
pub(in crate::engine) struct Far {
    start: Arc<Start>,
    timeouts: Timeouts,
    /// Whoever starts the next worker holds it; the others wait for that one.
    current: tokio::sync::Mutex<Link>,
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

/// What can be told of the workers without asking them.
struct Known {
    link: Link,
    confinement: Confinement,
    respawned: VecDeque<Instant>,
    respawns: u64,
    closed: bool,
}

/// Why a call has no answer.
enum Lost {
    /// The engine said so, or took too long.
    Said(EngineError),
    /// The worker died over it.
    Died(String),
}

impl Far {
    /// Starts the first worker of an engine.
    pub(in crate::engine) fn open(
        spec: &EngineSpec,
        file: Inspected,
        environment: &Environment,
        calls: &Arc<Calls>,
    ) -> Result<(EngineInfo, Far), OpenError> {
        let id = file.meta.id.clone();
        // Nothing of the engine runs on them.
        let runtime = threads(&id, &Watch::default())
            .map_err(|source| OpenError::Threads { id: id.clone(), source })?;
        let handle = runtime.handle().clone();
        let helpers = Helpers(Some(runtime));
        let start = Arc::new(Start {
            services: Arc::new(Services::new(&id, environment, calls.clone())),
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
        let Started { link, info, confinement } = started;
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
        let far = Far {
            start,
            timeouts: environment.timeouts.clone(),
            current: tokio::sync::Mutex::new(link),
            known: Mutex::new(known),
            told: Mutex::default(),
            _helpers: helpers,
        };
        Ok((info, far))
    }

    /// Asks the engine. Where its worker died, another one is asked, once, if that is harmless.
    pub(in crate::engine) async fn ask(
        &self,
        call: &CallGuard,
        view: Transcript,
        question: Question,
    ) -> Result<Answer> {
        let mut may_repeat = question.may_be_repeated();
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
    pub(in crate::engine) fn facts(&self) -> WorkerFacts {
        let known = self.known();
        WorkerFacts {
            pid: known.link.crashed().is_none().then(|| known.link.pid()),
            respawns: known.respawns,
            confinement: known.confinement.clone(),
        }
    }

    /// Ends the worker. There will be no other.
    pub(in crate::engine) fn close(&self) {
        let mut known = self.known();
        known.closed = true;
        known.link.kill(Some("was ended with its engine"));
    }

    async fn tell_and_ask(
        &self,
        link: &Link,
        call: &CallGuard,
        view: &Transcript,
        question: &Question,
    ) -> Result<Answer, Lost> {
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
    async fn tell(&self, link: &Link, view: &Transcript, mut told: Question) -> Result<(), Lost> {
        let Some(session) = told.session().cloned() else { return Ok(()) };
        let limit_ms = match told {
            Question::Bootstrap(_) => self.timeouts.bootstrap_ms,
            _ => self.timeouts.ingest_ms,
        };
        let limit = Limit::fixed(Duration::from_millis(limit_ms));
        let call = self.start.calls.begin(limit, Some(view.clone())).in_session(&session);
        match &mut told {
            Question::Bootstrap(request) => request.call = call.id,
            Question::Ingest(request) => request.call = call.id,
            _ => {}
        }
        self.within_time(link, &call, view, told).await.map(drop)
    }

    async fn within_time(
        &self,
        link: &Link,
        call: &CallGuard,
        view: &Transcript,
        question: Question,
    ) -> Result<Answer, Lost> {
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

    /// The worker that lives, started now if need be.
    async fn link(&self, call: &CallGuard) -> Result<Link> {
        let began = Instant::now();
        let mut current = self.current.lock().await;
        let Some(reason) = current.crashed() else { return Ok(current.clone()) };
        let number = self.next_number(current.number(), &reason)?;
        tracing::warn!(engine = self.id(), reason, number, "worker died; another one starts");
        let started = self.respawn(number).await?;
        *current = started.link.clone();
        let mut known = self.known();
        known.confinement = started.confinement;
        known.link = started.link.clone();
        if known.closed {
            known.link.kill(None);
        }
        self.start.calls.excuse(call.id, began.elapsed());
        Ok(started.link)
    }

    /// The number of the next worker, where there may be one.
    fn next_number(&self, last: u64, reason: &str) -> Result<u64> {
        let (window, most) = (self.settings().respawn_window(), self.settings().respawns);
        let mut known = self.known();
        if known.closed {
            return Err(dead("was ended with its engine"));
        }
        known.respawned.retain(|at| at.elapsed() < window);
        if known.respawned.len() as u64 >= most {
            let (times, seconds) = (most.saturating_add(1), window.as_secs());
            return Err(dead(&format!(
                "{reason}; it died {times} times within {seconds} s and is not started again"
            )));
        }
        known.respawned.push_back(Instant::now());
        known.respawns += 1;
        Ok(last + 1)
    }

    /// Starting blocks, so a thread of its own does it; a caller that goes away leaves no worker behind.
    async fn respawn(&self, number: u64) -> Result<Started> {
        let (deliver, delivered) = oneshot::channel();
        let start = self.start.clone();
        let thread = std::thread::Builder::new().name("worker-start".into());
        let begun = thread.spawn(move || {
            if let Err(Ok(unwanted)) = deliver.send(start.begin(number)) {
                unwanted.link.kill(None);
            }
        });
        begun.map_err(|error| dead(&format!("died, and there is no thread: {error}")))?;
        let delivered = delivered.await;
        let started = delivered.map_err(|_| dead("died, and the next one did not start"))?;
        started.map_err(|error| dead(&format!("died, and the next one did not start: {error}")))
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

impl Drop for Far {
    fn drop(&mut self) {
        self.close();
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
