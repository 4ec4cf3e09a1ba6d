//! The store of one engine: values in one place for all sessions, blobs with their session, and a limit of both.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctxhost_blobs::{SessionBlobs, hash};
use parking_lot::{Mutex, MutexGuard};

use super::Quotas;
use crate::calls;
use crate::environment::EngineEnvironment;
use crate::session_queries::SessionQueries;
use crate::store::{EngineStore, StoreError, StoreSize};

/// The cost of each value and blob beside its bytes: the smallest file takes as much on a disk.
const ENTRY_BYTES: u64 = 4096;

/// The time for which a blob counts.
const WINDOW: Duration = Duration::from_secs(3600);

/// A store with a size limit.
pub(crate) struct StoreQuota {
    /// The values, and blobs of no session.
    pub(crate) values: Arc<dyn EngineStore>,
    sessions: Option<Arc<dyn SessionQueries>>,
    limit: u64,
    used: Mutex<StoreUsage>,
}

/// What counts against the limit.
#[derive(Debug, Default)]
struct StoreUsage {
    /// The upper bound of the cost of all values: a replaced value counts twice until they are
    /// counted again. `None` before the first count.
    values: Option<u64>,
    /// The cost of the blobs stored since `since`. They belong to sessions and are deleted with
    /// them, while a host may run for weeks; the limit only has to stop an engine that fills a
    /// disk.
    blobs: u64,
    handles: HashSet<String>,
    since: Option<Instant>,
}

impl StoreUsage {
    /// Forgets blobs older than an hour.
    fn forget_old_blobs(&mut self, now: Instant) {
        if self.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            (self.blobs, self.since) = (0, Some(now));
            self.handles.clear();
        }
    }
}

impl StoreQuota {
    /// The store of the engine `id`.
    pub(crate) fn new(id: &str, environment: &EngineEnvironment, quotas: &Quotas) -> StoreQuota {
        let limit = quotas.store_mib.saturating_mul(1024 * 1024);
        let (values, sessions) = (environment.open_store(id), environment.sessions.clone());
        StoreQuota { values, sessions, limit, used: Mutex::default() }
    }

    /// Sets a value that fits; durable when it returns.
    pub(crate) fn put(&self, key: &str, value: &str) -> Result<(), StoreError> {
        let cost = cost_of_value(key, value);
        // Held during the write: two concurrent writes could both seem to fit.
        let mut used = self.used();
        let replaced = || {
            let before = self.values.get(key)?;
            Ok(before.map_or(0, |before| cost_of_value(key, &before)))
        };
        self.reserve(&mut used, cost, replaced)?;
        self.values.put(key, value)?;
        used.values = used.values.map(|values| values + cost);
        Ok(())
    }

    /// Stores bytes that fit with the session of the call; returns their SHA-256 in hex.
    pub(crate) fn put_blob(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let cost = cost_of(StoreSize { entries: 1, bytes: bytes.len() as u64 });
        let mut used = self.used();
        // The same bytes are stored once.
        if !used.handles.contains(&hash(bytes)) {
            self.reserve(&mut used, cost, || Ok(0))?;
        }
        let handle = match self.session_blobs() {
            Some(blobs) => blobs.put(bytes)?,
            None => self.values.put_blob(bytes)?,
        };
        if used.handles.insert(handle.clone()) {
            used.blobs += cost;
        }
        Ok(handle)
    }

    /// The bytes of a hash.
    pub(crate) fn get_blob(&self, handle: &str) -> Result<Option<Vec<u8>>, StoreError> {
        // Blobs that were put without a session are in the shared store.
        let found = self.session_blobs().map_or(Ok(None), |blobs| blobs.get(handle))?;
        found.map_or_else(|| self.values.get_blob(handle), |bytes| Ok(Some(bytes)))
    }

    /// The blobs of the session of the running call; `None` on a thread that the engine started
    /// itself, and for a session that is not on disk.
    fn session_blobs(&self) -> Option<SessionBlobs> {
        self.sessions.as_ref()?.blobs(&calls::current_session()?)
    }

    fn used(&self) -> MutexGuard<'_, StoreUsage> {
        let mut used = self.used.lock();
        used.forget_old_blobs(Instant::now());
        used
    }

    /// Checks that so many bytes fit. Counts the values, and subtracts what `replaced` says is
    /// overwritten, only where they seem not to: counting is slow.
    fn reserve(
        &self,
        used: &mut StoreUsage,
        more: u64,
        replaced: impl FnOnce() -> Result<u64, StoreError>,
    ) -> Result<(), StoreError> {
        let fits = |used: u64| used.saturating_add(more) <= self.limit;
        if used.values.is_some_and(|values| fits(values.saturating_add(used.blobs))) {
            return Ok(());
        }
        let values = cost_of(self.values.size()?);
        used.values = Some(values);
        let all = values.saturating_add(used.blobs);
        if fits(all) || fits(all.saturating_sub(replaced()?)) {
            Ok(())
        } else {
            Err(StoreError::Full { more, used: all, limit: self.limit })
        }
    }
}

fn cost_of_value(key: &str, value: &str) -> u64 {
    cost_of(StoreSize { entries: 1, bytes: (key.len() + value.len()) as u64 })
}

fn cost_of(kept: StoreSize) -> u64 {
    kept.bytes.saturating_add(kept.entries.saturating_mul(ENTRY_BYTES))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::clock::HostClock;
    use crate::timeouts::EngineTimeouts;

    const MIB: usize = 1024 * 1024;

    fn of_one_mib(folder: Option<&Path>) -> StoreQuota {
        let mut environment =
            EngineEnvironment::new(EngineTimeouts::default(), HostClock::default());
        environment.store_folder = folder.map(Path::to_owned);
        StoreQuota::new("demo", &environment, &Quotas { store_mib: 1, ..Quotas::default() })
    }

    fn check(store: &StoreQuota) {
        store.put("a", &"x".repeat(MIB / 2)).unwrap();
        let error = store.put("b", &"x".repeat(MIB / 2)).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("plugins.quotas.store_mib") && message.contains("1,048,576"),
            "{message}"
        );
        assert_eq!(store.values.get("b").unwrap(), None, "nothing of it was written");
        for _ in 0..10 {
            store.put("a", &"y".repeat(MIB / 2)).unwrap();
        }
        store.values.delete("a").unwrap();
        store.put("b", &"x".repeat(MIB / 2)).unwrap();
    }

    #[test]
    fn what_does_not_fit_is_refused_and_what_was_replaced_or_removed_does_not_count() {
        check(&of_one_mib(None));
        let state = tempfile::tempdir().unwrap();
        check(&of_one_mib(Some(state.path())));
        // Another process finds what is there.
        let again = of_one_mib(Some(state.path()));
        assert!(again.put("c", &"x".repeat(MIB / 2)).is_err());
    }

    #[test]
    fn empty_values_and_blobs_count_as_well() {
        let store = of_one_mib(None);
        let fitted = (0..1000).take_while(|n| store.put(&format!("{n:04}"), "").is_ok()).count();
        assert_eq!(fitted, 255, "each takes 4 KiB and its key");
        let store = of_one_mib(None);
        let blob = vec![7; MIB / 2];
        for _ in 0..9 {
            store.put_blob(&blob).unwrap();
        }
        assert!(store.put_blob(&vec![8; MIB / 2]).is_err(), "the first counts once");
        store.put_blob(&blob).unwrap();
        store.used().forget_old_blobs(Instant::now() + WINDOW);
        store.put_blob(&vec![8; MIB / 2]).unwrap();
    }
}
