//! One conversation: what is known of it, and where its session is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::index::IndexEntry;
use super::known_items::KnownItems;
use super::matching::RequestMatch;
use super::read_pool::ReadPool;
use super::seeded_hash::{ConversationScope, RequestItems, SeededHash};
use ctxhost_agent::{Runtime, SessionId, TurnError};
use ctxhost_context::accounting::TokenAccounting;
use ctxhost_session::{RecordKind, Session, SessionError};

/// How long a session is waited for that somebody is about to close, and how often that is looked at.
const UNLOCK_TIMEOUT: Duration = Duration::from_secs(2);
const UNLOCK_POLL: Duration = Duration::from_millis(5);

/// One conversation.
#[derive(Debug)]
pub struct Conversation {
    key: SeededHash,
    /// The id of its session.
    id: String,
    /// When it was asked for last, in milliseconds since 1970.
    used_ms: AtomicI64,
    /// Among whose conversations it was found last. Every new conversation is held against all others of its scope, and
    /// none of them is to wait for what another one's request does with its state.
    scope: Mutex<ConversationScope>,
    state: Mutex<ConversationState>,
    /// Held by whoever opens the session.
    opening: tokio::sync::Mutex<()>,
}

/// What is known of a conversation. Whoever changes it has the lane of its session.
#[derive(Debug)]
pub struct ConversationState {
    /// Its items. Whoever reads more of them than a few takes [`Conversation::outline`]: others wait for the state.
    pub known: Arc<KnownItems>,
    /// Whether it is in a file.
    pub is_persisted: bool,
    /// Whether a compaction was applied to it.
    pub is_compacted: bool,
    /// What became of its last request.
    pub last_request: LastRequest,
    /// Whether its client has asked for a summary of it, and has not gone on from one yet.
    pub awaits_summary: bool,
    /// Whether its session was opened from a file, and no request has come since.
    is_opened: bool,
    /// What its session had learned of models when it left memory.
    pub(super) learned: Option<TokenAccounting>,
    /// What was written down of it last, and below which key.
    pub(super) index_entry: Option<(SeededHash, IndexEntry)>,
    /// The keys under which it is in the table; the first is its own.
    pub(super) keys: Vec<SeededHash>,
    pub(super) location: SessionLocation,
}

/// What became of the last request of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastRequest {
    /// Nobody knows: it was before this process.
    #[default]
    Unknown,
    /// It is out.
    InFlight,
    /// It was answered to the end.
    Answered,
    /// It was refused, or broken off before its end.
    Unanswered,
}

/// A request of a conversation that is out. Dropped before it is answered, it got no answer.
#[derive(Debug, Default)]
pub struct PendingRequest(Option<Arc<Conversation>>);

impl PendingRequest {
    /// Of a request that goes out now.
    pub fn new(conversation: &Arc<Conversation>) -> PendingRequest {
        conversation.state().last_request = LastRequest::InFlight;
        PendingRequest(Some(conversation.clone()))
    }

    /// It was answered to the end.
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
    /// How a request stands to it.
    pub fn match_request(&self, request: &mut RequestItems<'_>) -> RequestMatch {
        self.known.match_request(request, self.last_request == LastRequest::Unanswered)
    }

    /// Whether nobody has written down where it is found.
    pub fn is_unindexed(&self) -> bool {
        self.index_entry.is_none()
    }

    /// Whether no request has come since the session was opened from a file; one comes now.
    pub fn take_opened(&mut self) -> bool {
        std::mem::take(&mut self.is_opened)
    }
}

/// Where the session of a conversation is.
#[derive(Clone, Debug)]
pub(super) enum SessionLocation {
    Open(SessionId),
    /// In a file that has to be opened.
    File(PathBuf),
}

/// What is remembered of a conversation that has left memory, and stands in no file.
#[derive(Clone, Debug)]
pub struct EvictedConversation {
    /// What became of its last request.
    pub last_request: LastRequest,
    /// What its session had learned of models.
    pub learned: TokenAccounting,
    /// Whether it left because there were too many.
    pub is_over_limit: bool,
}

impl Conversation {
    /// A conversation whose session is open.
    pub fn new(
        key: SeededHash,
        session: SessionId,
        known_items: KnownItems,
        is_compacted: bool,
    ) -> Conversation {
        let id = session.as_str().to_owned();
        Conversation::at(key, id, known_items, is_compacted, SessionLocation::Open(session))
    }

    /// The conversation of a file, and what is remembered of it; `None` where it is none.
    pub(super) fn from_file(
        key: SeededHash,
        path: &Path,
        left: Option<EvictedConversation>,
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
        if let Some(EvictedConversation { last_request: last, learned, .. }) = left {
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
            is_compacted,
            last_request: LastRequest::default(),
            awaits_summary: false,
            is_opened: false,
            learned: None,
            index_entry: None,
            keys: vec![key],
            location,
        };
        let (used_ms, state) = (AtomicI64::default(), Mutex::new(state));
        let (scope, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        Conversation { key, id, used_ms, scope, state, opening }
    }

    /// Under which key it is looked for.
    pub fn key(&self) -> SeededHash {
        self.key
    }

    /// The id of its session.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Somebody asks for it now.
    pub(super) fn mark_used(&self, now_ms: i64) {
        self.used_ms.fetch_max(now_ms, Ordering::Relaxed);
    }

    /// When somebody asked for it last, in milliseconds since 1970.
    pub(super) fn used_ms(&self) -> i64 {
        self.used_ms.load(Ordering::Relaxed)
    }

    /// Whether its client waits for something, or will ask again what was not answered.
    /// `None` while somebody has its state.
    pub(super) fn is_waiting(&self) -> Option<bool> {
        let state = self.try_state()?;
        let is_open = matches!(state.last_request, LastRequest::InFlight | LastRequest::Unanswered);
        Some(is_open || state.awaits_summary)
    }

    /// What is known of it; `None` while somebody else has it.
    pub(super) fn try_state(&self) -> Option<MutexGuard<'_, ConversationState>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Keeps everybody from opening its session, as long as the guard is held.
    pub async fn lock_opening(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.opening.lock().await
    }

    /// The same, where nobody opens or closes it now.
    pub fn try_lock_opening(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        self.opening.try_lock().ok()
    }

    /// Its items as they are known now. Nobody waits while they are read.
    pub fn known_items(&self) -> Arc<KnownItems> {
        self.state().known.clone()
    }

    /// Among whose conversations it was found last.
    pub(super) fn scope(&self) -> ConversationScope {
        *self.scope.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was found among the conversations of this scope.
    pub fn set_scope(&self, scope: ConversationScope) {
        *self.scope.lock().unwrap_or_else(PoisonError::into_inner) = scope;
    }

    /// What is known of it.
    pub fn state(&self) -> MutexGuard<'_, ConversationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its session, which is opened where it is not yet. A large file takes its time, and no thread that
    /// carries other requests waits for it.
    ///
    /// # Errors
    ///
    /// [`TurnError`] where the file cannot be opened, or is no conversation any more.
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

    /// Takes in that its session was opened; what that had learned before.
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
        // What was sent of it last is known where this process has seen the answer.
        state.is_opened = state.last_request != LastRequest::Answered;
        state.learned.take()
    }

    /// Its session, where that is open.
    pub fn open_session_id(&self) -> Option<SessionId> {
        match &self.state().location {
            SessionLocation::Open(id) => Some(id.clone()),
            SessionLocation::File(_) => None,
        }
    }
}

/// The session of a file, when whoever has it open in this process has closed it: work that nobody waits for may
/// hold it a moment longer than the conversation is in memory.
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

/// The session of a file, and what its records say of items.
fn open_session_file(path: &Path) -> Result<(Session, Option<KnownItems>), SessionError> {
    let mut session = Session::open(path)?;
    // What a process wrote that died before it said of what it was is left behind.
    let Some((known_items, last)) = KnownItems::read(&session) else { return Ok((session, None)) };
    if session.leaf().is_some_and(|leaf| leaf.id() != last) {
        session.set_leaf(&last)?;
    }
    Ok((session, Some(known_items)))
}

/// Whether a compaction stands on the branch of a session.
pub fn has_compactions(session: &Session) -> bool {
    session.branch().iter().any(|record| *record.kind() == RecordKind::Compaction)
}
