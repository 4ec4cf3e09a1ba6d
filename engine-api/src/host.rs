//! What an engine may ask of the host: a model, storage, counting, history, time, a log.

use std::future::Future;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::abi::guard;
use crate::abi::host::{HostObj, from_abi};
use crate::abi::json::{Crosses, from_json, to_json};
use crate::error::Result;
use crate::plan::Compaction;
use crate::request::{CallId, CompactRequest, SessionRef};

/// How important a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something failed.
    Error = 1,
    /// Something is not as it should be.
    Warn = 2,
    /// Worth knowing.
    Info = 3,
    /// For whoever looks for a fault.
    Debug = 4,
    /// Everything.
    Trace = 5,
}

/// What the host is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostInfo {
    /// Version of the engine API the host was built with.
    pub api_version: String,
    /// Version of the host.
    pub host_version: String,
    /// What it can do; see [`capability`](crate::capability).
    pub capabilities: Vec<String>,
}

/// What a completion is for. The host picks model, limits and policy by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A summary for a compaction.
    #[default]
    Summary,
    /// Notes written before a compaction.
    MemoryFlush,
    /// A judgement of the engine's own work.
    Quality,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// Ask a model for text. The host holds the key, redacts secrets and enforces its policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompletionRequest {
    /// What it is for.
    pub purpose: Purpose,
    /// A model by name; empty for the one configured for the purpose.
    pub model: String,
    /// Instructions.
    pub system: String,
    /// The text to work on.
    pub prompt: String,
    /// Upper limit of the answer, in provider tokens; 0 for the model's own.
    pub max_output_tokens: u64,
    /// 0.0 … 2.0; `None` for the model's own.
    pub temperature: Option<f64>,
    /// The session whose last request [`continuation`](Self::continuation) goes on from, by its id.
    pub session: String,
    /// A shorter prompt for a model that has just read the conversation: where the host's model is the
    /// session's own, this is said behind what it read last, which its provider has in its cache, and
    /// `system` and `prompt` are left out. Empty for none; never relied on.
    pub continuation: String,
}

/// What a model answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Completion {
    /// The text, never blank.
    pub text: String,
    /// Which model it was.
    pub model: String,
    /// Tokens of the prompt as the provider counted them; 0 when it did not say.
    pub input_tokens: u64,
    /// Tokens of the answer as the provider counted them; 0 when it did not say.
    pub output_tokens: u64,
}

/// Read what is in the session beyond the live transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryRequest {
    /// The session.
    pub session: SessionRef,
    /// Start after this entry; empty for the beginning.
    pub after_id: String,
    /// At most so many entries; the host caps it at 1,000.
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
    /// What it costs, without margin.
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

/// What is known of the provider's prompt cache for a session.
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

/// A handle on the host. Cloning is cheap; it may be kept in threads and tasks of the engine.
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

    /// A handle on services that stand on this side of the border already.
    #[cfg(feature = "testing")]
    pub(crate) fn from_services(services: std::sync::Arc<dyn crate::border::HostServices>) -> Self {
        Host::new(crate::abi::services::RevocableServices::new(services).into_object())
    }

    /// What the host is and what it can do.
    pub fn info(&self) -> HostInfo {
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
        self.object.0.log(level as u8, "engine".into(), message.into(), fields);
    }

    /// The host's clock, in milliseconds since 1970. Recorded time in a replay.
    pub fn now_ms(&self) -> i64 {
        self.object.0.now_ms()
    }

    /// A clock that never goes back, in nanoseconds.
    pub fn monotonic_ns(&self) -> u64 {
        self.object.0.monotonic_ns()
    }

    /// Counts a text as the host counts entries, without margin. An empty model is the session's.
    pub fn count_tokens(&self, model: &str, text: &str) -> u64 {
        self.object.0.count_tokens(model.into(), text.into())
    }

    /// Whether the host has given the call up. Loops of an engine should look now and then.
    pub fn is_cancelled(&self, call: CallId) -> bool {
        self.object.0.is_cancelled(call.0)
    }

    /// Milliseconds the call still has; `None` for a call without a deadline.
    pub fn remaining_ms(&self, call: CallId) -> Option<u64> {
        u64::try_from(self.object.0.remaining_ms(call.0)).ok()
    }

    /// Reports progress, from 0 to 1,000 permille, which also moves the deadline of a compaction.
    pub fn progress(&self, call: CallId, permille: u32, note: &str) {
        self.object.0.progress(call.0, permille, note.into());
    }

    /// Asks a model for text. The host picks the model by purpose, holds the key, replaces secrets on both
    /// ways and retries what is worth it: an engine has no use for an HTTP client or a retry loop. Needs
    /// [`capability::COMPLETE`](crate::capability::COMPLETE); always have a way without it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ModelMissing`](crate::ErrorKind::ModelMissing) where none is configured, and
    /// the other `Model…` kinds.
    pub async fn complete(&self, call: CallId, request: CompletionRequest) -> Result<Completion> {
        let answer = self.object.0.complete(call.0, to_json(&request));
        from_json(from_abi(answer.await)?.as_str())
    }

    /// Reads a value of this engine's own store; `None` where there is none.
    ///
    /// The store belongs to the engine's id: no other engine sees it, and it is there again after a
    /// restart and for the next version. A replay begins with an empty one. Keys have 1 to 80 bytes; put the
    /// session's id into those that belong to a session. Values are text, such as JSON.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Store`](crate::ErrorKind::Store) for a key of another length or a store that fails, here
    /// and in the three calls below.
    pub async fn kv_get(&self, key: &str) -> Result<Option<String>> {
        let value = from_abi(self.object.0.kv_get(key.into()).await)?;
        Ok(value.into_option().map(|value| value.into_string()))
    }

    /// Writes a value of this engine's own store. Durable when the future is ready.
    pub async fn kv_put(&self, key: &str, value: &str) -> Result<()> {
        from_abi(self.object.0.kv_put(key.into(), value.into()).await)
    }

    /// Removes a value of this engine's own store; one that is not there is no error.
    pub async fn kv_delete(&self, key: &str) -> Result<()> {
        from_abi(self.object.0.kv_delete(key.into()).await)
    }

    /// Lists the keys of this engine's own store that begin with `prefix`, sorted.
    pub async fn kv_list(&self, prefix: &str) -> Result<Vec<String>> {
        let keys = from_abi(self.object.0.kv_list(prefix.into()).await)?;
        Ok(keys.into_iter().map(|key| key.into_string()).collect())
    }

    /// Stores bytes and answers their handle: 64 hex digits of their SHA-256. They lie with the session of
    /// the running call. `ctxhost gc` clears away what no file of the host names any more, so put the handle
    /// into a text or into a value of the store.
    pub async fn blob_put(&self, bytes: Vec<u8>) -> Result<String> {
        Ok(from_abi(self.object.0.blob_put(bytes.into()).await)?.into_string())
    }

    /// Reads the bytes of a handle; `None` where nothing has it.
    pub async fn blob_get(&self, handle: &str) -> Result<Option<Vec<u8>>> {
        let bytes = from_abi(self.object.0.blob_get(handle.into()).await)?;
        Ok(bytes.into_option().map(|bytes| bytes.into_vec()))
    }

    /// Waits, without holding a thread. There is no tokio in a library: use this one.
    pub async fn sleep(&self, milliseconds: u64) {
        self.object.0.sleep(milliseconds).await;
    }

    /// Runs a task in the background. The host tracks it and cancels it at dispose. To be called inside of
    /// a call; from a thread of the engine's own it is refused, with a line in the log.
    pub fn spawn(&self, session: &SessionRef, task: impl Future<Output = ()> + Send + 'static) {
        self.object.0.spawn(session.id.as_str().into(), guard::background_task(task));
    }

    /// Reads the session beyond the live transcript: every entry that was ever in it, folded away or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) from a host without
    /// [`capability::HISTORY`](crate::capability::HISTORY).
    pub async fn history(&self, request: HistoryRequest) -> Result<HistoryPage> {
        from_json(from_abi(self.object.0.history(to_json(&request)).await)?.as_str())
    }

    /// What is known of the provider's prompt cache for a session.
    pub fn prompt_cache(&self, session: &SessionRef) -> PromptCache {
        let known = self.object.0.prompt_cache(session.id.as_str().into());
        from_json(known.as_str()).unwrap_or_default()
    }

    /// Lets the host's bundled engine work out a compaction of the running call's transcript.
    ///
    /// For an engine that wants to look at the result or to delegate some sessions only; one that
    /// always delegates answers [`Compaction::Delegate`]. To be asked for inside of `compact`, with the
    /// call of its request.
    ///
    /// # Errors
    ///
    /// Those of the bundled engine, and [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where there
    /// is none.
    pub async fn delegate_compact(
        &self,
        call: CallId,
        request: CompactRequest,
    ) -> Result<Compaction> {
        let answer = self.object.0.delegate_compact(call.0, to_json(&request));
        Crosses::decode(from_abi(answer.await)?)
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Host")
    }
}
