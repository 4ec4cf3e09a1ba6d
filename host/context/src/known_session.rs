//! What engines may know of a session beside its live transcript: its history, and when the
//! provider's cache was last touched.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::{
    Entry, HistoryEntry, HistoryPage, HistoryRequest, Kind, PromptCache, SessionRef,
};

use ctxhost_engine::SessionView;
use ctxhost_media::{Blobs, MediaHome};
use ctxhost_session::{Session, SessionError};

/// The most entries a page holds, whatever is asked for.
const MAX_PAGE_ENTRIES: usize = 1_000;

/// How long a provider keeps a prefix after its last use, in milliseconds: five minutes, the
/// shortest time to live in common use (facts, other agents 1.4).
const CACHE_TTL_MS: i64 = 300_000;

/// One session, as engines may ask about it.
#[derive(Default)]
pub(crate) struct KnownSession {
    known: Mutex<Known>,
    blobs: Option<Blobs>,
}

#[derive(Default)]
struct Known {
    /// What was said before `entries`, while nobody has asked for it.
    unread: Option<Unread>,
    entries: Vec<HistoryEntry>,
    last_touch_ms: Option<i64>,
}

/// The branch of a session file up to a record.
struct Unread {
    file: PathBuf,
    leaf: String,
}

impl Unread {
    /// Of a session whose file says it all, or knows more than was read of it.
    fn of(session: &Session) -> Option<Unread> {
        let is_read_again = session.has_unread() || session.is_in_file();
        let file = session.path().filter(|_| is_read_again)?;
        Some(Unread { file: file.to_owned(), leaf: session.leaf()?.id().to_owned() })
    }

    fn read(&self) -> Result<Vec<HistoryEntry>, SessionError> {
        let mut session = Session::read(&self.file)?;
        session.set_leaf(&self.leaf)?;
        Ok(said(&session))
    }
}

impl Known {
    /// All entries. They are read when an engine asks for them the first time: most never do, a long session takes
    /// seconds, and of each of a thousand sessions all words would be in memory once more.
    fn entries(&mut self) -> &[HistoryEntry] {
        match self.unread.as_ref().map(Unread::read) {
            None => {}
            Some(Ok(older)) => {
                self.entries.splice(..0, older);
                self.unread = None;
            }
            Some(Err(error)) => tracing::warn!(%error, "the history of a session cannot be read"),
        }
        &self.entries
    }
}

impl KnownSession {
    /// All that was ever said on the branch where a session stands, folded away or not.
    pub(crate) fn of(session: &Session, home: &MediaHome) -> KnownSession {
        let blobs = session.path().map(|path| home.of_session(path));
        let known = KnownSession { blobs, ..KnownSession::default() };
        match Unread::of(session) {
            Some(unread) => known.known().unread = Some(unread),
            None => known.known().entries = said(session),
        }
        known
    }

    /// A request began.
    pub(crate) fn touched(&self, now_ms: i64) {
        self.known().last_touch_ms = Some(now_ms);
    }

    /// The session stands on another branch, or in another file.
    pub(crate) fn replaced_by(&self, session: &Session) {
        let (unread, entries) = match Unread::of(session) {
            Some(unread) => (Some(unread), Vec::new()),
            None => (None, said(session)),
        };
        let mut known = self.known();
        (known.unread, known.entries) = (unread, entries);
    }

    /// The session has more entries.
    pub(crate) fn grew<'a>(&self, entries: impl IntoIterator<Item = Entry<'a>>) {
        let entries = entries.into_iter().map(|entry| HistoryEntry {
            id: entry.id().into(),
            role: entry.role().name().into(),
            text: entry.text().into(),
            timestamp_ms: entry.timestamp_ms(),
            tokens: entry.tokens(),
        });
        self.known().entries.extend(entries);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl SessionView for KnownSession {
    fn history(&self, request: &HistoryRequest) -> HistoryPage {
        let mut known = self.known();
        let entries = known.entries();
        let after = entries.iter().position(|entry| entry.id == request.after_id);
        let rest = entries.get(after.map_or(0, |at| at + 1)..).unwrap_or(&[]);
        let limit = usize::try_from(request.limit).unwrap_or(MAX_PAGE_ENTRIES);
        let page = rest.iter().take(limit.min(MAX_PAGE_ENTRIES)).cloned().collect::<Vec<_>>();
        HistoryPage { more: page.len() < rest.len(), entries: page }
    }

    fn prompt_cache(&self, _session: &SessionRef) -> PromptCache {
        let last_touch_ms = self.known().last_touch_ms;
        let expires_ms = last_touch_ms.map(|touch| touch + CACHE_TTL_MS);
        PromptCache { last_touch_ms, expires_ms, ..PromptCache::default() }
    }

    fn blobs(&self, _session: &str) -> Option<Blobs> {
        self.blobs.clone()
    }
}

/// What was said on the branch where a session stands.
fn said(session: &Session) -> Vec<HistoryEntry> {
    let entries = session.branch().into_iter().filter_map(|record| record.to_entry());
    entries.filter(|entry| entry.kind != Kind::CompactionSummary).map(remembered).collect()
}

fn remembered(entry: NewEntry) -> HistoryEntry {
    HistoryEntry {
        id: entry.id,
        role: entry.role.name().into(),
        text: entry.text,
        timestamp_ms: entry.timestamp_ms,
        tokens: entry.tokens,
    }
}

/// The sessions that engines may ask about, by id: those of the contexts that live.
pub struct KnownSessions {
    home: MediaHome,
    sessions: Mutex<HashMap<String, Weak<KnownSession>>>,
}

impl KnownSessions {
    /// None yet; each puts bytes away where its home says.
    pub fn new(home: MediaHome) -> KnownSessions {
        KnownSessions { home, sessions: Mutex::default() }
    }

    /// Adds a session as long as what is answered lives.
    pub(crate) fn add(self: &Arc<Self>, session: &Session) -> KnownHandle {
        let known = Arc::new(KnownSession::of(session, &self.home));
        let id = session.header().id().to_owned();
        self.sessions().insert(id.clone(), Arc::downgrade(&known));
        KnownHandle { known, id, sessions: self.clone() }
    }

    fn get(&self, id: &str) -> Option<Arc<KnownSession>> {
        self.sessions().get(id).and_then(Weak::upgrade)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Weak<KnownSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for KnownSessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownSessions").field("open", &self.sessions().len()).finish()
    }
}

/// One session among those that engines may ask about.
pub(crate) struct KnownHandle {
    pub(crate) known: Arc<KnownSession>,
    id: String,
    sessions: Arc<KnownSessions>,
}

impl Drop for KnownHandle {
    fn drop(&mut self) {
        let mut sessions = self.sessions.sessions();
        // Another context may have been opened on the same session meanwhile.
        let own = Arc::downgrade(&self.known);
        if sessions.get(&self.id).is_some_and(|known| known.ptr_eq(&own)) {
            sessions.remove(&self.id);
        }
    }
}

impl std::fmt::Debug for KnownHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KnownHandle").field(&self.id).finish()
    }
}

impl SessionView for KnownSessions {
    fn history(&self, request: &HistoryRequest) -> HistoryPage {
        let known = self.get(&request.session.id);
        known.map(|known| known.history(request)).unwrap_or_default()
    }

    fn prompt_cache(&self, session: &SessionRef) -> PromptCache {
        self.get(&session.id).map(|known| known.prompt_cache(session)).unwrap_or_default()
    }

    fn blobs(&self, session: &str) -> Option<Blobs> {
        self.get(session)?.blobs(session)
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_session::{Header, RecordBody, SyncPolicy};

    use super::*;

    fn message(text: &str) -> RecordBody {
        let json = serde_json::json!({ "role": "user", "content": text }).to_string();
        RecordBody::message(&json).unwrap()
    }

    fn texts(known: &KnownSession) -> Vec<String> {
        let request = HistoryRequest { limit: 100, ..HistoryRequest::default() };
        known.history(&request).entries.into_iter().map(|entry| entry.text).collect()
    }

    #[test]
    fn what_a_file_says_is_read_when_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let home = MediaHome::default();
        let mut session = Session::in_memory(Header::new(None, "/", 0));
        session.append_at(message("first"), 0).unwrap();
        assert_eq!(
            texts(&KnownSession::of(&session, &home)),
            ["first"],
            "there is no file to read"
        );
        session.keep_in(&folder.path().join("s.jsonl"), SyncPolicy::Os).unwrap();
        let known = KnownSession::of(&session, &home);
        assert_eq!(known.known().entries.len(), 0, "nothing is held before somebody asks");
        session.append_at(message("later"), 0).unwrap();
        assert_eq!(texts(&known), ["first"], "what came later is told by whoever appends it");
        assert_eq!(known.known().entries.len(), 1);
        session.write_behind();
        session.append_all([message("held"), message("back")], 0).unwrap();
        let known = KnownSession::of(&session, &home);
        assert_eq!(texts(&known), ["first", "later", "held", "back"], "not all is in the file");
        session.write_out().unwrap();
        let known = KnownSession::of(&session, &home);
        assert_eq!(known.known().entries.len(), 0);
        assert_eq!(texts(&known), ["first", "later", "held", "back"]);
    }
}
