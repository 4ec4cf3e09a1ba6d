//! Engine state per session, limited to the most recently used sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctxhost_engine_api::SessionRef;

/// Number of remembered sessions.
// More than a gateway serves at once. State is derived from the transcript, so dropping it only
// costs time.
const SESSIONS_KEPT: usize = 1_000;

/// State of type `T` for each session. Sessions do not block each other.
#[derive(Debug, Default)]
pub struct SessionMap<T> {
    sessions: Mutex<LruMap<T>>,
}

#[derive(Debug, Default)]
struct LruMap<T> {
    uses: u64,
    states: HashMap<String, (u64, Arc<Mutex<T>>)>,
}

impl<T: Default> SessionMap<T> {
    /// Runs `work` on the state of a session, initially the default.
    pub fn with_session<R>(&self, session: &SessionRef, work: impl FnOnce(&mut T) -> R) -> R {
        // The map is unlocked before `work` runs, so that sessions do not wait for each other.
        let state = lock(&self.sessions).get_or_default(&session.id);
        work(&mut lock(&state))
    }

    /// Drops the state of all sessions.
    pub fn clear(&self) {
        lock(&self.sessions).states.clear();
    }
}

impl<T: Default> LruMap<T> {
    fn get_or_default(&mut self, id: &str) -> Arc<Mutex<T>> {
        self.uses += 1;
        let slot = self.states.entry(id.to_owned()).or_default();
        slot.0 = self.uses;
        let state = slot.1.clone();
        if self.states.len() > SESSIONS_KEPT {
            self.drop_oldest();
        }
        state
    }

    fn drop_oldest(&mut self) {
        let oldest = self.states.iter().min_by_key(|(_, (last_use, _))| *last_use);
        if let Some(id) = oldest.map(|(id, _)| id.clone()) {
            self.states.remove(&id);
        }
    }
}

/// Ignores poisoning: state is rebuilt if it does not match the transcript.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_apart_and_forgets_the_longest_unused() {
        let sessions = SessionMap::<u64>::default();
        let session = |id: usize| SessionRef { id: id.to_string(), ..SessionRef::default() };
        let count = |id| {
            sessions.with_session(&session(id), |count| {
                *count += 1;
                *count
            })
        };
        assert_eq!((count(1), count(2), count(1)), (1, 1, 2));
        (10..10 + SESSIONS_KEPT - 1).for_each(|id| assert_eq!(count(id), 1));
        assert_eq!((count(1), count(2)), (3, 1));
        sessions.clear();
        assert_eq!(count(1), 1);
    }
}
