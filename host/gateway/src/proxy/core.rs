//! The proxy: its runtime, its conversations and the measurements that it caches.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctxhost_conversations::{
    CacheLimits, ConversationCounts, ConversationScope, ConversationTable, RequestItems,
    SeededHash, is_named, read_seed,
};
use ctxhost_engine_api::ErrorKind;
use ctxhost_engine_api::transcript::tokens;
use futures_util::FutureExt;

use super::client_errors;
use super::endpoint::Endpoint;
use super::eviction::EvictionState;
use super::messages::LocalResponse;
use super::signed_summary::SummarySigner;
use super::warning_pause::WarningPause;
use super::working_memory::WorkingMemory;
use crate::originals::OriginalStore;
use ctxhost_agent::{Runtime, SessionId, TurnError};
use ctxhost_blobs::BlobError;
use ctxhost_config::{Config, GatewaySettings};
use ctxhost_context::ContextError;
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::inbound::ParsedBody;
use ctxhost_engine::{OnEngineError, SlotError};
use ctxhost_models::{ContextWindow, ModelName};

/// The folder of all conversations, below the state folder.
const SESSIONS_FOLDER: &str = "gateway/sessions";

/// Entries per cache of measurements; a full cache is cleared.
pub(super) const MAX_MEASURED: usize = 4_096;

/// The characters of a path in a log line; longer ones are cut.
const MAX_LOGGED_PATH_CHARS: usize = 200;

/// The request path of the gateway.
#[derive(Debug)]
pub struct Proxy {
    pub(super) runtime: Runtime,
    pub(super) config: Config,
    pub(super) settings: GatewaySettings,
    pub(super) conversations: ConversationTable,
    pub(super) seed: u64,
    pub(super) originals: Arc<OriginalStore>,
    pub(super) summary_signer: SummarySigner,
    pub(super) eviction: EvictionState,
    pub(super) working_memory: WorkingMemory,
    /// Token estimates of system prompts and tools, by hash.
    sizes: Mutex<HashMap<SeededHash, u64>>,
    /// Canonical hashes of first items, by the hash of their bytes.
    firsts: Mutex<HashMap<SeededHash, SeededHash>>,
    /// Per session: the number of item groups whose thinking the upstream rejected.
    refused_thinking: Mutex<HashMap<String, usize>>,
    /// Histories at providers that were too large for their model.
    pub(super) truncated_histories: Mutex<HashSet<SeededHash>>,
    /// Models with a window too small for the engine that were reported already.
    small: Mutex<HashSet<ModelName>>,
    /// Conversations with an unshaped request that was reported already.
    pub(super) unshaped: Mutex<HashSet<SeededHash>>,
    /// Of the warnings that session files cannot be written.
    unwritten_warnings: WarningPause,
}

impl Proxy {
    /// A proxy that keeps its conversations below `state`.
    pub fn new(runtime: Runtime, config: &Config, state: &Path) -> Arc<Proxy> {
        Proxy::with_counts(runtime, config, state, ConversationCounts::default())
    }

    /// The same with the caller's metrics.
    pub fn with_counts(
        runtime: Runtime,
        config: &Config,
        state: &Path,
        counts: ConversationCounts,
    ) -> Arc<Proxy> {
        let folder = state.join(SESSIONS_FOLDER);
        let settings = config.gateway.clone();
        let seed = read_seed(&folder).unwrap_or_else(|error| {
            tracing::error!(%error, "using a temporary hash seed: conversations are not recognized after a restart; make the folder writable, or set CTXHOST_STATE_DIR to one that is");
            fastrand::u64(..)
        });
        Arc::new(Proxy {
            runtime,
            config: config.clone(),
            conversations: ConversationTable::new(&folder, CacheLimits::new(&settings), counts),
            settings,
            seed,
            originals: Arc::new(OriginalStore::open(state)),
            summary_signer: SummarySigner::open(&state.join("gateway")),
            eviction: EvictionState::default(),
            working_memory: WorkingMemory::new(config.gateway.max_bodies_bytes),
            sizes: Mutex::default(),
            firsts: Mutex::default(),
            refused_thinking: Mutex::default(),
            truncated_histories: Mutex::default(),
            small: Mutex::default(),
            unshaped: Mutex::default(),
            unwritten_warnings: WarningPause::default(),
        })
    }

    /// Loads the original text with this hash. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// [`BlobError`].
    pub fn original(&self, hash: &str) -> Result<Option<String>, BlobError> {
        self.originals.load(hash)
    }

    /// The context window of a provider's model: configured, learned or built in; `None` for an unknown model.
    pub fn window(&self, provider: &str, model: &str) -> Option<ContextWindow> {
        self.runtime.models().known_window(&ModelName::new(provider, model))
    }

    /// Records the window that an upstream stated for a model, in provider tokens.
    pub fn set_stated_window(&self, provider: &str, model: &str, tokens: u64) {
        self.runtime.models().record_stated_window(&ModelName::new(provider, model), tokens);
    }

    /// The key under which the conversation of a request is searched. A client's own session id is combined with the
    /// first item, because some clients use one id for all of their conversations; a name from `x-ctxhost-session` is not.
    pub(super) fn conversation_key(
        &self,
        scope: Option<&str>,
        request_items: &mut RequestItems<'_>,
    ) -> SeededHash {
        let name = scope.map(|scope| SeededHash::new(self.seed, scope));
        let is_named = scope.is_some_and(is_named);
        request_items.set_scope(ConversationScope { name, is_named });
        if let Some(name) = name.filter(|_| is_named) {
            return name;
        }
        let Some(raw) = request_items.raw_hash(0) else { return SeededHash::new(self.seed, "") };
        let canonical = || request_items.canonical_hash(0).unwrap_or(raw);
        let first = get_or_measure(&self.firsts, raw, canonical);
        match scope {
            Some(scope) => SeededHash::new(self.seed, &format!("{scope} {}", first.to_hex())),
            None => first,
        }
    }

    /// Estimated tokens of a request's system prompt and tools.
    pub(super) fn overhead_tokens(&self, body: &ParsedBody<'_>) -> u64 {
        let size = |part: &&str| {
            let hash = SeededHash::new(self.seed, part);
            get_or_measure(&self.sizes, hash, || tokens::estimate_json(part))
        };
        body.prompt_parts.iter().map(size).sum()
    }

    /// Renders the first `groups` item groups of a session without thinking from now on.
    pub(super) fn refuse_thinking(&self, session: &str, groups: usize) {
        let mut refused = lock(&self.refused_thinking);
        // A forgotten session is rejected by its upstream once more, and then is known again.
        if refused.len() >= MAX_MEASURED {
            refused.clear();
        }
        refused.insert(session.to_owned(), groups);
    }

    /// The number of item groups of a session that are rendered without thinking.
    pub(super) fn refused_thinking(&self, session: &str) -> usize {
        lock(&self.refused_thinking).get(session).copied().unwrap_or_default()
    }

    /// Whether an error fails the request: an engine failure with `plugins.on_engine_error = "fail"`.
    pub(super) fn is_fatal(&self, error: &TurnError) -> bool {
        let (TurnError::Slot(error) | TurnError::Context(ContextError::Slot(error))) = error else {
            return false;
        };
        // An engine that answers with an error (a window too small, nothing to drop) has not failed.
        !matches!(error, SlotError::Answer { .. })
            && self.runtime.on_engine_error() == OnEngineError::Fail
    }

    /// The response to a request that failed with a fatal error.
    pub(super) fn engine_failed(
        &self,
        error: &TurnError,
        endpoint: &Endpoint,
        session: &str,
    ) -> LocalResponse {
        tracing::error!(%error, session, "request failed (plugins.on_engine_error = \"fail\")");
        client_errors::engine_failed(endpoint, &error.to_string(), session)
    }

    /// Logs once per model that its window is too small for the engine. Nothing else shows that its conversations are
    /// not kept inside the window.
    pub(super) fn warn_small_window(&self, error: &TurnError, model: &ModelName) {
        let TurnError::Context(ContextError::Slot(SlotError::Answer { error })) = error else {
            return;
        };
        if error.kind == ErrorKind::WindowTooSmall && lock(&self.small).insert(model.clone()) {
            tracing::error!(
                %model, engine = self.runtime.engine(), %error,
                "requests for this model are forwarded unshaped; lower the limit of the engine's \
                 config (plugins.entries.legacy.config.window.block_tokens for legacy), or \
                 configure another engine"
            );
        }
    }

    /// Whether a session file that cannot be written is worth a warning. A full disk concerns all of them, and those that
    /// are reloaded fail with every request.
    pub(super) fn is_unwritten_warning_due(&self) -> bool {
        self.unwritten_warnings.is_due(self.runtime.now_ms())
    }

    /// Whether no request of a conversation was reported as unshaped before. Such reports are one line per
    /// conversation: its next requests mostly fail for the same reason.
    pub(super) fn is_first_unshaped(&self, conversation: SeededHash) -> bool {
        let mut reported = lock(&self.unshaped);
        if reported.len() >= MAX_MEASURED {
            reported.clear();
        }
        reported.insert(conversation)
    }

    /// Logs once per conversation that a request is forwarded as it is, because it cannot be read or is too large: nothing
    /// else shows it.
    pub(super) fn warn_unreadable(&self, conversation: SeededHash, error: &dyn fmt::Display) {
        if self.is_first_unshaped(conversation) {
            tracing::warn!(
                %error,
                "a request cannot be shaped: it and all requests of its conversation with the same content are \
                 forwarded as they are, without a limit on their size"
            );
        }
    }

    /// Logs once per path that its requests are forwarded as they are, though a model answers them.
    pub fn warn_unsupported(&self, path: &str) {
        if self.is_first_unshaped(SeededHash::new(self.seed, path)) {
            // Clients choose paths.
            let path = path.chars().take(MAX_LOGGED_PATH_CHARS).collect::<String>();
            tracing::warn!(
                ?path,
                "no engine can shape the requests of this path: they are forwarded as they are, without a limit on \
                 their size (docs/gateway/README.md lists the APIs that are shaped)"
            );
        }
    }

    /// A provider's error in a log line, with the provider's text only if the config permits content in logs.
    pub(super) fn log_text(&self, failure: &ProviderError) -> String {
        failure.log_text(self.config.telemetry.log_content)
    }

    /// The key of a request without readable messages: the start of its body, which does not change as it grows.
    pub(super) fn unread_key(&self, body: &[u8]) -> SeededHash {
        const START_BYTES: usize = 512;
        let start = body.get(..START_BYTES).unwrap_or(body);
        SeededHash::new(self.seed, &String::from_utf8_lossy(start))
    }

    /// Closes sessions, immediately or when the request that holds the session lock is shaped.
    pub(super) fn close_sessions(&self, sessions: Vec<SessionId>) {
        for session in sessions {
            let runtime = self.runtime.clone();
            // One future for both: it closes what is open now, and nothing that is opened under the same id while it waits.
            let mut closing = Box::pin(async move { runtime.close_session(&session).await });
            if (&mut closing).now_or_never().is_some() {
                continue;
            }
            self.runtime.spawn_background(closing);
        }
    }
}

fn get_or_measure<T: Copy>(
    cache: &Mutex<HashMap<SeededHash, T>>,
    key: SeededHash,
    measure: impl FnOnce() -> T,
) -> T {
    let cached = lock(cache).get(&key).copied();
    if let Some(cached) = cached {
        return cached;
    }
    // Measured outside the lock: a large system prompt takes milliseconds, and other requests use the cache.
    let measured = measure();
    let mut cache = lock(cache);
    if cache.len() >= MAX_MEASURED {
        cache.clear();
    }
    cache.insert(key, measured);
    measured
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
