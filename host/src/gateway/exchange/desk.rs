//! What an exchange has at hand: the runtime, the conversations, and what it has measured before.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ctxhost_engine_api::transcript::tokens;
use futures_util::FutureExt;

use super::sealed::Seal;
use crate::config::{Config, GatewaySettings};
use crate::gateway::originals::Originals;
use crate::gateway::speech::Body;
use crate::gateway::thread::{Asked, Digest, Threads, secret};
use crate::runtime::{Runtime, SessionId};

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
}

impl Desk {
    pub(super) fn new(runtime: Runtime, config: &Config, state: &Path) -> Desk {
        let folder = state.join(FOLDER);
        let settings = config.gateway.clone();
        let seed = secret(&folder).unwrap_or_else(|error| {
            tracing::error!(%error, "conversations are forgotten when this process ends");
            fastrand::u64(..)
        });
        Desk {
            runtime,
            config: config.clone(),
            threads: Threads::new(&folder, settings.conversations),
            settings,
            seed,
            originals: Arc::new(Originals::below(state)),
            seal: Seal::of(&state.join("gateway")),
            sizes: Mutex::default(),
            firsts: Mutex::default(),
        }
    }

    /// Under which key the conversation of a request is looked for: that of its scope, else that of what
    /// is said first.
    pub(super) fn key(
        &self,
        scope: Option<&str>,
        body: &Body<'_>,
        asked: &mut Asked<'_>,
    ) -> Digest {
        if let Some(scope) = scope {
            return Digest::of(self.seed, scope);
        }
        // Instructions at the beginning are the same in all conversations of a client.
        let is_prompt = |item: &str| body.prompt.iter().any(|part| std::ptr::eq(*part, item));
        let first = body.items.iter().position(|item| !is_prompt(item)).unwrap_or_default();
        let Some(raw) = asked.raw(first) else { return Digest::of(self.seed, "") };
        remembered(&self.firsts, raw, || asked.meaning(first).unwrap_or(raw))
    }

    /// What system prompt and tools of a request take, as entries count.
    pub(super) fn overhead_tokens(&self, body: &Body<'_>) -> u64 {
        let size = |part: &&str| {
            let name = Digest::of(self.seed, part);
            remembered(&self.sizes, name, || tokens::estimate(part))
        };
        body.prompt.iter().map(size).sum()
    }

    /// Lets go of conversations that nobody goes on with.
    pub(super) fn tidy(&self) {
        let idle_ms = i64::try_from(self.settings.conversation_idle_ms).unwrap_or(i64::MAX);
        let before_ms = self.runtime.now_ms().saturating_sub(idle_ms);
        self.close(self.threads.let_go(before_ms));
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
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= MAX_MEASURED {
        known.clear();
    }
    *known.entry(name).or_insert_with(measure)
}
