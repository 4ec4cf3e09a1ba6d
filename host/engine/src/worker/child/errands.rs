//! What the engine in a worker has of its host: some of it is here, for the rest somebody is sent.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ctxhost_engine_api::border::{BoxFuture, HostServices};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::*;
use serde_json::Value;
use tokio::sync::oneshot;

use super::mouth::Mouth;
use crate::background::{self, Tasks};
use crate::calls::{Calls, current_session};
use crate::worker::wire::{Bytes, FromWorker, Given, Wanted};

/// Whoever waits for an errand.
type Waiting = Box<dyn FnOnce(Result<Given>) + Send>;

/// The services of the host, from a worker.
pub(super) struct Errands {
    host: HostInfo,
    recorded_clock: bool,
    calls: Arc<Calls>,
    tasks: Tasks,
    born: Instant,
    sent: Arc<Sent>,
}

/// Errands that are under way.
struct Sent {
    mouth: Mouth,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting>>,
}

impl Errands {
    pub(super) fn new(
        host: HostInfo,
        recorded_clock: bool,
        calls: Arc<Calls>,
        mouth: Mouth,
    ) -> Self {
        let sent = Sent { mouth, next: AtomicU64::new(0), waiting: Mutex::default() };
        let (tasks, born, sent) = (Tasks::default(), Instant::now(), Arc::new(sent));
        Errands { host, recorded_clock, calls, tasks, born, sent }
    }

    /// The host has done it.
    pub(super) fn done(&self, ask: u64, result: Result<Given>) {
        let waiting = self.sent.waiting().remove(&ask);
        if let Some(waiting) = waiting {
            waiting(result);
        }
    }

    /// Sends somebody and waits on this very thread.
    fn fetch(&self, wanted: Wanted) -> Result<Given> {
        let (bring, brought) = mpsc::channel();
        self.sent.send(wanted, Box::new(move |result| drop(bring.send(result))));
        brought.recv().unwrap_or_else(|_| Err(EngineError::new(ErrorKind::Dead, "no host")))
    }

    /// Sends somebody when the future is polled first; nobody waits for what is dropped.
    fn order<T: Send + 'static>(
        &self,
        wanted: Wanted,
        open: impl FnOnce(Given) -> Option<T> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        let sent = self.sent.clone();
        Box::pin(async move {
            let (bring, brought) = oneshot::channel();
            let ask = sent.send(wanted, Box::new(move |result| drop(bring.send(result))));
            let mut order = Order { ask: Some(ask), sent };
            let result = brought.await;
            order.ask = None;
            let given = result.map_err(|_| EngineError::new(ErrorKind::Dead, "no host"))??;
            let other = || EngineError::new(ErrorKind::Protocol, "the host brought something else");
            open(given).ok_or_else(other)
        })
    }
}

impl Sent {
    fn send(&self, wanted: Wanted, waiting: Waiting) -> u64 {
        let ask = self.next.fetch_add(1, Ordering::Relaxed);
        self.waiting().insert(ask, waiting);
        let session = current_session().map(|session| session.as_ref().to_owned());
        self.mouth.say(&FromWorker::Ask { ask, session, wanted });
        ask
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// An errand that somebody waits for.
struct Order {
    ask: Option<u64>,
    sent: Arc<Sent>,
}

impl Drop for Order {
    fn drop(&mut self) {
        if let Some(ask) = self.ask {
            self.sent.waiting().remove(&ask);
            self.sent.mouth.say(&FromWorker::Drop { ask });
        }
    }
}

/// Takes the value of one kind out of what was given.
macro_rules! only {
    ($kind:ident) => {
        |given| if let Given::$kind(value) = given { Some(value) } else { None }
    };
}

fn nothing(given: Given) -> Option<()> {
    matches!(given, Given::Nothing).then_some(())
}

impl HostServices for Errands {
    fn info(&self) -> HostInfo {
        self.host.clone()
    }

    fn log(&self, level: LogLevel, target: &str, message: &str, fields: &Value) {
        let (target, message, fields) = (target.into(), message.into(), fields.clone());
        self.sent.mouth.say(&FromWorker::Log { level: level as u8, target, message, fields });
    }

    /// The system's clock is here as well; a recorded one is asked for.
    fn now_ms(&self) -> i64 {
        if self.recorded_clock {
            let Ok(Given::Time(now_ms)) = self.fetch(Wanted::NowMs) else { return 0 };
            return now_ms;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn count_tokens(&self, _model: &str, text: &str) -> u64 {
        tokens::estimate(text)
    }

    fn is_cancelled(&self, call: CallId) -> bool {
        self.calls.is_cancelled(call)
    }

    fn remaining_ms(&self, call: CallId) -> Option<u64> {
        let left = self.calls.deadline(call)?.saturating_duration_since(Instant::now());
        u64::try_from(left.as_millis()).ok()
    }

    fn progress(&self, call: CallId, permille: u32, note: &str) {
        self.calls.progress(call);
        let (call, note) = (call.0, note.into());
        self.sent.mouth.say(&FromWorker::Progress { call, permille, note });
    }

    fn complete(&self, call: CallId, request: CompletionRequest) -> BoxFuture<Result<Completion>> {
        self.order(Wanted::Complete { call: call.0, request }, only!(Completion))
    }

    fn kv_get(&self, key: String) -> BoxFuture<Result<Option<String>>> {
        self.order(Wanted::KvGet { key }, only!(Value))
    }

    fn kv_put(&self, key: String, value: String) -> BoxFuture<Result<()>> {
        self.order(Wanted::KvPut { key, value }, nothing)
    }

    fn kv_delete(&self, key: String) -> BoxFuture<Result<()>> {
        self.order(Wanted::KvDelete { key }, nothing)
    }

    fn kv_list(&self, prefix: String) -> BoxFuture<Result<Vec<String>>> {
        self.order(Wanted::KvList { prefix }, only!(Keys))
    }

    fn blob_put(&self, bytes: Vec<u8>) -> BoxFuture<Result<String>> {
        self.order(Wanted::BlobPut(Bytes(bytes)), only!(Handle))
    }

    fn blob_get(&self, handle: String) -> BoxFuture<Result<Option<Vec<u8>>>> {
        let bytes = self.order(Wanted::BlobGet { handle }, only!(Bytes));
        Box::pin(async move { Ok(bytes.await?.map(|Bytes(bytes)| bytes)) })
    }

    fn sleep(&self, milliseconds: u64) -> BoxFuture<()> {
        background::sleep(milliseconds)
    }

    fn history(&self, request: HistoryRequest) -> BoxFuture<Result<HistoryPage>> {
        self.order(Wanted::History(request), only!(Page))
    }

    fn prompt_cache(&self, session: &SessionRef) -> PromptCache {
        match self.fetch(Wanted::PromptCache(session.clone())) {
            Ok(Given::Cache(cache)) => cache,
            _ => PromptCache::default(),
        }
    }

    fn delegate_compact(
        &self,
        call: CallId,
        request: CompactRequest,
    ) -> BoxFuture<Result<Compaction>> {
        self.order(Wanted::DelegateCompact { call: call.0, request }, only!(Compaction))
    }

    fn spawn(&self, session: &SessionRef, task: BoxFuture<()>) {
        if !self.tasks.spawn(task) {
            let fields = serde_json::json!({ "session": session.id });
            let message = "spawn from a thread of its own was refused";
            self.log(LogLevel::Warn, "engine", message, &fields);
        }
    }
}
