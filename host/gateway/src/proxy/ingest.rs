//! What a request says that its conversation does not know yet goes into the session.

use std::ops::Range;
use std::sync::Arc;

use axum::http::HeaderMap;
use ctxhost_engine_api::{EntryKind, Role};

use super::client_compaction;
use super::core::Proxy;
use super::new_items::NewItems;
use crate::conversations::{
    Conversation, HistoryRewrite, KnownItems, LastRequest, RequestItems, RequestMatch, SeededHash,
    has_compactions, text_hash, text_of_content,
};
use ctxhost_agent::{SessionGuard, SessionId, TurnError};
use ctxhost_context::accounting::TokenAccounting;
use ctxhost_context::{Amendment, BranchPoint};
use ctxhost_dialects::inbound::{InboundDialect, InboundError, ParseContext, ParsedEntry};
use ctxhost_history::ForkPoint;
use ctxhost_session::{RecordBody, Session, SessionError, SessionHeader, injected_text};

/// How often a conversation is looked for again that another request has changed meanwhile. Each time
/// somebody else went on with it.
const MAX_LOOKS: usize = 8;

/// Why a request could not be heard.
#[derive(Debug, thiserror::Error)]
pub(super) enum IngestError {
    /// Its messages are none of the dialect.
    #[error(transparent)]
    Body(#[from] InboundError),
    /// The session cannot be used.
    #[error(transparent)]
    Turn(#[from] TurnError),
    /// The session cannot be written.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// A request whose words are in the session.
#[derive(Debug)]
pub(super) struct IngestedRequest {
    /// Its conversation.
    pub(super) conversation: Arc<Conversation>,
    /// Its session, held.
    pub(super) guard: SessionGuard,
    /// The id of its session.
    pub(super) session: String,
    /// The turn that ended with it: its first record, and the first one of the next turn.
    pub(super) ended_turn: Option<(String, String)>,
    /// Whether its client compacts by itself.
    pub(super) client_compacts: bool,
    /// Whether it is a request of before once more, or the first one since its session was opened: what
    /// was sent of it then is what the provider has in its cache.
    pub(super) is_repeat: bool,
}

impl IngestedRequest {
    /// Whether it is only to be made to fit.
    pub(super) fn is_fit_only(&self) -> bool {
        self.client_compacts || self.is_repeat
    }
}

/// A request that is about to be heard.
pub(super) struct RequestMeta<'a> {
    pub(super) inbound: &'static dyn InboundDialect,
    pub(super) headers: &'a HeaderMap,
    pub(super) key: SeededHash,
}

impl Proxy {
    /// Hears a request: it goes on with a conversation, leaves one, or begins one.
    pub(super) async fn ingest(
        &self,
        words: &RequestMeta<'_>,
        asked: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        for _ in 0..MAX_LOOKS {
            let now_ms = self.runtime.now_ms();
            let Some(thread) = self.conversations.find(words.key, asked, now_ms).await else {
                break;
            };
            let Some(guard) = self.lock_conversation(&thread).await else { continue };
            let fit = thread.state().match_request(asked);
            match fit {
                RequestMatch::Continues { .. } => {
                    return self.resume(thread, guard, words, asked).await;
                }
                RequestMatch::Rewrites(rewrite) => {
                    if let Some(amended) = find_amendment(&thread, words.inbound, &rewrite, asked)?
                    {
                        return self.amend(amended, thread, guard, words, asked).await;
                    }
                    let units = thread.state().known.groups_before(rewrite.kept);
                    return self.fork(&thread, guard, units, words, asked).await;
                }
                RequestMatch::Forks { units } | RequestMatch::Within { units } => {
                    let is_out = thread.state().last_request == LastRequest::InFlight;
                    let is_its_name = asked.scope().is_named
                        && !thread.state().known.has_other_first_answer(asked);
                    if is_its_name && !is_out {
                        return self.rewind(thread, guard, units, words, asked).await;
                    }
                    drop(guard);
                    if let Some((thread, guard)) = self.find_summarised(words, asked).await {
                        return self.rewind(thread, guard, 0, words, asked).await;
                    }
                    let Some(guard) = self.lock_conversation(&thread).await else { continue };
                    return self.fork(&thread, guard, units, words, asked).await;
                }
                RequestMatch::Unrelated => {}
            }
        }
        if let Some((thread, guard)) = self.find_summarised(words, asked).await {
            return self.rewind(thread, guard, 0, words, asked).await;
        }
        let header = SessionHeader::new(None, "/", self.runtime.now_ms());
        self.start(Session::in_memory(header), KnownItems::default(), None, words, asked).await
    }

    /// The conversation that goes on in a request whose beginning its client has summarised, held.
    async fn find_summarised(
        &self,
        words: &RequestMeta<'_>,
        asked: &mut RequestItems<'_>,
    ) -> Option<(Arc<Conversation>, SessionGuard)> {
        let summary = client_compaction::find_summary(asked.items());
        let aligned = self.conversations.find_by_summary(asked, summary.is_some());
        let thread = match (aligned, summary) {
            (Some(thread), _) => thread,
            (None, Some(at)) => self.find_awaiting_summary(asked, at).await?,
            (None, None) => return None,
        };
        let guard = self.lock_conversation(&thread).await?;
        self.conversations.add_key(words.key, &thread, self.runtime.now_ms());
        Some((thread, guard))
    }

    /// The one conversation whose client has asked for a summary and goes on from it here: the client says whose
    /// it is, or the summary quotes what the person asked.
    async fn find_awaiting_summary(
        &self,
        asked: &RequestItems<'_>,
        summary: usize,
    ) -> Option<Arc<Conversation>> {
        let scope = asked.scope();
        let mut threads = self.conversations.awaiting_summary(scope);
        if scope.name.is_none() {
            let text = asked.items().get(summary).copied().unwrap_or_default();
            let mut quoted = Vec::new();
            for thread in threads {
                let Some(guard) = self.lock_conversation(&thread).await else { continue };
                let task = first_user_text(guard.context().session().session());
                if task.is_some_and(|task| client_compaction::quotes_task(text, &task)) {
                    quoted.push(thread);
                }
            }
            threads = quoted;
        }
        let only = threads.pop()?;
        threads.is_empty().then_some(only)
    }

    /// The session of a conversation, held; `None` where it cannot be opened any more.
    pub(super) async fn lock_conversation(
        &self,
        thread: &Arc<Conversation>,
    ) -> Option<SessionGuard> {
        for look in 1.. {
            let entered = match thread.open(&self.runtime, self.conversations.read_pool()).await {
                Ok(session) => self.runtime.lock_session(&session).await,
                Err(error) => Err(error),
            };
            match entered {
                Ok(guard) => return Some(guard),
                // It was closed meanwhile, since too many are open; its file is opened again.
                Err(TurnError::NoSession { .. }) if look < MAX_LOOKS => {}
                Err(error) => {
                    tracing::warn!(%error, "a conversation cannot be gone on with");
                    self.invalidate(thread);
                    return None;
                }
            }
        }
        None
    }

    async fn fork(
        &self,
        thread: &Conversation,
        guard: SessionGuard,
        units: usize,
        words: &RequestMeta<'_>,
        asked: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let Some((outline, until)) = cut(thread, &guard, units) else {
            let header = SessionHeader::new(None, "/", self.runtime.now_ms());
            let session = Session::in_memory(header);
            return self.start(session, KnownItems::default(), None, words, asked).await;
        };
        let parent = self.conversations.path(thread.key(), guard.session_id());
        let session = guard.fork(&until, &parent)?;
        // What providers have said of windows is true of the fork as well.
        let learned = guard.context().accounting().clone();
        drop(guard);
        let outline = outline.with_measurements(&session);
        self.start(session, outline, Some(learned), words, asked).await
    }

    /// Goes on in the same session from behind some units: what followed stays in the file, as a branch that was
    /// left.
    async fn rewind(
        &self,
        thread: Arc<Conversation>,
        guard: SessionGuard,
        units: usize,
        words: &RequestMeta<'_>,
        asked: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let (mut outline, back_to) = match cut(&thread, &guard, units) {
            Some((outline, ForkPoint::Record(id))) => (outline, Some(BranchPoint::Record(id))),
            Some((outline, _)) => (outline, None),
            None => (KnownItems::default(), Some(BranchPoint::Start)),
        };
        let known = outline.len();
        let new = asked.items().get(known..).unwrap_or_default();
        outline.set_summary(client_compaction::find_summary(new).map(|at| known + at));
        let outline = outline.with_measurements(guard.context().session().session());
        let news = NewItems::parse(&outline, words.inbound, asked.items())?;
        let amendment = Amendment { branch_point: back_to, edits: Vec::new() };
        let amended = ConversationAmendment {
            outline,
            amendment,
            replaced: Vec::new(),
            said: Vec::new(),
            news,
        };
        self.amend(amended, thread, guard, words, asked).await
    }

    /// Goes on with a conversation of which something was taken back or replaced.
    async fn amend(
        &self,
        amended: ConversationAmendment,
        thread: Arc<Conversation>,
        guard: SessionGuard,
        words: &RequestMeta<'_>,
        asked: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let ConversationAmendment { mut outline, amendment, replaced, said, news } = amended;
        outline.replace(asked, &replaced, said);
        let amending = PendingAmendment { outline, amendment, replaced };
        let heard = self.append(thread.clone(), guard, news, Some(amending), words, asked);
        // What stands in the file is not known: whoever opens that again knows what to make of it.
        let mut heard = heard.inspect_err(|_| self.invalidate(&thread))?;
        let is_compacted = has_compactions(heard.guard.context().session().session());
        heard.conversation.state().is_compacted = is_compacted;
        self.persist(&mut heard).await;
        // How it begins may have changed, and so the key that it was found under.
        self.conversations.index(words.key, &heard.conversation);
        Ok(heard)
    }

    /// A conversation in a session of its own, in memory.
    async fn start(
        &self,
        session: Session,
        mut outline: KnownItems,
        learned: Option<TokenAccounting>,
        words: &RequestMeta<'_>,
        asked: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let is_compacted = has_compactions(&session);
        let id = self.runtime.attach_session(session)?;
        let mut adopted = CloseOnDrop { desk: self, id: Some(id.clone()) };
        let mut guard = self.runtime.lock_session(&id).await?;
        if let Some(learned) = learned {
            guard.inherit(learned);
        }
        let known = outline.len();
        let new = asked.items().get(known..).unwrap_or_default();
        outline.set_summary(client_compaction::find_summary(new).map(|at| known + at));
        if !outline.is_empty() {
            guard.append([outline.record()])?;
        }
        let news = NewItems::parse(&outline, words.inbound, asked.items())?;
        let thread = Arc::new(Conversation::new(words.key, id, outline, is_compacted));
        let heard = self.append(thread, guard, news, None, words, asked)?;
        adopted.id = None;
        self.conversations.add(heard.conversation.clone(), self.runtime.now_ms());
        Ok(heard)
    }

    /// Goes on with a conversation that is held.
    async fn resume(
        &self,
        thread: Arc<Conversation>,
        guard: SessionGuard,
        words: &RequestMeta<'_>,
        asked: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let news = NewItems::parse(&thread.known_items(), words.inbound, asked.items())?;
        self.resume_with(news, thread, guard, words, asked).await
    }

    /// The same with what has been read of it already.
    pub(super) async fn resume_with(
        &self,
        news: NewItems,
        thread: Arc<Conversation>,
        guard: SessionGuard,
        words: &RequestMeta<'_>,
        asked: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let known = thread.state().known.len();
        let said = self.append(thread.clone(), guard, news, None, words, asked);
        // What stands in the file is not known: whoever opens that again knows what to make of it.
        let mut heard = said.inspect_err(|_| self.invalidate(&thread))?;
        if asked.len() > known {
            self.persist(&mut heard).await;
        }
        Ok(heard)
    }

    /// Puts a conversation into a file, where it is in none. It goes on in memory where that fails.
    pub(super) async fn persist(&self, heard: &mut IngestedRequest) {
        self.persist_session(&heard.conversation, &mut heard.guard).await;
    }

    fn append(
        &self,
        thread: Arc<Conversation>,
        mut guard: SessionGuard,
        news: NewItems,
        amending: Option<PendingAmendment>,
        words: &RequestMeta<'_>,
        asked: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let session = guard.session_id().to_owned();
        let first_of_person = news.first_user_entry();
        let NewItems { groups: units, mut bodies } = news;
        let entries = bodies.len();
        let is_new = !units.is_empty() || amending.is_some();
        let (ids, amended) = match amending {
            None => {
                if !units.is_empty() {
                    bodies.push(thread.known_items().record_with(asked, &units, &[]));
                }
                (guard.append(bodies)?, None)
            }
            Some(PendingAmendment { outline, amendment, replaced }) => {
                bodies.push(outline.record_with(asked, &units, &replaced));
                (guard.amend(amendment, bodies)?, Some(outline))
            }
        };
        let mut state = thread.state();
        if let Some(outline) = amended {
            state.known = Arc::new(outline);
        }
        let before = state.known.last_user_entry().map(str::to_owned);
        let outline = Arc::make_mut(&mut state.known);
        outline.extend(asked, &units, ids.get(..entries).unwrap_or_default());
        outline.update_raw_hashes(asked);
        outline.add_tokens(&guard.view(), entries);
        let asks = client_compaction::asks_for_summary(words.headers, asked.items());
        state.awaits_summary = (state.awaits_summary || asks)
            && client_compaction::find_summary(asked.items()).is_none();
        thread.set_scope(asked.scope());
        let client_compacts = client_compacts(&state.known, words, asked);
        let is_again = state.take_opened() || !is_new;
        drop(state);
        let spoke = first_of_person.and_then(|at| ids.get(at)).cloned();
        let ended = before.zip(spoke);
        Ok(IngestedRequest {
            conversation: thread,
            guard,
            session,
            ended_turn: ended,
            client_compacts,
            is_repeat: is_again,
        })
    }
}

/// What a client has changed of a conversation, and what it says behind that.
struct ConversationAmendment {
    /// What is left of what was known.
    outline: KnownItems,
    amendment: Amendment,
    /// The items that say something else now.
    replaced: Vec<usize>,
    /// Their entries, and a name of what each says now.
    said: Vec<(String, u64)>,
    news: NewItems,
}

/// The same without what comes behind.
struct PendingAmendment {
    outline: KnownItems,
    amendment: Amendment,
    replaced: Vec<usize>,
}

/// What is known of a conversation up to some units, and the place behind them in its session.
fn cut(
    thread: &Conversation,
    guard: &SessionGuard,
    units: usize,
) -> Option<(KnownItems, ForkPoint)> {
    thread.known_items().cut(units, guard.context().session().session())
}

/// What a client has changed; `None` where its items became other entries than before.
fn find_amendment(
    thread: &Conversation,
    speech: &dyn InboundDialect,
    rewrite: &HistoryRewrite,
    asked: &RequestItems<'_>,
) -> Result<Option<ConversationAmendment>, IngestError> {
    let mut outline = KnownItems::clone(&thread.known_items());
    let mut edits = Vec::new();
    let mut said = Vec::new();
    let mut seen = 0;
    for at in &rewrite.replaced {
        if *at < seen {
            continue;
        }
        let Some((items, ids)) = outline.group_at(*at) else { return Ok(None) };
        seen = items.end;
        let Some(told) = reparse_unit(&outline, speech, items, asked)? else { return Ok(None) };
        if told.len() != ids.len() {
            return Ok(None);
        }
        for (id, content) in ids.iter().zip(told) {
            said.push((id.clone(), text_hash(&text_of_content(&content))));
            edits.push(RecordBody::context_edit(id, Some(&content)));
        }
    }
    let gone = outline.truncate(rewrite.kept);
    edits.extend(gone.iter().map(|id| RecordBody::context_edit(id, None)));
    let news = NewItems::parse(&outline, speech, asked.items())?;
    let amendment = Amendment { branch_point: None, edits };
    let replaced = rewrite.replaced.clone();
    Ok(Some(ConversationAmendment { outline, amendment, replaced, said, news }))
}

/// The contents of the entries that the items of one unit are now.
fn reparse_unit(
    outline: &KnownItems,
    speech: &dyn InboundDialect,
    items: Range<usize>,
    asked: &RequestItems<'_>,
) -> Result<Option<Vec<String>>, IngestError> {
    let before = ParseContext {
        is_start: items.start == 0,
        item_count: items.start,
        last_item: items.start.checked_sub(1).and_then(|at| asked.items().get(at)).copied(),
        tool_name_of: &|id| outline.tool_of(id),
    };
    let units = speech.parse_items(asked.items().get(items).unwrap_or_default(), before)?;
    let [unit] = units.as_slice() else { return Ok(None) };
    let content = |said: &ParsedEntry| match said {
        ParsedEntry::Message(message) => {
            let message = serde_json::to_value(message).ok()?;
            Some(message.get("content")?.to_string())
        }
        ParsedEntry::Note(text) => serde_json::to_string(text).ok(),
    };
    Ok(unit.entries.iter().map(content).collect())
}

/// What the person asked first, as text.
fn first_user_text(session: &Session) -> Option<String> {
    let entries = session.branch().into_iter().filter_map(|record| record.to_entry());
    let mut asked = entries.filter(|it| it.role == Role::User && it.kind == EntryKind::Message);
    asked.next().map(|entry| injected_text::user_text(&entry.text))
}

/// A session that nobody could find again, until its request is heard: it is closed where it never is.
struct CloseOnDrop<'a> {
    desk: &'a Proxy,
    id: Option<SessionId>,
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.desk.close_sessions(self.id.take().into_iter().collect());
    }
}

/// Whether the client of a conversation compacts it by itself.
pub(super) fn client_compacts(
    outline: &KnownItems,
    words: &RequestMeta<'_>,
    asked: &RequestItems<'_>,
) -> bool {
    outline.has_summary()
        || client_compaction::has_compacted(words.headers)
        || client_compaction::asks_for_summary(words.headers, asked.items())
}

#[cfg(test)]
mod tests;
