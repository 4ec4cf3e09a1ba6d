//! The host's services for one engine: the safe side of what crosses the plugin boundary.

use std::sync::Arc;
use std::time::Instant;

use ctxhost_engine_api::border::{BoxFuture, HostServices};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::*;
use serde_json::{Value, json};

use super::background::{self, BackgroundTasks};
use super::calls::CallTable;
use super::embedding;
use super::environment::EngineEnvironment;
use super::model_calls::ModelCallQuota;
use super::quotas::{LogDecision, LogQuota, StoreQuota};
use super::spec::EngineSpec;
use super::store::StoreError;

/// The services of one engine.
pub(super) struct EngineServices {
    id: String,
    environment: EngineEnvironment,
    store: Arc<StoreQuota>,
    log: LogQuota,
    calls: Arc<CallTable>,
    model_calls: ModelCallQuota,
    tasks: BackgroundTasks,
    started: Instant,
}

impl EngineServices {
    pub(super) fn new(
        id: &str,
        environment: &EngineEnvironment,
        spec: &EngineSpec,
        calls: Arc<CallTable>,
    ) -> Self {
        EngineServices {
            id: id.into(),
            environment: environment.clone(),
            store: Arc::new(StoreQuota::new(id, environment, &spec.quotas)),
            log: LogQuota::new(&spec.quotas),
            model_calls: ModelCallQuota::new(spec, calls.clone()),
            calls,
            tasks: BackgroundTasks::default(),
            started: Instant::now(),
        }
    }

    /// Whether the quota admits a log line of so many bytes; logs how many it dropped.
    fn admit_log_line(&self, bytes: usize) -> bool {
        let engine = self.id.as_str();
        match self.log.check(bytes) {
            LogDecision::Write { dropped_before: 0 } => true,
            LogDecision::Write { dropped_before } => {
                tracing::warn!(engine, "{dropped_before} log lines of the engine were dropped");
                true
            }
            LogDecision::DropFirst => {
                let limits = "plugins.quotas.log_lines_per_minute and log_kib_per_minute";
                tracing::warn!(
                    engine,
                    "the engine exceeds its log quota; further lines are dropped ({limits})"
                );
                false
            }
            LogDecision::Drop => false,
        }
    }

    fn with_store<T: Send + 'static>(
        &self,
        work: impl FnOnce(&StoreQuota) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<Result<T>> {
        let store = self.store.clone();
        Box::pin(async move {
            // Inside the future: a call whose future is dropped unpolled must not change the store.
            work(&store).map_err(|error| {
                let reply = EngineError::new(ErrorKind::Store, error.to_string());
                match error {
                    StoreError::Full { more, used, limit } => {
                        let full = json!({ "more": more, "used": used, "limit": limit });
                        reply.with_detail(json!({ "full": full }))
                    }
                    _ => reply,
                }
            })
        })
    }
}

impl HostServices for EngineServices {
    fn info(&self) -> HostInfo {
        HostInfo {
            api_version: ctxhost_engine_api::border::EngineMetadata::current().api,
            host_version: env!("CARGO_PKG_VERSION").into(),
            capabilities: self.environment.capabilities(),
        }
    }

    fn log(&self, level: LogLevel, target: &str, message: &str, fields: &Value) {
        let engine = self.id.as_str();
        let is_empty = fields.is_null() || fields.as_object().is_some_and(|map| map.is_empty());
        let fields = (!is_empty).then(|| fields.to_string());
        let bytes = target.len() + message.len() + fields.as_ref().map_or(0, String::len);
        if !self.admit_log_line(bytes) {
            return;
        }
        match level {
            LogLevel::Error => tracing::error!(engine, target, fields, "{message}"),
            LogLevel::Warn => tracing::warn!(engine, target, fields, "{message}"),
            LogLevel::Info => tracing::info!(engine, target, fields, "{message}"),
            LogLevel::Debug => tracing::debug!(engine, target, fields, "{message}"),
            LogLevel::Trace => tracing::trace!(engine, target, fields, "{message}"),
        }
    }

    fn now_ms(&self) -> i64 {
        self.environment.clock.now_ms()
    }

    fn monotonic_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
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
        // Notes of progress go into the same log, so they count against the same quota.
        if self.admit_log_line(note.len()) {
            tracing::debug!(engine = self.id, permille, note, "progress");
        }
    }

    fn complete(&self, call: CallId, request: CompletionRequest) -> BoxFuture<Result<Completion>> {
        let Some(completer) = &self.environment.completer else {
            let message = "no model is configured for summaries; set [summariser] in ctxhost.toml";
            return failed(EngineError::new(ErrorKind::ModelMissing, message));
        };
        match self.model_calls.check_model(&request.model) {
            Ok(()) => self.model_calls.run(call, || Ok(completer.complete(request))),
            Err(error) => failed(error),
        }
    }

    fn kv_get(&self, key: String) -> BoxFuture<Result<Option<String>>> {
        self.with_store(move |store| store.values.get(&key))
    }

    fn kv_put(&self, key: String, value: String) -> BoxFuture<Result<()>> {
        self.with_store(move |store| store.put(&key, &value))
    }

    fn kv_delete(&self, key: String) -> BoxFuture<Result<()>> {
        self.with_store(move |store| store.values.delete(&key))
    }

    fn kv_list(&self, prefix: String) -> BoxFuture<Result<Vec<String>>> {
        self.with_store(move |store| store.values.list(&prefix))
    }

    fn blob_put(&self, bytes: Vec<u8>) -> BoxFuture<Result<String>> {
        self.with_store(move |store| store.put_blob(&bytes))
    }

    fn blob_get(&self, handle: String) -> BoxFuture<Result<Option<Vec<u8>>>> {
        self.with_store(move |store| store.get_blob(&handle))
    }

    fn sleep(&self, milliseconds: u64) -> BoxFuture<()> {
        background::sleep(milliseconds)
    }

    fn history(&self, request: HistoryRequest) -> BoxFuture<Result<HistoryPage>> {
        let sessions = self.environment.sessions.clone();
        Box::pin(async move {
            let missing =
                || EngineError::new(ErrorKind::Unsupported, "this host stores no sessions");
            Ok(sessions.ok_or_else(missing)?.history(&request))
        })
    }

    fn prompt_cache(&self, session: &SessionRef) -> PromptCache {
        let sessions = self.environment.sessions.as_ref();
        sessions.map(|sessions| sessions.prompt_cache(session)).unwrap_or_default()
    }

    fn delegate_compact(
        &self,
        call: CallId,
        request: CompactRequest,
    ) -> BoxFuture<Result<Compaction>> {
        let view = self.calls.view(call);
        // Before the await: afterwards the call may have ended, and its view with it.
        let delegate = self.environment.delegate();
        self.model_calls.run(call, || {
            let view = view.ok_or_else(|| EngineError::failed("the call has no transcript"))?;
            let missing = || EngineError::new(ErrorKind::Unsupported, "no engine to delegate to");
            Ok(delegate.ok_or_else(missing)?.compact_for(view, request))
        })
    }

    fn spawn(&self, session: &SessionRef, task: BoxFuture<()>) {
        if !self.tasks.spawn(task) {
            let (engine, session) = (self.id.as_str(), session.id.as_str());
            tracing::warn!(
                engine,
                session,
                "spawn refused: it was called on a thread that the engine started itself"
            );
        }
    }

    fn embed(&self, call: CallId, request: EmbedRequest) -> BoxFuture<Result<Embeddings>> {
        self.model_calls.run(call, || self.start_embedding(call, request))
    }
}

impl EngineServices {
    /// Calls the embedder, within half of the time that the call has left: the engine has to answer without vectors
    /// then.
    fn start_embedding(
        &self,
        call: CallId,
        request: EmbedRequest,
    ) -> Result<BoxFuture<Result<Embeddings>>> {
        let Some(embedder) = &self.environment.embedder else {
            let message = "no embedder is configured; set [embedder] in ctxhost.toml";
            return Err(EngineError::new(ErrorKind::ModelMissing, message));
        };
        let request = embedding::prepare(request)?;
        let left = self.calls.deadline(call);
        let left = left.map(|deadline| deadline.saturating_duration_since(Instant::now()) / 2);
        let texts = request.texts.len();
        let vectors = embedder.embed(request, left);
        Ok(Box::pin(async move { embedding::check(vectors.await?, texts) }))
    }

    /// Logs how many lines were dropped since the last time.
    pub(crate) fn log_dropped_lines(&self) {
        let dropped = self.log.take_dropped();
        if dropped > 0 {
            tracing::warn!(engine = self.id, "{dropped} log lines of the engine were dropped");
        }
    }
}

fn failed<T: Send + 'static>(error: EngineError) -> BoxFuture<Result<T>> {
    Box::pin(std::future::ready(Err(error)))
}

impl Drop for EngineServices {
    fn drop(&mut self) {
        self.log_dropped_lines();
    }
}
