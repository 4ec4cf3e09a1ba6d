//! A store whose bytes go where the session of the call keeps its own.

use std::sync::Arc;

use super::{EngineStore, StoreError, StoreSize};
use crate::calls;
use crate::environment::SessionQueries;
use ctxhost_blobs::SessionBlobs;

/// Values in one store for all sessions, bytes with the session that they belong to.
pub(crate) struct SessionBlobStore {
    pub(crate) values: Arc<dyn EngineStore>,
    pub(crate) sessions: Arc<dyn SessionQueries>,
}

impl SessionBlobStore {
    /// The bytes of the session that a call is under way for. An engine that asks on a thread of its own
    /// does so for no session, and neither does one whose session is on no disk.
    fn blobs(&self) -> Option<SessionBlobs> {
        self.sessions.blobs(&calls::current_session()?)
    }
}

impl EngineStore for SessionBlobStore {
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

    fn size(&self) -> Result<StoreSize, StoreError> {
        self.values.size()
    }
}

impl std::fmt::Debug for SessionBlobStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BySession").field("values", &self.values).finish_non_exhaustive()
    }
}
