//! A host that does what a test told it before: services out of memory, answers out of a queue.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::future::Future;
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::Value;

use super::unpark_waker;
use crate::border::{BoxFuture, HostServices};
use crate::engine::capability;
use crate::error::{EngineError, ErrorKind, Result};
use crate::host::{
    Completion, CompletionRequest, HistoryEntry, HistoryPage, HistoryRequest, HostInfo, LogLevel,
    PromptCache,
};
use crate::plan::Compaction;
use crate::request::{CallId, CompactRequest, SessionRef};
use crate::transcript::tokens;

/// What the clock shows at first, in milliseconds since 1970.
const START_MS: i64 = 1_767_225_600_000;

/// No sleep takes longer than this in real time, in milliseconds: tests should not wait. The clock
/// moves by the whole time asked for.
const LONGEST_SLEEP_MS: u64 = 5;

/// How many entries a page of the history holds at most, as [`HistoryRequest::limit`] promises.
const HISTORY_PAGE_ENTRIES: usize = 1_000;

/// Everything a host can do.
const ALL_CAPABILITIES: [&str; 7] = [
    capability::COMPLETE,
    capability::KV,
    capability::BLOB,
    capability::HISTORY,
    capability::PROMPT_CACHE,
    capability::DELEGATE_COMPACT,
    capability::SPAWN,
];

/// A line that an engine logged.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// How important.
    pub level: LogLevel,
    /// The module it comes from, as far as it is known.
    pub target: String,
    /// The line.
    pub message: String,
    /// Its fields; `null` where there are none.
    pub fields: Value,
}

/// A host in memory. Clones share everything, so that a test keeps one and hands the other out.
///
/// It can do everything, has no model answer in store, and its clock stands still until it is set
/// or an engine sleeps. Handles of blobs look like a SHA-256 and are none.
#[derive(Clone, Default)]
pub struct ScriptedHost {
    state: Arc<Mutex<State>>,
}

struct State {
    capabilities: Vec<String>,
    now_ms: i64,
    elapsed_ms: u64,
    kv: BTreeMap<String, String>,
    blobs: HashMap<String, Vec<u8>>,
    completions: VecDeque<Result<Completion>>,
    standing_answer: Option<Completion>,
    asked: Vec<CompletionRequest>,
    log: Vec<LogLine>,
    progress: Vec<(CallId, u32, String)>,
    cancelled: HashSet<CallId>,
    remaining_ms: HashMap<CallId, u64>,
    history: Vec<HistoryEntry>,
    prompt_cache: PromptCache,
    delegate: Result<Compaction>,
    runs_tasks: bool,
    tasks: Vec<BoxFuture<()>>,
    stopped: Arc<AtomicBool>,
}

impl Default for State {
    fn default() -> Self {
        State {
            capabilities: ALL_CAPABILITIES.map(String::from).to_vec(),
            now_ms: START_MS,
            elapsed_ms: 0,
            kv: BTreeMap::new(),
            blobs: HashMap::new(),
            completions: VecDeque::new(),
            standing_answer: None,
            asked: Vec::new(),
            log: Vec::new(),
            progress: Vec::new(),
            cancelled: HashSet::new(),
            remaining_ms: HashMap::new(),
            history: Vec::new(),
            prompt_cache: PromptCache::default(),
            delegate: Ok(Compaction::Nothing { reason: "the scripted host has no plan".into() }),
            runs_tasks: false,
            tasks: Vec::new(),
            stopped: Arc::default(),
        }
    }
}

impl ScriptedHost {
    /// A host that can do everything.
    pub fn new() -> Self {
        ScriptedHost::default()
    }

    /// Sets what the host can do; services behind what is missing refuse.
    pub fn set_capabilities(&self, names: &[&str]) {
        self.state().capabilities = names.iter().map(|&name| name.into()).collect();
    }

    /// Sets the clock, in milliseconds since 1970.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.state().now_ms = now_ms;
    }

    /// Queues a text as the model's next answer.
    pub fn answer(&self, text: impl Into<String>) {
        let completion = Completion { text: text.into(), ..Completion::default() };
        self.script(Ok(completion));
    }

    /// Queues the next outcome of [`Host::complete`](crate::Host::complete).
    ///
    /// With none left, the answer is [`ErrorKind::ModelMissing`].
    pub fn script(&self, outcome: Result<Completion>) {
        self.state().completions.push_back(outcome);
    }

    /// What the model answers whenever the queue is empty.
    pub fn answer_always(&self, text: impl Into<String>) {
        let completion = Completion { text: text.into(), ..Completion::default() };
        self.state().standing_answer = Some(completion);
    }

    /// What engines asked the model so far.
    pub fn asked(&self) -> Vec<CompletionRequest> {
        self.state().asked.clone()
    }

    /// The lines logged so far.
    pub fn log_lines(&self) -> Vec<LogLine> {
        self.state().log.clone()
    }

    /// The progress reported so far: call, permille, note.
    pub fn progress_reports(&self) -> Vec<(CallId, u32, String)> {
        self.state().progress.clone()
    }

    /// The key-value store as it is now.
    pub fn kv(&self) -> BTreeMap<String, String> {
        self.state().kv.clone()
    }

    /// Gives a call up.
    pub fn cancel(&self, call: CallId) {
        self.state().cancelled.insert(call);
    }

    /// Gives a call a deadline.
    pub fn set_remaining_ms(&self, call: CallId, remaining_ms: u64) {
        self.state().remaining_ms.insert(call, remaining_ms);
    }

    /// Sets what [`Host::history`](crate::Host::history) pages through, oldest first.
    pub fn set_history(&self, entries: Vec<HistoryEntry>) {
        self.state().history = entries;
    }

    /// Sets what is known of the prompt cache, for every session.
    pub fn set_prompt_cache(&self, known: PromptCache) {
        self.state().prompt_cache = known;
    }

    /// Sets what [`Host::delegate_compact`](crate::Host::delegate_compact) answers.
    pub fn set_delegate(&self, outcome: Result<Compaction>) {
        self.state().delegate = outcome;
    }

    /// Runs every task that is spawned from now on, each on a thread of its own.
    ///
    /// Without this, tasks are kept until [`run_tasks`](Self::run_tasks).
    pub fn run_tasks_on_threads(&self) {
        self.state().runs_tasks = true;
    }

    /// Runs the kept tasks to their end, in order, and answers how many there were.
    pub fn run_tasks(&self) -> usize {
        let tasks = std::mem::take(&mut self.state().tasks);
        let count = tasks.len();
        tasks.into_iter().for_each(super::block_on);
        count
    }

    /// Cancels every task: kept ones are dropped, running ones after the poll they are in.
    pub fn stop_tasks(&self) {
        let dropped = {
            let mut state = self.state();
            state.stopped.store(true, Ordering::Release);
            std::mem::take(&mut state.tasks)
        };
        // Outside the lock: the drop of a task may call services.
        drop(dropped);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers at once what `work` makes of the state, if the host has the capability.
    fn serve<T: Send + 'static>(
        &self,
        capability: &str,
        work: impl FnOnce(&mut State) -> Result<T>,
    ) -> BoxFuture<Result<T>> {
        let mut state = self.state();
        let answer = match state.offers(capability) {
            true => work(&mut state),
            false => Err(EngineError::new(
                ErrorKind::Unsupported,
                format!("the scripted host was told not to offer {capability}"),
            )),
        };
        Box::pin(std::future::ready(answer))
    }
}

impl State {
    fn offers(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|name| name == capability)
    }

    fn complete(&mut self, request: CompletionRequest) -> Result<Completion> {
        self.asked.push(request);
        let next = match self.offers(capability::COMPLETE) {
            true => self.completions.pop_front().or_else(|| self.standing_answer.clone().map(Ok)),
            false => None,
        };
        let missing = || EngineError::new(ErrorKind::ModelMissing, "no scripted answer is left");
        next.unwrap_or_else(|| Err(missing()))
    }

    fn page(&self, request: &HistoryRequest) -> HistoryPage {
        let after = self.history.iter().position(|entry| entry.id == request.after_id);
        let start = after.map_or(0, |at| at + 1);
        let limit = usize::try_from(request.limit).unwrap_or(usize::MAX).min(HISTORY_PAGE_ENTRIES);
        let rest = self.history.iter().skip(start);
        let entries: Vec<HistoryEntry> = rest.take(limit).cloned().collect();
        HistoryPage { more: start + entries.len() < self.history.len(), entries }
    }
}

impl HostServices for ScriptedHost {
    fn info(&self) -> HostInfo {
        HostInfo {
            api_version: env!("CARGO_PKG_VERSION").into(),
            host_version: "scripted".into(),
            capabilities: self.state().capabilities.clone(),
        }
    }

    fn log(&self, level: LogLevel, target: &str, message: &str, fields: &Value) {
        let line = LogLine {
            level,
            target: target.into(),
            message: message.into(),
            fields: fields.clone(),
        };
        self.state().log.push(line);
    }

    fn now_ms(&self) -> i64 {
        self.state().now_ms
    }

    fn monotonic_ns(&self) -> u64 {
        self.state().elapsed_ms.saturating_mul(1_000_000)
    }

    fn count_tokens(&self, _model: &str, text: &str) -> u64 {
        tokens::estimate(text)
    }

    fn is_cancelled(&self, call: CallId) -> bool {
        self.state().cancelled.contains(&call)
    }

    fn remaining_ms(&self, call: CallId) -> Option<u64> {
        self.state().remaining_ms.get(&call).copied()
    }

    fn progress(&self, call: CallId, permille: u32, note: &str) {
        self.state().progress.push((call, permille, note.into()));
    }

    fn complete(&self, _call: CallId, request: CompletionRequest) -> BoxFuture<Result<Completion>> {
        Box::pin(std::future::ready(self.state().complete(request)))
    }

    fn kv_get(&self, key: String) -> BoxFuture<Result<Option<String>>> {
        self.serve(capability::KV, |state| Ok(state.kv.get(&key).cloned()))
    }

    fn kv_put(&self, key: String, value: String) -> BoxFuture<Result<()>> {
        self.serve(capability::KV, |state| {
            state.kv.insert(key, value);
            Ok(())
        })
    }

    fn kv_delete(&self, key: String) -> BoxFuture<Result<()>> {
        self.serve(capability::KV, |state| {
            state.kv.remove(&key);
            Ok(())
        })
    }

    fn kv_list(&self, prefix: String) -> BoxFuture<Result<Vec<String>>> {
        self.serve(capability::KV, |state| {
            Ok(state.kv.keys().filter(|key| key.starts_with(&prefix)).cloned().collect())
        })
    }

    fn blob_put(&self, bytes: Vec<u8>) -> BoxFuture<Result<String>> {
        self.serve(capability::BLOB, |state| {
            let handle = blob_handle(&bytes);
            state.blobs.insert(handle.clone(), bytes);
            Ok(handle)
        })
    }

    fn blob_get(&self, handle: String) -> BoxFuture<Result<Option<Vec<u8>>>> {
        self.serve(capability::BLOB, |state| Ok(state.blobs.get(&handle).cloned()))
    }

    fn sleep(&self, milliseconds: u64) -> BoxFuture<()> {
        let mut state = self.state();
        state.elapsed_ms = state.elapsed_ms.saturating_add(milliseconds);
        let forward = i64::try_from(milliseconds).unwrap_or(i64::MAX);
        state.now_ms = state.now_ms.saturating_add(forward);
        Box::pin(Nap { milliseconds: milliseconds.min(LONGEST_SLEEP_MS), alarm: None })
    }

    fn history(&self, request: HistoryRequest) -> BoxFuture<Result<HistoryPage>> {
        self.serve(capability::HISTORY, |state| Ok(state.page(&request)))
    }

    fn prompt_cache(&self, _session: &SessionRef) -> PromptCache {
        self.state().prompt_cache.clone()
    }

    fn delegate_compact(
        &self,
        _call: CallId,
        _request: CompactRequest,
    ) -> BoxFuture<Result<Compaction>> {
        self.serve(capability::DELEGATE_COMPACT, |state| state.delegate.clone())
    }

    fn spawn(&self, _session: &SessionRef, task: BoxFuture<()>) {
        let mut state = self.state();
        if !state.runs_tasks {
            state.tasks.push(task);
            return;
        }
        let stopped = state.stopped.clone();
        drop(state);
        std::thread::spawn(move || run_until_stopped(task, &stopped));
    }
}

impl std::fmt::Debug for ScriptedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptedHost")
    }
}

/// 64 hex digits that depend on nothing but the bytes.
fn blob_handle(bytes: &[u8]) -> String {
    let quarter = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        (salt, bytes).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(quarter).collect()
}

fn run_until_stopped(mut task: BoxFuture<()>, stopped: &AtomicBool) {
    let waker = unpark_waker();
    while !stopped.load(Ordering::Acquire) {
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return;
        }
        // Looks up now and then, because nobody wakes a task that is to be stopped.
        std::thread::park_timeout(Duration::from_millis(LONGEST_SLEEP_MS));
    }
}

/// Ends when a thread of its own has slept.
struct Nap {
    milliseconds: u64,
    alarm: Option<Arc<Mutex<Alarm>>>,
}

#[derive(Default)]
struct Alarm {
    rung: bool,
    /// Whoever polled last.
    sleeper: Option<Waker>,
}

impl Alarm {
    fn set(milliseconds: u64) -> Arc<Mutex<Alarm>> {
        let alarm = Arc::new(Mutex::new(Alarm::default()));
        let bell = alarm.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(milliseconds));
            let mut alarm = bell.lock().unwrap_or_else(PoisonError::into_inner);
            alarm.rung = true;
            alarm.sleeper.take().into_iter().for_each(Waker::wake);
        });
        alarm
    }
}

impl Future for Nap {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let milliseconds = self.milliseconds;
        let alarm = self.alarm.get_or_insert_with(|| Alarm::set(milliseconds));
        let mut alarm = alarm.lock().unwrap_or_else(PoisonError::into_inner);
        if alarm.rung {
            return Poll::Ready(());
        }
        alarm.sleeper = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block_on;

    #[test]
    fn answers_come_in_order_and_run_out() {
        let host = ScriptedHost::new();
        host.answer("one");
        host.script(Err(EngineError::new(ErrorKind::ModelTimeout, "too slow")));
        let ask = || block_on(host.complete(CallId(1), CompletionRequest::default()));
        assert_eq!(ask().unwrap().text, "one");
        assert_eq!(ask().unwrap_err().kind, ErrorKind::ModelTimeout);
        assert_eq!(ask().unwrap_err().kind, ErrorKind::ModelMissing);
        host.answer_always("again");
        let ask = || block_on(host.complete(CallId(1), CompletionRequest::default()));
        assert_eq!((ask().unwrap().text, ask().unwrap().text), ("again".into(), "again".into()));
        assert_eq!(host.asked().len(), 5);
    }

    #[test]
    fn stores_list_and_forget() {
        let host = ScriptedHost::new();
        for key in ["a/2", "b", "a/1"] {
            block_on(host.kv_put(key.into(), key.into())).unwrap();
        }
        assert_eq!(block_on(host.kv_list("a/".into())).unwrap(), ["a/1", "a/2"]);
        block_on(host.kv_delete("a/1".into())).unwrap();
        assert_eq!(block_on(host.kv_get("a/1".into())).unwrap(), None);
        let handle = block_on(host.blob_put(vec![1, 2])).unwrap();
        assert_eq!(handle.len(), 64);
        assert_eq!(block_on(host.blob_get(handle)).unwrap(), Some(vec![1, 2]));
    }

    #[test]
    fn refuses_what_it_was_told_not_to_offer() {
        let host = ScriptedHost::new();
        host.answer("never heard");
        host.set_capabilities(&[]);
        let asked = block_on(host.complete(CallId(1), CompletionRequest::default()));
        assert_eq!(asked.unwrap_err().kind, ErrorKind::ModelMissing);
        let read = block_on(host.kv_get("k".into()));
        assert_eq!(read.unwrap_err().kind, ErrorKind::Unsupported);
    }

    #[test]
    fn a_long_sleep_moves_the_clock_and_is_short() {
        let host = ScriptedHost::new();
        host.set_now_ms(1_000);
        let begun = std::time::Instant::now();
        block_on(host.sleep(3_600_000));
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!((host.now_ms(), host.monotonic_ns()), (3_601_000, 3_600_000_000_000));
    }

    #[test]
    fn history_is_paged() {
        let host = ScriptedHost::new();
        let entry = |id: u32| HistoryEntry { id: id.to_string(), ..HistoryEntry::default() };
        host.set_history((1..=5).map(entry).collect());
        let page = |after: &str| {
            let after_id = after.to_owned();
            let request = HistoryRequest { after_id, limit: 2, ..HistoryRequest::default() };
            let page = block_on(host.history(request)).unwrap();
            (page.entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>(), page.more)
        };
        assert_eq!(page(""), (vec!["1".into(), "2".into()], true));
        assert_eq!(page("4"), (vec!["5".into()], false));
    }

    #[test]
    fn tasks_are_kept_run_or_stopped() {
        let host = ScriptedHost::new();
        let ran = Arc::new(AtomicBool::new(false));
        let mark = ran.clone();
        let session = SessionRef::default();
        host.spawn(&session, Box::pin(async move { mark.store(true, Ordering::Release) }));
        assert!(!ran.load(Ordering::Acquire));
        assert_eq!(host.run_tasks(), 1);
        assert!(ran.load(Ordering::Acquire));

        let held = Arc::new(());
        let hold = held.clone();
        host.run_tasks_on_threads();
        host.spawn(
            &session,
            Box::pin(async move {
                let _hold = hold;
                std::future::pending::<()>().await;
            }),
        );
        host.stop_tasks();
        let begun = std::time::Instant::now();
        while Arc::strong_count(&held) > 1 && begun.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
