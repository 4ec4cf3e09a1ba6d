//! Eviction: which conversations may leave memory, which must, and what is remembered of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::conversation::{Conversation, EvictedConversation, SessionLocation};
use super::ConversationTable;
use ctxhost_config::GatewaySettings;
use ctxhost_context::accounting::TokenAccounting;

/// How much of the conversations is kept in memory.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    /// `gateway.conversations`.
    pub conversations: usize,
    /// `gateway.max_conversations_bytes`.
    pub bytes: u64,
}

impl CacheLimits {
    /// The limits of the settings.
    pub fn new(settings: &GatewaySettings) -> CacheLimits {
        let conversations = settings.conversations.max(1);
        CacheLimits { conversations, bytes: settings.max_conversations_bytes }
    }
}

/// The hard limit, as a multiple of `gateway.conversations`. Conversations with an unanswered request, or that
/// cannot be written, stay up to this: an upstream that is down must not exhaust the memory.
const MAX_OVER: usize = 16;

/// The tolerance above `gateway.conversations`, as a divisor of it, before a scan for the oldest is worth its cost.
const SLACK_SHARE: usize = 8;

/// Evicted conversations that are remembered, as a multiple of `gateway.conversations`. Each takes some hundred
/// bytes.
const MAX_REMEMBERED: usize = 16;

impl ConversationTable {
    /// Whether a scan for conversations to evict is worth its cost.
    pub fn is_crowded(&self) -> bool {
        let (table, limits) = (self.table(), self.limits);
        table.conversations.len() > limits.conversations + limits.conversations / SLACK_SHARE
            || table.memory_bytes > limits.bytes
    }

    /// Whether the hard limit is exceeded.
    pub fn is_overcrowded(&self) -> bool {
        self.table().conversations.len() > self.limits.conversations.saturating_mul(MAX_OVER)
    }

    /// The conversations to evict, the oldest first, each with whether it exceeds the limit: those without a
    /// request since `before_ms`, and as many as are too many or take too much memory. None has a request in flight, and those above
    /// the limit have an answered last request.
    pub fn eviction_candidates(&self, before_ms: i64) -> Vec<(Arc<Conversation>, bool)> {
        let table = self.table();
        let limits = self.limits;
        let too_many = table.conversations.len().saturating_sub(limits.conversations);
        let is_overcrowded =
            table.conversations.len() > limits.conversations.saturating_mul(MAX_OVER);
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
        let mut excess_bytes = table.memory_bytes.saturating_sub(limits.bytes);
        let mut candidates = Vec::new();
        for (at, (is_young, _, _, conversation)) in leaving.into_iter().enumerate() {
            if at >= too_many.max(old) && excess_bytes == 0 {
                break;
            }
            let bytes = conversation.memory_bytes.load(Ordering::Relaxed);
            excess_bytes = excess_bytes.saturating_sub(bytes);
            candidates.push((conversation, is_young));
        }
        candidates
    }

    /// All conversations without a file.
    pub fn unpersisted(&self) -> Vec<Arc<Conversation>> {
        let mut conversations: Vec<_> = self.table().conversations.values().cloned().collect();
        conversations.retain(|conversation| !conversation.state().is_persisted);
        conversations
    }

    /// Marks the session of a conversation as closed; `false` if another request than the caller's uses it.
    pub fn close_if_idle(&self, conversation: &Arc<Conversation>) -> bool {
        // While the table is locked, no request can find it.
        let _table = self.table();
        if is_in_use(conversation, 1) {
            return false;
        }
        conversation.state().location =
            SessionLocation::File(self.path(conversation.key(), conversation.id()));
        true
    }

    /// Marks the session of a conversation with a request in flight as closed, and keeps what it has learned.
    pub fn close_session(&self, conversation: &Arc<Conversation>, learned: TokenAccounting) {
        let mut state = conversation.state();
        state.location = SessionLocation::File(self.path(conversation.key(), conversation.id()));
        state.learned = Some(learned);
    }

    /// Removes a conversation whose session is closed, unless a request has found it already.
    pub fn evict(&self, conversation: &Arc<Conversation>, evicted: Option<EvictedConversation>) {
        let mut table = self.table();
        if is_in_use(conversation, 1) {
            if let Some(evicted) = evicted {
                conversation.state().learned = Some(evicted.learned);
            }
            return;
        }
        table.remove(conversation);
        if let Some(evicted) = evicted {
            table.remember(
                conversation.id(),
                evicted,
                self.limits.conversations.saturating_mul(MAX_REMEMBERED),
            );
        }
        self.update_gauge(&table);
    }

    /// Removes a conversation that has no file.
    pub fn forget(&self, conversation: &Arc<Conversation>) {
        let mut table = self.table();
        table.remove(conversation);
        self.update_gauge(&table);
    }
}

/// Whether anything but the table and `others` holds the conversation.
fn is_in_use(conversation: &Arc<Conversation>, others: usize) -> bool {
    // The table must not wait for a large request that holds the state.
    let keys = conversation.try_state().map(|state| state.keys.len());
    // The table holds it once by id and once per key.
    keys.is_none_or(|keys| Arc::strong_count(conversation) > keys + 1 + others)
}
