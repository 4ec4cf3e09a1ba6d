//! An engine that sits in a worker: the worker of the moment, and another one when that died.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ctxhost_engine_api::*;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::confinement::Confinement;
use super::connection::SandboxConnection;
use super::launch::{LaunchError, SandboxLaunch, SandboxLauncher, dead_error};
use super::replay_log::ReplayLog;
use super::{SandboxInfo, SandboxSettings};
use crate::build_guard::BuildGuard;
use crate::calls::{CallGuard, CallLimit, CallTable};
use crate::environment::EngineEnvironment;
use crate::library::EngineFile;
use crate::load::EngineOpenError;
use crate::services::EngineServices;
use crate::spec::EngineSpec;
use crate::threads::{build_runtime, timeout_error, until_deadline};
use crate::timeouts::EngineTimeouts;
use ctxhost_engine_api::border::{EngineCall, EngineReply};

/// What became of a worker whose engine was let go.
const CLOSED_REASON: &str = "was ended with its engine";

/// An engine in a worker process.
pub(crate) struct SandboxSupervisor {
    start: Arc<SandboxLauncher>,
    timeouts: EngineTimeouts,
    /// Whoever waits for the next worker holds it; the others wait for that one.
    current: tokio::sync::Mutex<CurrentSandbox>,
    known: Mutex<SupervisorState>,
    told: Mutex<ReplayLog>,
    /// For services of the host, which the engine asks for from elsewhere.
    _helpers: HelperThreads,
}

/// Threads that nobody waits for when they are not needed any more: one may block in a store.
struct HelperThreads(Option<Runtime>);

impl Drop for HelperThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The worker of the moment.
struct CurrentSandbox {
    link: SandboxConnection,
    /// The next one. It stays here when whoever asked for it goes away.
    coming: Option<PendingLaunch>,
}

/// A worker that is being started.
type PendingLaunch = oneshot::Receiver<Result<SandboxLaunch, LaunchError>>;

/// What can be told of the workers without asking them.
struct SupervisorState {
    link: SandboxConnection,
    confinement: Confinement,
    respawned: VecDeque<Instant>,
    respawns: u64,
    closed: bool,
}

impl SupervisorState {
    fn can_restart(&mut self, settings: &SandboxSettings) -> bool {
        let window = settings.respawn_window();
        self.respawned.retain(|at| at.elapsed() < window);
        !self.closed && (self.respawned.len() as u64) < settings.respawns
    }
}

/// Why a call has no answer.
enum CallFailure {
    /// The engine said so, or took too long.
    Engine(EngineError),
    /// The worker died over it.
    Sandbox(String),
}

impl SandboxSupervisor {
    /// Starts the first worker of an engine.
    pub(crate) fn open(
        spec: &EngineSpec,
        file: EngineFile,
        environment: &EngineEnvironment,
        calls: &Arc<CallTable>,
    ) -> Result<(EngineInfo, SandboxSupervisor), EngineOpenError> {
        let id = file.meta.id.clone();
        // Nothing of the engine runs on them.
        let runtime = build_runtime(&id, &BuildGuard::default())
            .map_err(|source| EngineOpenError::Threads { id: id.clone(), source })?;
        let handle = runtime.handle().clone();
        let helpers = HelperThreads(Some(runtime));
        let start = Arc::new(SandboxLauncher {
            services: Arc::new(EngineServices::new(&id, environment, &spec.quotas, calls.clone())),
            file,
            copies_folder: environment.copies_folder.clone(),
            settings: spec.sandbox.clone(),
            config: spec.config.clone(),
            calls: calls.clone(),
            create_timeout: Duration::from_millis(environment.timeouts.create_ms),
            recorded_clock: environment.clock.is_recorded(),
            runtime: handle,
        });
        let started = start.launch(0).map_err(|error| open_error(id.clone(), error))?;
        let SandboxLaunch { connection: link, info, confinement, kill_guard: unclaimed } = started;
        for missing in &confinement.missing {
            tracing::warn!(engine = id, missing, "a worker is not held by");
        }
        tracing::info!(engine = id, pid = link.pid(), applied = ?confinement.applied, "worker");
        let known = SupervisorState {
            link: link.clone(),
            confinement,
            respawned: VecDeque::new(),
            respawns: 0,
            closed: false,
        };
        let far = SandboxSupervisor {
            start,
            timeouts: environment.timeouts.clone(),
            current: tokio::sync::Mutex::new(CurrentSandbox { link, coming: None }),
            known: Mutex::new(known),
            told: Mutex::default(),
            _helpers: helpers,
        };
        unclaimed.disarm();
        Ok((info, far))
    }

    /// Asks the engine. Where its worker died, another one is asked, once, if that is harmless.
    pub(crate) async fn call(
        &self,
        call: &CallGuard,
        view: Transcript,
        question: EngineCall,
    ) -> Result<EngineReply> {
        if matches!(question, EngineCall::Dispose(_)) && self.state().link.exit_reason().is_some() {
            // Nothing is left of it that could be let go.
            return Ok(EngineReply::Dispose(()));
        }
        let mut may_repeat = question.may_repeat();
        loop {
            let link = self.connection(call).await?;
            match self.replay_and_call(&link, call, &view, &question).await {
                Ok(answer) => return Ok(answer),
                Err(CallFailure::Engine(error)) => return Err(error),
                Err(CallFailure::Sandbox(reason)) if may_repeat => {
                    tracing::warn!(engine = self.id(), reason, "its worker died; asked again");
                    may_repeat = false;
                }
                Err(CallFailure::Sandbox(reason)) => return Err(dead_error(&reason)),
            }
        }
    }

    /// What is known of its process.
    pub(crate) fn info(&self) -> SandboxInfo {
        let known = self.state();
        SandboxInfo {
            pid: known.link.exit_reason().is_none().then(|| known.link.pid()),
            respawns: known.respawns,
            confinement: known.confinement.clone(),
        }
    }

    /// Whether there may be another worker, should this one die.
    pub(crate) fn can_restart(&self) -> bool {
        self.state().can_restart(self.settings())
    }

    /// Ends the worker. There will be no other.
    pub(crate) fn close(&self) {
        {
            let mut known = self.state();
            known.closed = true;
            known.link.kill(Some(CLOSED_REASON));
        }
        // Where somebody waits for the next one, that one sees that it is too late.
        if let Ok(mut current) = self.current.try_lock() {
            current.coming = None;
        }
    }

    async fn replay_and_call(
        &self,
        link: &SandboxConnection,
        call: &CallGuard,
        view: &Transcript,
        question: &EngineCall,
    ) -> Result<EngineReply, CallFailure> {
        let missing = self.replay_log().missing_calls(link.number(), question, view);
        if !missing.is_empty() {
            let began = Instant::now();
            for told in missing {
                self.replay(link, view, told).await?;
            }
            self.start.calls.extend(call.id, began.elapsed());
        }
        let answer = self.call_within_limit(link, call, view, question.clone()).await?;
        self.replay_log().record(link.number(), question, view.epoch());
        Ok(answer)
    }

    /// Tells a new worker what an old one knew, within that call's own time.
    async fn replay(
        &self,
        link: &SandboxConnection,
        view: &Transcript,
        mut told: EngineCall,
    ) -> Result<(), CallFailure> {
        let Some(session) = told.session().cloned() else { return Ok(()) };
        let (limit_ms, _) = self.timeouts.of(&told);
        let limit = CallLimit::fixed(Duration::from_millis(limit_ms));
        let call = self.start.calls.begin(limit, Some(view.clone())).with_session(&session);
        told.set_id(call.id);
        self.call_within_limit(link, &call, view, told).await.map(drop)
    }

    async fn call_within_limit(
        &self,
        link: &SandboxConnection,
        call: &CallGuard,
        view: &Transcript,
        question: EngineCall,
    ) -> Result<EngineReply, CallFailure> {
        let mut flight = link.send_call(call, view, question);
        match until_deadline(call, flight.answer()).await {
            Some(Some(answer)) => answer.map_err(CallFailure::Engine),
            Some(None) => {
                let reason = link.exit_reason().unwrap_or_else(|| "closed its wire".into());
                Err(CallFailure::Sandbox(reason))
            }
            None => {
                let mut error = timeout_error();
                if flight.cancel(self.settings().cancel_grace()).await {
                    error.message += "; its worker was killed";
                }
                Err(CallFailure::Engine(error))
            }
        }
    }

    /// The worker that lives, started now if need be. Whoever starts it, all wait through no fault of
    /// the engine.
    async fn connection(&self, call: &CallGuard) -> Result<SandboxConnection> {
        let began = Instant::now();
        let link = self.live_connection().await;
        self.start.calls.extend(call.id, began.elapsed());
        link
    }

    async fn live_connection(&self) -> Result<SandboxConnection> {
        let mut current = self.current.lock().await;
        let Some(reason) = current.link.exit_reason() else { return Ok(current.link.clone()) };
        let coming = match current.coming.take() {
            Some(coming) => coming,
            None => self.restart(current.link.number(), &reason)?,
        };
        let started = current.coming.insert(coming).await;
        current.coming = None;
        let started = started.map_err(|_| dead_error("died, and the next one did not start"))?;
        let SandboxLaunch { connection: link, confinement, kill_guard: unclaimed, .. } = started
            .map_err(|error| {
                dead_error(&format!("died, and the next one did not start: {error}"))
            })?;
        let mut known = self.state();
        if known.closed {
            return Err(dead_error(CLOSED_REASON));
        }
        current.link = link.clone();
        known.link = link.clone();
        known.confinement = confinement;
        unclaimed.disarm();
        Ok(link)
    }

    /// Starts the worker after number `last`, where there may be one. Starting blocks, so a thread of
    /// its own does it.
    fn restart(&self, last: u64, reason: &str) -> Result<PendingLaunch> {
        let number = self.next_number(last, reason)?;
        tracing::warn!(engine = self.id(), reason, number, "worker died; another one starts");
        let (deliver, delivered) = oneshot::channel();
        let start = self.start.clone();
        let thread = std::thread::Builder::new().name("worker-start".into());
        // What nobody takes over ends with the message that it came in.
        let begun = thread.spawn(move || drop(deliver.send(start.launch(number))));
        begun.map_err(|error| dead_error(&format!("died, and there is no thread: {error}")))?;
        Ok(delivered)
    }

    /// The number of the next worker, where there may be one.
    fn next_number(&self, last: u64, reason: &str) -> Result<u64> {
        let settings = self.settings();
        let mut known = self.state();
        if known.closed {
            return Err(dead_error(CLOSED_REASON));
        }
        if !known.can_restart(settings) {
            let times = settings.respawns.saturating_add(1);
            let seconds = settings.respawn_window().as_secs();
            return Err(dead_error(&format!(
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

    fn settings(&self) -> &SandboxSettings {
        &self.start.settings
    }

    fn state(&self) -> MutexGuard<'_, SupervisorState> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn replay_log(&self) -> MutexGuard<'_, ReplayLog> {
        self.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for SandboxSupervisor {
    fn drop(&mut self) {
        self.close();
        // Threads that still hold the services may outlive the last line of this process.
        self.start.services.log_dropped_lines();
    }
}

fn open_error(id: String, error: LaunchError) -> EngineOpenError {
    match error {
        LaunchError::Load(error) => EngineOpenError::Load(error),
        LaunchError::Missing(missing) => EngineOpenError::MissingCapabilities { id, missing },
        LaunchError::Create(error) => EngineOpenError::Create { id, error: Box::new(error) },
        LaunchError::Worker(source) => EngineOpenError::Sandbox { id, source },
    }
}
