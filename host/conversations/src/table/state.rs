//! What the table holds in memory: the conversations, their keys and their sizes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::conversation::{Conversation, EvictedConversation};
use super::super::index::ConversationIndex;
use super::super::seeded_hash::SeededHash;

/// The state of the table.
#[derive(Debug, Default)]
pub(super) struct TableState {
    /// All in memory, by session id.
    pub(super) conversations: HashMap<String, Arc<Conversation>>,
    /// The sum of their sizes in memory.
    pub(super) memory_bytes: u64,
    pub(super) keys: HashMap<SeededHash, KeyGroup>,
    pub(super) evicted: HashMap<String, EvictedConversation>,
    /// The ids in `evicted`, the oldest first.
    pub(super) evicted_order: VecDeque<String>,
}

/// The conversations of one key.
#[derive(Debug, Default)]
pub(super) struct KeyGroup {
    /// Those in memory, the newest first.
    pub(super) conversations: Vec<Arc<Conversation>>,
    /// The index of those in files; `None` until it is read.
    pub(super) index: Option<ConversationIndex>,
}

impl TableState {
    /// Adds a conversation, the newest of its key.
    pub(super) fn add(&mut self, conversation: Arc<Conversation>) {
        let group = self.keys.entry(conversation.key()).or_default();
        group.conversations.insert(0, conversation.clone());
        self.insert(conversation);
    }

    /// Adds a conversation that its key has already.
    pub(super) fn insert(&mut self, conversation: Arc<Conversation>) {
        let bytes = conversation.known_items().memory_bytes();
        self.count_memory(&conversation, bytes);
        let replaced = self.conversations.insert(conversation.id().to_owned(), conversation);
        if let Some(replaced) = replaced {
            self.count_memory(&replaced, 0);
        }
    }

    /// Counts the size of a conversation in the table anew.
    pub(super) fn count_memory(&mut self, conversation: &Conversation, bytes: u64) {
        let before = conversation.memory_bytes.swap(bytes, Ordering::Relaxed);
        self.memory_bytes = self.memory_bytes.saturating_sub(before).saturating_add(bytes);
    }

    /// Whether this one is in memory, and not another one that was read from its file since.
    pub(super) fn has(&self, conversation: &Arc<Conversation>) -> bool {
        let known = self.conversations.get(conversation.id());
        known.is_some_and(|known| Arc::ptr_eq(known, conversation))
    }

    /// Removes a conversation.
    pub(super) fn remove(&mut self, conversation: &Arc<Conversation>) {
        if self.has(conversation) {
            self.conversations.remove(conversation.id());
            self.count_memory(conversation, 0);
        }
        for key in &conversation.state().keys {
            let Some(group) = self.keys.get_mut(key) else { continue };
            group.conversations.retain(|known| !Arc::ptr_eq(known, conversation));
            // The index is on disk.
            if group.conversations.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    /// Remembers what is not in the file of an evicted conversation, for as many as `capacity`.
    pub(super) fn remember(&mut self, id: &str, evicted: EvictedConversation, capacity: usize) {
        if self.evicted.insert(id.to_owned(), evicted).is_none() {
            self.evicted_order.push_back(id.to_owned());
        }
        while self.evicted_order.len() > capacity
            && let Some(oldest) = self.evicted_order.pop_front()
        {
            self.evicted.remove(&oldest);
        }
    }
}
