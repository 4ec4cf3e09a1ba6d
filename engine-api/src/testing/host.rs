//! A host that does what a test told it before: services out of memory, answers out of a queue.

mod background;
mod services;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::border::BoxFuture;
use crate::engine::capability;
use crate::error::{EngineError, ErrorKind, Result};
use crate::host::{
    Completion, CompletionRequest, HistoryEntry, HistoryPage, HistoryRequest, Host, LogLevel,
    PromptCache,
};
use crate::plan::Compaction;
use crate::request::CallId;

/// What the clock shows at first, in milliseconds since 1970.
const START_MS: i64 = 1_767_225_600_000;

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
    state: Arc<Mutex<ScriptedState>>,
}

struct ScriptedState {
    capabilities: Vec<String>,
    failing: HashMap<String, EngineError>,
    now_ms: i64,
    elapsed_ms: u64,
    kv: BTreeMap<String, String>,
    blobs: HashMap<String, Vec<u8>>,
    completions: VecDeque<Result<Completion>>,
    default_answer: Option<Completion>,
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

impl Default for ScriptedState {
    fn default() -> Self {
        ScriptedState {
            capabilities: ALL_CAPABILITIES.map(String::from).to_vec(),
            failing: HashMap::new(),
            now_ms: START_MS,
            elapsed_ms: 0,
            kv: BTreeMap::new(),
            blobs: HashMap::new(),
            completions: VecDeque::new(),
            default_answer: None,
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

    /// The handle that an engine would be given.
    pub fn handle(&self) -> Host {
        Host::from_services(Arc::new(self.clone()))
    }

    /// Sets what the host can do; services behind what is missing refuse.
    pub fn set_capabilities(&self, names: &[&str]) {
        self.state().capabilities = names.iter().map(|&name| name.into()).collect();
    }

    /// Fails every request to the services behind a capability. For models, see [`script`](Self::script).
    pub fn fail(&self, capability: &str, error: EngineError) {
        self.state().failing.insert(capability.into(), error);
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
        self.state().default_answer = Some(completion);
    }

    /// What engines asked the model so far.
    pub fn completion_requests(&self) -> Vec<CompletionRequest> {
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

    fn state(&self) -> MutexGuard<'_, ScriptedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers at once what `work` makes of the state, if the host has the capability.
    fn serve<T: Send + 'static>(
        &self,
        capability: &str,
        work: impl FnOnce(&mut ScriptedState) -> Result<T>,
    ) -> BoxFuture<Result<T>> {
        let mut state = self.state();
        let answer = match (state.offers(capability), state.failing.get(capability)) {
            (true, None) => work(&mut state),
            (true, Some(error)) => Err(error.clone()),
            (false, _) => Err(EngineError::new(
                ErrorKind::Unsupported,
                format!("the scripted host was told not to offer {capability}"),
            )),
        };
        Box::pin(std::future::ready(answer))
    }
}

impl ScriptedState {
    fn offers(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|name| name == capability)
    }

    fn complete(&mut self, request: CompletionRequest) -> Result<Completion> {
        self.asked.push(request);
        let next = match self.offers(capability::COMPLETE) {
            true => self.completions.pop_front().or_else(|| self.default_answer.clone().map(Ok)),
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

impl std::fmt::Debug for ScriptedHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScriptedHost")
    }
}
