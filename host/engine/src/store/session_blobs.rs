//! A store that keeps blobs with the session of the call.

use std::sync::Arc;

use super::{EngineStore, StoreError, StoreSize};
use crate::calls;
use crate::session_queries::SessionQueries;
use ctxhost_blobs::SessionBlobs;

/// Values in one store for all sessions, blobs with their session.
pub(crate) struct SessionBlobStore {
    pub(crate) values: Arc<dyn EngineStore>,
    pub(crate) sessions: Arc<dyn SessionQueries>,
}

impl SessionBlobStore {
    /// The blobs of the session of the running call; `None` on a thread that the engine started
    /// itself, and for a session that is not on disk.
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
        // Blobs that were put without a session are in the shared store.
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
