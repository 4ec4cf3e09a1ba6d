//! Finds the conversation of a request that does not begin like any: its client has changed or summarized the start.

use std::sync::Arc;

use ctxhost_conversations::{
    Conversation, HistoryRewrite, LastRequest, RequestItems, RequestMatch, SummaryOrigin,
};
use ctxhost_engine_api::{EntryKind, Role};

use super::amendment::find_amendment;
use super::{IngestError, IngestedRequest, RequestMeta, has_foreign_summary, is_of_same_name};
use crate::proxy::client_compaction;
use crate::proxy::core::Proxy;
use ctxhost_agent::SessionGuard;
use ctxhost_session::Session;
use ctxhost_text::injected_text;

impl Proxy {
    /// Continues the conversation of a request whose client has changed or summarized its history; `None` if there is none.
    /// `found` has its first items.
    pub(super) async fn resume_edited(
        &self,
        found: Option<&Arc<Conversation>>,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<Option<IngestedRequest>, IngestError> {
        if let Some(ingested) = self.resume_replaced(meta, request_items).await? {
            return Ok(Some(ingested));
        }
        let summary = client_compaction::find_summary(request_items.items());
        let is_known = summary.is_none_or(|at| {
            found.is_some_and(|found| found.known_items().common_items(request_items) > at)
        });
        if is_known && request_items.returned_summary().is_none() {
            let ingested = self.resume_aligned(found, meta, request_items).await?;
            if ingested.is_some() {
                return Ok(ingested);
            }
        }
        if found.is_some_and(|found| is_of_same_name(&found.known_items(), request_items)) {
            return Ok(None);
        }
        let Some((conversation, guard)) = self.find_summarised(meta, request_items).await else {
            return Ok(None);
        };
        self.rewind(conversation, guard, 0, meta, request_items).await.map(Some)
    }

    /// Continues the conversation whose history the provider has just replaced with a compaction of its own, on a new
    /// branch: the request still has that history.
    async fn resume_replaced(
        &self,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<Option<IngestedRequest>, IngestError> {
        if meta.ignored_items.is_empty() {
            return Ok(None);
        }
        let whole = [meta.ignored_items, request_items.items()].concat();
        let mut whole_items = RequestItems::new(self.seed, &whole);
        let key = self.conversation_key(meta.scope, &mut whole_items);
        let now_ms = self.runtime.now_ms();
        let Some(conversation) = self.conversations.find(key, &mut whole_items, now_ms).await
        else {
            return Ok(None);
        };
        let Some(guard) = self.lock_conversation(&conversation).await else { return Ok(None) };
        let is_next = {
            let state = conversation.state();
            let found = state.match_request(&mut whole_items);
            state.last_request != LastRequest::InFlight
                && matches!(found, RequestMatch::Continues { .. })
        };
        if !is_next {
            return Ok(None);
        }
        self.conversations.add_key(meta.key, &conversation, now_ms);
        self.rewind(conversation, guard, 0, meta, request_items).await.map(Some)
    }

    /// Continues the conversation that a request aligns with, if the texts and the answers show that it is the same.
    async fn resume_aligned(
        &self,
        found: Option<&Arc<Conversation>>,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<Option<IngestedRequest>, IngestError> {
        let Some(conversation) = self.conversations.find_aligned(request_items, found) else {
            return Ok(None);
        };
        let Some(guard) = self.lock_conversation(&conversation).await else { return Ok(None) };
        let Some((rewrite, _)) = conversation.align(request_items) else { return Ok(None) };
        let session = guard.context().session().session();
        let amended =
            find_amendment(&conversation, meta.inbound, session, &rewrite, request_items)?;
        let Some(amended) = amended else { return Ok(None) };
        // Not under a key that the next request does not have: some clients write the time into the first message.
        let own = RequestMeta { key: conversation.key(), ..*meta };
        let meta = if found.is_some() || is_start_replaced(&rewrite) {
            self.conversations.add_key(meta.key, &conversation, self.runtime.now_ms());
            meta
        } else {
            self.conversations.forget_key(meta.key);
            &own
        };
        // What the client has in the place of whole turns must not stay behind an earlier summary of them.
        let is_compacted = conversation.state().is_compacted;
        if is_compacted && amended.has_replaced_turns
            || amended.is_unclear && has_foreign_summary(&conversation, &rewrite, request_items)
        {
            return self.rewind(conversation, guard, 0, meta, request_items).await.map(Some);
        }
        if amended.amendment.edits.is_empty() && rewrite.changes.is_empty() {
            return self.resume(conversation, guard, meta, request_items).await.map(Some);
        }
        self.amend(amended, conversation, guard, meta, request_items).await.map(Some)
    }

    /// Finds and locks the conversation of a request whose first items its client has summarized.
    async fn find_summarised(
        &self,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Option<(Arc<Conversation>, SessionGuard)> {
        if let Some(summary) = request_items.returned_summary() {
            let (conversation, guard) = self.lock_origin(meta, summary.origin.as_ref()?).await?;
            self.conversations.add_key(meta.key, &conversation, self.runtime.now_ms());
            return Some((conversation, guard));
        }
        // A client that compacted sends a history that matches nothing; its summary is the only trace.
        let summary = client_compaction::find_summary(request_items.items());
        let aligned = summary.and_then(|_| self.conversations.find_by_summary(request_items));
        let conversation = match (aligned, summary) {
            (Some(conversation), _) => conversation,
            (None, Some(at)) => self.find_awaiting_summary(request_items, at).await?,
            (None, None) => return None,
        };
        let guard = self.lock_conversation(&conversation).await?;
        self.conversations.add_key(meta.key, &conversation, self.runtime.now_ms());
        Some((conversation, guard))
    }

    /// Locks the conversation that a summary was made of, unless it continues from that one already or is in use.
    async fn lock_origin(
        &self,
        meta: &RequestMeta<'_>,
        origin: &SummaryOrigin,
    ) -> Option<(Arc<Conversation>, SessionGuard)> {
        let SummaryOrigin { home_key, session, first_item } = origin;
        let conversation = self.conversations.find_by_id(meta.key, *home_key, session).await?;
        let guard = self.lock_conversation(&conversation).await?;
        let is_as_then = {
            let state = conversation.state();
            state.known.first_item() == Some(*first_item)
                && state.last_request != LastRequest::InFlight
        };
        is_as_then.then_some((conversation, guard))
    }

    /// The only conversation in scope whose client has asked for a summary. Without a session id, the summary must quote
    /// the user's first message.
    async fn find_awaiting_summary(
        &self,
        request_items: &RequestItems<'_>,
        summary: usize,
    ) -> Option<Arc<Conversation>> {
        let scope = request_items.scope();
        let mut conversations = self.conversations.awaiting_summary(scope);
        if scope.name.is_none() {
            let text = request_items.items().get(summary).copied().unwrap_or_default();
            let mut quoted = Vec::new();
            for conversation in conversations {
                let Some(guard) = self.lock_conversation(&conversation).await else { continue };
                let task = first_user_text(guard.context().session().session());
                if task.is_some_and(|task| client_compaction::quotes_task(text, &task)) {
                    quoted.push(conversation);
                }
            }
            conversations = quoted;
        }
        let only = conversations.pop()?;
        // Two candidates are as good as none: a wrong match would mix two histories.
        conversations.is_empty().then_some(only)
    }
}

/// Whether a request begins with another message than the first one of its conversation.
fn is_start_replaced(rewrite: &HistoryRewrite) -> bool {
    let first = rewrite.changes.first().filter(|run| run.known.start == 0);
    first.is_some_and(|run| (run.known.len(), run.now.len()) != (1, 1))
}

/// The user's first message.
fn first_user_text(session: &Session) -> Option<String> {
    let entries = session.branch().into_iter().filter_map(|record| record.to_entry());
    let mut user =
        entries.filter(|entry| entry.role == Role::User && entry.kind == EntryKind::Message);
    user.next().map(|entry| injected_text::user_text(&entry.text).into_owned())
}
