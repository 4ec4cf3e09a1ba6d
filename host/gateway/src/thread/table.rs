//! The conversations that are known: those in memory, and those in the folder of their key.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::digest::{Asked, Digest, Scope};
use super::matching::Fit;
use super::outline::Outline;
use ctxhost_runtime::model_name::ModelName;
use ctxhost_runtime::{Runtime, SessionId, TurnError};
use ctxhost_session::{RecordKind, Session, SessionError, SessionFolder};

/// Conversations of one key whose sessions stay open, and that are read from a folder, the newest first:
/// more of them begin alike only where somebody goes back again and again, or a program greets alike.
const MAX_OPEN_OF_ONE_KEY: usize = 64;

/// Conversations of one key that are looked at: some kilobytes each where the session is not open.
const MAX_OF_ONE_KEY: usize = 1_024;

/// One conversation.
#[derive(Debug)]
pub struct Thread {
    key: Digest,
    state: Mutex<State>,
    /// Held by whoever opens the session.
    opening: tokio::sync::Mutex<()>,
}

/// What is known of a conversation. Whoever changes it has the lane of its session.
#[derive(Debug)]
pub struct State {
    /// Its items.
    pub outline: Outline,
    /// Whether it is in a file.
    pub is_kept: bool,
    /// Whether a compaction was applied to it.
    pub is_compacted: bool,
    /// What became of its last request.
    pub last: Last,
    /// Whether its client has asked for a summary of it, and has not gone on from one yet.
    pub is_asked_to_summarise: bool,
    /// Among whose conversations it was found last.
    pub scope: Scope,
    /// How long its engine has nothing to do; `None` where it has to be asked.
    pub rest: Option<Rest>,
    /// Whether its session was opened from a file, and no request has come since.
    is_opened: bool,
    place: SessionPlace,
}

/// An engine has said that it keeps all of a conversation while that is small.
#[derive(Clone, Debug)]
pub struct Rest {
    /// How small, in tokens as entries count.
    pub within_tokens: u64,
    /// The engine.
    pub engine: String,
    /// The model it said so for.
    pub model: ModelName,
    /// And its window, in provider tokens.
    pub window_tokens: u64,
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

    /// Whether no request has come since the session was opened from a file; one comes now.
    pub fn take_opened(&mut self) -> bool {
        std::mem::take(&mut self.is_opened)
    }
}

/// Where the session of a conversation is.
#[derive(Clone, Debug)]
enum SessionPlace {
    Open(SessionId),
    /// In a file that nobody has opened yet.
    File(PathBuf),
    /// Let go of: whoever asks for the conversation again finds another one of the same file.
    Gone,
}

impl Thread {
    /// A conversation whose session is open.
    pub fn new(key: Digest, session: SessionId, outline: Outline, is_compacted: bool) -> Thread {
        let state = State {
            outline,
            is_kept: false,
            is_compacted,
            last: Last::default(),
            is_asked_to_summarise: false,
            scope: Scope::default(),
            rest: None,
            is_opened: false,
            place: SessionPlace::Open(session),
        };
        Thread { key, state: Mutex::new(state), opening: tokio::sync::Mutex::default() }
    }

    /// The conversation of a file; `None` where it is none.
    fn of_file(key: Digest, path: &Path) -> Option<Thread> {
        let session = Session::read(path).ok()?;
        let (outline, _) = Outline::read(&session)?;
        let state = State {
            outline,
            is_kept: true,
            is_compacted: has_compactions(&session),
            last: Last::default(),
            is_asked_to_summarise: false,
            scope: Scope::default(),
            rest: None,
            is_opened: false,
            place: SessionPlace::File(path.to_owned()),
        };
        Some(Thread { key, state: Mutex::new(state), opening: tokio::sync::Mutex::default() })
    }

    /// Under which key it is looked for.
    pub fn key(&self) -> Digest {
        self.key
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
    pub async fn session(&self, runtime: &Runtime) -> Result<SessionId, TurnError> {
        if let Some(id) = self.open_session() {
            return Ok(id);
        }
        let gone = || TurnError::NoSession { id: "let go of".into() };
        let _alone = self.opening.lock().await;
        let place = self.state().place.clone();
        let path = match place {
            SessionPlace::Open(id) => return Ok(id),
            SessionPlace::File(path) => path,
            SessionPlace::Gone => return Err(gone()),
        };
        let opening = tokio::task::spawn_blocking(move || opened(&path));
        let (session, outline) = opening.await.map_err(|_| gone())??;
        let mut state = self.state();
        if matches!(state.place, SessionPlace::Gone) {
            return Err(gone());
        }
        if let Some(outline) = outline {
            state.outline = outline;
        }
        let id = runtime.adopt_guest(session)?;
        state.place = SessionPlace::Open(id.clone());
        state.is_opened = true;
        Ok(id)
    }

    fn open_session(&self) -> Option<SessionId> {
        match &self.state().place {
            SessionPlace::Open(id) => Some(id.clone()),
            SessionPlace::File(_) | SessionPlace::Gone => None,
        }
    }

    /// Its session is not needed open any more; the conversation is found again where it is in a file.
    /// Answers whether it is, and the session that was open.
    fn shelve(&self, path_of: impl Fn(&str) -> PathBuf) -> (bool, Option<SessionId>) {
        let open = self.open_session();
        let mut state = self.state();
        match (&open, state.is_kept) {
            (Some(id), true) => state.place = SessionPlace::File(path_of(id.as_str())),
            (Some(_), false) => state.place = SessionPlace::Gone,
            (None, _) => {}
        }
        (!matches!(state.place, SessionPlace::Gone), open)
    }

    /// Nobody opens its session again through this one.
    fn let_go(&self) -> Option<SessionId> {
        let open = self.open_session();
        self.state().place = SessionPlace::Gone;
        open
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

/// All conversations.
#[derive(Debug)]
pub struct Threads {
    folder: PathBuf,
    most: usize,
    keys: Mutex<HashMap<Digest, Group>>,
}

/// The conversations of one key.
#[derive(Debug, Default)]
struct Group {
    threads: Vec<Arc<Thread>>,
    used_ms: i64,
}

impl Threads {
    /// Those in a folder, of which at most `most` keys are kept in memory.
    pub fn new(folder: &Path, most: usize) -> Threads {
        Threads { folder: folder.to_owned(), most: most.max(1), keys: Mutex::default() }
    }

    /// Where the session of this id is kept, if it is.
    pub fn path(&self, key: Digest, id: &str) -> PathBuf {
        self.folder.join(key.to_hex()).join(format!("{id}.jsonl"))
    }

    /// The folder of the sessions of a key.
    pub fn folder(&self, key: Digest) -> PathBuf {
        self.folder.join(key.to_hex())
    }

    /// The conversation that has most in common with a request; `None` where none has anything.
    pub async fn find(
        &self,
        key: Digest,
        asked: &mut Asked<'_>,
        now_ms: i64,
    ) -> Option<Arc<Thread>> {
        if !self.keys().contains_key(&key) {
            let listed = self.listed(key).await;
            self.keys().entry(key).or_insert(Group { threads: listed, used_ms: now_ms });
        }
        let known = {
            let mut keys = self.keys();
            let group = keys.get_mut(&key)?;
            group.used_ms = now_ms;
            // Whoever is slow to say what it has in common keeps nobody else's requests waiting.
            group.threads.clone()
        };
        let thread = best_of(&known, asked)?;
        drop(known);
        // The one that was asked for last stays longest.
        if let Some(group) = self.keys().get_mut(&key) {
            let at = group.threads.iter().position(|known| Arc::ptr_eq(known, &thread));
            if let Some(to_first) = at.and_then(|at| group.threads.get_mut(..=at)) {
                to_first.rotate_right(1);
            }
        }
        Some(thread)
    }

    /// The conversation that a client has put a summary, or nothing, in the place of most of; `None` where
    /// none is, or several are alike.
    pub fn summarised(&self, asked: &mut Asked<'_>, has_summary: bool) -> Option<Arc<Thread>> {
        let mut best: Option<(usize, Arc<Thread>)> = None;
        let mut is_single = true;
        for thread in self.of_scope(asked.scope()) {
            let same = thread.state().outline.summarised_by(asked, has_summary);
            let Some(same) = same else { continue };
            let most = best.as_ref().map_or(0, |(most, _)| *most);
            if same > most {
                (best, is_single) = (Some((same, thread)), true);
            } else if same == most {
                is_single = false;
            }
        }
        best.filter(|_| is_single).map(|(_, thread)| thread)
    }

    /// The conversations of a scope whose client has asked for a summary of them, and has not gone on yet.
    pub fn asked_to_summarise(&self, scope: Scope) -> Vec<Arc<Thread>> {
        let mut threads = self.of_scope(scope);
        threads.retain(|thread| thread.state().is_asked_to_summarise);
        threads
    }

    /// All conversations in memory of one scope, each once.
    fn of_scope(&self, scope: Scope) -> Vec<Arc<Thread>> {
        let all: Vec<Arc<Thread>> =
            self.keys().values().flat_map(|group| group.threads.iter().cloned()).collect();
        let mut known: Vec<Arc<Thread>> = Vec::new();
        for thread in all {
            let is_its = thread.state().scope == scope;
            if is_its && !known.iter().any(|known| Arc::ptr_eq(known, &thread)) {
                known.push(thread);
            }
        }
        known
    }

    /// A conversation is found under another key as well from now on: its first words have changed.
    pub fn add_under(&self, key: Digest, thread: &Arc<Thread>, now_ms: i64) {
        let mut keys = self.keys();
        let group = keys.entry(key).or_default();
        group.used_ms = group.used_ms.max(now_ms);
        if !group.threads.iter().any(|known| Arc::ptr_eq(known, thread)) {
            group.threads.insert(0, thread.clone());
        }
    }

    /// Puts a conversation before all others of its key.
    pub fn add(&self, thread: Arc<Thread>, now_ms: i64) {
        let mut keys = self.keys();
        let group = keys.entry(thread.key).or_default();
        group.used_ms = group.used_ms.max(now_ms);
        group.threads.insert(0, thread);
    }

    /// A conversation cannot be gone on with as it is in memory: where it is in a file, it is read again,
    /// else it is forgotten. Answers its session, which is not needed open any more.
    pub fn lost(&self, thread: &Arc<Thread>) -> Vec<SessionId> {
        let open = thread.open_session();
        let mut state = thread.state();
        match &open {
            Some(id) if state.is_kept => {
                state.place = SessionPlace::File(self.path(thread.key, id.as_str()));
            }
            _ => {
                drop(state);
                if let Some(group) = self.keys().get_mut(&thread.key) {
                    group.threads.retain(|known| !Arc::ptr_eq(known, thread));
                }
            }
        }
        open.into_iter().collect()
    }

    /// Lets go of conversations that nobody has asked for since `before_ms`, and of the oldest where
    /// there are too many; answers the sessions that are not needed open any more.
    pub fn let_go(&self, before_ms: i64) -> Vec<SessionId> {
        let mut keys = self.keys();
        let mut uses: Vec<(i64, Digest)> =
            keys.iter().map(|(key, group)| (group.used_ms, *key)).collect();
        uses.sort_unstable();
        let too_many = uses.len().saturating_sub(self.most);
        let mut gone = Vec::new();
        for (nth, (used_ms, key)) in uses.into_iter().enumerate() {
            if nth < too_many || used_ms < before_ms {
                gone.extend(keys.remove(&key).into_iter().flat_map(|group| group.threads));
            }
        }
        let mut closed = Vec::new();
        for group in keys.values_mut().filter(|group| group.threads.len() > MAX_OPEN_OF_ONE_KEY) {
            let mut place = 0;
            group.threads.retain(|thread| {
                place += 1;
                // A request that is on its way with it needs it as it is.
                if place <= MAX_OPEN_OF_ONE_KEY || Arc::strong_count(thread) > 1 {
                    return true;
                }
                let (is_found, open) = thread.shelve(|id| self.path(thread.key, id));
                closed.extend(open);
                is_found && place <= MAX_OF_ONE_KEY
            });
        }
        drop(keys);
        closed.extend(gone.iter().filter_map(|thread| thread.let_go()));
        closed
    }

    /// The conversations of a key that are in files, the newest first.
    async fn listed(&self, key: Digest) -> Vec<Arc<Thread>> {
        let folder = self.folder(key);
        if !folder.is_dir() {
            return Vec::new();
        }
        let read = move || {
            let kept = SessionFolder::at(&folder).list().into_iter().take(MAX_OPEN_OF_ONE_KEY);
            kept.filter_map(|kept| Thread::of_file(key, &kept.path)).map(Arc::new).collect()
        };
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Digest, Group>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The conversation among these that a request is of, or leaves last.
fn best_of(known: &[Arc<Thread>], asked: &mut Asked<'_>) -> Option<Arc<Thread>> {
    let (mut exact, mut rewritten, mut left) = (None, None, None);
    let take = |best: &mut Option<Found>, found: Found| {
        if best.as_ref().is_none_or(|best| found.items > best.items) {
            *best = Some(found);
        }
    };
    for thread in known {
        let state = thread.state();
        let found = |items: usize, is_sure: bool| Found { items, is_sure, thread: thread.clone() };
        match state.fit(asked) {
            Fit::GoesOn { .. } => {
                take(&mut exact, found(state.outline.len(), state.outline.has_answer()));
            }
            Fit::Rewritten(rewrite) => take(&mut rewritten, found(rewrite.kept, true)),
            Fit::Forks { .. } => take(&mut left, found(state.outline.common(asked), true)),
            Fit::Within { .. } => take(&mut left, found(state.outline.common(asked), false)),
            Fit::Nothing => {}
        }
    }
    // What says the very same is it, unless that is no more than how many conversations begin.
    let on = match (exact, rewritten) {
        (Some(exact), _) if exact.is_sure => Some(exact),
        (exact, None) => exact,
        (_, rewritten) => rewritten,
    };
    match (on, left) {
        // One that is sent again from its beginning is within the first one all the time: it goes on by itself.
        (Some(on), Some(left)) if !left.is_sure || left.items <= on.items => Some(on.thread),
        (_, Some(left)) => Some(left.thread),
        (on, None) => on.map(|on| on.thread),
    }
}

/// A conversation that a request may be of.
struct Found {
    thread: Arc<Thread>,
    /// How many items they have in common.
    items: usize,
    is_sure: bool,
}
