//! A conversation: its known items, the state of its last request, and its session.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use super::alignment::AlignmentRank;
use super::index::IndexEntry;
use super::known_items::KnownItems;
use super::label::ConversationLabel;
use super::matching::{HistoryRewrite, RequestMatch};
use super::read_pool::ReadPool;
use super::seeded_hash::{ConversationScope, RequestItems, SeededHash};
use ctxhost_agent::{Runtime, SessionId, TurnError};
use ctxhost_context::accounting::TokenAccounting;
use ctxhost_session::{RecordKind, Session, SessionError};

/// How long to wait for another task to close the session file, and how often to check.
const UNLOCK_TIMEOUT: Duration = Duration::from_secs(2);
const UNLOCK_POLL: Duration = Duration::from_millis(5);

/// A conversation of a client, backed by a session.
#[derive(Debug)]
pub struct Conversation {
    key: SeededHash,
    /// The session id.
    id: String,
    /// The time of its last request, in milliseconds since 1970.
    used_ms: AtomicI64,
    /// Its size in memory as the table has counted it, in bytes.
    pub(super) memory_bytes: AtomicU64,
    /// The scope in which it was found last. Separate from the state, because every new conversation is
    /// compared with all others of its scope, and must not wait for a large request that holds their state.
    scope: Mutex<ConversationScope>,
    state: Mutex<ConversationState>,
    /// Held while the session is opened or closed.
    opening: tokio::sync::Mutex<()>,
    /// What the dashboard calls it, read from its first request in this process.
    pub label: OnceLock<Arc<ConversationLabel>>,
}

/// The mutable state of a conversation. Changing it requires the session lock.
#[derive(Debug)]
pub struct ConversationState {
    /// The known items. To read many of them take a snapshot with [`Conversation::known_items`]: other requests
    /// wait for the state.
    pub known: Arc<KnownItems>,
    /// Whether it has a session file.
    pub is_persisted: bool,
    /// Whether it was reported that its file cannot be written.
    pub is_unwritten: bool,
    /// Whether a compaction was applied to it.
    pub is_compacted: bool,
    /// The state of its last request.
    pub last_request: LastRequest,
    /// Estimated tokens of the thinking that the plan of its last request had and the request had not.
    pub lost_thinking_tokens: u64,
    /// Whether its client has asked for a summary and has not continued from one yet.
    pub awaits_summary: bool,
    /// Whether no request has come since its session was opened from a file.
    is_opened: bool,
    /// The windows and estimates learned from providers before it was evicted.
    pub learned: Option<TokenAccounting>,
    /// The last index entry written, and the key it was written under.
    pub(super) index_entry: Option<(SeededHash, IndexEntry)>,
    /// The keys under which it is in the table; the first is its own.
    pub(super) keys: Vec<SeededHash>,
    pub(super) location: SessionLocation,
}

/// The state of the last request of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastRequest {
    /// Not known: it was before this process.
    #[default]
    Unknown,
    /// It is in flight.
    InFlight,
    /// It got a complete response.
    Answered,
    /// It failed or was aborted.
    Unanswered,
}

/// Marks the last request as unanswered if dropped before [`PendingRequest::mark_answered`].
#[derive(Debug, Default)]
pub struct PendingRequest(Option<Arc<Conversation>>);

impl PendingRequest {
    /// Marks a request as in flight.
    pub fn new(conversation: &Arc<Conversation>) -> PendingRequest {
        conversation.state().last_request = LastRequest::InFlight;
        PendingRequest(Some(conversation.clone()))
    }

    /// Marks it as answered.
    pub fn mark_answered(&mut self) {
        if let Some(conversation) = self.0.take() {
            conversation.state().last_request = LastRequest::Answered;
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if let Some(conversation) = self.0.take() {
            conversation.state().last_request = LastRequest::Unanswered;
        }
    }
}

impl ConversationState {
    /// Matches a request against the conversation.
    pub fn match_request(&self, request: &mut RequestItems<'_>) -> RequestMatch {
        let is_unanswered = self.last_request == LastRequest::Unanswered;
        let found = self.known.match_request(request, is_unanswered);
        let is_other = !matches!(found, RequestMatch::Continues { .. } | RequestMatch::Rewrites(_));
        if !is_other || self.last_request == LastRequest::InFlight {
            return found;
        }
        let left_out = self.known.match_left_out(request, is_unanswered);
        left_out.map_or(found, RequestMatch::Rewrites)
    }

    /// Whether no index entry was written for it.
    pub fn is_unindexed(&self) -> bool {
        self.index_entry.is_none()
    }

    /// Whether no request has come since the session was opened from a file; resets the flag.
    pub fn take_opened(&mut self) -> bool {
        std::mem::take(&mut self.is_opened)
    }
}

/// Where the session of a conversation is.
#[derive(Clone, Debug)]
pub(super) enum SessionLocation {
    Open(SessionId),
    /// In a file that is not open.
    File(PathBuf),
}

/// What is kept in memory of an evicted conversation, because its session file does not have it.
#[derive(Clone, Debug)]
pub struct EvictedConversation {
    /// The state of its last request.
    pub last_request: LastRequest,
    /// What was learned from providers.
    pub learned: TokenAccounting,
    /// Whether it was evicted because there were too many.
    pub is_over_limit: bool,
}

impl Conversation {
    /// A conversation with an open session.
    pub fn new(
        key: SeededHash,
        session: SessionId,
        known_items: KnownItems,
        is_compacted: bool,
    ) -> Conversation {
        let id = session.as_str().to_owned();
        Conversation::at(key, id, known_items, is_compacted, SessionLocation::Open(session))
    }

    /// Reads the conversation of a session file; `None` if the file is not a conversation.
    pub(super) fn from_file(
        key: SeededHash,
        path: &Path,
        evicted: Option<EvictedConversation>,
    ) -> Option<Conversation> {
        let session = Session::read(path).ok()?;
        let (known_items, _) = KnownItems::read(&session)?;
        let (id, is_compacted) = (session.header().id().to_owned(), has_compactions(&session));
        let conversation = Conversation::at(
            key,
            id,
            known_items,
            is_compacted,
            SessionLocation::File(path.to_owned()),
        );
        let mut state = conversation.state();
        state.is_persisted = true;
        if let Some(EvictedConversation { last_request: last, learned, .. }) = evicted {
            (state.last_request, state.learned) = (last, Some(learned));
        }
        drop(state);
        Some(conversation)
    }

    pub(super) fn at(
        key: SeededHash,
        id: String,
        known_items: KnownItems,
        is_compacted: bool,
        location: SessionLocation,
    ) -> Conversation {
        let state = ConversationState {
            known: Arc::new(known_items),
            is_persisted: false,
            is_unwritten: false,
            is_compacted,
            last_request: LastRequest::default(),
            lost_thinking_tokens: 0,
            awaits_summary: false,
            is_opened: false,
            learned: None,
            index_entry: None,
            keys: vec![key],
            location,
        };
        let (used_ms, state) = (AtomicI64::default(), Mutex::new(state));
        let (scope, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        let memory_bytes = AtomicU64::default();
        Conversation {
            key,
            id,
            used_ms,
            memory_bytes,
            scope,
            state,
            opening,
            label: OnceLock::new(),
        }
    }

    /// The key under which it is searched.
    pub fn key(&self) -> SeededHash {
        self.key
    }

    /// The session id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Records a request.
    pub(super) fn mark_used(&self, now_ms: i64) {
        // Concurrent requests may record their times out of order.
        self.used_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// The time of its last request, in milliseconds since 1970.
    pub(super) fn used_ms(&self) -> i64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// Whether its client waits for a response, or will repeat a request that got none. `None` while the state
    /// is locked.
    pub(super) fn is_waiting(&self) -> Option<bool> {
        let state = self.try_state()?;
        let is_open = matches!(state.last_request, LastRequest::InFlight | LastRequest::Unanswered);
        Some(is_open || state.awaits_summary)
    }

    /// The state; `None` while it is locked.
    pub(super) fn try_state(&self) -> Option<MutexGuard<'_, ConversationState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Prevents others from opening or closing the session while the guard is held.
    pub async fn lock_opening(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.opening.lock().await
    }

    /// The same; `None` if another task opens or closes it.
    pub fn try_lock_opening(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        self.opening.try_lock().ok()
    }

    /// Aligns a request that does not begin as the conversation does; `None` while the client waits for an answer. How good
    /// the alignment is decides between conversations.
    pub fn align(&self, request: &mut RequestItems<'_>) -> Option<(HistoryRewrite, AlignmentRank)> {
        let (known_items, last) = {
            let state = self.state();
            (state.known.clone(), state.last_request)
        };
        // Comparing takes long for large requests, and others wait for the state.
        (last != LastRequest::InFlight)
            .then(|| known_items.align(request, last == LastRequest::Unanswered))?
    }

    /// A snapshot of the known items, which can be read without holding the state.
    pub fn known_items(&self) -> Arc<KnownItems> {
        self.state().known.clone()
    }

    /// The scope in which it was found last.
    pub(super) fn scope(&self) -> ConversationScope {
        *self.scope.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the scope in which it was found.
    pub fn set_scope(&self, scope: ConversationScope) {
        *self.scope.lock().unwrap_or_else(PoisonError::into_inner) = scope;
    }

    /// The state.
    pub fn state(&self) -> MutexGuard<'_, ConversationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens its session, unless it is open. A large file is read on a thread of the read pool.
    ///
    /// # Errors
    ///
    /// [`TurnError`] if the file cannot be opened or is not a conversation.
    pub async fn open(
        &self,
        runtime: &Runtime,
        readings: &ReadPool,
    ) -> Result<SessionId, TurnError> {
        if let Some(id) = self.open_session_id() {
            return Ok(id);
        }
        let _alone = self.opening.lock().await;
        let location = self.state().location.clone();
        let path = match location {
            SessionLocation::Open(id) => return Ok(id),
            SessionLocation::File(path) => path,
        };
        let (session, known_items) = open_when_unlocked(&path, readings).await?;
        let id = runtime.attach_session(session)?;
        let learned = self.mark_opened(&id, known_items);
        if let Some(learned) = learned {
            runtime.lock_session(&id).await?.inherit(learned);
        }
        Ok(id)
    }

    /// Records that the session was opened. Returns what was learned before.
    fn mark_opened(
        &self,
        id: &SessionId,
        known_items: Option<KnownItems>,
    ) -> Option<TokenAccounting> {
        let mut state = self.state();
        if let Some(known_items) = known_items {
            state.known = Arc::new(known_items);
        }
        state.location = SessionLocation::Open(id.clone());
        // After a restart the provider's cache state is unknown, unless this process has seen the last
        // response.
        state.is_opened = state.last_request != LastRequest::Answered;
        state.learned.take()
    }

    /// The id of its session, if that is open.
    pub fn open_session_id(&self) -> Option<SessionId> {
        match &self.state().location {
            SessionLocation::Open(id) => Some(id.clone()),
            SessionLocation::File(_) => None,
        }
    }
}

/// Opens a session file. Background work in this process may keep it locked for a moment after an eviction.
async fn open_when_unlocked(
    path: &Path,
    readings: &ReadPool,
) -> Result<(Session, Option<KnownItems>), SessionError> {
    let until = tokio::time::Instant::now() + UNLOCK_TIMEOUT;
    loop {
        let path = path.to_owned();
        let opened = readings.read(move || open_session_file(&path)).await;
        let opened = opened.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        match opened {
            Err(SessionError::Locked { .. }) if tokio::time::Instant::now() < until => {
                tokio::time::sleep(UNLOCK_POLL).await;
            }
            opened => return opened,
        }
    }
}

/// Opens a session file and reads its known items.
fn open_session_file(path: &Path) -> Result<(Session, Option<KnownItems>), SessionError> {
    let mut session = Session::open(path)?;
    // Records after the last outline record are from a request during which the process was killed: start a new
    // branch before them.
    let Some((known_items, last)) = KnownItems::read(&session) else { return Ok((session, None)) };
    if session.leaf().is_some_and(|leaf| leaf.id() != last) {
        session.set_leaf(&last)?;
    }
    Ok((session, Some(known_items)))
}

/// Whether the session's branch has a compaction.
pub fn has_compactions(session: &Session) -> bool {
    session.branch().iter().any(|record| *record.kind() == RecordKind::Compaction)
}
