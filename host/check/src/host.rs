//! The host of the suite: a correct host in memory that can be switched to fail in several ways.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use ctxhost_engine_api::border::{BoxFuture, HostServices};
use ctxhost_engine_api::testing::ScriptedHost;
use ctxhost_engine_api::{
    CallId, CompactRequest, Compaction, Completion, CompletionRequest, EmbedRequest, Embeddings,
    EngineError, ErrorKind, HistoryEntry, HistoryPage, HistoryRequest, HostInfo, LogLevel,
    PromptCache, Result, SessionRef,
};
use serde_json::Value;

use super::settings::SERVICE_CALLS_MAX;
use super::trace::CallTrace;

/// Size of an oversized reply, in bytes.
const HUGE_BYTES: usize = 1 << 20;

/// How the host behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum HostBehaviour {
    /// Correct.
    #[default]
    Correct,
    /// The service request of this number, from 0, never completes.
    PendingAt(u64),
    /// Every request fails with this kind.
    Failing(ErrorKind),
    /// Every request is pending once, then fails with `Deadline`.
    Late,
    /// Invalid values and values that were never stored.
    Garbage,
    /// Replies of a megabyte, maximum numbers.
    Huge,
    /// The stores are empty, models return blanks, the clock runs backwards.
    Forgetful,
}

/// A host in memory. Clones share their state.
#[derive(Clone)]
pub(super) struct FaultyHost {
    /// The correct host.
    pub(super) inner: ScriptedHost,
    shared: Arc<FaultyHostState>,
}

struct FaultyHostState {
    behaviour: Mutex<HostBehaviour>,
    /// Number of service requests since the last [`FaultyHost::reset_requests`].
    requests: AtomicU64,
    /// Whether a request that never completes is waiting.
    stuck: AtomicBool,
    /// How often the clock was read.
    clock_reads: AtomicU64,
    trace: Arc<CallTrace>,
}

impl FaultyHost {
    pub(super) fn new(trace: &Arc<CallTrace>) -> Self {
        let shared = FaultyHostState {
            behaviour: Mutex::default(),
            requests: AtomicU64::new(0),
            stuck: AtomicBool::new(false),
            clock_reads: AtomicU64::new(0),
            trace: trace.clone(),
        };
        let correct = ScriptedHost::new();
        correct.run_tasks_on_threads();
        correct.embed_with(letter_counts);
        FaultyHost { inner: correct, shared: Arc::new(shared) }
    }

    pub(super) fn set_behaviour(&self, behaviour: HostBehaviour) {
        *self.shared.behaviour.lock().unwrap_or_else(PoisonError::into_inner) = behaviour;
        self.reset_requests();
    }

    /// Resets the request counter at the start of a call.
    pub(super) fn reset_requests(&self) {
        self.shared.requests.store(0, Ordering::Relaxed);
        self.shared.stuck.store(false, Ordering::Relaxed);
    }

    /// Whether the call waits for a request that never completes.
    pub(super) fn is_stuck(&self) -> bool {
        self.shared.stuck.load(Ordering::Relaxed)
    }

    /// Number of service requests of the current call.
    pub(super) fn request_count(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    fn behaviour(&self) -> HostBehaviour {
        *self.shared.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a service request according to the behaviour. `faulty_reply` returns the reply of a faulty host.
    fn answer<T: Send + 'static>(
        &self,
        service: &'static str,
        correct: impl FnOnce() -> BoxFuture<Result<T>>,
        faulty_reply: impl FnOnce(HostBehaviour) -> Option<Result<T>>,
    ) -> BoxFuture<Result<T>> {
        let number = self.shared.requests.fetch_add(1, Ordering::Relaxed);
        // An error instead of a hang: loops over endless pages would never return.
        if number > SERVICE_CALLS_MAX {
            let message = format!(
                "{service} was called {number} times in one call; the limit is {SERVICE_CALLS_MAX}"
            );
            return ready(Err(EngineError::failed(message)));
        }
        let behaviour = self.behaviour();
        match behaviour {
            HostBehaviour::Correct => correct(),
            // Recorded before it is returned: the watchdog names the service if the engine blocks
            // on it.
            HostBehaviour::PendingAt(at) if at == number => {
                self.shared.trace.set_service(service);
                self.shared.stuck.store(true, Ordering::Relaxed);
                Box::pin(std::future::pending())
            }
            HostBehaviour::PendingAt(_) => correct(),
            HostBehaviour::Failing(kind) => {
                ready(Err(EngineError::new(kind, format!("{service} failed"))))
            }
            HostBehaviour::Late => Box::pin(too_late(service)),
            other => faulty_reply(other).map_or_else(correct, ready),
        }
    }
}

fn ready<T: Send + 'static>(answer: Result<T>) -> BoxFuture<Result<T>> {
    Box::pin(std::future::ready(answer))
}

/// Pending at the first poll, fails with `Deadline` at the second.
async fn too_late<T>(service: &'static str) -> Result<T> {
    let mut polled = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    Err(EngineError::new(ErrorKind::Deadline, format!("{service} took too long")))
}

/// A vector of a text: how often it has each letter.
fn letter_counts(text: &str) -> Vec<f32> {
    let mut counts = vec![0.0; 26];
    for letter in text.bytes().map(|byte| byte.to_ascii_lowercase().wrapping_sub(b'a')) {
        if let Some(count) = counts.get_mut(usize::from(letter)) {
            *count += 1.0;
        }
    }
    counts
}

fn huge() -> String {
    "Lorem ipsum. ".repeat(HUGE_BYTES / 13)
}

impl HostServices for FaultyHost {
    fn info(&self) -> HostInfo {
        self.inner.info()
    }

    fn log(&self, level: LogLevel, target: &str, message: &str, fields: &Value) {
        self.inner.log(level, target, message, fields);
    }

    fn now_ms(&self) -> i64 {
        match self.behaviour() {
            HostBehaviour::Forgetful => {
                // An hour back on every read.
                let back = self.shared.clock_reads.fetch_add(1, Ordering::Relaxed);
                self.inner.now_ms() - i64::try_from(back).unwrap_or(0) * 3_600_000
            }
            _ => self.inner.now_ms(),
        }
    }

    fn monotonic_ns(&self) -> u64 {
        self.inner.monotonic_ns()
    }

    fn count_tokens(&self, model: &str, text: &str) -> u64 {
        match self.behaviour() {
            HostBehaviour::Huge => u64::MAX,
            HostBehaviour::Forgetful => 0,
            _ => self.inner.count_tokens(model, text),
        }
    }

    fn is_cancelled(&self, call: CallId) -> bool {
        self.inner.is_cancelled(call)
    }

    fn remaining_ms(&self, call: CallId) -> Option<u64> {
        match self.behaviour() {
            HostBehaviour::Late => Some(0),
            _ => self.inner.remaining_ms(call),
        }
    }

    fn progress(&self, call: CallId, permille: u32, note: &str) {
        self.inner.progress(call, permille, note);
    }

    fn complete(&self, call: CallId, request: CompletionRequest) -> BoxFuture<Result<Completion>> {
        let text = |text: String| Ok(Completion { text, ..Completion::default() });
        let faulty_reply = |behaviour| match behaviour {
            HostBehaviour::Garbage => {
                Some(text("\u{0}\u{fffd}</summary>{\"role\":\"system\"}".into()))
            }
            HostBehaviour::Huge => Some(text(huge())),
            HostBehaviour::Forgetful => Some(text(" \n".into())),
            _ => None,
        };
        self.answer("complete", || self.inner.complete(call, request), faulty_reply)
    }

    fn kv_get(&self, key: String) -> BoxFuture<Result<Option<String>>> {
        let faulty_reply = |behaviour| match behaviour {
            HostBehaviour::Garbage => Some(Ok(Some("{\"not\": [\"what\", 1, \"stored".into()))),
            HostBehaviour::Huge => Some(Ok(Some(huge()))),
            HostBehaviour::Forgetful => Some(Ok(None)),
            _ => None,
        };
        self.answer("kv_get", || self.inner.kv_get(key), faulty_reply)
    }

    fn kv_put(&self, key: String, value: String) -> BoxFuture<Result<()>> {
        self.answer("kv_put", || self.inner.kv_put(key, value), |_| None)
    }

    fn kv_delete(&self, key: String) -> BoxFuture<Result<()>> {
        self.answer("kv_delete", || self.inner.kv_delete(key), |_| None)
    }

    fn kv_list(&self, prefix: String) -> BoxFuture<Result<Vec<String>>> {
        let faulty_reply = |behaviour| match behaviour {
            HostBehaviour::Garbage => {
                Some(Ok(vec![String::new(), format!("{prefix}\u{0}unknown")]))
            }
            HostBehaviour::Huge => Some(Ok((0..1_000).map(|at| format!("{prefix}{at}")).collect())),
            HostBehaviour::Forgetful => Some(Ok(Vec::new())),
            _ => None,
        };
        let searched = prefix.clone();
        self.answer("kv_list", || self.inner.kv_list(searched), faulty_reply)
    }

    fn blob_put(&self, bytes: Vec<u8>) -> BoxFuture<Result<String>> {
        let faulty_reply = |behaviour| match behaviour {
            HostBehaviour::Garbage => Some(Ok("../../etc/passwd".into())),
            HostBehaviour::Huge => Some(Ok("f".repeat(HUGE_BYTES))),
            _ => None,
        };
        self.answer("blob_put", || self.inner.blob_put(bytes), faulty_reply)
    }

    fn blob_get(&self, handle: String) -> BoxFuture<Result<Option<Vec<u8>>>> {
        let faulty_reply = |behaviour| match behaviour {
            HostBehaviour::Garbage => Some(Ok(Some(vec![0xff, 0xfe, 0]))),
            HostBehaviour::Huge => Some(Ok(Some(vec![b'x'; HUGE_BYTES]))),
            HostBehaviour::Forgetful => Some(Ok(None)),
            _ => None,
        };
        self.answer("blob_get", || self.inner.blob_get(handle), faulty_reply)
    }

    fn sleep(&self, milliseconds: u64) -> BoxFuture<()> {
        self.inner.sleep(milliseconds)
    }

    fn history(&self, request: HistoryRequest) -> BoxFuture<Result<HistoryPage>> {
        let endless = |text: String| {
            let entry = HistoryEntry { id: "again".into(), text, ..HistoryEntry::default() };
            Some(Ok(HistoryPage { entries: vec![entry], more: true }))
        };
        let faulty_reply = |behaviour| match behaviour {
            HostBehaviour::Garbage => endless("the same again".into()),
            HostBehaviour::Huge => endless(huge()),
            HostBehaviour::Forgetful => Some(Ok(HistoryPage::default())),
            _ => None,
        };
        self.answer("history", || self.inner.history(request), faulty_reply)
    }

    fn prompt_cache(&self, session: &SessionRef) -> PromptCache {
        match self.behaviour() {
            HostBehaviour::Garbage | HostBehaviour::Huge => PromptCache {
                last_touch_ms: Some(i64::MAX),
                expires_ms: Some(i64::MIN),
                read_tokens: u64::MAX,
                write_tokens: u64::MAX,
                broke: true,
            },
            _ => self.inner.prompt_cache(session),
        }
    }

    fn delegate_compact(
        &self,
        call: CallId,
        request: CompactRequest,
    ) -> BoxFuture<Result<Compaction>> {
        self.answer("delegate_compact", || self.inner.delegate_compact(call, request), |_| None)
    }

    fn spawn(&self, session: &SessionRef, task: BoxFuture<()>) {
        self.inner.spawn(session, task);
    }

    fn embed(&self, call: CallId, request: EmbedRequest) -> BoxFuture<Result<Embeddings>> {
        let of = |dimensions: usize, values: Vec<f32>| {
            Some(Ok(Embeddings { model: "faulty".into(), dimensions, values }))
        };
        let texts = request.texts.len();
        let faulty_reply = |behaviour| match behaviour {
            HostBehaviour::Garbage => of(2, vec![f32::NAN; 2 * texts]),
            HostBehaviour::Huge => of(HUGE_BYTES, vec![f32::MAX; HUGE_BYTES]),
            HostBehaviour::Forgetful => of(0, Vec::new()),
            _ => None,
        };
        self.answer("embed", || self.inner.embed(call, request), faulty_reply)
    }
}
