//! Serves the frames of the host: keeps transcript replicas and runs calls on threads like the host's.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle, EngineReply};
use ctxhost_engine_api::transcript::replica::TranscriptReplica;
use ctxhost_engine_api::*;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::host_proxy::HostProxy;
use super::writer::FrameWriter;
use crate::build_guard::BuildGuard;
use crate::calls::{CallLimit, CallTable};
use crate::deep_replies::refuse_deep_reply;
use crate::sandbox::wire::{self, CallFrame, FromSandbox, Hello, ToSandbox, TranscriptDelta};
use crate::threads::{EngineThreads, STACK_BYTES, task_error};

/// One engine and the state of its calls.
pub(super) struct SandboxServer {
    // Dropped first, without waiting for running calls.
    _threads: EngineThreads,
    factory: EngineFactory,
    engine: Arc<OnceLock<EngineHandle>>,
    runtime: Handle,
    calls: Arc<CallTable>,
    host: Arc<HostProxy>,
    replicas: HashMap<String, TranscriptReplica>,
    running: Arc<Mutex<HashMap<u64, AbortHandle>>>,
    writer: FrameWriter,
}

impl SandboxServer {
    /// A server for an engine that is loaded and not created yet.
    pub(super) fn new(
        factory: EngineFactory,
        hello: Hello,
        writer: FrameWriter,
    ) -> io::Result<SandboxServer> {
        let calls = Arc::new(CallTable::default());
        let (threads, runtime) = EngineThreads::start(&hello.id, &BuildGuard::default())?;
        let (recorded_clock, proxy_writer) = (hello.recorded_clock, writer.clone());
        Ok(SandboxServer {
            factory,
            engine: Arc::default(),
            runtime,
            _threads: threads,
            host: Arc::new(HostProxy::new(hello.host, recorded_clock, calls.clone(), proxy_writer)),
            calls,
            replicas: HashMap::new(),
            running: Arc::default(),
            writer,
        })
    }

    /// Serves until the host closes the connection, and does not wait for running calls then.
    pub(super) fn serve(mut self, wire: &UnixStream, mut buffer: Vec<u8>) -> io::Result<()> {
        while wire::receive(wire, wire::ANY_LENGTH, &mut buffer)? {
            match wire::decode(&buffer) {
                Ok(message) => self.handle(message),
                // A model may nest tool arguments as deep as serde_json reads, and the frame adds
                // levels. Only that call fails.
                Err(error) => {
                    let call = wire::call_of(&buffer).ok_or(error)?;
                    let result = Err(EngineError::failed("the call is nested too deep to be sent"));
                    self.writer.write(&FromSandbox::Reply { call, result });
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, message: ToSandbox<'_>) {
        match message {
            // Received once, before the server was created.
            ToSandbox::Hello(_) => {}
            ToSandbox::Create { call, limit_ms, config } => self.create(call, limit_ms, config),
            ToSandbox::Transcript(delta) => self.apply_delta(delta),
            ToSandbox::Forget { session } => drop(self.replicas.remove(&session)),
            ToSandbox::Call(call) => self.call(call),
            ToSandbox::Cancel { call } => {
                self.calls.cancel(CallId(call));
                if let Some(task) = running(&self.running).get(&call) {
                    task.abort();
                }
            }
            ToSandbox::HostReply { host_call, result } => self.host.complete(host_call, result),
        }
    }

    /// Creates the engine on a thread of its own, since `create` is synchronous. The host enforces the limit.
    fn create(&self, call: u64, limit_ms: u64, config: Value) {
        let limit = CallLimit::fixed(Duration::from_millis(limit_ms));
        let guard = self.calls.begin_with_id(call, limit, None);
        let (factory, host, writer) = (self.factory, self.host.clone(), self.writer.clone());
        let engine = self.engine.clone();
        let thread = std::thread::Builder::new().name("engine-create".into());
        let spawned = thread.stack_size(STACK_BYTES).spawn(move || {
            let mut result = factory.create(host, &config).map(|created| {
                let _ = engine.set(created);
                EngineReply::Created
            });
            refuse_deep_reply(&mut result);
            drop(guard);
            writer.write(&FromSandbox::Reply { call, result });
        });
        if let Err(error) = spawned {
            let result = Err(EngineError::failed(format!("no thread to create it on: {error}")));
            self.writer.write(&FromSandbox::Reply { call, result });
        }
    }

    fn apply_delta(&mut self, delta: TranscriptDelta<'_>) {
        let replica = self.replicas.entry(delta.session.into_owned()).or_default();
        replica.keep(delta.kept);
        delta.patches.iter().for_each(|patch| replica.patch(*patch));
        delta.added.into_iter().for_each(|entry| replica.append(entry));
    }

    fn call(&mut self, call: CallFrame) {
        let CallFrame { call, session, epoch, timeout_ms, cap_ms, request } = call;
        let Some(engine) = self.engine.get().cloned() else {
            let result = Err(EngineError::failed("the engine is not created yet"));
            return self.writer.write(&FromSandbox::Reply { call, result });
        };
        let view = self.view(session.as_deref(), epoch);
        let limit = CallLimit {
            timeout: Duration::from_millis(timeout_ms),
            cap: Duration::from_millis(cap_ms),
        };
        let guard = self.calls.begin_with_id(call, limit, Some(view.clone()));
        let guard = guard.with_session_id(session.map(Into::into));
        let work = self.runtime.spawn(guard.scope(engine.call(view, request)));
        running(&self.running).insert(call, work.abort_handle());
        let (list, writer) = (self.running.clone(), self.writer.clone());
        self.runtime.spawn(async move {
            let mut result = match work.await {
                Ok(result) => result,
                Err(end) if end.is_cancelled() => {
                    Err(EngineError::new(ErrorKind::Cancelled, "the call was cancelled"))
                }
                Err(end) => Err(task_error(&end.to_string())),
            };
            refuse_deep_reply(&mut result);
            drop(guard);
            running(&list).remove(&call);
            writer.write(&FromSandbox::Reply { call, result });
        });
    }

    fn view(&self, session: Option<&str>, epoch: Option<u64>) -> Transcript {
        let replica = session.zip(epoch).and_then(|(session, _)| self.replicas.get(session));
        let epoch = epoch.unwrap_or(0);
        replica.map_or_else(
            || TranscriptReplica::new().snapshot(epoch),
            |replica| replica.snapshot(epoch),
        )
    }
}

fn running(list: &Mutex<HashMap<u64, AbortHandle>>) -> MutexGuard<'_, HashMap<u64, AbortHandle>> {
    list.lock()
}

#[cfg(test)]
mod tests;
