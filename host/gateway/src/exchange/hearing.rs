//! What a request says that its conversation does not know yet goes into the session.

use std::ops::Range;
use std::sync::Arc;

use axum::http::HeaderMap;
use ctxhost_engine_api::{Kind, Role};

use super::client_side;
use super::desk::Desk;
use super::news::News;
use crate::thread::{
    Asked, Digest, Fit, Last, Outline, Rewrite, Thread, has_compactions, text_name, text_of_content,
};
use ctxhost_context::accounting::Accounting;
use ctxhost_context::{Amendment, BackTo};
use ctxhost_dialects::inbound::{BadBody, InboundDialect, ParseContext, ParsedEntry};
use ctxhost_history::Until;
use ctxhost_runtime::{SessionGuard, SessionId, TurnError};
use ctxhost_session::{Header, RecordBody, Session, SessionError, injected};

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
    pub(super) guard: SessionGuard,
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
    pub(super) speech: &'static dyn InboundDialect,
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
            let Some(guard) = self.enter(&thread).await else { continue };
            let fit = thread.state().fit(asked);
            match fit {
                Fit::GoesOn { .. } => return self.go_on(thread, guard, words, asked).await,
                Fit::Rewritten(rewrite) => {
                    if let Some(amended) = amended(&thread, words.speech, &rewrite, asked)? {
                        return self.amend(amended, thread, guard, words, asked).await;
                    }
                    let units = thread.state().outline.units_before(rewrite.kept);
                    return self.fork(&thread, guard, units, words, asked).await;
                }
                Fit::Forks { units } | Fit::Within { units } => {
                    let is_out = thread.state().last == Last::Asked;
                    let is_its_name = asked.scope().is_named
                        && !thread.state().outline.is_answered_otherwise(asked);
                    if is_its_name && !is_out {
                        return self.go_back(thread, guard, units, words, asked).await;
                    }
                    drop(guard);
                    if let Some((thread, guard)) = self.summarised(words, asked).await {
                        return self.go_back(thread, guard, 0, words, asked).await;
                    }
                    let Some(guard) = self.enter(&thread).await else { continue };
                    return self.fork(&thread, guard, units, words, asked).await;
                }
                Fit::Nothing => {}
            }
        }
        if let Some((thread, guard)) = self.summarised(words, asked).await {
            return self.go_back(thread, guard, 0, words, asked).await;
        }
        let header = Header::new(None, "/", self.runtime.now_ms());
        self.begin(Session::in_memory(header), Outline::default(), None, words, asked).await
    }

    /// The conversation that goes on in a request whose beginning its client has summarised, held.
    async fn summarised(
        &self,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Option<(Arc<Thread>, SessionGuard)> {
        let summary = client_side::summary_among(asked.items());
        let aligned = self.threads.summarised(asked, summary.is_some());
        let thread = match (aligned, summary) {
            (Some(thread), _) => thread,
            (None, Some(at)) => self.asked_to_summarise(asked, at).await?,
            (None, None) => return None,
        };
        let guard = self.enter(&thread).await?;
        self.threads.add_under(words.key, &thread, self.runtime.now_ms());
        Some((thread, guard))
    }

    /// The one conversation whose client has asked for a summary and goes on from it here: the client says whose
    /// it is, or the summary quotes what the person asked.
    async fn asked_to_summarise(&self, asked: &Asked<'_>, summary: usize) -> Option<Arc<Thread>> {
        let scope = asked.scope();
        let mut threads = self.threads.asked_to_summarise(scope);
        if scope.name.is_none() {
            let text = asked.items().get(summary).copied().unwrap_or_default();
            let mut quoted = Vec::new();
            for thread in threads {
                let Some(guard) = self.enter(&thread).await else { continue };
                let task = first_task(guard.context().session().session());
                if task.is_some_and(|task| client_side::quotes(text, &task)) {
                    quoted.push(thread);
                }
            }
            threads = quoted;
        }
        let only = threads.pop()?;
        threads.is_empty().then_some(only)
    }

    /// The session of a conversation, held; `None` where it cannot be opened any more.
    pub(super) async fn enter(&self, thread: &Arc<Thread>) -> Option<SessionGuard> {
        for look in 1.. {
            let entered = match thread.session(&self.runtime, self.threads.readings()).await {
                Ok(session) => self.runtime.lock_session(&session).await,
                Err(error) => Err(error),
            };
            match entered {
                Ok(guard) => return Some(guard),
                // It was closed meanwhile, since too many are open; its file is opened again.
                Err(TurnError::NoSession { .. }) if look < MAX_LOOKS => {}
                Err(error) => {
                    tracing::warn!(%error, "a conversation cannot be gone on with");
                    self.lost(thread);
                    return None;
                }
            }
        }
        None
    }

    async fn fork(
        &self,
        thread: &Thread,
        guard: SessionGuard,
        units: usize,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let Some((outline, until)) = cut(thread, &guard, units) else {
            let header = Header::new(None, "/", self.runtime.now_ms());
            let session = Session::in_memory(header);
            return self.begin(session, Outline::default(), None, words, asked).await;
        };
        let parent = self.threads.path(thread.key(), guard.session_id());
        let session = guard.fork(&until, &parent)?;
        // What providers have said of windows is true of the fork as well.
        let learned = guard.context().accounting().clone();
        drop(guard);
        let outline = outline.measured(&session);
        self.begin(session, outline, Some(learned), words, asked).await
    }

    /// Goes on in the same session from behind some units: what followed stays in the file, as a branch that was
    /// left.
    async fn go_back(
        &self,
        thread: Arc<Thread>,
        guard: SessionGuard,
        units: usize,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let (mut outline, back_to) = match cut(&thread, &guard, units) {
            Some((outline, Until::Record(id))) => (outline, Some(BackTo::Record(id))),
            Some((outline, _)) => (outline, None),
            None => (Outline::default(), Some(BackTo::Start)),
        };
        let known = outline.len();
        let new = asked.items().get(known..).unwrap_or_default();
        outline.summarised(client_side::summary_among(new).map(|at| known + at));
        let outline = outline.measured(guard.context().session().session());
        let news = News::behind(&outline, words.speech, asked.items())?;
        let amendment = Amendment { back_to, edits: Vec::new() };
        let amended = Amended { outline, amendment, replaced: Vec::new(), said: Vec::new(), news };
        self.amend(amended, thread, guard, words, asked).await
    }

    /// Goes on with a conversation of which something was taken back or replaced.
    async fn amend(
        &self,
        amended: Amended,
        thread: Arc<Thread>,
        guard: SessionGuard,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let Amended { mut outline, amendment, replaced, said, news } = amended;
        outline.replace(asked, &replaced, said);
        let amending = Amending { outline, amendment, replaced };
        let heard = self.say(thread.clone(), guard, news, Some(amending), words, asked);
        // What stands in the file is not known: whoever opens that again knows what to make of it.
        let mut heard = heard.inspect_err(|_| self.lost(&thread))?;
        let is_compacted = has_compactions(heard.guard.context().session().session());
        heard.thread.state().is_compacted = is_compacted;
        self.keep(&mut heard).await;
        // How it begins may have changed, and so the key that it was found under.
        self.threads.register(words.key, &heard.thread);
        Ok(heard)
    }

    /// A conversation in a session of its own, in memory.
    async fn begin(
        &self,
        session: Session,
        mut outline: Outline,
        learned: Option<Accounting>,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let is_compacted = has_compactions(&session);
        let id = self.runtime.attach_session(session)?;
        let mut adopted = Adopted { desk: self, id: Some(id.clone()) };
        let mut guard = self.runtime.lock_session(&id).await?;
        if let Some(learned) = learned {
            guard.inherit(learned);
        }
        let known = outline.len();
        let new = asked.items().get(known..).unwrap_or_default();
        outline.summarised(client_side::summary_among(new).map(|at| known + at));
        if !outline.is_empty() {
            guard.append([outline.record()])?;
        }
        let news = News::behind(&outline, words.speech, asked.items())?;
        let thread = Arc::new(Thread::new(words.key, id, outline, is_compacted));
        let heard = self.say(thread, guard, news, None, words, asked)?;
        adopted.id = None;
        self.threads.add(heard.thread.clone(), self.runtime.now_ms());
        Ok(heard)
    }

    /// Goes on with a conversation that is held.
    async fn go_on(
        &self,
        thread: Arc<Thread>,
        guard: SessionGuard,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let news = News::behind(&thread.outline(), words.speech, asked.items())?;
        self.go_on_with(news, thread, guard, words, asked).await
    }

    /// The same with what has been read of it already.
    pub(super) async fn go_on_with(
        &self,
        news: News,
        thread: Arc<Thread>,
        guard: SessionGuard,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let known = thread.state().outline.len();
        let said = self.say(thread.clone(), guard, news, None, words, asked);
        // What stands in the file is not known: whoever opens that again knows what to make of it.
        let mut heard = said.inspect_err(|_| self.lost(&thread))?;
        if asked.len() > known {
            self.keep(&mut heard).await;
        }
        Ok(heard)
    }

    /// Puts a conversation into a file, where it is in none. It goes on in memory where that fails.
    pub(super) async fn keep(&self, heard: &mut Heard) {
        self.keep_session(&heard.thread, &mut heard.guard).await;
    }

    fn say(
        &self,
        thread: Arc<Thread>,
        mut guard: SessionGuard,
        news: News,
        amending: Option<Amending>,
        words: &Words<'_>,
        asked: &mut Asked<'_>,
    ) -> Result<Heard, HearError> {
        let session = guard.session_id().to_owned();
        let first_of_person = news.first_of_person();
        let News { units, mut bodies } = news;
        let entries = bodies.len();
        let is_new = !units.is_empty() || amending.is_some();
        let (ids, amended) = match amending {
            None => {
                if !units.is_empty() {
                    bodies.push(thread.outline().record_of(asked, &units, &[]));
                }
                (guard.append(bodies)?, None)
            }
            Some(Amending { outline, amendment, replaced }) => {
                bodies.push(outline.record_of(asked, &units, &replaced));
                (guard.amend(amendment, bodies)?, Some(outline))
            }
        };
        let mut state = thread.state();
        if let Some(outline) = amended {
            state.outline = Arc::new(outline);
        }
        let before = state.outline.spoke().map(str::to_owned);
        let outline = Arc::make_mut(&mut state.outline);
        outline.extend(asked, &units, ids.get(..entries).unwrap_or_default());
        outline.seen(asked);
        outline.count(&guard.view(), entries);
        let asks = client_side::asks_for_summary(words.headers, asked.items());
        state.is_asked_to_summarise = (state.is_asked_to_summarise || asks)
            && client_side::summary_among(asked.items()).is_none();
        thread.found_in(asked.scope());
        let client_compacts = client_compacts(&state.outline, words, asked);
        let is_again = state.take_opened() || !is_new;
        drop(state);
        let spoke = first_of_person.and_then(|at| ids.get(at)).cloned();
        let ended = before.zip(spoke);
        Ok(Heard { thread, guard, session, ended, client_compacts, is_again })
    }
}

/// What a client has changed of a conversation, and what it says behind that.
struct Amended {
    /// What is left of what was known.
    outline: Outline,
    amendment: Amendment,
    /// The items that say something else now.
    replaced: Vec<usize>,
    /// Their entries, and a name of what each says now.
    said: Vec<(String, u64)>,
    news: News,
}

/// The same without what comes behind.
struct Amending {
    outline: Outline,
    amendment: Amendment,
    replaced: Vec<usize>,
}

/// What is known of a conversation up to some units, and the place behind them in its session.
fn cut(thread: &Thread, guard: &SessionGuard, units: usize) -> Option<(Outline, Until)> {
    thread.outline().cut(units, guard.context().session().session())
}

/// What a client has changed; `None` where its items became other entries than before.
fn amended(
    thread: &Thread,
    speech: &dyn InboundDialect,
    rewrite: &Rewrite,
    asked: &Asked<'_>,
) -> Result<Option<Amended>, HearError> {
    let mut outline = Outline::clone(&thread.outline());
    let mut edits = Vec::new();
    let mut said = Vec::new();
    let mut seen = 0;
    for at in &rewrite.replaced {
        if *at < seen {
            continue;
        }
        let Some((items, ids)) = outline.unit_at(*at) else { return Ok(None) };
        seen = items.end;
        let Some(told) = told_again(&outline, speech, items, asked)? else { return Ok(None) };
        if told.len() != ids.len() {
            return Ok(None);
        }
        for (id, content) in ids.iter().zip(told) {
            said.push((id.clone(), text_name(&text_of_content(&content))));
            edits.push(RecordBody::context_edit(id, Some(&content)));
        }
    }
    let gone = outline.truncate(rewrite.kept);
    edits.extend(gone.iter().map(|id| RecordBody::context_edit(id, None)));
    let news = News::behind(&outline, speech, asked.items())?;
    let amendment = Amendment { back_to: None, edits };
    let replaced = rewrite.replaced.clone();
    Ok(Some(Amended { outline, amendment, replaced, said, news }))
}

/// The contents of the entries that the items of one unit are now.
fn told_again(
    outline: &Outline,
    speech: &dyn InboundDialect,
    items: Range<usize>,
    asked: &Asked<'_>,
) -> Result<Option<Vec<String>>, HearError> {
    let before = ParseContext {
        is_begin: items.start == 0,
        items: items.start,
        last: items.start.checked_sub(1).and_then(|at| asked.items().get(at)).copied(),
        tool_of: &|id| outline.tool_of(id),
    };
    let units = speech.units(asked.items().get(items).unwrap_or_default(), before)?;
    let [unit] = units.as_slice() else { return Ok(None) };
    let content = |said: &ParsedEntry| match said {
        ParsedEntry::Message(message) => {
            let message = serde_json::to_value(message).ok()?;
            Some(message.get("content")?.to_string())
        }
        ParsedEntry::Note(text) => serde_json::to_string(text).ok(),
    };
    Ok(unit.said.iter().map(content).collect())
}

/// What the person asked first, as text.
fn first_task(session: &Session) -> Option<String> {
    let entries = session.branch().into_iter().filter_map(|record| record.to_entry());
    let mut asked = entries.filter(|it| it.role == Role::User && it.kind == Kind::Message);
    asked.next().map(|entry| injected::words_of_person(&entry.text))
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

#[cfg(test)]
mod tests;
