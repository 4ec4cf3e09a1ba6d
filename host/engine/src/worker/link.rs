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

use super::process::Process;
use super::sender::{Job, Sender};
use super::served::serve;
use super::usage::{self, Calling};
use super::wire::{self, Call, FromWorker};
use crate::calls::{CallGuard, in_session};
use crate::services::Services;
use ctxhost_engine_api::border::{EngineCall, EngineReply};

/// Services that one worker may want at the same time; more is a loop that asks and does not wait.
const MAX_ASKS: usize = 1024;

/// One worker, from the host's side. Clones are the same one.
#[derive(Clone)]
pub(super) struct Link {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
}

struct Shared {
    /// Which of the engine's workers it is, from 0.
    number: u64,
    process: Arc<Process>,
    services: Arc<Services>,
    runtime: Handle,
    flights: Mutex<Flights>,
    /// Calls that ever were.
    begun: AtomicU64,
    asks: Mutex<HashMap<u64, AbortHandle>>,
}

/// Calls that wait for an answer, or why none will come.
enum Flights {
    Open(HashMap<u64, oneshot::Sender<Result<EngineReply>>>),
    Crashed(String),
}

impl Link {
    /// Takes up the talk with a worker that has loaded its engine.
    ///
    /// # Errors
    ///
    /// When the system gives no threads.
    pub(super) fn open(
        number: u64,
        process: Arc<Process>,
        wire: UnixStream,
        services: Arc<Services>,
        runtime: Handle,
        limits: &super::WorkerSettings,
    ) -> std::io::Result<Link> {
        let flights = Mutex::new(Flights::Open(HashMap::new()));
        let asks = Mutex::default();
        let begun = AtomicU64::new(0);
        let process_of = process.clone();
        let shared =
            Shared { number, process: process_of, services, runtime, flights, begun, asks };
        let shared = Arc::new(shared);
        let (jobs, queue) = mpsc::channel();
        let sender = Sender::new(wire.try_clone()?, limits.sessions);
        let ending = process.clone();
        thread("to-worker", move || sender.run(&queue, &ending))?;
        let link = Link { shared: shared.clone(), jobs };
        let (reader, most_bytes) = (link.reader(), limits.answer_bytes());
        thread("from-worker", move || reader.run(&wire, most_bytes))?;
        let (watched, settings) = (shared.clone(), limits.clone());
        let (tell, ended) = mpsc::channel();
        process.when_it_ends(move |reason| {
            shared.crash(&reason);
            drop(tell);
        });
        thread("worker-usage", move || {
            usage::watch(&watched.process, &settings, || watched.calling(), &ended);
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
    pub(super) fn crashed(&self) -> Option<String> {
        match &*self.shared.flights() {
            Flights::Open(_) => None,
            Flights::Crashed(reason) => Some(reason.clone()),
        }
    }

    /// Kills it. The reason is what callers are told.
    pub(super) fn kill(&self, reason: Option<&str>) {
        self.shared.process.kill(reason);
    }

    /// Has the engine built; the answer comes like that of a call.
    pub(super) fn create(&self, call: &CallGuard, config: Value) -> Flight {
        let limit_ms = millis(call.left().cap);
        self.fly(call, Job::Create { call: call.id.0, limit_ms, config })
    }

    /// Puts a question.
    pub(super) fn ask(&self, call: &CallGuard, view: &Transcript, question: EngineCall) -> Flight {
        let limit = call.left();
        let frame = Call {
            call: call.id.0,
            session: call.session().map(|session| session.as_ref().to_owned()),
            epoch: question.session().map(|_| view.epoch()),
            patience_ms: millis(limit.patience),
            cap_ms: millis(limit.cap),
            question,
        };
        self.fly(call, Job::Call { call: frame, view: view.clone() })
    }

    fn fly(&self, call: &CallGuard, job: Job) -> Flight {
        let (land, landed) = oneshot::channel();
        if let Flights::Open(flights) = &mut *self.shared.flights() {
            flights.insert(call.id.0, land);
            self.shared.begun.fetch_add(1, Ordering::Relaxed);
        }
        // Without anybody to send it the worker is dead, and `landed` says so.
        let _ = self.jobs.send(job);
        Flight { call: call.id.0, left: call.left().cap, landed: Some(landed), link: self.clone() }
    }

    fn reader(&self) -> Reader {
        Reader { shared: self.shared.clone(), jobs: self.jobs.clone() }
    }
}

impl Shared {
    fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Which calls it has.
    fn calling(&self) -> Calling {
        let is_under_way =
            matches!(&*self.flights(), Flights::Open(flights) if !flights.is_empty());
        Calling { begun: self.begun.load(Ordering::Relaxed), is_under_way }
    }

    fn asks(&self) -> MutexGuard<'_, HashMap<u64, AbortHandle>> {
        self.asks.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// It is dead: whoever waits for it learns it, whatever it waited for is called off.
    fn crash(&self, reason: &str) {
        *self.flights() = Flights::Crashed(reason.to_owned());
        self.asks().drain().for_each(|(_, ask)| ask.abort());
    }

    fn land(&self, call: u64, result: Result<EngineReply>) {
        let Flights::Open(flights) = &mut *self.flights() else { return };
        if let Some(land) = flights.remove(&call) {
            // Whoever gave the call up does not listen.
            let _ = land.send(result);
        }
    }
}

/// A call that is under way. Dropping it gives the call up.
pub(super) struct Flight {
    call: u64,
    /// What it might still have taken when it began.
    left: Duration,
    landed: Option<oneshot::Receiver<Result<EngineReply>>>,
    link: Link,
}

impl Flight {
    /// The answer; `None` where the worker died over it.
    pub(super) async fn answer(&mut self) -> Option<Result<EngineReply>> {
        let answer = self.landed.as_mut()?.await.ok();
        self.landed = None;
        answer
    }

    /// Calls the engine off and gives it `patience` to let go; else its worker is killed. Answers
    /// whether it had to be.
    pub(super) async fn give_up(mut self, patience: Duration) -> bool {
        match self.landed.take() {
            Some(landed) => let_go(self.link.clone(), self.call, landed, patience).await,
            None => false,
        }
    }
}

impl Drop for Flight {
    /// A caller went away. The engine has what was left of the call's time to let go.
    fn drop(&mut self) {
        if let Some(landed) = self.landed.take().filter(|_| self.link.crashed().is_none()) {
            let link = self.link.clone();
            self.link.shared.runtime.spawn(let_go(link, self.call, landed, self.left));
        }
    }
}

async fn let_go(
    link: Link,
    call: u64,
    landed: oneshot::Receiver<Result<EngineReply>>,
    patience: Duration,
) -> bool {
    let _ = link.jobs.send(Job::Cancel { call });
    let hangs = tokio::time::timeout(patience, landed).await.is_err();
    if hangs {
        link.kill(Some("was killed, because it did not let go of a call that was given up"));
    }
    hangs
}

/// The half that listens.
struct Reader {
    shared: Arc<Shared>,
    jobs: mpsc::Sender<Job>,
}

impl Reader {
    /// Hears the worker out. Whatever ends the talk ends the worker.
    fn run(self, wire: &UnixStream, most_bytes: usize) {
        let mut buffer = Vec::new();
        let end = loop {
            match wire::receive(wire, most_bytes, &mut buffer) {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some(error),
            }
            if let Err(error) = wire::decode(&buffer).and_then(|message| self.hear(message)) {
                break Some(error);
            }
        };
        let broke = end.filter(|error| error.kind() == std::io::ErrorKind::InvalidData);
        let reason = broke.map(|error| format!("was killed, because it sent {error}"));
        self.shared.process.kill(reason.as_deref());
    }

    fn hear(&self, message: FromWorker) -> std::io::Result<()> {
        match message {
            FromWorker::Ended { call, result } => self.shared.land(call, result),
            FromWorker::Ask { ask, session, wanted } => return self.serve(ask, session, wanted),
            FromWorker::Drop { ask } => {
                if let Some(ask) = self.shared.asks().remove(&ask) {
                    ask.abort();
                }
            }
            FromWorker::Progress { call, permille, note } => {
                self.shared.services.progress(CallId(call), permille, &note);
            }
            FromWorker::Log { level, target, message, fields } => {
                self.shared.services.log(wire::level(level), &target, &message, &fields);
            }
            FromWorker::Loaded { .. } | FromWorker::Refused { .. } => {
                let message = "its first words a second time";
                return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, message));
            }
        }
        Ok(())
    }

    fn serve(
        &self,
        ask: u64,
        session: Option<String>,
        wanted: wire::Wanted,
    ) -> std::io::Result<()> {
        let mut asks = self.shared.asks();
        if asks.len() >= MAX_ASKS {
            let message = format!("more than {MAX_ASKS} wishes at once");
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, message));
        }
        let (shared, jobs) = (self.shared.clone(), self.jobs.clone());
        let work = async move {
            let services = shared.services.clone();
            let session = session.map(Into::into);
            let result = in_session(session, serve(services.as_ref(), wanted)).await;
            let _ = jobs.send(Job::Served { ask, result });
            shared.asks().remove(&ask);
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
