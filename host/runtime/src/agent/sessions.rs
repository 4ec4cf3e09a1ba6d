//! The sessions of a runtime: each file open once, each found by its id.

use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::future::poll_fn;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Mutex as AsyncMutex;

use super::{Runtime, Shared};
use crate::canary::Family;
use crate::inbox::{Inbox, InboxError};
use crate::lane::{LaneGuard, Lanes};
use crate::memory::{Notes, SessionMemory};
use crate::precompute::Waiting;
use crate::subagent::Children;
use crate::turn::TurnError;
use ctxhost_config::MediaPlace;
use ctxhost_context::{Context, LiveSession};
use ctxhost_dialects::ChatMessage;
use ctxhost_dialects::message::UserMessage;
use ctxhost_media::Images;
use ctxhost_session::keeper::SharedLane;
use ctxhost_session::{Header, Session};
use ctxhost_store::SessionStore;

/// The id of a session. Opaque: never a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(Arc<str>);

impl SessionId {
    /// As it stands in the session file.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A session of a runtime.
pub(crate) struct HeldSession {
    /// What was said to it and waits; written to without waiting for a turn to end.
    pub(super) inbox: Inbox,
    /// Everything else, for whoever has its lane.
    pub(crate) open: Arc<AsyncMutex<OpenSession>>,
    /// Held while words are written down and queue up, so that they are answered in the order in which
    /// they stand in the inbox.
    queueing: AsyncMutex<()>,
    /// Who waits for its lane.
    pub(crate) waiting: Waiting,
    /// Its lane across machines, where it may be on several.
    shared_lane: Option<Arc<dyn SharedLane>>,
}

impl HeldSession {
    /// Writes words down and queues up for their turn; answers the id of the letter, and the lane when
    /// it is free.
    pub(super) async fn queue<'a>(
        &self,
        lanes: &'a Lanes,
        session: &'a SessionId,
        message: &UserMessage,
    ) -> Result<(String, impl Future<Output = LaneGuard> + Send + use<'a>), InboxError> {
        let _alone = self.queueing.lock().await;
        let id = self.inbox.push(&json_of(&ChatMessage::User(message.clone())))?;
        let mut entering = Box::pin(lanes.enter(session.as_str()));
        // A future of the lane has its place in the queue once it was asked for it.
        let entered = poll_fn(|context| Poll::Ready(entering.as_mut().poll(context))).await;
        let lane = async move {
            match entered {
                Poll::Ready(lane) => lane,
                Poll::Pending => entering.await,
            }
        };
        Ok((id, lane))
    }
}

fn json_of(message: &ChatMessage) -> String {
    serde_json::to_string(message).unwrap_or_default()
}

/// A session as a turn has it, with what was learned while it is open.
#[derive(Debug)]
pub(crate) struct OpenSession {
    pub(crate) context: Context,
    pub(crate) children: Children,
    pub(crate) memory: SessionMemory,
    /// Whose session it is, as far as canaries go.
    pub(crate) family: Family,
}

impl Runtime {
    /// How many sessions are open.
    pub fn open_sessions(&self) -> usize {
        self.shared().sessions().len()
    }

    /// Opens a session file. What was said to it and not heard, because a process died, waits for its
    /// next turn; a compaction that was worked out and not recorded yet is recorded now.
    ///
    /// # Errors
    ///
    /// As [`Session::open`], or where the inbox beside it cannot be read.
    pub fn open_session(&self, path: &Path) -> Result<SessionId, TurnError> {
        self.adopt_session(Session::open(path)?)
    }

    /// Begins a session in a file that is not there yet. Tools work in `cwd`.
    ///
    /// # Errors
    ///
    /// As [`Session::create`].
    pub fn create_session(&self, path: &Path, cwd: &Path) -> Result<SessionId, TurnError> {
        let cwd = std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
        self.adopt_session(Session::create(path, &cwd.display().to_string(), None)?)
    }

    /// Opens a session of the store by its id. Other machines may have it open too; a turn waits for
    /// theirs.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoStore`], or as [`SessionStore::open`].
    pub fn open_stored_session(&self, id: &str) -> Result<SessionId, TurnError> {
        self.adopt_session(self.store()?.open(id)?)
    }

    /// Begins a session in the store. Tools work in `cwd`.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoStore`], or as [`SessionStore::create`].
    pub fn create_stored_session(&self, cwd: &Path) -> Result<SessionId, TurnError> {
        let cwd = std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
        let now_ms = self.shared.clock().now_ms();
        let header = Header::new(None, &cwd.display().to_string(), now_ms);
        self.adopt_session(self.store()?.create(header)?)
    }

    fn store(&self) -> Result<&dyn SessionStore, TurnError> {
        self.shared.store.as_deref().ok_or(TurnError::NoStore)
    }

    /// Takes over a session that is open already, such as one in memory.
    ///
    /// # Errors
    ///
    /// Where the inbox beside it cannot be read.
    pub fn adopt_session(&self, session: Session) -> Result<SessionId, TurnError> {
        Ok(self.shared.take_in(session, None)?)
    }

    /// Closes a session once its turns have ended. Its file can be opened again afterwards.
    pub fn close_session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Ok(held) = self.shared.session(session) else { return };
            let _waiting = held.waiting.begin();
            // Nothing is written, so it is closed whether other machines are at work in it or not.
            let _lane = self.shared.lanes.enter(session.as_str()).await;
            if self.shared.is_open(session, &held) {
                self.shared.close(session.as_str());
            }
        })
    }

    /// Looks at a session between two turns.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`].
    pub async fn look<T>(
        &self,
        session: &SessionId,
        look: impl FnOnce(&LiveSession) -> T,
    ) -> Result<T, TurnError> {
        let held = self.shared.session(session)?;
        let open = held.open.lock().await;
        Ok(look(open.context.session()))
    }
}

impl Shared {
    pub(crate) fn session(&self, id: &SessionId) -> Result<Arc<HeldSession>, TurnError> {
        let open = self.sessions().get(id).cloned();
        open.ok_or_else(|| TurnError::NoSession { id: id.to_string() })
    }

    /// Waits for the lane of a session. What only uses the time between two turns gives way.
    pub(crate) async fn enter(
        &self,
        session: &SessionId,
        held: &HeldSession,
    ) -> Result<LaneGuard, TurnError> {
        let _waiting = held.waiting.begin();
        let lane = self.lanes.enter(session.as_str()).await;
        self.hold(session, held, lane).await
    }

    /// Holds a session against other machines and catches up with what they wrote.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`] where it was closed while its lane was waited for.
    pub(crate) async fn hold(
        &self,
        session: &SessionId,
        held: &HeldSession,
        lane: LaneGuard,
    ) -> Result<LaneGuard, TurnError> {
        if !self.is_open(session, held) {
            return Err(TurnError::NoSession { id: session.to_string() });
        }
        let Some(shared_lane) = &held.shared_lane else { return Ok(lane) };
        let hold = lane.during_model_call(shared_lane.enter()).await?;
        let mut open = held.open.lock().await;
        let open = &mut *open;
        if open.context.session_mut().refresh()? {
            let session = open.context.session().session();
            open.children = open.children.renewed(session);
            self.prefixes.forget(session.header().id());
        }
        held.inbox.catch_up(open.context.session().session())?;
        Ok(lane.holding(hold))
    }

    /// Whether this is the session that is open under its id: it may have been closed, and opened again.
    fn is_open(&self, id: &SessionId, held: &HeldSession) -> bool {
        self.sessions().get(id).is_some_and(|open| std::ptr::eq(&**open, held))
    }

    /// Closes a session that nobody is at work in.
    pub(crate) fn close(&self, id: &str) {
        self.sessions().retain(|session, _| session.as_str() != id);
        self.prefixes.forget(id);
    }

    /// Takes over a session; that of a sub-agent belongs to the family of its agent.
    pub(crate) fn take_in(
        &self,
        session: Session,
        family: Option<&Family>,
    ) -> Result<SessionId, InboxError> {
        self.take_in_synced(session.with_sync(self.session.sync), family)
    }

    /// The same for a session whose appends last when it says so, whatever the config says.
    pub(crate) fn take_in_synced(
        &self,
        mut session: Session,
        family: Option<&Family>,
    ) -> Result<SessionId, InboxError> {
        session.recover_compaction();
        let id = SessionId(session.header().id().into());
        let inbox = Inbox::open(&session)?;
        let shared_lane = session.shared_lane();
        let images = self.images_of(&session);
        let cwd = session.header().cwd();
        let recall = |notes: &Notes| notes.recall(cwd, self.settings.notes_chars);
        let recalled = self.notes.as_ref().map(recall).unwrap_or_default();
        let began_ms = session.header().timestamp_ms();
        let own = || Family { id: id.to_string(), began_ms };
        let children = Children::of(&session);
        let mut context = Context::new(session, self.slots.current(), self.context.clone());
        context.session_mut().use_images(images);
        let open = OpenSession {
            family: family.cloned().unwrap_or_else(own),
            memory: SessionMemory::recalling(recalled),
            children,
            context,
        };
        let open = Arc::new(AsyncMutex::new(open));
        let (queueing, waiting) = (AsyncMutex::new(()), Waiting::default());
        let held = HeldSession { inbox, open, queueing, waiting, shared_lane };
        self.sessions().insert(id.clone(), Arc::new(held));
        Ok(id)
    }

    /// A session on no disk has no place to put images.
    pub(crate) fn images_of(&self, session: &Session) -> Images {
        let Some(path) = session.path() else { return Images::default() };
        let home = &self.media;
        let own = home.of_session(path);
        let blobs = match session.header().parent_session() {
            Some(parent) => own.or(home.of_session(Path::new(parent))),
            None => own,
        };
        match self.session.media {
            MediaPlace::Inline => Images::inline(blobs),
            MediaPlace::Store => Images::stored(blobs, self.session.media_inline_bytes),
        }
    }

    pub(super) fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<HeldSession>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
