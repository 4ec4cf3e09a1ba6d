//! Finds the conversation of a request that does not begin like any: its client has changed or summarized the start.

use std::sync::Arc;

use ctxhost_engine_api::{EntryKind, Role};

use super::amendment::{ConversationAmendment, find_amendment};
use super::{IngestError, RequestMeta};
use crate::conversations::{Conversation, LastRequest, RequestItems, SummaryOrigin};
use crate::proxy::client_compaction;
use crate::proxy::core::Proxy;
use ctxhost_agent::SessionGuard;
use ctxhost_session::{Session, injected_text};

impl Proxy {
    /// Finds and locks the conversation of a request in which only the first message differs, and how it differs.
    pub(super) async fn find_changed(
        &self,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> Result<Option<(Arc<Conversation>, SessionGuard, ConversationAmendment)>, IngestError> {
        let Some(conversation) = self.conversations.find_changed(meta.key, request_items) else {
            return Ok(None);
        };
        let Some(guard) = self.lock_conversation(&conversation).await else { return Ok(None) };
        let rewrite = conversation.state().match_changed(request_items);
        let Some(rewrite) = rewrite else { return Ok(None) };
        let session = guard.context().session().session();
        let amended =
            find_amendment(&conversation, meta.inbound, session, &rewrite, request_items)?;
        Ok(amended.map(|amended| (conversation, guard, amended)))
    }

    /// Finds and locks the conversation of a request whose first items its client has summarized.
    pub(super) async fn find_summarised(
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
        let aligned = self.conversations.find_by_summary(request_items, summary.is_some());
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

/// The user's first message.
fn first_user_text(session: &Session) -> Option<String> {
    let entries = session.branch().into_iter().filter_map(|record| record.to_entry());
    let mut user =
        entries.filter(|entry| entry.role == Role::User && entry.kind == EntryKind::Message);
    user.next().map(|entry| injected_text::user_text(&entry.text).into_owned())
}
