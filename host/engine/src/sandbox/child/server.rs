//! The desk of a worker: it reads what the host says and has the engine do it, on a lane like the host's.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use ctxhost_engine_api::border::{EngineFactory, EngineHandle};
use ctxhost_engine_api::transcript::replica::TranscriptReplica;
use ctxhost_engine_api::*;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use super::host_proxy::HostProxy;
use super::writer::FrameWriter;
use crate::build_guard::BuildGuard;
use crate::calls::{CallLimit, CallTable};
use crate::sandbox::wire::{self, CallFrame, FromSandbox, Hello, ToSandbox, TranscriptDelta};
use crate::threads::{STACK_BYTES, build_runtime, task_error};
use ctxhost_engine_api::border::EngineReply;

/// One engine and all that its host wants of it.
pub(super) struct SandboxServer {
    door: EngineFactory,
    engine: Arc<OnceLock<EngineHandle>>,
    lane: Runtime,
    calls: Arc<CallTable>,
    errands: Arc<HostProxy>,
    mirrors: HashMap<String, TranscriptReplica>,
    running: Arc<Mutex<HashMap<u64, AbortHandle>>>,
    mouth: FrameWriter,
}

impl SandboxServer {
    /// A desk for an engine that is loaded and not created yet.
    pub(super) fn new(
        door: EngineFactory,
        hello: Hello,
        mouth: FrameWriter,
    ) -> io::Result<SandboxServer> {
        let calls = Arc::new(CallTable::default());
        let (clock, speaking) = (hello.recorded_clock, mouth.clone());
        Ok(SandboxServer {
            door,
            engine: Arc::default(),
            lane: build_runtime(&hello.id, &BuildGuard::default())?,
            errands: Arc::new(HostProxy::new(hello.host, clock, calls.clone(), speaking)),
            calls,
            mirrors: HashMap::new(),
            running: Arc::default(),
            mouth,
        })
    }

    /// Does what the host says until it hangs up. Whatever the engine still does then is not waited for.
    pub(super) fn serve(mut self, wire: &UnixStream, buffer: Vec<u8>) -> io::Result<()> {
        let end = self.listen(wire, buffer);
        self.lane.shutdown_background();
        end
    }

    fn listen(&mut self, wire: &UnixStream, mut buffer: Vec<u8>) -> io::Result<()> {
        while wire::receive(wire, wire::ANY_LENGTH, &mut buffer)? {
            match wire::decode(&buffer) {
                Ok(message) => self.handle(message),
                // A model may nest the arguments of a tool as deep as the host reads JSON, and a frame
                // nests them deeper: that call fails, and the worker lives.
                Err(error) => {
                    let call = wire::call_of(&buffer).ok_or(error)?;
                    let result = Err(EngineError::failed("the call is nested too deep to be sent"));
                    self.mouth.write(&FromSandbox::Ended { call, result });
                }
            }
        }
        Ok(())
    }

    fn handle(&mut self, message: ToSandbox<'_>) {
        match message {
            // Said once, before this.
            ToSandbox::Hello(_) => {}
            ToSandbox::Create { call, limit_ms, config } => self.create(call, limit_ms, config),
            ToSandbox::Change(change) => self.apply_delta(change),
            ToSandbox::Forget { session } => drop(self.mirrors.remove(&session)),
            ToSandbox::Call(call) => self.call(call),
            ToSandbox::Cancel { call } => {
                self.calls.cancel(CallId(call));
                if let Some(task) = running(&self.running).get(&call) {
                    task.abort();
                }
            }
            ToSandbox::Served { ask, result } => self.errands.complete(ask, result),
        }
    }

    /// `create` is a plain function, so it has a thread of its own; the host counts its time.
    fn create(&self, call: u64, limit_ms: u64, config: Value) {
        let limit = CallLimit::fixed(Duration::from_millis(limit_ms));
        let guard = self.calls.begin_with_id(call, limit, None);
        let (door, errands, mouth) = (self.door, self.errands.clone(), self.mouth.clone());
        let engine = self.engine.clone();
        let thread = std::thread::Builder::new().name("engine-create".into());
        let begun = thread.stack_size(STACK_BYTES).spawn(move || {
            let result = door.create(errands, &config).map(|created| {
                let _ = engine.set(created);
                EngineReply::Created
            });
            drop(guard);
            mouth.write(&FromSandbox::Ended { call, result });
        });
        if let Err(error) = begun {
            let result = Err(EngineError::failed(format!("no thread to create it on: {error}")));
            self.mouth.write(&FromSandbox::Ended { call, result });
        }
    }

    fn apply_delta(&mut self, change: TranscriptDelta<'_>) {
        let mirror = self.mirrors.entry(change.session.into_owned()).or_default();
        mirror.keep(change.kept);
        change.marks.iter().for_each(|mark| mirror.patch(*mark));
        change.added.into_iter().for_each(|entry| mirror.append(entry));
    }

    fn call(&mut self, call: CallFrame) {
        let CallFrame { call, session, epoch, timeout_ms: patience_ms, cap_ms, request: question } =
            call;
        let Some(engine) = self.engine.get().cloned() else {
            let result = Err(EngineError::failed("there is no engine yet"));
            return self.mouth.write(&FromSandbox::Ended { call, result });
        };
        let view = self.view(session.as_deref(), epoch);
        let limit = CallLimit {
            timeout: Duration::from_millis(patience_ms),
            cap: Duration::from_millis(cap_ms),
        };
        let guard = self.calls.begin_with_id(call, limit, Some(view.clone()));
        let guard = guard.with_session_id(session.map(Into::into));
        let work = self.lane.spawn(guard.scope(engine.call(view, question)));
        running(&self.running).insert(call, work.abort_handle());
        let (list, mouth) = (self.running.clone(), self.mouth.clone());
        self.lane.spawn(async move {
            let result = match work.await {
                Ok(result) => result,
                Err(end) if end.is_cancelled() => {
                    Err(EngineError::new(ErrorKind::Cancelled, "it was given up"))
                }
                Err(end) => Err(task_error(&end.to_string())),
            };
            drop(guard);
            running(&list).remove(&call);
            mouth.write(&FromSandbox::Ended { call, result });
        });
    }

    fn view(&self, session: Option<&str>, epoch: Option<u64>) -> Transcript {
        let mirror = session.zip(epoch).and_then(|(session, _)| self.mirrors.get(session));
        let epoch = epoch.unwrap_or(0);
        mirror.map_or_else(
            || TranscriptReplica::new().snapshot(epoch),
            |mirror| mirror.snapshot(epoch),
        )
    }
}

fn running(list: &Mutex<HashMap<u64, AbortHandle>>) -> MutexGuard<'_, HashMap<u64, AbortHandle>> {
    list.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests;
