//! What a request says that its conversation does not know yet goes into the session.

use std::sync::Arc;

use axum::http::HeaderMap;

use super::client_side;
use super::desk::Desk;
use super::news::News;
use crate::speech::{BadBody, Speech};
use crate::thread::{Asked, Digest, Fit, Outline, Thread, has_compactions};
use ctxhost_runtime::{Conversation, Passage, SessionId, TurnError};
use ctxhost_session::{Header, Session, SessionError, SessionFolder};

/// How often a conversation is looked for again that another request has changed meanwhile. Each time
/// somebody else went on with it.
const MAX_LOOKS: usize = 8;

/// Why a request could not be heard.
#[derive(Debug, thiserror::Error)]
pub(super) enum HearError {
    /// Its messages are none of the dialect.
    #[error(transparent)]
    Body(#[from] BadBody),
    /// The session cannot be used.
    #[error(transparent)]
    Turn(#[from] TurnError),
    /// The session cannot be written.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// A request whose words are in the session.
#[derive(Debug)]
pub(super) struct Heard {
    /// Its conversation.
    pub(super) thread: Arc<Thread>,
    /// Its session, held.
    pub(super) passage: Passage,
    /// The id of its session.
    pub(super) session: String,
    /// The turn that ended with it: its first record, and the first one of the next turn.
    pub(super) ended: Option<(String, String)>,
    /// Whether its client compacts by itself.
    pub(super) client_compacts: bool,
    /// Whether it is a request of before once more, or the first one since its session was opened: what
    /// was sent of it then is what the provider has in its cache.
    pub(super) is_again: bool,
}

impl Heard {
    /// Whether it is only to be made to fit.
    pub(super) fn only_fits(&self) -> bool {
        self.client_compacts || self.is_again
    }
}

/// A request that is about to be heard.
pub(super) struct Words<'a> {
    pub(super) speech: &'static dyn Speech,
    pub(super) headers: &'a HeaderMap,
    pub(super) key: Digest,
}

impl Desk {
    /// Hears a request: it goes on with a conversation, leaves one, or begins one.
    pub(super) async fn hear(
        &self,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        for _ in 0..MAX_LOOKS {
            let now_ms = self.runtime.now_ms();
            let Some(thread) = self.threads.find(words.key, asked, now_ms).await else { break };
            let Some(passage) = self.enter(&thread).await else { continue };
            let fit = thread.state().outline.fit(asked);
            match fit {
                Fit::GoesOn { .. } => return self.go_on(thread, passage, words, asked).await,
                Fit::Forks { units } => {
                    return self.fork(&thread, passage, units, words, asked).await;
                }
                Fit::Nothing => {}
            }
        }
        let header = Header::new(None, "/", self.runtime.now_ms());
        self.begin(Session::in_memory(header), Outline::default(), words, asked).await
    }

    /// The session of a conversation, held; `None` where it cannot be opened any more.
    pub(super) async fn enter(&self, thread: &Arc<Thread>) -> Option<Passage> {
        let entered = match thread.session(&self.runtime).await {
            Ok(session) => self.runtime.enter(&session).await,
            Err(error) => Err(error),
        };
        match entered {
            Ok(passage) => Some(passage),
            Err(error) => {
                tracing::warn!(%error, "a conversation cannot be gone on with");
                self.close(self.threads.lost(thread));
                None
            }
        }
    }

    async fn fork(
        &self,
        thread: &Thread,
        passage: Passage,
        units: usize,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let look =
            |conversation: &Conversation| thread.state().outline.cut(units, conversation.session());
        let Some((outline, until)) = passage.look(look).await else {
            let header = Header::new(None, "/", self.runtime.now_ms());
            return self.begin(Session::in_memory(header), Outline::default(), words, asked).await;
        };
        let parent = self.threads.path(words.key, passage.session_id());
        let session = passage.fork(&until, &parent).await?;
        drop(passage);
        let outline = outline.measured(&session);
        self.begin(session, outline, words, asked).await
    }

    /// A conversation in a session of its own, in memory.
    async fn begin(
        &self,
        session: Session,
        mut outline: Outline,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let is_compacted = has_compactions(&session);
        let id = self.runtime.adopt_guest(session)?;
        let mut adopted = Adopted { desk: self, id: Some(id.clone()) };
        let passage = self.runtime.enter(&id).await?;
        let known = outline.len();
        let new = asked.items().get(known..).unwrap_or_default();
        outline.summarised(client_side::summary_among(new).map(|at| known + at));
        if !outline.is_empty() {
            passage.append([outline.record()]).await?;
        }
        let news = News::behind(&outline, words.speech, asked.items())?;
        let thread = Arc::new(Thread::new(words.key, id, outline, is_compacted));
        let heard = self.say(thread, passage, news, words, asked).await?;
        adopted.id = None;
        self.threads.add(heard.thread.clone(), self.runtime.now_ms());
        self.tidy();
        Ok(heard)
    }

    /// Goes on with a conversation that is held.
    async fn go_on(
        &self,
        thread: Arc<Thread>,
        passage: Passage,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let news = News::behind(&thread.state().outline, words.speech, asked.items())?;
        self.go_on_with(news, thread, passage, words, asked).await
    }

    /// The same with what has been read of it already.
    pub(super) async fn go_on_with(
        &self,
        news: News,
        thread: Arc<Thread>,
        passage: Passage,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let known = thread.state().outline.len();
        let said = self.say(thread.clone(), passage, news, words, asked).await;
        // What stands in the file is not known: whoever opens that again knows what to make of it.
        let heard = said.inspect_err(|_| self.close(self.threads.lost(&thread)))?;
        if asked.len() > known {
            self.keep(&heard, words.key).await;
        }
        Ok(heard)
    }

    /// Puts a conversation into a file, where it is in none. It goes on in memory where that fails.
    pub(super) async fn keep(&self, heard: &Heard, key: Digest) {
        if heard.thread.state().is_kept {
            return;
        }
        let made = SessionFolder::at(&self.threads.folder(key)).make();
        let kept = match made {
            Ok(()) => heard.passage.keep_in(&self.threads.path(key, &heard.session)).await,
            Err(error) => Err(error),
        };
        match kept {
            Ok(()) => heard.thread.state().is_kept = true,
            Err(error) => {
                tracing::warn!(session = heard.session, %error, "a conversation is in memory only");
            }
        }
    }

    async fn say(
        &self,
        thread: Arc<Thread>,
        passage: Passage,
        news: News,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let session = passage.session_id().to_owned();
        let first_of_person = news.first_of_person();
        let News { units, mut bodies } = news;
        let entries = bodies.len();
        if !units.is_empty() {
            bodies.push(thread.state().outline.record_of(asked, &units));
        }
        // Who is dropped while it waits has said nothing; from the first record on nothing waits.
        let (ids, view) = passage.append(bodies).await?;
        let mut state = thread.state();
        let before = state.outline.spoke().map(str::to_owned);
        state.outline.extend(asked, &units, ids.get(..entries).unwrap_or_default());
        state.outline.seen(asked);
        state.outline.count(&view, entries);
        let client_compacts = client_compacts(&state.outline, words, asked);
        let is_again = state.take_opened() || units.is_empty();
        drop(state);
        let spoke = first_of_person.and_then(|at| ids.get(at)).cloned();
        let ended = before.zip(spoke);
        Ok(Heard { thread, passage, session, ended, client_compacts, is_again })
    }
}

/// A session that nobody could find again, until its request is heard: it is closed where it never is.
struct Adopted<'a> {
    desk: &'a Desk,
    id: Option<SessionId>,
}

impl Drop for Adopted<'_> {
    fn drop(&mut self) {
        self.desk.close(self.id.take().into_iter().collect());
    }
}

/// Whether the client of a conversation compacts it by itself.
pub(super) fn client_compacts(outline: &Outline, words: &Words<'_>, asked: &Asked<'_>) -> bool {
    outline.is_summarised()
        || client_side::has_compacted(words.headers)
        || client_side::asks_for_summary(words.headers, asked.items())
}
