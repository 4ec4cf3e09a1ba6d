//! The host's services for a sandboxed engine: some run in the sandbox, the others are host calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ctxhost_engine_api::border::{BoxFuture, HostServices, check_value_levels};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::*;
use serde_json::Value;
use tokio::sync::oneshot;

use super::writer::FrameWriter;
use crate::background::{self, BackgroundTasks};
use crate::calls::{CallTable, current_session};
use crate::sandbox::wire::{Base64Bytes, FromSandbox, HostCall, HostReply};

/// Called with the result of a host call.
type ReplyCallback = Box<dyn FnOnce(Result<HostReply>) + Send>;

/// The host as a sandboxed engine sees it.
pub(super) struct HostProxy {
    info: HostInfo,
    recorded_clock: bool,
    calls: Arc<CallTable>,
    tasks: BackgroundTasks,
    started: Instant,
    pending: Arc<PendingHostCalls>,
}

struct PendingHostCalls {
    writer: FrameWriter,
    next_id: AtomicU64,
    callbacks: Mutex<HashMap<u64, ReplyCallback>>,
}

impl HostProxy {
    pub(super) fn new(
        info: HostInfo,
        recorded_clock: bool,
        calls: Arc<CallTable>,
        writer: FrameWriter,
    ) -> Self {
        let (next_id, callbacks) = (AtomicU64::new(0), Mutex::default());
        HostProxy {
            info,
            recorded_clock,
            calls,
            tasks: BackgroundTasks::default(),
            started: Instant::now(),
            pending: Arc::new(PendingHostCalls { writer, next_id, callbacks }),
        }
    }

    /// Delivers the result of a host call.
    pub(super) fn complete(&self, id: u64, result: Result<HostReply>) {
        let callback = self.pending.callbacks().remove(&id);
        if let Some(callback) = callback {
            callback(result);
        }
    }

    /// Calls the host and blocks this thread until the reply.
    fn call_blocking(&self, request: HostCall) -> Result<HostReply> {
        let (send, receive) = mpsc::channel();
        self.pending.send(request, Box::new(move |result| drop(send.send(result))));
        receive.recv().unwrap_or_else(|_| Err(EngineError::new(ErrorKind::Dead, "no host")))
    }

    /// Calls the host when the future is first polled. Dropping the future cancels the host call.
    fn call_async<T: Send + 'static>(
        &self,
        request: HostCall,
        extract: impl FnOnce(HostReply) -> Option<T> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        let pending = self.pending.clone();
        Box::pin(async move {
            let (send, receive) = oneshot::channel();
            let id = pending.send(request, Box::new(move |result| drop(send.send(result))));
            let mut guard = HostCallGuard { id: Some(id), pending };
            let result = receive.await;
            guard.id = None;
            let reply = result.map_err(|_| EngineError::new(ErrorKind::Dead, "no host"))??;
            let mismatch = || EngineError::new(ErrorKind::Protocol, "the host sent another reply");
            extract(reply).ok_or_else(mismatch)
        })
    }
}

impl PendingHostCalls {
    fn send(&self, request: HostCall, callback: ReplyCallback) -> u64 {
        let host_call = self.next_id.fetch_add(1, Ordering::Relaxed);
        // Before the frame is sent: the reply may arrive at once.
        self.callbacks().insert(host_call, callback);
        let session = current_session().map(|session| session.as_ref().to_owned());
        self.writer.write(&FromSandbox::HostCall { host_call, session, request });
        host_call
    }

    fn callbacks(&self) -> MutexGuard<'_, HashMap<u64, ReplyCallback>> {
        self.callbacks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cancels a host call when its future is dropped.
struct HostCallGuard {
    id: Option<u64>,
    pending: Arc<PendingHostCalls>,
}

impl Drop for HostCallGuard {
    fn drop(&mut self) {
        if let Some(host_call) = self.id {
            self.pending.callbacks().remove(&host_call);
            self.pending.writer.write(&FromSandbox::CancelHostCall { host_call });
        }
    }
}

/// Extracts the value of one kind of reply.
macro_rules! only {
    ($kind:ident) => {
        |reply| if let HostReply::$kind(value) = reply { Some(value) } else { None }
    };
}

fn nothing(reply: HostReply) -> Option<()> {
    matches!(reply, HostReply::Nothing).then_some(())
}

impl HostServices for HostProxy {
    fn info(&self) -> HostInfo {
        self.info.clone()
    }

    fn log(&self, level: LogLevel, target: &str, message: &str, fields: &Value) {
        // The host could not read a frame with deeper fields.
        let is_deep = check_value_levels("the fields", fields).is_err();
        let fields = if is_deep { Value::Null } else { fields.clone() };
        let (target, message) = (target.into(), message.into());
        self.pending.writer.write(&FromSandbox::Log {
            level: level as u8,
            target,
            message,
            fields,
        });
    }

    fn now_ms(&self) -> i64 {
        // The system's clock is readable in the sandbox, a recorded one is not.
        if self.recorded_clock {
            let Ok(HostReply::Time(now_ms)) = self.call_blocking(HostCall::NowMs) else { return 0 };
            return now_ms;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn count_tokens(&self, _model: &str, text: &str) -> u64 {
        // The host uses the same estimate for all models, so this needs no host call.
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
        self.pending.writer.write(&FromSandbox::Progress { call, permille, note });
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
        // Synchronous in the contract, so it has to block.
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
            let message = "spawn refused: it was called on a thread that the engine started itself";
            self.log(LogLevel::Warn, "engine", message, &fields);
        }
    }

    fn embed(&self, call: CallId, request: EmbedRequest) -> BoxFuture<Result<Embeddings>> {
        let vectors = self.call_async(HostCall::Embed { call: call.0, request }, only!(Vectors));
        Box::pin(async move { Ok(vectors.await?.into()) })
    }
}
