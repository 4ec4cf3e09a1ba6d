//! What engines may query about open sessions: the full history, and the last use of the provider's cache.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::{
    Entry, EntryKind, HistoryEntry, HistoryPage, HistoryRequest, PromptCache, SessionRef,
};
use parking_lot::Mutex;

use ctxhost_blobs::{BlobDirs, SessionBlobs};
use ctxhost_engine::SessionQueries;
use ctxhost_session::{Session, SessionError};

/// The maximum number of entries per page.
const MAX_PAGE_ENTRIES: usize = 1_000;

/// How long a provider caches a prefix after its last use, in milliseconds: five minutes, Anthropic's default and the
/// shortest in common use.
pub(crate) const CACHE_TTL_MS: i64 = 300_000;

/// The queryable history of one session.
#[derive(Default)]
pub(crate) struct SessionHistory {
    state: Mutex<HistoryState>,
    blobs: Option<SessionBlobs>,
}

#[derive(Default)]
struct HistoryState {
    /// Where earlier entries are read from at the first query.
    source: Option<HistorySource>,
    entries: Vec<HistoryEntry>,
    last_touch_ms: Option<i64>,
}

/// The branch of a session file up to a record.
struct HistorySource {
    file: PathBuf,
    leaf: String,
}

impl HistorySource {
    /// `None` if the entries in memory are more complete than the file.
    fn new(session: &Session) -> Option<HistorySource> {
        let has_all = session.is_partially_loaded() || session.is_fully_written();
        let file = session.path().filter(|_| has_all)?;
        Some(HistorySource { file: file.to_owned(), leaf: session.leaf()?.id().to_owned() })
    }

    fn read(&self) -> Result<Vec<HistoryEntry>, SessionError> {
        let mut session = Session::read(&self.file)?;
        session.set_leaf(&self.leaf)?;
        Ok(branch_entries(&session))
    }
}

impl HistoryState {
    /// All entries, read from the file at the first query: most engines never query them, reading a long session takes
    /// seconds, and a copy for each of a thousand sessions would fill the memory.
    fn entries(&mut self) -> &[HistoryEntry] {
        match self.source.as_ref().map(HistorySource::read) {
            None => {}
            Some(Ok(older)) => {
                self.entries.splice(..0, older);
                self.source = None;
            }
            // The engine gets the entries in memory; the next query tries again.
            Some(Err(error)) => tracing::warn!(%error, "cannot read the history of a session"),
        }
        &self.entries
    }
}

impl SessionHistory {
    /// The full history of the session's branch, including folded entries.
    pub(crate) fn from_session(session: &Session, dirs: &BlobDirs) -> SessionHistory {
        let blobs = session.path().map(|path| dirs.session_blobs(path));
        let history = SessionHistory { blobs, ..SessionHistory::default() };
        history.replace_with(session);
        history
    }

    /// Records a request, which renews the provider's cache.
    pub(crate) fn record_cache_use(&self, now_ms: i64) {
        self.state.lock().last_touch_ms = Some(now_ms);
    }

    /// Resets the history after a change of the branch or the file.
    pub(crate) fn replace_with(&self, session: &Session) {
        let (source, entries) = match HistorySource::new(session) {
            Some(source) => (Some(source), Vec::new()),
            None => (None, branch_entries(session)),
        };
        let mut state = self.state.lock();
        (state.source, state.entries) = (source, entries);
    }

    /// Adds entries that were appended to the session.
    pub(crate) fn append<'a>(&self, entries: impl IntoIterator<Item = Entry<'a>>) {
        let entries = entries.into_iter().map(|entry| HistoryEntry {
            id: entry.id().into(),
            role: entry.role().name().into(),
            text: entry.text().into(),
            timestamp_ms: entry.timestamp_ms(),
            tokens: entry.tokens(),
        });
        self.state.lock().entries.extend(entries);
    }
}

impl SessionQueries for SessionHistory {
    fn history(&self, request: &HistoryRequest) -> HistoryPage {
        let mut state = self.state.lock();
        let entries = state.entries();
        let after = entries.iter().position(|entry| entry.id == request.after_id);
        let rest = entries.get(after.map_or(0, |at| at + 1)..).unwrap_or(&[]);
        let limit = usize::try_from(request.limit).unwrap_or(MAX_PAGE_ENTRIES);
        let page = rest.iter().take(limit.min(MAX_PAGE_ENTRIES)).cloned().collect::<Vec<_>>();
        HistoryPage { more: page.len() < rest.len(), entries: page }
    }

    fn prompt_cache(&self, _session: &SessionRef) -> PromptCache {
        let last_touch_ms = self.state.lock().last_touch_ms;
        let expires_ms = last_touch_ms.map(|touch| touch + CACHE_TTL_MS);
        PromptCache { last_touch_ms, expires_ms, ..PromptCache::default() }
    }

    fn blobs(&self, _session: &str) -> Option<SessionBlobs> {
        self.blobs.clone()
    }
}

/// The entries of a session's branch, without summaries.
fn branch_entries(session: &Session) -> Vec<HistoryEntry> {
    let entries = session.branch().into_iter().filter_map(|record| record.to_entry());
    // A summary repeats entries that are in the history.
    entries.filter(|entry| entry.kind != EntryKind::CompactionSummary).map(history_entry).collect()
}

fn history_entry(entry: NewEntry) -> HistoryEntry {
    HistoryEntry {
        id: entry.id,
        role: entry.role.name().into(),
        text: entry.text,
        timestamp_ms: entry.timestamp_ms,
        tokens: entry.tokens,
    }
}

/// The open sessions that engines may query, by id.
pub struct SessionDirectory {
    dirs: BlobDirs,
    // Weak: a registration is owned by its live session.
    sessions: Mutex<HashMap<String, Weak<SessionHistory>>>,
}

impl SessionDirectory {
    /// An empty directory. Blobs of sessions are stored in `dirs`.
    pub fn new(dirs: BlobDirs) -> SessionDirectory {
        SessionDirectory { dirs, sessions: Mutex::default() }
    }

    /// Adds a session until the registration is dropped.
    pub(crate) fn register(self: &Arc<Self>, session: &Session) -> SessionRegistration {
        let history = Arc::new(SessionHistory::from_session(session, &self.dirs));
        let id = session.header().id().to_owned();
        self.sessions.lock().insert(id.clone(), Arc::downgrade(&history));
        SessionRegistration { history, id, sessions: self.clone() }
    }

    fn get(&self, id: &str) -> Option<Arc<SessionHistory>> {
        self.sessions.lock().get(id).and_then(Weak::upgrade)
    }
}

impl std::fmt::Debug for SessionDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionDirectory").field("open", &self.sessions.lock().len()).finish()
    }
}

/// Keeps a session in the directory.
pub(crate) struct SessionRegistration {
    pub(crate) history: Arc<SessionHistory>,
    id: String,
    sessions: Arc<SessionDirectory>,
}

impl Drop for SessionRegistration {
    fn drop(&mut self) {
        let mut sessions = self.sessions.sessions.lock();
        // Another context of the same session may have replaced the entry.
        let own = Arc::downgrade(&self.history);
        if sessions.get(&self.id).is_some_and(|history| history.ptr_eq(&own)) {
            sessions.remove(&self.id);
        }
    }
}

impl std::fmt::Debug for SessionRegistration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SessionRegistration").field(&self.id).finish()
    }
}

impl SessionQueries for SessionDirectory {
    fn history(&self, request: &HistoryRequest) -> HistoryPage {
        let history = self.get(&request.session.id);
        history.map(|history| history.history(request)).unwrap_or_default()
    }

    fn prompt_cache(&self, session: &SessionRef) -> PromptCache {
        self.get(&session.id).map(|history| history.prompt_cache(session)).unwrap_or_default()
    }

    fn blobs(&self, session: &str) -> Option<SessionBlobs> {
        self.get(session)?.blobs(session)
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_session::{RecordBody, SessionHeader, SyncPolicy};

    use super::*;

    fn message(text: &str) -> RecordBody {
        let json = serde_json::json!({ "role": "user", "content": text }).to_string();
        RecordBody::message(&json).unwrap()
    }

    fn texts(history: &SessionHistory) -> Vec<String> {
        let request = HistoryRequest { limit: 100, ..HistoryRequest::default() };
        history.history(&request).entries.into_iter().map(|entry| entry.text).collect()
    }

    #[test]
    fn the_file_is_read_at_the_first_query() {
        let folder = tempfile::tempdir().unwrap();
        let dirs = BlobDirs::default();
        let mut session = Session::in_memory(SessionHeader::new(None, "/", 0));
        session.append_at(message("first"), 0).unwrap();
        assert_eq!(
            texts(&SessionHistory::from_session(&session, &dirs)),
            ["first"],
            "a session in memory has no file"
        );
        session.save_to(&folder.path().join("s.jsonl"), SyncPolicy::Os).unwrap();
        let history = SessionHistory::from_session(&session, &dirs);
        assert_eq!(history.state.lock().entries.len(), 0, "nothing is read before a query");
        session.append_at(message("later"), 0).unwrap();
        assert_eq!(texts(&history), ["first"], "later entries are appended");
        assert_eq!(history.state.lock().entries.len(), 1);
        session.enable_write_behind();
        session.append_all([message("held"), message("back")], 0).unwrap();
        let history = SessionHistory::from_session(&session, &dirs);
        assert_eq!(texts(&history), ["first", "later", "held", "back"], "the file is incomplete");
        session.flush().unwrap();
        let history = SessionHistory::from_session(&session, &dirs);
        assert_eq!(history.state.lock().entries.len(), 0);
        assert_eq!(texts(&history), ["first", "later", "held", "back"]);
    }
}
