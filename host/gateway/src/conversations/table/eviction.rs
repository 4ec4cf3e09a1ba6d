//! Conversations that leave memory: which may, which have to, and what is remembered of them.

use std::sync::Arc;

use super::super::conversation::{Conversation, EvictedConversation, SessionLocation};
use super::ConversationTable;
use ctxhost_context::accounting::TokenAccounting;

/// How many times `gateway.conversations` may be in memory because the last requests of the others were not answered,
/// or because the disk takes none. An upstream that is down for long must not cost all memory.
const MAX_OVER: usize = 16;

/// One in so many more than `gateway.conversations` may be in memory before the oldest are looked for.
const SLACK_SHARE: usize = 8;

/// How many times `gateway.conversations` are remembered of those that have left memory: some hundred bytes each.
const MAX_LEFT: usize = 16;

impl ConversationTable {
    /// Whether there are so many more in memory than should be that looking for those who may leave is worth it.
    pub fn is_crowded(&self) -> bool {
        self.table().conversations.len() > self.capacity + self.capacity / SLACK_SHARE
    }

    /// Whether so many are in memory that some have to go whatever that costs.
    pub fn is_overcrowded(&self) -> bool {
        self.table().conversations.len() > self.capacity.saturating_mul(MAX_OVER)
    }

    /// The conversations that may leave memory, the oldest first, and whether each is one too many: those without a
    /// request since `before_ms`, and as many as are too many. None of them has a request under way, and the last request
    /// of those that are too many was answered.
    pub fn eviction_candidates(&self, before_ms: i64) -> Vec<(Arc<Conversation>, bool)> {
        let table = self.table();
        let too_many = table.conversations.len().saturating_sub(self.capacity);
        let is_overcrowded = table.conversations.len() > self.capacity.saturating_mul(MAX_OVER);
        let mut leaving = Vec::new();
        for conversation in
            table.conversations.values().filter(|conversation| !is_in_use(conversation, 0))
        {
            let Some(is_waiting) = conversation.is_waiting() else { continue };
            let is_old = conversation.used_ms() < before_ms;
            if is_old || !is_waiting || is_overcrowded {
                leaving.push((!is_old, is_waiting, conversation.used_ms(), conversation.clone()));
            }
        }
        leaving
            .sort_by_key(|(is_young, is_waiting, used_ms, _)| (*is_young, *is_waiting, *used_ms));
        let old = leaving.iter().take_while(|(is_young, ..)| !is_young).count();
        let leaving = leaving.into_iter().take(too_many.max(old));
        leaving.map(|(is_young, _, _, conversation)| (conversation, is_young)).collect()
    }

    /// All in memory that are in no file.
    pub fn unpersisted(&self) -> Vec<Arc<Conversation>> {
        let mut conversations: Vec<_> = self.table().conversations.values().cloned().collect();
        conversations.retain(|conversation| !conversation.state().is_persisted);
        conversations
    }

    /// Later requests open the session of a conversation from its file. `false` where a request beside the caller's
    /// is under way in it; the caller then leaves it as it is.
    pub fn close_if_idle(&self, conversation: &Arc<Conversation>) -> bool {
        // While the table is locked, no request finds it.
        let _table = self.table();
        if is_in_use(conversation, 1) {
            return false;
        }
        conversation.state().location =
            SessionLocation::File(self.path(conversation.key(), conversation.id()));
        true
    }

    /// The session of a conversation whose request is on its way is closed; what it has learned stays.
    pub fn close_session(&self, conversation: &Arc<Conversation>, learned: TokenAccounting) {
        let mut state = conversation.state();
        state.location = SessionLocation::File(self.path(conversation.key(), conversation.id()));
        state.learned = Some(learned);
    }

    /// A conversation leaves memory whose session is closed, unless a request has found it already.
    pub fn evict(&self, conversation: &Arc<Conversation>, left: Option<EvictedConversation>) {
        let mut table = self.table();
        if is_in_use(conversation, 1) {
            conversation.state().learned = left.map(|left| left.learned);
            return;
        }
        table.remove(conversation);
        if let Some(left) = left {
            table.remember(conversation.id(), left, self.capacity.saturating_mul(MAX_LEFT));
        }
        self.update_gauge(&table);
    }

    /// A conversation is forgotten that is in no file.
    pub fn forget(&self, conversation: &Arc<Conversation>) {
        let mut table = self.table();
        table.remove(conversation);
        self.update_gauge(&table);
    }
}

/// Whether a conversation is held by more than the table and so many `others`.
fn is_in_use(conversation: &Arc<Conversation>, others: usize) -> bool {
    // A large request may hold its state for long, and the table must not wait for it.
    let keys = conversation.try_state().map(|state| state.keys.len());
    // Once by its id, and once for each key.
    keys.is_none_or(|keys| Arc::strong_count(conversation) > keys + 1 + others)
}
