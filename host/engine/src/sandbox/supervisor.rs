//! An engine in a sandbox: calls the current process, and starts the next one when it dies.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctxhost_engine_api::border::{EngineCall, EngineReply};
use ctxhost_engine_api::*;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::connection::SandboxConnection;
use super::info::{Confinement, SandboxInfo};
use super::launch::{LaunchError, SandboxLaunch, SandboxLauncher, dead_error};
use super::replay_log::ReplayLog;
use super::settings::SandboxSettings;
use crate::backend::{EngineBackend, ReplyFuture};
use crate::build_guard::BuildGuard;
use crate::calls::{CallGuard, CallLimit, CallTable};
use crate::environment::EngineEnvironment;
use crate::error::EngineOpenError;
use crate::library::EngineFile;
use crate::services::EngineServices;
use crate::spec::EngineSpec;
use crate::threads::{EngineThreads, until_deadline};
use crate::timeouts::{EngineTimeouts, timeout_error};

/// Why a sandbox ended whose engine was closed.
const CLOSED_REASON: &str = "was ended with its engine";

/// An engine in a sandbox.
pub(crate) struct SandboxSupervisor {
    launcher: Arc<SandboxLauncher>,
    timeouts: EngineTimeouts,
    // Held while a call waits for a restart, so that concurrent calls wait for the same one.
    current: tokio::sync::Mutex<CurrentSandbox>,
    state: Mutex<SupervisorState>,
    replay_log: Mutex<ReplayLog>,
    /// Threads for host calls.
    _helpers: EngineThreads,
}

/// The current sandbox.
struct CurrentSandbox {
    connection: SandboxConnection,
    /// The next one, while it starts. It survives the call that started it.
    next: Option<PendingLaunch>,
}

/// A sandbox that is being started.
type PendingLaunch = oneshot::Receiver<Result<SandboxLaunch, LaunchError>>;

/// The state of the sandboxes that is readable while a call waits for a restart.
struct SupervisorState {
    connection: SandboxConnection,
    confinement: Confinement,
    restarted_at: VecDeque<Instant>,
    restarts: u64,
    is_closed: bool,
}

impl SupervisorState {
    fn can_restart(&mut self, settings: &SandboxSettings) -> bool {
        let window = settings.respawn_window();
        self.restarted_at.retain(|at| at.elapsed() < window);
        !self.is_closed && (self.restarted_at.len() as u64) < settings.respawns
    }
}

/// Why a call has no answer.
enum CallFailure {
    /// The engine failed or took too long.
    Engine(EngineError),
    /// The sandbox died during the call.
    Sandbox(String),
}

impl SandboxSupervisor {
    /// Starts the first sandbox of an engine.
    pub(crate) fn open(
        spec: &EngineSpec,
        file: EngineFile,
        environment: &EngineEnvironment,
        calls: &Arc<CallTable>,
    ) -> Result<(EngineInfo, SandboxSupervisor), EngineOpenError> {
        let id = file.meta.id.clone();
        // No code of the engine runs on these threads, so crashes on them are not attributed to it.
        let (helpers, runtime) = EngineThreads::start(&id, &BuildGuard::default())
            .map_err(|source| EngineOpenError::Threads { id: id.clone(), source })?;
        let launcher = Arc::new(SandboxLauncher {
            services: Arc::new(EngineServices::new(&id, environment, spec, calls.clone())),
            file,
            copies_folder: environment.copies_folder.clone(),
            settings: spec.sandbox.clone(),
            config: spec.config.clone(),
            calls: calls.clone(),
            create_ms: environment.timeouts.create_ms,
            recorded_clock: environment.clock.is_recorded(),
            runtime,
        });
        let launch = launcher.launch(0).map_err(|error| open_error(id.clone(), error))?;
        let SandboxLaunch { connection, info, confinement, kill_guard } = launch;
        for missing in &confinement.missing {
            tracing::warn!(engine = id, missing, "a restriction of the sandbox is not in force");
        }
        tracing::info!(
            engine = id,
            pid = connection.pid(),
            applied = ?confinement.applied,
            "sandbox started"
        );
        let state = SupervisorState {
            connection: connection.clone(),
            confinement,
            restarted_at: VecDeque::new(),
            restarts: 0,
            is_closed: false,
        };
        let supervisor = SandboxSupervisor {
            launcher,
            timeouts: environment.timeouts.clone(),
            current: tokio::sync::Mutex::new(CurrentSandbox { connection, next: None }),
            state: Mutex::new(state),
            replay_log: Mutex::default(),
            _helpers: helpers,
        };
        kill_guard.disarm();
        Ok((info, supervisor))
    }

    async fn replay_and_call(
        &self,
        connection: &SandboxConnection,
        guard: &CallGuard,
        view: &Transcript,
        call: &EngineCall,
    ) -> Result<EngineReply, CallFailure> {
        let missing = self.replay_log.lock().missing_calls(connection.number(), call, view);
        if !missing.is_empty() {
            let began = Instant::now();
            for earlier in missing {
                self.replay(connection, view, earlier).await?;
            }
            self.launcher.calls.extend(guard.id, began.elapsed());
        }
        let reply = self.call_within_limit(connection, guard, view, call.clone()).await?;
        self.replay_log.lock().record(connection.number(), call, view.epoch());
        Ok(reply)
    }

    /// Repeats a call of an earlier sandbox, within the limit of that call.
    async fn replay(
        &self,
        connection: &SandboxConnection,
        view: &Transcript,
        mut call: EngineCall,
    ) -> Result<(), CallFailure> {
        let Some(session) = call.session().cloned() else { return Ok(()) };
        let (limit_ms, _) = self.timeouts.limit_of(&call);
        let limit = CallLimit::fixed(Duration::from_millis(limit_ms));
        let guard = self.launcher.calls.begin(limit, Some(view.clone())).with_session(&session);
        call.set_id(guard.id);
        self.call_within_limit(connection, &guard, view, call).await.map(drop)
    }

    async fn call_within_limit(
        &self,
        connection: &SandboxConnection,
        guard: &CallGuard,
        view: &Transcript,
        call: EngineCall,
    ) -> Result<EngineReply, CallFailure> {
        let mut pending = connection.send_call(guard, view, call);
        match until_deadline(guard, pending.answer()).await {
            Some(Some(reply)) => reply.map_err(CallFailure::Engine),
            Some(None) => {
                let reason = connection.exit_reason();
                let reason = reason.unwrap_or_else(|| "closed its connection".into());
                Err(CallFailure::Sandbox(reason))
            }
            None => {
                let mut error = timeout_error();
                if pending.cancel(self.settings().cancel_grace()).await {
                    error.message += "; its sandbox was killed";
                }
                Err(CallFailure::Engine(error))
            }
        }
    }

    /// A connection to a running sandbox, which is restarted if need be.
    async fn connection(&self, guard: &CallGuard) -> Result<SandboxConnection> {
        let began = Instant::now();
        let connection = self.live_connection().await;
        // The wait is not the engine's fault, so it does not count against the call.
        self.launcher.calls.extend(guard.id, began.elapsed());
        connection
    }

    async fn live_connection(&self) -> Result<SandboxConnection> {
        let mut current = self.current.lock().await;
        let Some(reason) = current.connection.exit_reason() else {
            return Ok(current.connection.clone());
        };
        let next = match current.next.take() {
            Some(next) => next,
            None => self.restart(current.connection.number(), &reason)?,
        };
        // Stored before the await: a caller that is dropped here leaves it to the next one.
        let launch = current.next.insert(next).await;
        current.next = None;
        let launch = launch.map_err(|_| dead_error("died, and the next one did not start"))?;
        let SandboxLaunch { connection, confinement, kill_guard, .. } =
            launch.map_err(|error| {
                dead_error(&format!("died, and the next one did not start: {error}"))
            })?;
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(dead_error(CLOSED_REASON));
        }
        current.connection = connection.clone();
        state.connection = connection.clone();
        state.confinement = confinement;
        kill_guard.disarm();
        Ok(connection)
    }

    /// Starts the sandbox after number `last`, if the limit of restarts allows it.
    fn restart(&self, last: u64, reason: &str) -> Result<PendingLaunch> {
        self.count_restart(reason)?;
        let number = last + 1;
        tracing::warn!(engine = self.id(), reason, number, "sandbox died; restarting it");
        let (deliver, delivered) = oneshot::channel();
        let launcher = self.launcher.clone();
        // Launching blocks. A launch that no call takes over is killed with its undelivered message.
        let thread = std::thread::Builder::new().name("sandbox-launch".into());
        let spawned = thread.spawn(move || drop(deliver.send(launcher.launch(number))));
        spawned.map_err(|error| dead_error(&format!("died, and no thread starts: {error}")))?;
        Ok(delivered)
    }

    fn count_restart(&self, reason: &str) -> Result<()> {
        let settings = self.settings();
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(dead_error(CLOSED_REASON));
        }
        if !state.can_restart(settings) {
            let times = settings.respawns.saturating_add(1);
            let seconds = settings.respawn_window().as_secs();
            return Err(dead_error(&format!(
                "{reason}; it died {times} times within {seconds} s (plugins.sandbox.respawns) and is not restarted"
            )));
        }
        state.restarted_at.push_back(Instant::now());
        state.restarts += 1;
        Ok(())
    }

    fn id(&self) -> &str {
        &self.launcher.file.meta.id
    }

    fn settings(&self) -> &SandboxSettings {
        &self.launcher.settings
    }
}

impl EngineBackend for SandboxSupervisor {
    /// Repeats the call once where the sandbox dies, if that is harmless.
    fn call<'a>(
        &'a self,
        guard: &'a CallGuard,
        view: Transcript,
        call: EngineCall,
    ) -> ReplyFuture<'a> {
        Box::pin(async move {
            let is_dispose = matches!(call, EngineCall::Dispose(_));
            if is_dispose && self.state.lock().connection.exit_reason().is_some() {
                // The engine died with its process; a restart just for `dispose` is pointless.
                return Ok(EngineReply::Dispose(()));
            }
            let mut may_repeat = call.may_repeat();
            loop {
                let connection = self.connection(guard).await?;
                match self.replay_and_call(&connection, guard, &view, &call).await {
                    Ok(reply) => return Ok(reply),
                    Err(CallFailure::Engine(error)) => return Err(error),
                    Err(CallFailure::Sandbox(reason)) if may_repeat => {
                        let engine = self.id();
                        tracing::warn!(engine, reason, "sandbox died; repeating the call");
                        may_repeat = false;
                    }
                    Err(CallFailure::Sandbox(reason)) => return Err(dead_error(&reason)),
                }
            }
        })
    }

    /// Kills the sandbox for good.
    fn revoke(&self) {
        {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.connection.kill(Some(CLOSED_REASON));
        }
        // Without the lock a call waits for a restart, and checks `is_closed` after it.
        if let Ok(mut current) = self.current.try_lock() {
            current.next = None;
        }
    }

    fn can_restart(&self) -> bool {
        self.state.lock().can_restart(self.settings())
    }

    fn forget_restarts(&self) {
        self.state.lock().restarted_at.clear();
    }

    fn sandbox_info(&self) -> Option<SandboxInfo> {
        let state = self.state.lock();
        let is_running = state.connection.exit_reason().is_none();
        Some(SandboxInfo {
            pid: is_running.then(|| state.connection.pid()),
            respawns: state.restarts,
            confinement: state.confinement.clone(),
        })
    }
}

impl Drop for SandboxSupervisor {
    fn drop(&mut self) {
        self.revoke();
        // Now, because threads that still hold the services may outlive the process's last log line.
        self.launcher.services.log_dropped_lines();
    }
}

fn open_error(id: String, error: LaunchError) -> EngineOpenError {
    match error {
        LaunchError::Load(error) => EngineOpenError::Load(error),
        LaunchError::Missing(missing) => EngineOpenError::MissingCapabilities { id, missing },
        LaunchError::Create(error) => EngineOpenError::Create { id, error: Box::new(error) },
        LaunchError::Sandbox(source) => EngineOpenError::Sandbox { id, source },
    }
}
