//! What an exchange has at hand: the runtime, the conversations, and what it has measured before.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctxhost_engine_api::ErrorKind;
use ctxhost_engine_api::transcript::tokens;
use futures_util::FutureExt;

use super::client_errors;
use super::eviction::EvictionState;
use super::signed_summary::SummarySigner;
use super::{Endpoint, LocalResponse, ShapingReport};
use crate::conversations::{
    ConversationCounts, ConversationScope, ConversationTable, RequestItems, SeededHash, is_named,
    read_seed,
};
use crate::originals::OriginalStore;
use ctxhost_agent::{Runtime, SessionId, TurnError};
use ctxhost_config::{Config, GatewaySettings};
use ctxhost_context::ContextError;
use ctxhost_dialects::inbound::ParsedBody;
use ctxhost_engine::{OnEngineError, SlotError};
use ctxhost_models::ModelName;

/// Where conversations are kept, below the state folder.
const SESSIONS_FOLDER: &str = "gateway/sessions";

/// How much of what was measured is kept, in pieces; then all is measured anew.
const MAX_MEASURED: usize = 4_096;

/// What an exchange has at hand.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) runtime: Runtime,
    pub(super) config: Config,
    pub(super) settings: GatewaySettings,
    pub(super) conversations: ConversationTable,
    pub(super) seed: u64,
    pub(super) originals: Arc<OriginalStore>,
    pub(super) summary_signer: SummarySigner,
    /// What system prompts and tools take, by their names.
    sizes: Mutex<HashMap<SeededHash, u64>>,
    /// What first items say, by the names of their bytes.
    firsts: Mutex<HashMap<SeededHash, SeededHash>>,
    /// How many units of a session there were when the thinking in them was refused.
    refused_thinking: Mutex<HashMap<String, usize>>,
    /// Models whose windows are too small for the engine to work in, of which was told.
    small: Mutex<HashSet<ModelName>>,
    /// Who puts conversations away.
    pub(super) eviction: EvictionState,
}

impl Proxy {
    pub(super) fn new(
        runtime: Runtime,
        config: &Config,
        state: &Path,
        counts: ConversationCounts,
    ) -> Proxy {
        let folder = state.join(SESSIONS_FOLDER);
        let settings = config.gateway.clone();
        let seed = read_seed(&folder).unwrap_or_else(|error| {
            tracing::error!(%error, "conversations are forgotten when this process ends");
            fastrand::u64(..)
        });
        Proxy {
            runtime,
            config: config.clone(),
            conversations: ConversationTable::new(&folder, settings.conversations, counts),
            settings,
            seed,
            originals: Arc::new(OriginalStore::open(state)),
            summary_signer: SummarySigner::open(&state.join("gateway")),
            sizes: Mutex::default(),
            firsts: Mutex::default(),
            refused_thinking: Mutex::default(),
            small: Mutex::default(),
            eviction: EvictionState::default(),
        }
    }

    /// Under which key the conversation of a request is looked for: that of its scope and of what is said
    /// first, since a client may give one name to all of its conversations. A name that it gave in our own
    /// header is one whatever is said first.
    pub(super) fn conversation_key(
        &self,
        scope: Option<&str>,
        asked: &mut RequestItems<'_>,
    ) -> SeededHash {
        let name = scope.map(|scope| SeededHash::new(self.seed, scope));
        let is_named = scope.is_some_and(is_named);
        asked.set_scope(ConversationScope { name, is_named });
        if let Some(name) = name.filter(|_| is_named) {
            return name;
        }
        let Some(raw) = asked.raw_hash(0) else { return SeededHash::new(self.seed, "") };
        let first = get_or_measure(&self.firsts, raw, || asked.canonical_hash(0).unwrap_or(raw));
        match scope {
            Some(scope) => SeededHash::new(self.seed, &format!("{scope} {}", first.to_hex())),
            None => first,
        }
    }

    /// What system prompt and tools of a request take, as entries count.
    pub(super) fn overhead_tokens(&self, body: &ParsedBody<'_>) -> u64 {
        let size = |part: &&str| {
            let name = SeededHash::new(self.seed, part);
            get_or_measure(&self.sizes, name, || tokens::estimate(part))
        };
        body.prompt_parts.iter().map(size).sum()
    }

    /// So many units of a session are sent without their thinking from now on.
    pub(super) fn refuse_thinking(&self, session: &str, units: usize) {
        let mut refused = lock(&self.refused_thinking);
        // What is forgotten is refused once more.
        if refused.len() >= MAX_MEASURED {
            refused.clear();
        }
        refused.insert(session.to_owned(), units);
    }

    /// How many units of a session those are.
    pub(super) fn refused_thinking(&self, session: &str) -> usize {
        lock(&self.refused_thinking).get(session).copied().unwrap_or_default()
    }

    /// Whether an error ends what was asked for: that of an engine does where the config says so. What an
    /// engine says of windows and of what cannot fit is no failure.
    pub(super) fn is_fatal(&self, error: &TurnError) -> bool {
        let (TurnError::Slot(error) | TurnError::Context(ContextError::Slot(error))) = error else {
            return false;
        };
        !matches!(error, SlotError::Answer { .. })
            && self.runtime.on_engine_error() == OnEngineError::Fail
    }

    /// The answer to a request that ends so.
    pub(super) fn engine_failed(
        &self,
        error: &TurnError,
        door: &Endpoint,
        session: &str,
    ) -> LocalResponse {
        tracing::error!(%error, session, "a request ends, as plugins.on_engine_error says");
        let truth = ShapingReport {
            engine: "none".into(),
            compaction: "failed",
            session: session.to_owned(),
            ..ShapingReport::default()
        };
        client_errors::engine_failed(door, &error.to_string(), truth)
    }

    /// Tells, once for each model, that an engine works in no window of its size: nothing else would show
    /// that its conversations are not kept inside it.
    pub(super) fn warn_small_window(&self, error: &TurnError, model: &ModelName) {
        let TurnError::Context(ContextError::Slot(SlotError::Answer { error })) = error else {
            return;
        };
        if error.kind != ErrorKind::WindowTooSmall {
            return;
        }
        let mut told = lock(&self.small);
        if told.insert(model.clone()) {
            tracing::error!(
                %model, engine = self.runtime.engine(), %error,
                "requests for this model go on without the engine; a lower \
                 plugins.entries.legacy.config.window.block_tokens or another engine keeps them inside its window"
            );
        }
    }

    /// Closes sessions: at once, or when their requests are shaped.
    pub(super) fn close_sessions(&self, sessions: Vec<SessionId>) {
        for session in sessions {
            if self.runtime.close_session(&session).now_or_never().is_some() {
                continue;
            }
            let runtime = self.runtime.clone();
            let closing = async move { runtime.close_session(&session).await };
            self.runtime.spawn_background(closing);
        }
    }
}

fn get_or_measure<T: Copy>(
    known: &Mutex<HashMap<SeededHash, T>>,
    name: SeededHash,
    measure: impl FnOnce() -> T,
) -> T {
    let before = lock(known).get(&name).copied();
    if let Some(before) = before {
        return before;
    }
    // It may take long, and nobody else shall wait for it.
    let measured = measure();
    let mut known = lock(known);
    if known.len() >= MAX_MEASURED {
        known.clear();
    }
    known.insert(name, measured);
    measured
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
