//! What engines may know of a session beside its live transcript: its history, and when the
//! provider's cache was last touched.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::{
    Entry, EntryKind, HistoryEntry, HistoryPage, HistoryRequest, PromptCache, SessionRef,
};

use ctxhost_blobs::{BlobDirs, SessionBlobs};
use ctxhost_engine::SessionQueries;
use ctxhost_session::{Session, SessionError};

/// The most entries a page holds, whatever is asked for.
const MAX_PAGE_ENTRIES: usize = 1_000;

/// How long a provider keeps a prefix after its last use, in milliseconds: five minutes, the
/// shortest time to live in common use (facts, other agents 1.4).
const CACHE_TTL_MS: i64 = 300_000;

/// One session, as engines may ask about it.
#[derive(Default)]
pub(crate) struct SessionHistory {
    state: Mutex<HistoryState>,
    blobs: Option<SessionBlobs>,
}

#[derive(Default)]
struct HistoryState {
    /// What was said before `entries`, while nobody has asked for it.
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
    /// Of a session whose file says it all, or knows more than was read of it.
    fn new(session: &Session) -> Option<HistorySource> {
        let is_read_again = session.is_partially_loaded() || session.is_fully_written();
        let file = session.path().filter(|_| is_read_again)?;
        Some(HistorySource { file: file.to_owned(), leaf: session.leaf()?.id().to_owned() })
    }

    fn read(&self) -> Result<Vec<HistoryEntry>, SessionError> {
        let mut session = Session::read(&self.file)?;
        session.set_leaf(&self.leaf)?;
        Ok(branch_entries(&session))
    }
}

impl HistoryState {
    /// All entries. They are read when an engine asks for them the first time: most never do, a long session takes
    /// seconds, and of each of a thousand sessions all words would be in memory once more.
    fn entries(&mut self) -> &[HistoryEntry] {
        match self.source.as_ref().map(HistorySource::read) {
            None => {}
            Some(Ok(older)) => {
                self.entries.splice(..0, older);
                self.source = None;
            }
            Some(Err(error)) => tracing::warn!(%error, "the history of a session cannot be read"),
        }
        &self.entries
    }
}

impl SessionHistory {
    /// All that was ever said on the branch where a session stands, folded away or not.
    pub(crate) fn from_session(session: &Session, home: &BlobDirs) -> SessionHistory {
        let blobs = session.path().map(|path| home.session_blobs(path));
        let known = SessionHistory { blobs, ..SessionHistory::default() };
        match HistorySource::new(session) {
            Some(unread) => known.state().source = Some(unread),
            None => known.state().entries = branch_entries(session),
        }
        known
    }

    /// A request began.
    pub(crate) fn record_cache_use(&self, now_ms: i64) {
        self.state().last_touch_ms = Some(now_ms);
    }

    /// The session stands on another branch, or in another file.
    pub(crate) fn replace_with(&self, session: &Session) {
        let (unread, entries) = match HistorySource::new(session) {
            Some(unread) => (Some(unread), Vec::new()),
            None => (None, branch_entries(session)),
        };
        let mut known = self.state();
        (known.source, known.entries) = (unread, entries);
    }

    /// The session has more entries.
    pub(crate) fn append<'a>(&self, entries: impl IntoIterator<Item = Entry<'a>>) {
        let entries = entries.into_iter().map(|entry| HistoryEntry {
            id: entry.id().into(),
            role: entry.role().name().into(),
            text: entry.text().into(),
            timestamp_ms: entry.timestamp_ms(),
            tokens: entry.tokens(),
        });
        self.state().entries.extend(entries);
    }

    fn state(&self) -> MutexGuard<'_, HistoryState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl SessionQueries for SessionHistory {
    fn history(&self, request: &HistoryRequest) -> HistoryPage {
        let mut known = self.state();
        let entries = known.entries();
        let after = entries.iter().position(|entry| entry.id == request.after_id);
        let rest = entries.get(after.map_or(0, |at| at + 1)..).unwrap_or(&[]);
        let limit = usize::try_from(request.limit).unwrap_or(MAX_PAGE_ENTRIES);
        let page = rest.iter().take(limit.min(MAX_PAGE_ENTRIES)).cloned().collect::<Vec<_>>();
        HistoryPage { more: page.len() < rest.len(), entries: page }
    }

    fn prompt_cache(&self, _session: &SessionRef) -> PromptCache {
        let last_touch_ms = self.state().last_touch_ms;
        let expires_ms = last_touch_ms.map(|touch| touch + CACHE_TTL_MS);
        PromptCache { last_touch_ms, expires_ms, ..PromptCache::default() }
    }

    fn blobs(&self, _session: &str) -> Option<SessionBlobs> {
        self.blobs.clone()
    }
}

/// What was said on the branch where a session stands.
fn branch_entries(session: &Session) -> Vec<HistoryEntry> {
    let entries = session.branch().into_iter().filter_map(|record| record.to_entry());
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

/// The sessions that engines may ask about, by id: those of the contexts that live.
pub struct SessionDirectory {
    home: BlobDirs,
    sessions: Mutex<HashMap<String, Weak<SessionHistory>>>,
}

impl SessionDirectory {
    /// None yet; each puts bytes away where its home says.
    pub fn new(home: BlobDirs) -> SessionDirectory {
        SessionDirectory { home, sessions: Mutex::default() }
    }

    /// Adds a session as long as what is answered lives.
    pub(crate) fn register(self: &Arc<Self>, session: &Session) -> SessionRegistration {
        let known = Arc::new(SessionHistory::from_session(session, &self.home));
        let id = session.header().id().to_owned();
        self.sessions().insert(id.clone(), Arc::downgrade(&known));
        SessionRegistration { history: known, id, sessions: self.clone() }
    }

    fn get(&self, id: &str) -> Option<Arc<SessionHistory>> {
        self.sessions().get(id).and_then(Weak::upgrade)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Weak<SessionHistory>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SessionDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownSessions").field("open", &self.sessions().len()).finish()
    }
}

/// One session among those that engines may ask about.
pub(crate) struct SessionRegistration {
    pub(crate) history: Arc<SessionHistory>,
    id: String,
    sessions: Arc<SessionDirectory>,
}

impl Drop for SessionRegistration {
    fn drop(&mut self) {
        let mut sessions = self.sessions.sessions();
        // Another context may have been opened on the same session meanwhile.
        let own = Arc::downgrade(&self.history);
        if sessions.get(&self.id).is_some_and(|known| known.ptr_eq(&own)) {
            sessions.remove(&self.id);
        }
    }
}

impl std::fmt::Debug for SessionRegistration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KnownHandle").field(&self.id).finish()
    }
}

impl SessionQueries for SessionDirectory {
    fn history(&self, request: &HistoryRequest) -> HistoryPage {
        let known = self.get(&request.session.id);
        known.map(|known| known.history(request)).unwrap_or_default()
    }

    fn prompt_cache(&self, session: &SessionRef) -> PromptCache {
        self.get(&session.id).map(|known| known.prompt_cache(session)).unwrap_or_default()
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

    fn texts(known: &SessionHistory) -> Vec<String> {
        let request = HistoryRequest { limit: 100, ..HistoryRequest::default() };
        known.history(&request).entries.into_iter().map(|entry| entry.text).collect()
    }

    #[test]
    fn what_a_file_says_is_read_when_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let home = BlobDirs::default();
        let mut session = Session::in_memory(SessionHeader::new(None, "/", 0));
        session.append_at(message("first"), 0).unwrap();
        assert_eq!(
            texts(&SessionHistory::from_session(&session, &home)),
            ["first"],
            "there is no file to read"
        );
        session.save_to(&folder.path().join("s.jsonl"), SyncPolicy::Os).unwrap();
        let known = SessionHistory::from_session(&session, &home);
        assert_eq!(known.state().entries.len(), 0, "nothing is held before somebody asks");
        session.append_at(message("later"), 0).unwrap();
        assert_eq!(texts(&known), ["first"], "what came later is told by whoever appends it");
        assert_eq!(known.state().entries.len(), 1);
        session.enable_write_behind();
        session.append_all([message("held"), message("back")], 0).unwrap();
        let known = SessionHistory::from_session(&session, &home);
        assert_eq!(texts(&known), ["first", "later", "held", "back"], "not all is in the file");
        session.flush().unwrap();
        let known = SessionHistory::from_session(&session, &home);
        assert_eq!(known.state().entries.len(), 0);
        assert_eq!(texts(&known), ["first", "later", "held", "back"]);
    }
}
