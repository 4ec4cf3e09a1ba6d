//! What engines may query about sessions beside their live transcript.

use ctxhost_blobs::SessionBlobs;
use ctxhost_engine_api::{HistoryPage, HistoryRequest, PromptCache, SessionRef};

/// Queries about sessions. Implemented by the crates that store sessions.
pub trait SessionQueries: Send + Sync {
    /// A page of the whole session, including entries that were compacted away.
    fn history(&self, request: &HistoryRequest) -> HistoryPage;
    /// The state of the provider's prompt cache.
    fn prompt_cache(&self, session: &SessionRef) -> PromptCache;
    /// The blob store of a session; `None` for a session that is not stored on disk.
    fn blobs(&self, session: &str) -> Option<SessionBlobs>;
}
