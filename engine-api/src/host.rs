//! The services of the host for an engine: model, storage, token counts, history, clock, log.

use std::future::Future;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::abi::guard;
use crate::abi::host::{HostObj, from_abi};
use crate::abi::json::{AbiCodec, from_json, to_json};
use crate::embedding::{EmbedRequest, Embeddings};
use crate::error::Result;
use crate::plan::Compaction;
use crate::request::{CallId, CompactRequest, SessionRef};

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something failed.
    Error = 1,
    /// Something is wrong but handled.
    Warn = 2,
    /// Normal operation.
    Info = 3,
    /// Details for debugging.
    Debug = 4,
    /// Everything.
    Trace = 5,
}

/// Version and capabilities of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostInfo {
    /// Version of the engine API the host was built with.
    pub api_version: String,
    /// Version of the host.
    pub host_version: String,
    /// The capabilities; see [`capability`](crate::capability).
    pub capabilities: Vec<String>,
}

/// The purpose of a completion. The host selects model, limits and policy by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A summary for a compaction.
    #[default]
    Summary,
    /// Notes written before a compaction.
    MemoryFlush,
    /// An evaluation of the engine's own output.
    Quality,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// A request for text from a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompletionRequest {
    /// The purpose.
    pub purpose: Purpose,
    /// The name of a model that the engine's own config names; empty for the one configured for the purpose.
    pub model: String,
    /// Instructions.
    pub system: String,
    /// The user message.
    pub prompt: String,
    /// Upper limit of the answer, in provider tokens; 0 for the model's default.
    pub max_output_tokens: u64,
    /// 0.0 … 2.0; `None` for the model's default.
    pub temperature: Option<f64>,
    /// The id of the session whose last request [`continuation`](Self::continuation) extends.
    pub session: String,
    /// A shorter prompt that extends the last request of the session. If the selected model is that of the
    /// session, the host appends this text to the cached request and omits `system` and `prompt`. Empty for
    /// none; the host may ignore it.
    pub continuation: String,
}

/// The text that a model returned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Completion {
    /// The text, never blank.
    pub text: String,
    /// The name of the model.
    pub model: String,
    /// Tokens of the prompt as counted by the provider; 0 if unknown.
    pub input_tokens: u64,
    /// Tokens of the answer as counted by the provider; 0 if unknown.
    pub output_tokens: u64,
}

/// A request for entries of the session, including those outside of the live transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryRequest {
    /// The session.
    pub session: SessionRef,
    /// Start after this entry; empty for the beginning.
    pub after_id: String,
    /// The maximum number of entries; the host limits it to 1,000.
    pub limit: u64,
}

/// One entry of the history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryEntry {
    /// The id in the session file.
    pub id: String,
    /// The role's name.
    pub role: String,
    /// Its text.
    pub text: String,
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Its tokens, without margin.
    pub tokens: u64,
}

/// A page of the history, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryPage {
    /// The entries.
    pub entries: Vec<HistoryEntry>,
    /// Whether more follow.
    pub more: bool,
}

/// The state of the provider's prompt cache for a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptCache {
    /// When the last successful request began, in milliseconds since 1970; `None` before the first.
    pub last_touch_ms: Option<i64>,
    /// When the cached prefix expires, in milliseconds since 1970; `None` when unknown.
    pub expires_ms: Option<i64>,
    /// Provider tokens the last request read from the cache.
    pub read_tokens: u64,
    /// Provider tokens the last request wrote to the cache.
    pub write_tokens: u64,
    /// Whether the last request lost a prefix that had been cached.
    pub broke: bool,
}

/// A handle to the host. Cloning is cheap; threads and tasks of the engine may keep one.
///
/// After [`dispose`](crate::ContextEngine::dispose) every service answers
/// [`ErrorKind::Dead`](crate::ErrorKind::Dead).
#[derive(Clone)]
pub struct Host {
    object: HostObj,
}

impl Host {
    pub(crate) fn new(object: HostObj) -> Self {
        Host { object }
    }

    /// A handle to services in the same process, for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn from_services(services: std::sync::Arc<dyn crate::border::HostServices>) -> Self {
        Host::new(crate::abi::services::RevocableServices::new(services).into_object())
    }

    /// Version and capabilities of the host.
    pub fn info(&self) -> HostInfo {
        // Revoked services answer an empty string: no capabilities.
        from_json(self.object.0.host_info().as_str()).unwrap_or_default()
    }

    /// Writes a line into the host's log, under the engine's name.
    pub fn log(&self, level: LogLevel, message: &str) {
        self.log_fields(level, message, &Value::Null);
    }

    /// Writes a line with fields into the host's log.
    pub fn log_fields(&self, level: LogLevel, message: &str, fields: &Value) {
        let fields = if fields.is_null() { String::new() } else { fields.to_string() };
        let fields = fields.as_str().into();
        // Always the same target: a library cannot know the module of its caller. Tracing events
        // have theirs in the fields.
        self.object.0.log(level as u8, "engine".into(), message.into(), fields);
    }

    /// The host's clock, in milliseconds since 1970. Recorded time in a replay.
    pub fn now_ms(&self) -> i64 {
        self.object.0.now_ms()
    }

    /// A monotonic clock, in nanoseconds.
    pub fn monotonic_ns(&self) -> u64 {
        self.object.0.monotonic_ns()
    }

    /// Counts the tokens of a text as the host counts entries, without margin. An empty model is the session's.
    pub fn count_tokens(&self, model: &str, text: &str) -> u64 {
        self.object.0.count_tokens(model.into(), text.into())
    }

    /// Whether the host has cancelled the call. Long computations must poll it.
    pub fn is_cancelled(&self, call: CallId) -> bool {
        self.object.0.is_cancelled(call.0)
    }

    /// Milliseconds until the deadline of the call; `None` for a call without one.
    pub fn remaining_ms(&self, call: CallId) -> Option<u64> {
        // Negative stands for no deadline in the ABI.
        u64::try_from(self.object.0.remaining_ms(call.0)).ok()
    }

    /// Reports progress, from 0 to 1,000 permille. It extends the deadline of a compaction.
    pub fn progress(&self, call: CallId, permille: u32, note: &str) {
        self.object.0.progress(call.0, permille, note.into());
    }

    /// Requests text from a model. The host selects the model by purpose, holds the key, redacts secrets in
    /// both directions and retries transient errors. Needs
    /// [`capability::COMPLETE`](crate::capability::COMPLETE); implement a fallback without a model.
    ///
    /// `call` is a running call; its end cancels the request. The host limits the number of requests for models,
    /// vectors and delegated compactions in one call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ModelMissing`](crate::ErrorKind::ModelMissing) if none is configured or the request names
    /// one that the engine's config does not name, and the other `Model…` kinds;
    /// [`ErrorKind::Failed`](crate::ErrorKind::Failed) if the call has ended.
    pub async fn complete(&self, call: CallId, request: CompletionRequest) -> Result<Completion> {
        let answer = self.object.0.complete(call.0, to_json(&request));
        from_json(from_abi(answer.await)?.as_str())
    }

    /// Computes vectors of texts, for a search by meaning. The host redacts secrets in the texts. Needs
    /// [`capability::EMBED`](crate::capability::EMBED); implement a search by words without it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ModelMissing`](crate::ErrorKind::ModelMissing) if no embedder is configured, also from
    /// a host of API 1.0; [`ErrorKind::Failed`](crate::ErrorKind::Failed) beyond the limits of
    /// [`EmbedRequest`]; and the other `Model…` kinds.
    pub async fn embed(&self, call: CallId, request: EmbedRequest) -> Result<Embeddings> {
        let answer = self.object.0.embed(call.0, to_json(&request));
        AbiCodec::decode(from_abi(answer.await)?)
    }

    /// Reads a value of this engine's store; `None` if the key does not exist.
    ///
    /// The store is scoped to the engine's id and survives restarts and new versions of the engine. A replay
    /// starts with an empty one. Keys have 1 to 80 bytes; include the session's id in those that belong to a
    /// session. Values are text, such as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Store`](crate::ErrorKind::Store) for a key of invalid length or a failure of the store,
    /// here and in the three methods below.
    pub async fn kv_get(&self, key: &str) -> Result<Option<String>> {
        let value = from_abi(self.object.0.kv_get(key.into()).await)?;
        Ok(value.into_option().map(|value| value.into_string()))
    }

    /// Writes a value of this engine's store. Durable when the future completes.
    pub async fn kv_put(&self, key: &str, value: &str) -> Result<()> {
        from_abi(self.object.0.kv_put(key.into(), value.into()).await)
    }

    /// Removes a value of this engine's store; a missing key is not an error.
    pub async fn kv_delete(&self, key: &str) -> Result<()> {
        from_abi(self.object.0.kv_delete(key.into()).await)
    }

    /// Lists the keys of this engine's store that begin with `prefix`, sorted.
    pub async fn kv_list(&self, prefix: &str) -> Result<Vec<String>> {
        let keys = from_abi(self.object.0.kv_list(prefix.into()).await)?;
        Ok(keys.into_iter().map(|key| key.into_string()).collect())
    }

    /// Stores bytes with the session of the running call and returns their handle, the SHA-256 in hex.
    /// `ctxhost gc` deletes blobs that no file of the host references, so write the handle to a text or to a
    /// value of the store.
    pub async fn blob_put(&self, bytes: Vec<u8>) -> Result<String> {
        Ok(from_abi(self.object.0.blob_put(bytes.into()).await)?.into_string())
    }

    /// Reads the bytes of a handle; `None` if the handle is unknown.
    pub async fn blob_get(&self, handle: &str) -> Result<Option<Vec<u8>>> {
        let bytes = from_abi(self.object.0.blob_get(handle.into()).await)?;
        Ok(bytes.into_option().map(|bytes| bytes.into_vec()))
    }

    /// Waits without blocking a thread. Timers of tokio do not work in a library.
    pub async fn sleep(&self, milliseconds: u64) {
        self.object.0.sleep(milliseconds).await;
    }

    /// Runs a background task until it ends or the engine is disposed. Only available inside a call; on a
    /// thread of the engine's own the task is dropped and the host logs it.
    pub fn spawn(&self, session: &SessionRef, task: impl Future<Output = ()> + Send + 'static) {
        self.object.0.spawn(session.id.as_str().into(), guard::background_task(task));
    }

    /// Reads all entries of the session, including those that compactions removed from the live transcript.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) from a host without
    /// [`capability::HISTORY`](crate::capability::HISTORY).
    pub async fn history(&self, request: HistoryRequest) -> Result<HistoryPage> {
        from_json(from_abi(self.object.0.history(to_json(&request)).await)?.as_str())
    }

    /// The state of the provider's prompt cache for a session.
    pub fn prompt_cache(&self, session: &SessionRef) -> PromptCache {
        let known = self.object.0.prompt_cache(session.id.as_str().into());
        from_json(known.as_str()).unwrap_or_default()
    }

    /// Computes a compaction of the running call's transcript with the bundled engine.
    ///
    /// Use it to inspect or modify the result; otherwise return [`Compaction::Delegate`]. Only available
    /// inside `compact`, with the call id of its request.
    ///
    /// # Errors
    ///
    /// Those of the bundled engine, and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) without one.
    pub async fn delegate_compact(
        &self,
        call: CallId,
        request: CompactRequest,
    ) -> Result<Compaction> {
        let answer = self.object.0.delegate_compact(call.0, to_json(&request));
        AbiCodec::decode(from_abi(answer.await)?)
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Host")
    }
}
