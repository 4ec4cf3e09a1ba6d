//! One conversation: what is known of it, and where its session is.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::digest::{Asked, Digest, Scope};
use super::matching::Fit;
use super::outline::Outline;
use super::readings::Readings;
use super::register::Entry;
use ctxhost_context::accounting::Accounting;
use ctxhost_runtime::{Runtime, SessionId, TurnError};
use ctxhost_session::{RecordKind, Session, SessionError};

/// How long a session is waited for that somebody is about to close, and how often that is looked at.
const CLOSING: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// One conversation.
#[derive(Debug)]
pub struct Thread {
    key: Digest,
    /// The id of its session.
    id: String,
    /// When it was asked for last, in milliseconds since 1970.
    used_ms: AtomicI64,
    /// Among whose conversations it was found last. Every new conversation is held against all others of its scope, and
    /// none of them is to wait for what another one's request does with its state.
    scope: Mutex<Scope>,
    state: Mutex<State>,
    /// Held by whoever opens the session.
    opening: tokio::sync::Mutex<()>,
}

/// What is known of a conversation. Whoever changes it has the lane of its session.
#[derive(Debug)]
pub struct State {
    /// Its items. Whoever reads more of them than a few takes [`Thread::outline`]: others wait for the state.
    pub outline: Arc<Outline>,
    /// Whether it is in a file.
    pub is_kept: bool,
    /// Whether a compaction was applied to it.
    pub is_compacted: bool,
    /// What became of its last request.
    pub last: Last,
    /// Whether its client has asked for a summary of it, and has not gone on from one yet.
    pub is_asked_to_summarise: bool,
    /// Whether its session was opened from a file, and no request has come since.
    is_opened: bool,
    /// What its session had learned of models when it left memory.
    pub(super) learned: Option<Accounting>,
    /// What was written down of it last, and below which key.
    pub(super) entry: Option<(Digest, Entry)>,
    /// The keys under which it is in the table; the first is its own.
    pub(super) keys: Vec<Digest>,
    pub(super) place: SessionPlace,
}

/// What became of the last request of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Last {
    /// Nobody knows: it was before this process.
    #[default]
    Unknown,
    /// It is out.
    Asked,
    /// It was answered to the end.
    Answered,
    /// It was refused, or broken off before its end.
    Unanswered,
}

/// A request of a conversation that is out. Dropped before it is answered, it got no answer.
#[derive(Debug, Default)]
pub struct Pending(Option<Arc<Thread>>);

impl Pending {
    /// Of a request that goes out now.
    pub fn of(thread: &Arc<Thread>) -> Pending {
        thread.state().last = Last::Asked;
        Pending(Some(thread.clone()))
    }

    /// It was answered to the end.
    pub fn answered(&mut self) {
        if let Some(thread) = self.0.take() {
            thread.state().last = Last::Answered;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            thread.state().last = Last::Unanswered;
        }
    }
}

impl State {
    /// How a request stands to it.
    pub fn fit(&self, asked: &mut Asked<'_>) -> Fit {
        self.outline.fit(asked, self.last == Last::Unanswered)
    }

    /// Whether nobody has written down where it is found.
    pub fn is_unregistered(&self) -> bool {
        self.entry.is_none()
    }

    /// Whether no request has come since the session was opened from a file; one comes now.
    pub fn take_opened(&mut self) -> bool {
        std::mem::take(&mut self.is_opened)
    }
}

/// Where the session of a conversation is.
#[derive(Clone, Debug)]
pub(super) enum SessionPlace {
    Open(SessionId),
    /// In a file that has to be opened.
    File(PathBuf),
}

/// What is remembered of a conversation that has left memory, and stands in no file.
#[derive(Clone, Debug)]
pub struct Left {
    /// What became of its last request.
    pub last: Last,
    /// What its session had learned of models.
    pub learned: Accounting,
    /// Whether it left because there were too many.
    pub is_one_too_many: bool,
}

impl Thread {
    /// A conversation whose session is open.
    pub fn new(key: Digest, session: SessionId, outline: Outline, is_compacted: bool) -> Thread {
        let id = session.as_str().to_owned();
        Thread::at(key, id, outline, is_compacted, SessionPlace::Open(session))
    }

    /// The conversation of a file, and what is remembered of it; `None` where it is none.
    pub(super) fn of_file(key: Digest, path: &Path, left: Option<Left>) -> Option<Thread> {
        let session = Session::read(path).ok()?;
        let (outline, _) = Outline::read(&session)?;
        let (id, is_compacted) = (session.header().id().to_owned(), has_compactions(&session));
        let thread =
            Thread::at(key, id, outline, is_compacted, SessionPlace::File(path.to_owned()));
        let mut state = thread.state();
        state.is_kept = true;
        if let Some(Left { last, learned, .. }) = left {
            (state.last, state.learned) = (last, Some(learned));
        }
        drop(state);
        Some(thread)
    }

    pub(super) fn at(
        key: Digest,
        id: String,
        outline: Outline,
        is_compacted: bool,
        place: SessionPlace,
    ) -> Thread {
        let state = State {
            outline: Arc::new(outline),
            is_kept: false,
            is_compacted,
            last: Last::default(),
            is_asked_to_summarise: false,
            is_opened: false,
            learned: None,
            entry: None,
            keys: vec![key],
            place,
        };
        let (used_ms, state) = (AtomicI64::default(), Mutex::new(state));
        let (scope, opening) = (Mutex::default(), tokio::sync::Mutex::default());
        Thread { key, id, used_ms, scope, state, opening }
    }

    /// Under which key it is looked for.
    pub fn key(&self) -> Digest {
        self.key
    }

    /// The id of its session.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Somebody asks for it now.
    pub(super) fn used(&self, now_ms: i64) {
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
        let is_open = matches!(state.last, Last::Asked | Last::Unanswered);
        Some(is_open || state.is_asked_to_summarise)
    }

    /// What is known of it; `None` while somebody else has it.
    pub(super) fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Keeps everybody from opening its session, as long as the guard is held.
    pub async fn closing(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.opening.lock().await
    }

    /// The same, where nobody opens or closes it now.
    pub fn try_closing(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        self.opening.try_lock().ok()
    }

    /// Its items as they are known now. Nobody waits while they are read.
    pub fn outline(&self) -> Arc<Outline> {
        self.state().outline.clone()
    }

    /// Among whose conversations it was found last.
    pub(super) fn scope(&self) -> Scope {
        *self.scope.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was found among the conversations of this scope.
    pub fn found_in(&self, scope: Scope) {
        *self.scope.lock().unwrap_or_else(PoisonError::into_inner) = scope;
    }

    /// What is known of it.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its session, which is opened where it is not yet. A large file takes its time, and no thread that
    /// carries other requests waits for it.
    ///
    /// # Errors
    ///
    /// [`TurnError`] where the file cannot be opened, or is no conversation any more.
    pub async fn session(
        &self,
        runtime: &Runtime,
        readings: &Readings,
    ) -> Result<SessionId, TurnError> {
        if let Some(id) = self.open_session() {
            return Ok(id);
        }
        let _alone = self.opening.lock().await;
        let place = self.state().place.clone();
        let path = match place {
            SessionPlace::Open(id) => return Ok(id),
            SessionPlace::File(path) => path,
        };
        let (session, outline) = when_closed(&path, readings).await?;
        let id = runtime.attach_session(session)?;
        let learned = self.opened_as(&id, outline);
        if let Some(learned) = learned {
            runtime.lock_session(&id).await?.inherit(learned);
        }
        Ok(id)
    }

    /// Takes in that its session was opened; what that had learned before.
    fn opened_as(&self, id: &SessionId, outline: Option<Outline>) -> Option<Accounting> {
        let mut state = self.state();
        if let Some(outline) = outline {
            state.outline = Arc::new(outline);
        }
        state.place = SessionPlace::Open(id.clone());
        // What was sent of it last is known where this process has seen the answer.
        state.is_opened = state.last != Last::Answered;
        state.learned.take()
    }

    /// Its session, where that is open.
    pub fn open_session(&self) -> Option<SessionId> {
        match &self.state().place {
            SessionPlace::Open(id) => Some(id.clone()),
            SessionPlace::File(_) => None,
        }
    }
}

/// The session of a file, when whoever has it open in this process has closed it: work that nobody waits for may
/// hold it a moment longer than the conversation is in memory.
async fn when_closed(
    path: &Path,
    readings: &Readings,
) -> Result<(Session, Option<Outline>), SessionError> {
    let until = tokio::time::Instant::now() + CLOSING;
    loop {
        let path = path.to_owned();
        let opened = readings.read(move || opened(&path)).await;
        let opened = opened.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        match opened {
            Err(SessionError::Locked { .. }) if tokio::time::Instant::now() < until => {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            opened => return opened,
        }
    }
}

/// The session of a file, and what its records say of items.
fn opened(path: &Path) -> Result<(Session, Option<Outline>), SessionError> {
    let mut session = Session::open(path)?;
    // What a process wrote that died before it said of what it was is left behind.
    let Some((outline, last)) = Outline::read(&session) else { return Ok((session, None)) };
    if session.leaf().is_some_and(|leaf| leaf.id() != last) {
        session.set_leaf(&last)?;
    }
    Ok((session, Some(outline)))
}

/// Whether a compaction stands on the branch of a session.
pub fn has_compactions(session: &Session) -> bool {
    session.branch().iter().any(|record| *record.kind() == RecordKind::Compaction)
}
