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

use super::writer::FrameWriter;
use crate::background::{self, BackgroundTasks};
use crate::calls::{CallTable, current_session};
use crate::sandbox::wire::{Base64Bytes, FromSandbox, HostCall, HostReply};

/// Whoever waits for an errand.
type ReplyCallback = Box<dyn FnOnce(Result<HostReply>) + Send>;

/// The services of the host, from a worker.
pub(super) struct HostProxy {
    host: HostInfo,
    recorded_clock: bool,
    calls: Arc<CallTable>,
    tasks: BackgroundTasks,
    born: Instant,
    sent: Arc<PendingHostCalls>,
}

/// Errands that are under way.
struct PendingHostCalls {
    mouth: FrameWriter,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, ReplyCallback>>,
}

impl HostProxy {
    pub(super) fn new(
        host: HostInfo,
        recorded_clock: bool,
        calls: Arc<CallTable>,
        mouth: FrameWriter,
    ) -> Self {
        let sent = PendingHostCalls { mouth, next: AtomicU64::new(0), waiting: Mutex::default() };
        let (tasks, born, sent) = (BackgroundTasks::default(), Instant::now(), Arc::new(sent));
        HostProxy { host, recorded_clock, calls, tasks, born, sent }
    }

    /// The host has done it.
    pub(super) fn complete(&self, ask: u64, result: Result<HostReply>) {
        let waiting = self.sent.callbacks().remove(&ask);
        if let Some(waiting) = waiting {
            waiting(result);
        }
    }

    /// Sends somebody and waits on this very thread.
    fn call_blocking(&self, wanted: HostCall) -> Result<HostReply> {
        let (bring, brought) = mpsc::channel();
        self.sent.send(wanted, Box::new(move |result| drop(bring.send(result))));
        brought.recv().unwrap_or_else(|_| Err(EngineError::new(ErrorKind::Dead, "no host")))
    }

    /// Sends somebody when the future is polled first; nobody waits for what is dropped.
    fn call_async<T: Send + 'static>(
        &self,
        wanted: HostCall,
        open: impl FnOnce(HostReply) -> Option<T> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        let sent = self.sent.clone();
        Box::pin(async move {
            let (bring, brought) = oneshot::channel();
            let ask = sent.send(wanted, Box::new(move |result| drop(bring.send(result))));
            let mut order = HostCallGuard { ask: Some(ask), sent };
            let result = brought.await;
            order.ask = None;
            let given = result.map_err(|_| EngineError::new(ErrorKind::Dead, "no host"))??;
            let other = || EngineError::new(ErrorKind::Protocol, "the host brought something else");
            open(given).ok_or_else(other)
        })
    }
}

impl PendingHostCalls {
    fn send(&self, wanted: HostCall, waiting: ReplyCallback) -> u64 {
        let ask = self.next.fetch_add(1, Ordering::Relaxed);
        self.callbacks().insert(ask, waiting);
        let session = current_session().map(|session| session.as_ref().to_owned());
        self.mouth.write(&FromSandbox::Ask { ask, session, wanted });
        ask
    }

    fn callbacks(&self) -> MutexGuard<'_, HashMap<u64, ReplyCallback>> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// An errand that somebody waits for.
struct HostCallGuard {
    ask: Option<u64>,
    sent: Arc<PendingHostCalls>,
}

impl Drop for HostCallGuard {
    fn drop(&mut self) {
        if let Some(ask) = self.ask {
            self.sent.callbacks().remove(&ask);
            self.sent.mouth.write(&FromSandbox::Drop { ask });
        }
    }
}

/// Takes the value of one kind out of what was given.
macro_rules! only {
    ($kind:ident) => {
        |given| if let HostReply::$kind(value) = given { Some(value) } else { None }
    };
}

fn nothing(given: HostReply) -> Option<()> {
    matches!(given, HostReply::Nothing).then_some(())
}

impl HostServices for HostProxy {
    fn info(&self) -> HostInfo {
        self.host.clone()
    }

    fn log(&self, level: LogLevel, target: &str, message: &str, fields: &Value) {
        let (target, message, fields) = (target.into(), message.into(), fields.clone());
        self.sent.mouth.write(&FromSandbox::Log { level: level as u8, target, message, fields });
    }

    /// The system's clock is here as well; a recorded one is asked for.
    fn now_ms(&self) -> i64 {
        if self.recorded_clock {
            let Ok(HostReply::Time(now_ms)) = self.call_blocking(HostCall::NowMs) else { return 0 };
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
        self.sent.mouth.write(&FromSandbox::Progress { call, permille, note });
    }

    fn complete(&self, call: CallId, request: CompletionRequest) -> BoxFuture<Result<Completion>> {
        self.call_async(HostCall::Complete { call: call.0, request }, only!(Completion))
    }

    fn kv_get(&self, key: String) -> BoxFuture<Result<Option<String>>> {
        self.call_async(HostCall::KvGet { key }, only!(Value))
    }

    fn kv_put(&self, key: String, value: String) -> BoxFuture<Result<()>> {
        self.call_async(HostCall::KvPut { key, value }, nothing)
    }

    fn kv_delete(&self, key: String) -> BoxFuture<Result<()>> {
        self.call_async(HostCall::KvDelete { key }, nothing)
    }

    fn kv_list(&self, prefix: String) -> BoxFuture<Result<Vec<String>>> {
        self.call_async(HostCall::KvList { prefix }, only!(Keys))
    }

    fn blob_put(&self, bytes: Vec<u8>) -> BoxFuture<Result<String>> {
        self.call_async(HostCall::BlobPut(Base64Bytes(bytes)), only!(Handle))
    }

    fn blob_get(&self, handle: String) -> BoxFuture<Result<Option<Vec<u8>>>> {
        let bytes = self.call_async(HostCall::BlobGet { handle }, only!(Bytes));
        Box::pin(async move { Ok(bytes.await?.map(|Base64Bytes(bytes)| bytes)) })
    }

    fn sleep(&self, milliseconds: u64) -> BoxFuture<()> {
        background::sleep(milliseconds)
    }

    fn history(&self, request: HistoryRequest) -> BoxFuture<Result<HistoryPage>> {
        self.call_async(HostCall::History(request), only!(Page))
    }

    fn prompt_cache(&self, session: &SessionRef) -> PromptCache {
        match self.call_blocking(HostCall::PromptCache(session.clone())) {
            Ok(HostReply::Cache(cache)) => cache,
            _ => PromptCache::default(),
        }
    }

    fn delegate_compact(
        &self,
        call: CallId,
        request: CompactRequest,
    ) -> BoxFuture<Result<Compaction>> {
        self.call_async(HostCall::DelegateCompact { call: call.0, request }, only!(Compaction))
    }

    fn spawn(&self, session: &SessionRef, task: BoxFuture<()>) {
        if !self.tasks.spawn(task) {
            let fields = serde_json::json!({ "session": session.id });
            let message = "spawn from a thread of its own was refused";
            self.log(LogLevel::Warn, "engine", message, &fields);
        }
    }
}
