//! The desk of a worker: it reads what the host says and has the engine do it, on a lane like the host's.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use ctxhost_engine_api::border::{EngineDoor, EngineHandle};
use ctxhost_engine_api::transcript::mirror::Mirror;
use ctxhost_engine_api::*;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

use super::errands::Errands;
use super::mouth::Mouth;
use crate::calls::{Calls, Limit};
use crate::threads::{STACK_BYTES, task_died, threads};
use crate::watch::Watch;
use crate::worker::wire::{self, Call, Change, FromWorker, Hello, ToWorker};
use ctxhost_engine_api::border::EngineReply;

/// One engine and all that its host wants of it.
pub(super) struct Desk {
    door: EngineDoor,
    engine: Arc<OnceLock<EngineHandle>>,
    lane: Runtime,
    calls: Arc<Calls>,
    errands: Arc<Errands>,
    mirrors: HashMap<String, Mirror>,
    running: Arc<Mutex<HashMap<u64, AbortHandle>>>,
    mouth: Mouth,
}

impl Desk {
    /// A desk for an engine that is loaded and not created yet.
    pub(super) fn new(door: EngineDoor, hello: Hello, mouth: Mouth) -> io::Result<Desk> {
        let calls = Arc::new(Calls::default());
        let (clock, speaking) = (hello.recorded_clock, mouth.clone());
        Ok(Desk {
            door,
            engine: Arc::default(),
            lane: threads(&hello.id, &Watch::default())?,
            errands: Arc::new(Errands::new(hello.host, clock, calls.clone(), speaking)),
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
                Ok(message) => self.hear(message),
                // A model may nest the arguments of a tool as deep as the host reads JSON, and a frame
                // nests them deeper: that call fails, and the worker lives.
                Err(error) => {
                    let call = wire::call_of(&buffer).ok_or(error)?;
                    let result = Err(EngineError::failed("the call is nested too deep to be sent"));
                    self.mouth.say(&FromWorker::Ended { call, result });
                }
            }
        }
        Ok(())
    }

    fn hear(&mut self, message: ToWorker<'_>) {
        match message {
            // Said once, before this.
            ToWorker::Hello(_) => {}
            ToWorker::Create { call, limit_ms, config } => self.create(call, limit_ms, config),
            ToWorker::Change(change) => self.change(change),
            ToWorker::Forget { session } => drop(self.mirrors.remove(&session)),
            ToWorker::Call(call) => self.call(call),
            ToWorker::Cancel { call } => {
                self.calls.give_up(CallId(call));
                if let Some(task) = running(&self.running).get(&call) {
                    task.abort();
                }
            }
            ToWorker::Served { ask, result } => self.errands.done(ask, result),
        }
    }

    /// `create` is a plain function, so it has a thread of its own; the host counts its time.
    fn create(&self, call: u64, limit_ms: u64, config: Value) {
        let limit = Limit::fixed(Duration::from_millis(limit_ms));
        let guard = self.calls.begin_as(call, limit, None);
        let (door, errands, mouth) = (self.door, self.errands.clone(), self.mouth.clone());
        let engine = self.engine.clone();
        let thread = std::thread::Builder::new().name("engine-create".into());
        let begun = thread.stack_size(STACK_BYTES).spawn(move || {
            let result = door.create(errands, &config).map(|created| {
                let _ = engine.set(created);
                EngineReply::Created
            });
            drop(guard);
            mouth.say(&FromWorker::Ended { call, result });
        });
        if let Err(error) = begun {
            let result = Err(EngineError::failed(format!("no thread to create it on: {error}")));
            self.mouth.say(&FromWorker::Ended { call, result });
        }
    }

    fn change(&mut self, change: Change<'_>) {
        let mirror = self.mirrors.entry(change.session.into_owned()).or_default();
        mirror.keep(change.kept);
        change.marks.iter().for_each(|mark| mirror.mark(*mark));
        change.added.into_iter().for_each(|entry| mirror.append(entry));
    }

    fn call(&mut self, call: Call) {
        let Call { call, session, epoch, patience_ms, cap_ms, question } = call;
        let Some(engine) = self.engine.get().cloned() else {
            let result = Err(EngineError::failed("there is no engine yet"));
            return self.mouth.say(&FromWorker::Ended { call, result });
        };
        let view = self.view(session.as_deref(), epoch);
        let limit = Limit {
            patience: Duration::from_millis(patience_ms),
            cap: Duration::from_millis(cap_ms),
        };
        let guard = self.calls.begin_as(call, limit, Some(view.clone()));
        let guard = guard.in_session_of(session.map(Into::into));
        let work = self.lane.spawn(guard.scope(engine.call(view, question)));
        running(&self.running).insert(call, work.abort_handle());
        let (list, mouth) = (self.running.clone(), self.mouth.clone());
        self.lane.spawn(async move {
            let result = match work.await {
                Ok(result) => result,
                Err(end) if end.is_cancelled() => {
                    Err(EngineError::new(ErrorKind::Cancelled, "it was given up"))
                }
                Err(end) => Err(task_died(&end.to_string())),
            };
            drop(guard);
            running(&list).remove(&call);
            mouth.say(&FromWorker::Ended { call, result });
        });
    }

    fn view(&self, session: Option<&str>, epoch: Option<u64>) -> Transcript {
        let mirror = session.zip(epoch).and_then(|(session, _)| self.mirrors.get(session));
        let epoch = epoch.unwrap_or(0);
        mirror.map_or_else(|| Mirror::new().snapshot(epoch), |mirror| mirror.snapshot(epoch))
    }
}

fn running(list: &Mutex<HashMap<u64, AbortHandle>>) -> MutexGuard<'_, HashMap<u64, AbortHandle>> {
    list.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests;
