//! A store whose bytes go where the session of the call keeps its own.

use std::sync::Arc;

use super::{EngineStore, Kept, StoreError};
use crate::calls;
use crate::environment::SessionView;
use ctxhost_media::Blobs;

/// Values in one store for all sessions, bytes with the session that they belong to.
pub(crate) struct BySession {
    pub(crate) values: Arc<dyn EngineStore>,
    pub(crate) sessions: Arc<dyn SessionView>,
}

impl BySession {
    /// The bytes of the session that a call is under way for. An engine that asks on a thread of its own
    /// does so for no session, and neither does one whose session is on no disk.
    fn blobs(&self) -> Option<Blobs> {
        self.sessions.blobs(&calls::current_session()?)
    }
}

impl EngineStore for BySession {
    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.values.get(key)
    }

    fn put(&self, key: &str, value: &str) -> Result<(), StoreError> {
        self.values.put(key, value)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.values.delete(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.values.list(prefix)
    }

    fn put_blob(&self, bytes: &[u8]) -> Result<String, StoreError> {
        match self.blobs() {
            Some(blobs) => Ok(blobs.put(bytes)?),
            None => self.values.put_blob(bytes),
        }
    }

    fn get_blob(&self, handle: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.blobs().map_or(Ok(None), |blobs| blobs.get(handle))?;
        found.map_or_else(|| self.values.get_blob(handle), |bytes| Ok(Some(bytes)))
    }

    fn kept(&self) -> Result<Kept, StoreError> {
        self.values.kept()
    }
}

impl std::fmt::Debug for BySession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BySession").field("values", &self.values).finish_non_exhaustive()
    }
}
