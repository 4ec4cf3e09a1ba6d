//! What an exchange has at hand: the runtime, the conversations, and what it has measured before.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctxhost_engine_api::ErrorKind;
use ctxhost_engine_api::transcript::tokens;
use futures_util::FutureExt;

use super::refusal;
use super::sealed::Seal;
use super::tidying::Tidying;
use super::{Answer, Door, Truth};
use crate::originals::Originals;
use crate::thread::{Asked, Counts, Digest, Scope, Threads, is_named, secret};
use ctxhost_config::{Config, GatewaySettings};
use ctxhost_context::ContextError;
use ctxhost_dialects::inbound::Body;
use ctxhost_engine::{OnEngineError, SlotError};
use ctxhost_models::ModelName;
use ctxhost_runtime::{Runtime, SessionId, TurnError};

/// Where conversations are kept, below the state folder.
const FOLDER: &str = "gateway/sessions";

/// How much of what was measured is kept, in pieces; then all is measured anew.
const MAX_MEASURED: usize = 4_096;

/// What an exchange has at hand.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) runtime: Runtime,
    pub(super) config: Config,
    pub(super) settings: GatewaySettings,
    pub(super) threads: Threads,
    pub(super) seed: u64,
    pub(super) originals: Arc<Originals>,
    pub(super) seal: Seal,
    /// What system prompts and tools take, by their names.
    sizes: Mutex<HashMap<Digest, u64>>,
    /// What first items say, by the names of their bytes.
    firsts: Mutex<HashMap<Digest, Digest>>,
    /// How many units of a session there were when the thinking in them was refused.
    refused_thinking: Mutex<HashMap<String, usize>>,
    /// Models whose windows are too small for the engine to work in, of which was told.
    small: Mutex<HashSet<ModelName>>,
    /// Who puts conversations away.
    pub(super) tidying: Tidying,
}

impl Desk {
    pub(super) fn new(runtime: Runtime, config: &Config, state: &Path, counts: Counts) -> Desk {
        let folder = state.join(FOLDER);
        let settings = config.gateway.clone();
        let seed = secret(&folder).unwrap_or_else(|error| {
            tracing::error!(%error, "conversations are forgotten when this process ends");
            fastrand::u64(..)
        });
        Desk {
            runtime,
            config: config.clone(),
            threads: Threads::new(&folder, settings.conversations, counts),
            settings,
            seed,
            originals: Arc::new(Originals::below(state)),
            seal: Seal::of(&state.join("gateway")),
            sizes: Mutex::default(),
            firsts: Mutex::default(),
            refused_thinking: Mutex::default(),
            small: Mutex::default(),
            tidying: Tidying::default(),
        }
    }

    /// Under which key the conversation of a request is looked for: that of its scope and of what is said
    /// first, since a client may give one name to all of its conversations. A name that it gave in our own
    /// header is one whatever is said first.
    pub(super) fn key(&self, scope: Option<&str>, asked: &mut Asked<'_>) -> Digest {
        let name = scope.map(|scope| Digest::of(self.seed, scope));
        let is_named = scope.is_some_and(is_named);
        asked.set_scope(Scope { name, is_named });
        if let Some(name) = name.filter(|_| is_named) {
            return name;
        }
        let Some(raw) = asked.raw(0) else { return Digest::of(self.seed, "") };
        let first = remembered(&self.firsts, raw, || asked.meaning(0).unwrap_or(raw));
        match scope {
            Some(scope) => Digest::of(self.seed, &format!("{scope} {}", first.to_hex())),
            None => first,
        }
    }

    /// What system prompt and tools of a request take, as entries count.
    pub(super) fn overhead_tokens(&self, body: &Body<'_>) -> u64 {
        let size = |part: &&str| {
            let name = Digest::of(self.seed, part);
            remembered(&self.sizes, name, || tokens::estimate(part))
        };
        body.prompt.iter().map(size).sum()
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
    pub(super) fn ends_with(&self, error: &TurnError) -> bool {
        let (TurnError::Slot(error) | TurnError::Context(ContextError::Slot(error))) = error else {
            return false;
        };
        !matches!(error, SlotError::Answer { .. })
            && self.runtime.on_engine_error() == OnEngineError::Fail
    }

    /// The answer to a request that ends so.
    pub(super) fn ended(&self, error: &TurnError, door: &Door, session: &str) -> Answer {
        tracing::error!(%error, session, "a request ends, as plugins.on_engine_error says");
        let truth = Truth {
            engine: "none".into(),
            compaction: "failed",
            session: session.to_owned(),
            ..Truth::default()
        };
        refusal::engine_failed(door, &error.to_string(), truth)
    }

    /// Tells, once for each model, that an engine works in no window of its size: nothing else would show
    /// that its conversations are not kept inside it.
    pub(super) fn note_small_window(&self, error: &TurnError, model: &ModelName) {
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
    pub(super) fn close(&self, sessions: Vec<SessionId>) {
        for session in sessions {
            if self.runtime.close_session(&session).now_or_never().is_some() {
                continue;
            }
            let runtime = self.runtime.clone();
            let closing = async move { runtime.close_session(&session).await };
            self.runtime.in_background(closing);
        }
    }
}

fn remembered<T: Copy>(
    known: &Mutex<HashMap<Digest, T>>,
    name: Digest,
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
