//! The host's end of one worker: calls in flight, services on their way, from its first word to its death.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ctxhost_engine_api::border::HostServices as _;
use ctxhost_engine_api::*;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::host_calls::serve_host_call;
use super::process::SandboxProcess;
use super::sender::{SendJob, TranscriptSender};
use super::usage::{self, CallActivity};
use super::wire::{self, CallFrame, FromSandbox};
use crate::calls::{CallGuard, scope_session};
use crate::services::EngineServices;
use ctxhost_engine_api::border::{EngineCall, EngineReply};

/// Services that one worker may want at the same time; more is a loop that asks and does not wait.
const MAX_HOST_CALLS: usize = 1024;

/// One worker, from the host's side. Clones are the same one.
#[derive(Clone)]
pub(super) struct SandboxConnection {
    shared: Arc<ConnectionState>,
    jobs: mpsc::Sender<SendJob>,
}

struct ConnectionState {
    /// Which of the engine's workers it is, from 0.
    number: u64,
    process: Arc<SandboxProcess>,
    services: Arc<EngineServices>,
    runtime: Handle,
    flights: Mutex<PendingCalls>,
    /// Calls that ever were.
    begun: AtomicU64,
    asks: Mutex<HashMap<u64, AbortHandle>>,
}

/// Calls that wait for an answer, or why none will come.
enum PendingCalls {
    Open(HashMap<u64, oneshot::Sender<Result<EngineReply>>>),
    Closed(String),
}

impl SandboxConnection {
    /// Takes up the talk with a worker that has loaded its engine.
    ///
    /// # Errors
    ///
    /// When the system gives no threads.
    pub(super) fn open(
        number: u64,
        process: Arc<SandboxProcess>,
        wire: UnixStream,
        services: Arc<EngineServices>,
        runtime: Handle,
        limits: &super::SandboxSettings,
    ) -> std::io::Result<SandboxConnection> {
        let flights = Mutex::new(PendingCalls::Open(HashMap::new()));
        let asks = Mutex::default();
        let begun = AtomicU64::new(0);
        let process_of = process.clone();
        let shared = ConnectionState {
            number,
            process: process_of,
            services,
            runtime,
            flights,
            begun,
            asks,
        };
        let shared = Arc::new(shared);
        let (jobs, queue) = mpsc::channel();
        let sender = TranscriptSender::new(wire.try_clone()?, limits.sessions);
        let ending = process.clone();
        thread("to-worker", move || sender.run(&queue, &ending))?;
        let link = SandboxConnection { shared: shared.clone(), jobs };
        let (reader, most_bytes) = (link.reader(), limits.answer_bytes());
        thread("from-worker", move || reader.run(&wire, most_bytes))?;
        let (watched, settings) = (shared.clone(), limits.clone());
        let (tell, ended) = mpsc::channel();
        process.on_exit(move |reason| {
            shared.close(&reason);
            drop(tell);
        });
        thread("worker-usage", move || {
            usage::enforce_limits(&watched.process, &settings, || watched.call_activity(), &ended);
        })?;
        Ok(link)
    }

    pub(super) fn number(&self) -> u64 {
        self.shared.number
    }

    pub(super) fn pid(&self) -> u32 {
        self.shared.process.pid
    }

    /// Why it is dead; `None` while it lives.
    pub(super) fn exit_reason(&self) -> Option<String> {
        match &*self.shared.pending_calls() {
            PendingCalls::Open(_) => None,
            PendingCalls::Closed(reason) => Some(reason.clone()),
        }
    }

    /// Kills it. The reason is what callers are told.
    pub(super) fn kill(&self, reason: Option<&str>) {
        self.shared.process.kill(reason);
    }

    /// Has the engine built; the answer comes like that of a call.
    pub(super) fn create(&self, call: &CallGuard, config: Value) -> PendingCall {
        let limit_ms = millis(call.remaining().cap);
        self.send_job(call, SendJob::Create { call: call.id.0, limit_ms, config })
    }

    /// Puts a question.
    pub(super) fn send_call(
        &self,
        call: &CallGuard,
        view: &Transcript,
        question: EngineCall,
    ) -> PendingCall {
        let limit = call.remaining();
        let frame = CallFrame {
            call: call.id.0,
            session: call.session().map(|session| session.as_ref().to_owned()),
            epoch: question.session().map(|_| view.epoch()),
            timeout_ms: millis(limit.timeout),
            cap_ms: millis(limit.cap),
            request: question,
        };
        self.send_job(call, SendJob::Call { call: frame, view: view.clone() })
    }

    fn send_job(&self, call: &CallGuard, job: SendJob) -> PendingCall {
        let (land, landed) = oneshot::channel();
        if let PendingCalls::Open(flights) = &mut *self.shared.pending_calls() {
            flights.insert(call.id.0, land);
            self.shared.begun.fetch_add(1, Ordering::Relaxed);
        }
        // Without anybody to send it the worker is dead, and `landed` says so.
        let _ = self.jobs.send(job);
        PendingCall {
            call: call.id.0,
            left: call.remaining().cap,
            landed: Some(landed),
            link: self.clone(),
        }
    }

    fn reader(&self) -> ReplyReader {
        ReplyReader { shared: self.shared.clone(), jobs: self.jobs.clone() }
    }
}

impl ConnectionState {
    fn pending_calls(&self) -> MutexGuard<'_, PendingCalls> {
        self.flights.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Which calls it has.
    fn call_activity(&self) -> CallActivity {
        let is_under_way =
            matches!(&*self.pending_calls(), PendingCalls::Open(flights) if !flights.is_empty());
        CallActivity { begun: self.begun.load(Ordering::Relaxed), is_running: is_under_way }
    }

    fn host_calls(&self) -> MutexGuard<'_, HashMap<u64, AbortHandle>> {
        self.asks.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// It is dead: whoever waits for it learns it, whatever it waited for is called off.
    fn close(&self, reason: &str) {
        *self.pending_calls() = PendingCalls::Closed(reason.to_owned());
        self.host_calls().drain().for_each(|(_, ask)| ask.abort());
    }

    fn complete_call(&self, call: u64, result: Result<EngineReply>) {
        let PendingCalls::Open(flights) = &mut *self.pending_calls() else { return };
        if let Some(land) = flights.remove(&call) {
            // Whoever gave the call up does not listen.
            let _ = land.send(result);
        }
    }
}

/// A call that is under way. Dropping it gives the call up.
pub(super) struct PendingCall {
    call: u64,
    /// What it might still have taken when it began.
    left: Duration,
    landed: Option<oneshot::Receiver<Result<EngineReply>>>,
    link: SandboxConnection,
}

impl PendingCall {
    /// The answer; `None` where the worker died over it.
    pub(super) async fn answer(&mut self) -> Option<Result<EngineReply>> {
        let answer = self.landed.as_mut()?.await.ok();
        self.landed = None;
        answer
    }

    /// Calls the engine off and gives it `timeout` to let go; else its worker is killed. Answers
    /// whether it had to be.
    pub(super) async fn cancel(mut self, patience: Duration) -> bool {
        match self.landed.take() {
            Some(landed) => cancel_call(self.link.clone(), self.call, landed, patience).await,
            None => false,
        }
    }
}

impl Drop for PendingCall {
    /// A caller went away. The engine has what was left of the call's time to let go.
    fn drop(&mut self) {
        if let Some(landed) = self.landed.take().filter(|_| self.link.exit_reason().is_none()) {
            let link = self.link.clone();
            self.link.shared.runtime.spawn(cancel_call(link, self.call, landed, self.left));
        }
    }
}

async fn cancel_call(
    link: SandboxConnection,
    call: u64,
    landed: oneshot::Receiver<Result<EngineReply>>,
    patience: Duration,
) -> bool {
    let _ = link.jobs.send(SendJob::Cancel { call });
    let hangs = tokio::time::timeout(patience, landed).await.is_err();
    if hangs {
        link.kill(Some("was killed, because it did not let go of a call that was given up"));
    }
    hangs
}

/// The half that listens.
struct ReplyReader {
    shared: Arc<ConnectionState>,
    jobs: mpsc::Sender<SendJob>,
}

impl ReplyReader {
    /// Hears the worker out. Whatever ends the talk ends the worker.
    fn run(self, wire: &UnixStream, most_bytes: usize) {
        let mut buffer = Vec::new();
        let end = loop {
            match wire::receive(wire, most_bytes, &mut buffer) {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some(error),
            }
            if let Err(error) = wire::decode(&buffer).and_then(|message| self.receive(message)) {
                break Some(error);
            }
        };
        let broke = end.filter(|error| error.kind() == std::io::ErrorKind::InvalidData);
        let reason = broke.map(|error| format!("was killed, because it sent {error}"));
        self.shared.process.kill(reason.as_deref());
    }

    fn receive(&self, message: FromSandbox) -> std::io::Result<()> {
        match message {
            FromSandbox::Ended { call, result } => self.shared.complete_call(call, result),
            FromSandbox::Ask { ask, session, wanted } => {
                return self.serve_host_call(ask, session, wanted);
            }
            FromSandbox::Drop { ask } => {
                if let Some(ask) = self.shared.host_calls().remove(&ask) {
                    ask.abort();
                }
            }
            FromSandbox::Progress { call, permille, note } => {
                self.shared.services.progress(CallId(call), permille, &note);
            }
            FromSandbox::Log { level, target, message, fields } => {
                self.shared.services.log(wire::level(level), &target, &message, &fields);
            }
            FromSandbox::Loaded { .. } | FromSandbox::Refused { .. } => {
                let message = "its first words a second time";
                return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, message));
            }
        }
        Ok(())
    }

    fn serve_host_call(
        &self,
        ask: u64,
        session: Option<String>,
        wanted: wire::HostCall,
    ) -> std::io::Result<()> {
        let mut asks = self.shared.host_calls();
        if asks.len() >= MAX_HOST_CALLS {
            let message = format!("more than {MAX_HOST_CALLS} wishes at once");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, message));
        }
        let (shared, jobs) = (self.shared.clone(), self.jobs.clone());
        let work = async move {
            let services = shared.services.clone();
            let session = session.map(Into::into);
            let result = scope_session(session, serve_host_call(services.as_ref(), wanted)).await;
            let _ = jobs.send(SendJob::Served { ask, result });
            shared.host_calls().remove(&ask);
        };
        // However quick it is, it is not forgotten before it is known: the list is locked here.
        asks.insert(ask, self.shared.runtime.spawn(work).abort_handle());
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}
