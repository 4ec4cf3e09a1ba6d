//! A scripted host for tests: services in memory, model answers from a queue.

mod background;
mod services;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::border::BoxFuture;
use crate::embedding::{EmbedRequest, Embeddings};
use crate::engine::capability;
use crate::error::{EngineError, ErrorKind, Result};
use crate::host::{
    Completion, CompletionRequest, HistoryEntry, HistoryPage, HistoryRequest, Host, LogLevel,
    PromptCache,
};
use crate::plan::Compaction;
use crate::request::CallId;

/// Initial time of the clock, in milliseconds since 1970.
const START_MS: i64 = 1_767_225_600_000;

/// Maximum number of entries in a page of the history, as documented at [`HistoryRequest::limit`].
const HISTORY_PAGE_ENTRIES: usize = 1_000;

/// All capabilities that need no setting.
const ALL_CAPABILITIES: [&str; 7] = [
    capability::COMPLETE,
    capability::KV,
    capability::BLOB,
    capability::HISTORY,
    capability::PROMPT_CACHE,
    capability::DELEGATE_COMPACT,
    capability::SPAWN,
];

/// Computes the vector of a text.
type TextEmbedder = Arc<dyn Fn(&str) -> Vec<f32> + Send + Sync>;

/// The model of the scripted embedder.
const EMBEDDER: &str = "scripted";

/// A line that an engine logged.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// The severity.
    pub level: LogLevel,
    /// The module, if known.
    pub target: String,
    /// The message.
    pub message: String,
    /// Its fields, or `null`.
    pub fields: Value,
}

/// A host in memory. Clones share their state, so a test can keep one and pass the other to the engine.
///
/// By default it has all capabilities but an embedder, and no model answers. Its clock is fixed until it is set or an
/// engine sleeps. Blob handles look like SHA-256 digests but are not.
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
    requests: Vec<CompletionRequest>,
    embedder: Option<TextEmbedder>,
    embed_requests: Vec<EmbedRequest>,
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
            requests: Vec::new(),
            embedder: None,
            embed_requests: Vec::new(),
            log: Vec::new(),
            progress: Vec::new(),
            cancelled: HashSet::new(),
            remaining_ms: HashMap::new(),
            history: Vec::new(),
            prompt_cache: PromptCache::default(),
            delegate: Ok(Compaction::Nothing {
                reason: "the scripted host has no compaction".into(),
            }),
            runs_tasks: false,
            tasks: Vec::new(),
            stopped: Arc::default(),
        }
    }
}

impl ScriptedHost {
    /// A host with all capabilities.
    pub fn new() -> Self {
        ScriptedHost::default()
    }

    /// The handle for an engine.
    pub fn handle(&self) -> Host {
        Host::from_services(Arc::new(self.clone()))
    }

    /// Sets the capabilities; services of missing ones fail with `Unsupported`.
    pub fn set_capabilities(&self, names: &[&str]) {
        self.state().capabilities = names.iter().map(|&name| name.into()).collect();
    }

    /// Makes the services of a capability fail. For models, see [`script`](Self::script).
    pub fn fail(&self, capability: &str, error: EngineError) {
        self.state().failing.insert(capability.into(), error);
    }

    /// Sets the clock, in milliseconds since 1970.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.state().now_ms = now_ms;
    }

    /// Queues a text as the next model answer.
    pub fn answer(&self, text: impl Into<String>) {
        let completion = Completion { text: text.into(), ..Completion::default() };
        self.script(Ok(completion));
    }

    /// Queues the next outcome of [`Host::complete`](crate::Host::complete).
    ///
    /// With an empty queue and no default answer, the result is [`ErrorKind::ModelMissing`].
    pub fn script(&self, outcome: Result<Completion>) {
        self.state().completions.push_back(outcome);
    }

    /// Sets the default answer of the model, used when the queue is empty.
    pub fn answer_always(&self, text: impl Into<String>) {
        let completion = Completion { text: text.into(), ..Completion::default() };
        self.state().default_answer = Some(completion);
    }

    /// The requests to the model so far.
    pub fn completion_requests(&self) -> Vec<CompletionRequest> {
        self.state().requests.clone()
    }

    /// Adds an embedder with its capability. It must return vectors of one length.
    pub fn embed_with(&self, embedder: impl Fn(&str) -> Vec<f32> + Send + Sync + 'static) {
        let mut state = self.state();
        state.embedder = Some(Arc::new(embedder));
        if !state.offers(capability::EMBED) {
            state.capabilities.push(capability::EMBED.into());
        }
    }

    /// The requests to the embedder so far.
    pub fn embed_requests(&self) -> Vec<EmbedRequest> {
        self.state().embed_requests.clone()
    }

    /// The lines logged so far.
    pub fn log_lines(&self) -> Vec<LogLine> {
        self.state().log.clone()
    }

    /// The progress reported so far: call, permille, note.
    pub fn progress_reports(&self) -> Vec<(CallId, u32, String)> {
        self.state().progress.clone()
    }

    /// The current content of the key-value store.
    pub fn kv(&self) -> BTreeMap<String, String> {
        self.state().kv.clone()
    }

    /// Cancels a call.
    pub fn cancel(&self, call: CallId) {
        self.state().cancelled.insert(call);
    }

    /// Sets the remaining time of a call.
    pub fn set_remaining_ms(&self, call: CallId, remaining_ms: u64) {
        self.state().remaining_ms.insert(call, remaining_ms);
    }

    /// Sets the entries of [`Host::history`](crate::Host::history), oldest first.
    pub fn set_history(&self, entries: Vec<HistoryEntry>) {
        self.state().history = entries;
    }

    /// Sets the state of the prompt cache, for every session.
    pub fn set_prompt_cache(&self, known: PromptCache) {
        self.state().prompt_cache = known;
    }

    /// Sets the result of [`Host::delegate_compact`](crate::Host::delegate_compact).
    pub fn set_delegate(&self, outcome: Result<Compaction>) {
        self.state().delegate = outcome;
    }

    /// Runs tasks that are spawned from now on, each on its own thread.
    ///
    /// By default tasks are kept until [`run_tasks`](Self::run_tasks).
    pub fn run_tasks_on_threads(&self) {
        self.state().runs_tasks = true;
    }

    /// Runs the kept tasks to completion, in order, and returns their number.
    pub fn run_tasks(&self) -> usize {
        let tasks = std::mem::take(&mut self.state().tasks);
        let count = tasks.len();
        tasks.into_iter().for_each(super::block_on);
        count
    }

    /// Cancels all tasks: kept ones are dropped at once, running ones after their current poll.
    pub fn stop_tasks(&self) {
        let dropped = {
            let mut state = self.state();
            // Never reset: a stopped host stays stopped, like a disposed engine.
            state.stopped.store(true, Ordering::Release);
            std::mem::take(&mut state.tasks)
        };
        // Outside the lock: the drop of a task may call services.
        drop(dropped);
    }

    fn state(&self) -> MutexGuard<'_, ScriptedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result of `work`, if the host has the capability.
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
                format!("the scripted host does not have the capability {capability}"),
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
        // Recorded even if it fails, for assertions on unexpected requests.
        self.requests.push(request);
        let next = if self.offers(capability::COMPLETE) {
            self.completions.pop_front().or_else(|| self.default_answer.clone().map(Ok))
        } else {
            None
        };
        let missing = || EngineError::new(ErrorKind::ModelMissing, "no scripted answer is left");
        next.unwrap_or_else(|| Err(missing()))
    }

    fn embed(&mut self, request: EmbedRequest) -> Result<Embeddings> {
        let missing = || EngineError::new(ErrorKind::ModelMissing, "no embedder is scripted");
        let embedder = self.embedder.clone().ok_or_else(missing)?;
        let vectors: Vec<Vec<f32>> = request.texts.iter().map(|text| embedder(text)).collect();
        self.embed_requests.push(request);
        Ok(Embeddings {
            model: EMBEDDER.into(),
            dimensions: vectors.first().map_or(0, Vec::len),
            values: vectors.concat(),
        })
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
