//! Ingests a request: finds its conversation and appends its new messages to the session.

mod amendment;
mod changed_runs;
mod derived_text;
mod search;

use std::sync::Arc;

use axum::http::HeaderMap;

use self::amendment::{ConversationAmendment, find_amendment};
use super::client_compaction;
use super::core::Proxy;
use super::new_items::NewItems;
use ctxhost_agent::{SessionGuard, SessionId, TurnError};
use ctxhost_context::accounting::TokenAccounting;
use ctxhost_context::{Amendment, BranchPoint};
use ctxhost_conversations::{
    Conversation, HistoryRewrite, ItemEdits, KnownItems, LastRequest, RequestItems, RequestMatch,
    SeededHash, has_compactions,
};
use ctxhost_dialects::inbound::{InboundDialect, InboundError};
use ctxhost_history::ForkPoint;
use ctxhost_session::{Session, SessionError, SessionHeader};

/// How often the search restarts because another request has changed or closed the conversation meanwhile.
const MAX_LOOKS: usize = 8;

/// Why a request could not be ingested.
#[derive(Debug, thiserror::Error)]
pub(super) enum IngestError {
    /// Its messages are invalid in its dialect.
    #[error(transparent)]
    Body(#[from] InboundError),
    /// The session could not be opened.
    #[error(transparent)]
    Turn(#[from] TurnError),
    /// The session could not be written.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// A request whose messages are in the session.
#[derive(Debug)]
pub(super) struct IngestedRequest {
    pub(super) conversation: Arc<Conversation>,
    /// The lock on its session.
    pub(super) guard: SessionGuard,
    /// The id of its session.
    pub(super) session: String,
    /// The turn that it ended: the first record of that turn and of the next one.
    pub(super) ended_turn: Option<(String, String)>,
    pub(super) client_compacts: bool,
    /// Whether it repeats the previous request or is the first one after a restart. The provider then has its previous form
    /// in the prompt cache, and an early compaction would invalidate that.
    pub(super) is_repeat: bool,
}

impl IngestedRequest {
    /// Whether compaction runs only if the prompt does not fit.
    pub(super) fn is_fit_only(&self) -> bool {
        self.client_compacts || self.is_repeat
    }
}

/// What identifies a request beside its items.
pub(super) struct RequestMeta<'a> {
    pub(super) inbound: &'static dyn InboundDialect,
    pub(super) headers: &'a HeaderMap,
    pub(super) key: SeededHash,
    /// The name by which its client identifies the session.
    pub(super) scope: Option<&'a str>,
    /// The items that a compaction of the provider has replaced.
    pub(super) ignored_items: &'a [&'a str],
    /// Whether the provider may compact by itself.
    pub(super) provider_compacts: bool,
}

impl Proxy {
    /// Appends a request to its conversation: it continues one, forks one, or starts a new one.
    pub(super) async fn ingest(
        &self,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let ingested = self.append_request(meta, request_items).await?;
        self.conversations.record_memory(&ingested.conversation);
        Ok(ingested)
    }

    async fn append_request(
        &self,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        // A conversation may be evicted or replaced between finding and locking it.
        for _ in 0..MAX_LOOKS {
            let now_ms = self.runtime.now_ms();
            let Some(conversation) = self.conversations.find(meta.key, request_items, now_ms).await
            else {
                break;
            };
            let Some(guard) = self.lock_conversation(&conversation).await else { continue };
            let fit = conversation.state().match_request(request_items);
            match fit {
                RequestMatch::Unrelated => continue,
                RequestMatch::Continues { .. } => {
                    return self.resume(conversation, guard, meta, request_items).await;
                }
                RequestMatch::Rewrites(rewrite) => {
                    if has_foreign_summary(&conversation, &rewrite, request_items) {
                        return self.rewind(conversation, guard, 0, meta, request_items).await;
                    }
                    let session = guard.context().session().session();
                    let amended = find_amendment(
                        &conversation,
                        meta.inbound,
                        session,
                        &rewrite,
                        request_items,
                    )?;
                    if let Some(amended) = amended {
                        return self.amend(amended, conversation, guard, meta, request_items).await;
                    }
                    // An item before `kept` differs in a way that an edit does not.
                }
                RequestMatch::Forks { .. } | RequestMatch::Within { .. } => {}
            }
            // Looking for another conversation locks others, and two requests doing that would wait for each other.
            drop(guard);
            let found = Some(&conversation);
            if let Some(ingested) = self.resume_edited(found, meta, request_items).await? {
                return Ok(ingested);
            }
            let Some(guard) = self.lock_conversation(&conversation).await else { continue };
            let is_in_flight = conversation.state().last_request == LastRequest::InFlight;
            let known = conversation.known_items();
            let groups = known.groups_before(known.common_items(request_items));
            // A name from our header means one session: a request that leaves the history becomes a branch instead of a
            // fork.
            if is_of_same_name(&known, request_items) && !is_in_flight {
                return self.rewind(conversation, guard, groups, meta, request_items).await;
            }
            return self.fork(&conversation, guard, groups, meta, request_items).await;
        }
        if let Some(ingested) = self.resume_edited(None, meta, request_items).await? {
            return Ok(ingested);
        }
        let header = SessionHeader::new(None, "/", self.runtime.now_ms());
        self.start(Session::in_memory(header), KnownItems::default(), None, meta, request_items)
            .await
    }

    /// Opens and locks the session of a conversation; `None` if that fails.
    pub(super) async fn lock_conversation(
        &self,
        conversation: &Arc<Conversation>,
    ) -> Option<SessionGuard> {
        for look in 1.. {
            let entered =
                match conversation.open(&self.runtime, self.conversations.read_pool()).await {
                    Ok(session) => self.runtime.lock_session(&session).await,
                    Err(error) => Err(error),
                };
            match entered {
                Ok(guard) => return Some(guard),
                // Evicted meanwhile: reopen the file.
                Err(TurnError::NoSession { .. }) if look < MAX_LOOKS => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot open the session; the request looks for its conversation again");
                    self.invalidate(conversation);
                    return None;
                }
            }
        }
        None
    }

    async fn fork(
        &self,
        conversation: &Conversation,
        guard: SessionGuard,
        groups: usize,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let Some((known_items, until)) = cut(conversation, &guard, groups) else {
            let header = SessionHeader::new(None, "/", self.runtime.now_ms());
            let session = Session::in_memory(header);
            return self.start(session, KnownItems::default(), None, meta, request_items).await;
        };
        // The file may not exist yet; the path is recorded as the fork's parent.
        let parent = self.conversations.path(conversation.key(), guard.session_id());
        let until = KnownItems::before_own_records(until, guard.context().session().session());
        let session = guard.fork(&until, &parent)?;
        // Windows learned from providers apply to the fork as well.
        let learned = guard.context().accounting().clone();
        drop(guard);
        let known_items = known_items.with_measurements(&session);
        self.start(session, known_items, Some(learned), meta, request_items).await
    }

    /// Continues the same session after its first `groups` item groups, on a new branch.
    async fn rewind(
        &self,
        conversation: Arc<Conversation>,
        guard: SessionGuard,
        groups: usize,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let (mut known_items, back_to) = match cut(&conversation, &guard, groups) {
            Some((known_items, ForkPoint::Record(id))) => {
                (known_items, Some(BranchPoint::Record(id)))
            }
            Some((known_items, _)) => (known_items, None),
            None => (KnownItems::default(), Some(BranchPoint::Start)),
        };
        let known = known_items.len();
        let new = request_items.items().get(known..).unwrap_or_default();
        known_items.set_summary(client_compaction::find_summary(new).map(|at| known + at));
        let session = guard.context().session().session();
        let mut edits = match &back_to {
            Some(BranchPoint::Start) => Vec::new(),
            Some(BranchPoint::Record(id)) => known_items.hide_unknown(session, Some(id)),
            None => known_items.hide_unknown(session, None),
        };
        if matches!(back_to, Some(BranchPoint::Record(_))) {
            // The branch may end before the record of its last messages.
            edits.push(known_items.record());
        }
        let known_items = known_items.with_measurements(session);
        let _memory = self.working_memory.reserve(request_items.bytes_after(known)).await;
        let new_items = NewItems::parse(&known_items, meta.inbound, request_items)?;
        let amendment = Amendment { branch_point: back_to, edits };
        let amended = ConversationAmendment {
            known_items,
            amendment,
            item_edits: ItemEdits::default(),
            is_unclear: false,
            has_replaced_turns: false,
            text_hashes: Vec::new(),
            new_items,
        };
        self.amend(amended, conversation, guard, meta, request_items).await
    }

    /// Continues a conversation of which the client has removed or replaced items.
    async fn amend(
        &self,
        amended: ConversationAmendment,
        conversation: Arc<Conversation>,
        guard: SessionGuard,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let ConversationAmendment {
            mut known_items,
            amendment,
            item_edits,
            text_hashes,
            new_items,
            ..
        } = amended;
        known_items.replace(request_items, &item_edits.replaced, text_hashes);
        let pending_amendment = PendingAmendment { known_items, amendment, item_edits };
        let ingested = self.append(
            conversation.clone(),
            guard,
            new_items,
            Some(pending_amendment),
            meta,
            request_items,
        );
        // The write may be partial. Reopening the file repairs it.
        let mut ingested = ingested.inspect_err(|_| self.invalidate(&conversation))?;
        let is_compacted = has_compactions(ingested.guard.context().session().session());
        ingested.conversation.state().is_compacted = is_compacted;
        self.persist(&mut ingested).await;
        // Its first items may have changed, and with them the key under which it is found.
        self.conversations.index(meta.key, &ingested.conversation);
        Ok(ingested)
    }

    /// Starts a conversation in a new in-memory session.
    async fn start(
        &self,
        session: Session,
        mut known_items: KnownItems,
        learned: Option<TokenAccounting>,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let is_compacted = has_compactions(&session);
        let id = self.runtime.attach_session(session)?;
        let mut close_on_drop = CloseOnDrop { proxy: self, id: Some(id.clone()) };
        let mut guard = self.runtime.lock_session(&id).await?;
        if let Some(learned) = learned {
            guard.inherit(learned);
        }
        let known = known_items.len();
        let new = request_items.items().get(known..).unwrap_or_default();
        known_items.set_summary(client_compaction::find_summary(new).map(|at| known + at));
        if !known_items.is_empty() {
            let edits = known_items.hide_unknown(guard.context().session().session(), None);
            if edits.is_empty() {
                guard.append([known_items.record()])?;
            } else {
                let amendment = Amendment { branch_point: None, edits };
                guard.amend(amendment, vec![known_items.record()])?;
            }
        }
        let _memory = self.working_memory.reserve(request_items.bytes_after(known)).await;
        let new_items = NewItems::parse(&known_items, meta.inbound, request_items)?;
        let conversation = Arc::new(Conversation::new(meta.key, id, known_items, is_compacted));
        let ingested = self.append(conversation, guard, new_items, None, meta, request_items)?;
        // From here on the table owns the session.
        close_on_drop.id = None;
        self.conversations.add(ingested.conversation.clone(), self.runtime.now_ms());
        Ok(ingested)
    }

    async fn resume(
        &self,
        conversation: Arc<Conversation>,
        guard: SessionGuard,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let known_items = conversation.known_items();
        let known = known_items.len();
        let _memory = self.working_memory.reserve(request_items.bytes_after(known)).await;
        let new_items = NewItems::parse(&known_items, meta.inbound, request_items)?;
        drop(known_items);
        let appended =
            self.append(conversation.clone(), guard, new_items, None, meta, request_items);
        // As in `amend`.
        let mut ingested = appended.inspect_err(|_| self.invalidate(&conversation))?;
        if request_items.len() > known {
            self.persist(&mut ingested).await;
        }
        Ok(ingested)
    }

    /// Writes a conversation to a file, unless it has one.
    pub(super) async fn persist(&self, ingested: &mut IngestedRequest) {
        self.persist_session(&ingested.conversation, &mut ingested.guard).await;
    }

    fn append(
        &self,
        conversation: Arc<Conversation>,
        mut guard: SessionGuard,
        new_items: NewItems,
        pending_amendment: Option<PendingAmendment>,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<IngestedRequest, IngestError> {
        let session = guard.session_id().to_owned();
        let first_user = new_items.first_user_entry();
        let NewItems { groups, mut bodies } = new_items;
        let entries = bodies.len();
        let is_new = !groups.is_empty() || pending_amendment.is_some();
        let (ids, amended) = match pending_amendment {
            None => {
                if !groups.is_empty() {
                    bodies.push(conversation.known_items().record_with(
                        request_items,
                        &groups,
                        &ItemEdits::default(),
                    ));
                }
                (guard.append(bodies)?, None)
            }
            Some(PendingAmendment { known_items, amendment, item_edits }) => {
                bodies.push(known_items.record_with(request_items, &groups, &item_edits));
                (guard.amend(amendment, bodies)?, Some(known_items))
            }
        };
        let mut state = conversation.state();
        if let Some(known_items) = amended {
            state.known = Arc::new(known_items);
        }
        let before = state.known.last_user_entry().map(str::to_owned);
        let known_items = Arc::make_mut(&mut state.known);
        known_items.extend(request_items, groups, ids.get(..entries).unwrap_or_default());
        known_items.update_raw_hashes(request_items);
        known_items.add_tokens(&guard.view(), entries);
        let asks = client_compaction::asks_for_summary(meta.headers, request_items.items());
        state.awaits_summary = (state.awaits_summary || asks)
            && client_compaction::find_summary(request_items.items()).is_none();
        conversation.set_scope(request_items.scope());
        let client_compacts = client_compacts(&state.known, meta, request_items);
        // A repeated request must not compact again: the client is asking the same once more.
        let is_repeat = state.take_opened() || !is_new;
        drop(state);
        let user_entry = first_user.and_then(|at| ids.get(at)).cloned();
        let ended = before.zip(user_entry);
        Ok(IngestedRequest {
            conversation,
            guard,
            session,
            ended_turn: ended,
            client_compacts,
            is_repeat,
        })
    }
}

/// A [`ConversationAmendment`] without the new items.
struct PendingAmendment {
    known_items: KnownItems,
    amendment: Amendment,
    item_edits: ItemEdits,
}

/// Whether the session of a rewritten history may have a summary of what another run of the same task did. Equal answers
/// do not tell two such runs apart, only call ids do. A branch from the start has no summary.
fn has_foreign_summary(
    conversation: &Conversation,
    rewrite: &HistoryRewrite,
    request_items: &mut RequestItems<'_>,
) -> bool {
    rewrite.is_proven_by_answers
        && conversation.state().is_compacted
        && !conversation.known_items().shares_call_id(request_items)
}

/// Whether a request has the name of our header that a conversation has, and is not another one of that name.
fn is_of_same_name(known_items: &KnownItems, request_items: &mut RequestItems<'_>) -> bool {
    request_items.scope().is_named && !known_items.has_other_first_answer(request_items)
}

/// The known items up to some item group, and the fork point after it.
fn cut(
    conversation: &Conversation,
    guard: &SessionGuard,
    groups: usize,
) -> Option<(KnownItems, ForkPoint)> {
    conversation.known_items().cut(groups, guard.context().session().session())
}

/// Closes a new session if its request fails to be ingested: no later request could find it.
struct CloseOnDrop<'a> {
    proxy: &'a Proxy,
    id: Option<SessionId>,
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.proxy.close_sessions(self.id.take().into_iter().collect());
    }
}

/// Whether the client of a conversation compacts by itself, or lets its provider do so.
pub(super) fn client_compacts(
    known_items: &KnownItems,
    meta: &RequestMeta<'_>,
    request_items: &RequestItems<'_>,
) -> bool {
    meta.provider_compacts
        || known_items.has_summary()
        || client_compaction::has_compacted(meta.headers)
        || client_compaction::asks_for_summary(meta.headers, request_items.items())
}

#[cfg(test)]
mod tests;
