//! The host's end of one sandbox: pending calls and running host calls, from the handshake to the exit.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ctxhost_engine_api::border::{EngineCall, EngineReply, HostServices as _};
use ctxhost_engine_api::*;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::host_call_table::HostCallTable;
use super::host_calls::{is_model_call, serve_host_call};
use super::process::SandboxProcess;
use super::sender::{SendJob, TranscriptSender};
use super::settings::SandboxSettings;
use super::usage::{self, CallActivity};
use super::wire::{self, CallFrame, FromSandbox, HostCall, HostReply, ToSandbox};
use crate::calls::{CallGuard, scope_session};
use crate::services::EngineServices;

/// The connection to one sandbox. Clones share it.
#[derive(Clone)]
pub(super) struct SandboxConnection {
    shared: Arc<ConnectionState>,
    jobs: mpsc::Sender<SendJob>,
}

struct ConnectionState {
    /// The number of the sandbox among those of its engine, from 0.
    number: u64,
    process: Arc<SandboxProcess>,
    services: Arc<EngineServices>,
    runtime: Handle,
    pending: Mutex<PendingCalls>,
    /// The number of calls so far.
    begun: AtomicU64,
    host_calls: Arc<HostCallTable>,
}

/// The calls that wait for a reply, or why no reply will come.
enum PendingCalls {
    Open(HashMap<u64, ReplySlot>),
    Closed(String),
}

/// Where the reply to a call goes.
struct ReplySlot {
    /// The method that is called.
    method: &'static str,
    reply: oneshot::Sender<Result<EngineReply>>,
}

impl SandboxConnection {
    /// Starts the threads of a connection to a sandbox that has loaded its engine.
    ///
    /// # Errors
    ///
    /// When the system starts no threads.
    pub(super) fn open(
        number: u64,
        process: Arc<SandboxProcess>,
        wire: UnixStream,
        services: Arc<EngineServices>,
        runtime: Handle,
        settings: &SandboxSettings,
    ) -> io::Result<SandboxConnection> {
        let shared = Arc::new(ConnectionState {
            number,
            process: process.clone(),
            services,
            runtime,
            pending: Mutex::new(PendingCalls::Open(HashMap::new())),
            begun: AtomicU64::new(0),
            host_calls: Arc::new(HostCallTable::new(settings.answer_bytes())),
        });
        let (jobs, queue) = mpsc::channel();
        // For each part of a frame that the socket takes, so a large frame has more time.
        wire.set_write_timeout(Some(settings.receive_limit()))?;
        let sender = TranscriptSender::new(wire.try_clone()?, settings);
        let sender_process = process.clone();
        spawn_thread("to-sandbox", move || {
            sender.run(&queue, &sender_process);
        })?;
        let reader = ReplyReader { shared: shared.clone(), jobs: jobs.clone() };
        let max_bytes = settings.answer_bytes();
        spawn_thread("from-sandbox", move || reader.run(&wire, max_bytes))?;
        let (watched, settings) = (shared.clone(), settings.clone());
        let connection = SandboxConnection { shared: shared.clone(), jobs };
        let (running, exited) = mpsc::channel();
        process.on_exit(move |reason| {
            shared.close(&reason);
            drop(running);
        });
        spawn_thread("sandbox-usage", move || {
            usage::enforce_limits(&watched.process, &settings, || watched.call_activity(), &exited);
        })?;
        Ok(connection)
    }

    pub(super) fn number(&self) -> u64 {
        self.shared.number
    }

    pub(super) fn pid(&self) -> u32 {
        self.shared.process.pid
    }

    /// Why the process ended; `None` while it runs.
    pub(super) fn exit_reason(&self) -> Option<String> {
        match &*self.shared.pending.lock() {
            PendingCalls::Open(_) => None,
            PendingCalls::Closed(reason) => Some(reason.clone()),
        }
    }

    /// Kills the process. Callers see the reason.
    pub(super) fn kill(&self, reason: Option<&str>) {
        self.shared.process.kill(reason);
    }

    /// Creates the engine; the reply is that of a call.
    pub(super) fn create(&self, guard: &CallGuard, config: Value) -> PendingCall {
        let limit_ms = to_millis(guard.remaining().cap);
        self.send_job(guard, SendJob::Create { call: guard.id.0, limit_ms, config })
    }

    /// Sends a call.
    pub(super) fn send_call(
        &self,
        guard: &CallGuard,
        view: &Transcript,
        request: EngineCall,
    ) -> PendingCall {
        let limit = guard.remaining();
        let call = CallFrame {
            call: guard.id.0,
            session: guard.session().map(|session| session.as_ref().to_owned()),
            epoch: request.session().map(|_| view.epoch()),
            timeout_ms: to_millis(limit.timeout),
            cap_ms: to_millis(limit.cap),
            request,
        };
        self.send_job(guard, SendJob::Call { call, view: view.clone() })
    }

    fn send_job(&self, guard: &CallGuard, job: SendJob) -> PendingCall {
        let (reply, receiver) = oneshot::channel();
        let method = match &job {
            SendJob::Call { call, .. } => call.request.name(),
            _ => "create",
        };
        if let PendingCalls::Open(pending) = &mut *self.shared.pending.lock() {
            pending.insert(guard.id.0, ReplySlot { method, reply });
            self.shared.begun.fetch_add(1, Ordering::Relaxed);
        }
        // Fails only after the process died; the receiver reports that.
        let _ = self.jobs.send(job);
        let remaining = guard.remaining().cap;
        PendingCall {
            call: guard.id.0,
            remaining,
            receiver: Some(receiver),
            connection: self.clone(),
        }
    }
}

impl ConnectionState {
    fn call_activity(&self) -> CallActivity {
        let is_running =
            matches!(&*self.pending.lock(), PendingCalls::Open(pending) if !pending.is_empty());
        CallActivity { begun: self.begun.load(Ordering::Relaxed), is_running }
    }

    /// Fails all pending calls and aborts all host calls of a process that ended.
    fn close(&self, reason: &str) {
        *self.pending.lock() = PendingCalls::Closed(reason.to_owned());
        self.host_calls.close();
    }

    fn complete_call(&self, call: u64, result: Result<EngineReply>) {
        let PendingCalls::Open(pending) = &mut *self.pending.lock() else { return };
        if let Some(ReplySlot { method, reply }) = pending.remove(&call) {
            let result = result.and_then(|value| match value.name() {
                name if name == method => Ok(value),
                name => {
                    let message = format!("its sandbox sent the reply to {name}, not to {method}");
                    Err(EngineError::new(ErrorKind::Protocol, message))
                }
            });
            // Fails where the caller has gone.
            let _ = reply.send(result);
        }
    }
}

/// A call that waits for its reply. Dropping it cancels the call.
pub(super) struct PendingCall {
    call: u64,
    /// The time that the call had left when it was sent.
    remaining: Duration,
    receiver: Option<oneshot::Receiver<Result<EngineReply>>>,
    connection: SandboxConnection,
}

impl PendingCall {
    /// The reply; `None` where the sandbox died.
    pub(super) async fn answer(&mut self) -> Option<Result<EngineReply>> {
        let reply = self.receiver.as_mut()?.await.ok();
        self.receiver = None;
        reply
    }

    /// Cancels the call and kills the sandbox where the call has not returned after `grace`. Returns
    /// whether it was killed.
    pub(super) async fn cancel(mut self, grace: Duration) -> bool {
        match self.receiver.take() {
            Some(reply) => cancel_call(self.connection.clone(), self.call, reply, grace).await,
            None => false,
        }
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let is_running = self.connection.exit_reason().is_none();
        if let Some(reply) = self.receiver.take().filter(|_| is_running) {
            let connection = self.connection.clone();
            // The call is not late yet, so it has the rest of its time to return.
            let cancel = cancel_call(connection, self.call, reply, self.remaining);
            self.connection.shared.runtime.spawn(cancel);
        }
    }
}

async fn cancel_call(
    connection: SandboxConnection,
    call: u64,
    reply: oneshot::Receiver<Result<EngineReply>>,
    grace: Duration,
) -> bool {
    let _ = connection.jobs.send(SendJob::Cancel { call });
    let hangs = tokio::time::timeout(grace, reply).await.is_err();
    if hangs {
        connection.kill(Some("was killed: it did not return from a cancelled call"));
    }
    hangs
}

/// The receiving thread.
struct ReplyReader {
    shared: Arc<ConnectionState>,
    jobs: mpsc::Sender<SendJob>,
}

impl ReplyReader {
    /// Handles frames until the stream ends or is invalid, then kills the process.
    fn run(self, wire: &UnixStream, max_bytes: usize) {
        let mut buffer = Vec::new();
        let end = loop {
            match wire::receive(wire, max_bytes, &mut buffer) {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some(error),
            }
            let message = wire::decode(&buffer);
            if let Err(error) = message.and_then(|message| self.receive(message, buffer.len())) {
                break Some(error);
            }
        };
        // Other errors follow from the death of the process, whose exit status is the better reason.
        let invalid = end.filter(|error| error.kind() == io::ErrorKind::InvalidData);
        let reason = invalid.map(|error| format!("was killed: it sent {error}"));
        self.shared.process.kill(reason.as_deref());
    }

    fn receive(&self, message: FromSandbox, bytes: usize) -> io::Result<()> {
        match message {
            FromSandbox::Reply { call, result } => self.shared.complete_call(call, result),
            FromSandbox::HostCall { host_call, session, request } => {
                return self.start_host_call(host_call, session, request, bytes);
            }
            FromSandbox::CancelHostCall { host_call } => {
                self.shared.host_calls.cancel(host_call);
            }
            FromSandbox::Progress { call, permille, note } => {
                self.shared.services.progress(CallId(call), permille, &note);
            }
            FromSandbox::Log { level, target, message, fields } => {
                self.shared.services.log(wire::level(level), &target, &message, &fields);
            }
            FromSandbox::Confined(_) | FromSandbox::Loaded(_) | FromSandbox::Refused { .. } => {
                return Err(protocol_error("a second handshake"));
            }
        }
        Ok(())
    }

    /// Starts a host call. Blocks while the requests of others fill their room, and so does the sandbox then.
    fn start_host_call(
        &self,
        id: u64,
        session: Option<String>,
        request: HostCall,
        bytes: usize,
    ) -> io::Result<()> {
        let (shared, jobs) = (self.shared.clone(), self.jobs.clone());
        let begun = shared.host_calls.begin(id).map_err(|message| protocol_error(&message))?;
        let Some(mut open) = begun else { return Ok(()) };
        let admitted = shared.runtime.block_on(shared.host_calls.admit_request(bytes));
        let Some(room) = admitted else { return Ok(()) };
        let work = async move {
            let services = shared.services.clone();
            let session = session.map(Into::into);
            // A model takes minutes, and the others need not wait for it.
            let _turn = if is_model_call(&request) {
                None
            } else {
                Some(shared.host_calls.store_turn.lock().await)
            };
            let result = scope_session(session, serve_host_call(services.as_ref(), request)).await;
            drop(room);
            let frame = encode_reply(id, result);
            open.admit_reply(frame.len()).await;
            let _ = jobs.send(SendJob::HostReply { frame, open });
        };
        let task = self.shared.runtime.spawn(work).abort_handle();
        self.shared.host_calls.set_task(id, task);
        Ok(())
    }
}

/// The frame of a reply, or of the error that it is too large for one.
fn encode_reply(host_call: u64, result: Result<HostReply>) -> Vec<u8> {
    let frame = |result| wire::frame(&ToSandbox::HostReply { host_call, result });
    let too_large = |error: io::Error| frame(Err(EngineError::failed(error.to_string())));
    frame(result).or_else(too_large).unwrap_or_default()
}

fn protocol_error(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn to_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn spawn_thread(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests;
