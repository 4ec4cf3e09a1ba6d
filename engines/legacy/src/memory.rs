//! What the engine remembers of a session between requests: decisions that must come out the same
//! each time, or the provider's cached prefix is lost.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use ctxhost_engine_api::{Role, SessionRef, Transcript};

use crate::pruning::Pruned;

/// The memory of one session. Entry ids are keys, because positions move with each compaction.
#[derive(Debug, Default)]
pub(crate) struct SessionMemory {
    epoch: u64,
    /// Results cut by the aggregate rule, with the limit they were cut to, in weighted characters.
    pub(crate) reduced: HashMap<String, u64>,
    /// Results that were pruned, and how far.
    pub(crate) pruned: HashMap<String, Pruned>,
    /// When pruning last changed something, in milliseconds since 1970.
    pub(crate) pruned_at_ms: Option<i64>,
}

/// The memory of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    sessions: Mutex<HashMap<String, SessionMemory>>,
    warned: Mutex<HashSet<String>>,
}

impl Memory {
    /// Works with the memory of a session. Never held over an `await`.
    pub(crate) fn of_session<T>(
        &self,
        session: &SessionRef,
        transcript: &Transcript,
        work: impl FnOnce(&mut SessionMemory) -> T,
    ) -> T {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = sessions.entry(session.id.clone()).or_default();
        memory.enter(transcript);
        let answer = work(memory);
        if memory.is_empty() {
            sessions.remove(&session.id);
        }
        answer
    }

    /// Whether a warning is given for the first time.
    pub(crate) fn is_new_warning(&self, sentence: &str) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        warned.insert(sentence.to_owned())
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl SessionMemory {
    /// After a compaction only decisions about entries that are still live are of use.
    fn enter(&mut self, transcript: &Transcript) {
        if self.epoch == transcript.epoch() {
            return;
        }
        self.epoch = transcript.epoch();
        if self.is_empty() {
            return;
        }
        let results = transcript.iter().filter(|entry| entry.role() == Role::Tool);
        let live: HashSet<&str> = results.map(|entry| entry.id()).collect();
        self.reduced.retain(|id, _| live.contains(id.as_str()));
        self.pruned.retain(|id, _| live.contains(id.as_str()));
    }

    fn is_empty(&self) -> bool {
        self.reduced.is_empty() && self.pruned.is_empty() && self.pruned_at_ms.is_none()
    }
}
