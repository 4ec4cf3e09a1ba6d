//! The table of conversations: those in memory, and an index of those in files.
//!
//! Memory is a cache: any conversation can be evicted and is found again by its first items.

mod best_match;
mod eviction;
mod state;

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use self::best_match::{best_match, single_best};
pub use self::eviction::CacheLimits;
use self::state::TableState;
use super::conversation::{Conversation, SessionLocation};
use super::index::{self, ConversationIndex, IndexEntry};
use super::read_pool::ReadPool;
use super::seeded_hash::{ConversationScope, RequestItems, SeededHash};
use ctxhost_session::SessionFolder;

/// Files that are read to find the conversation of one request, best candidates first. More than a few share the
/// same first items only if a user rewinds often or a program always starts with the same greeting.
const MAX_READ: usize = 128;

/// Conversations that one request is aligned with, those with the most of its answers first. Each costs a pass over both.
const MAX_ALIGNED: usize = 8;

/// All conversations.
#[derive(Debug)]
pub struct ConversationTable {
    folder: PathBuf,
    limits: CacheLimits,
    read_pool: ReadPool,
    table: Mutex<TableState>,
    counts: ConversationCounts,
    /// Whether the warning about a small capacity was logged already.
    is_capacity_warned: AtomicBool,
}

/// Metrics of the table.
#[derive(Clone, Debug, Default)]
pub struct ConversationCounts {
    /// Conversations in memory.
    pub in_memory: Gauge,
    /// Reloads of conversations that were evicted because there were too many.
    pub read_again: Counter,
}

impl ConversationTable {
    /// The conversations in a folder, of which about as many are kept in memory as the limits say.
    pub fn new(
        folder: &Path,
        limits: CacheLimits,
        counts: ConversationCounts,
    ) -> ConversationTable {
        ConversationTable {
            folder: folder.to_owned(),
            limits,
            read_pool: ReadPool::default(),
            table: Mutex::default(),
            counts,
            is_capacity_warned: AtomicBool::default(),
        }
    }

    /// The pool that reads session files.
    pub fn read_pool(&self) -> &ReadPool {
        &self.read_pool
    }

    /// The session file of this id.
    pub fn path(&self, key: SeededHash, id: &str) -> PathBuf {
        self.folder(key).join(format!("{id}.jsonl"))
    }

    /// The folder of a key.
    pub fn folder(&self, key: SeededHash) -> PathBuf {
        self.folder.join(key.to_hex())
    }

    /// The conversation with the most items in common with a request; `None` if none has any.
    pub async fn find(
        &self,
        key: SeededHash,
        request: &mut RequestItems<'_>,
        now_ms: i64,
    ) -> Option<Arc<Conversation>> {
        let is_read =
            |table: &TableState| table.keys.get(&key).is_some_and(|group| group.index.is_some());
        let is_known = is_read(&self.table());
        if !is_known {
            self.load(key).await;
        }
        // Matched outside the lock: comparing takes long for large requests.
        let known = self.in_memory(key);
        let (mut conversation, mut is_sure) = best_match(&known, request);
        drop(known);
        if !is_sure {
            let is_named = request.scope().is_named;
            // A named conversation is loaded even if its first items have changed.
            let candidates = self.candidates(key, request, conversation.is_none() && is_named);
            for (home_key, id) in candidates {
                // Stops at the first certain match: each candidate costs reading a file.
                let Some(read) = self.read(key, home_key, id).await else { continue };
                let mut both: Vec<Arc<Conversation>> = conversation.into_iter().collect();
                both.insert(0, read);
                (conversation, is_sure) = best_match(&both, request);
                if is_sure {
                    break;
                }
            }
        }
        let conversation = conversation?;
        conversation.mark_used(now_ms);
        self.record_reload(&conversation);
        // Move it to the front: the least recently used one is evicted first.
        if let Some(group) = self.table().keys.get_mut(&key) {
            let at = group.conversations.iter().position(|known| Arc::ptr_eq(known, &conversation));
            if let Some(to_first) = at.and_then(|at| group.conversations.get_mut(..=at)) {
                to_first.rotate_right(1);
            }
        }
        Some(conversation)
    }

    /// The conversation with this session id, which is in memory or in the folder of `home_key`.
    pub async fn find_by_id(
        &self,
        key: SeededHash,
        home_key: SeededHash,
        id: &str,
    ) -> Option<Arc<Conversation>> {
        let known = self.table().conversations.get(id).cloned();
        match known {
            Some(conversation) => Some(conversation),
            None => self.read(key, home_key, id.to_owned()).await,
        }
    }

    /// The conversation most of whose items a client has replaced by a recognized summary; `None` if there is none or
    /// several match equally.
    pub fn find_by_summary(&self, request: &mut RequestItems<'_>) -> Option<Arc<Conversation>> {
        let found = self.in_scope(request.scope());
        single_best(&found, |conversation| conversation.known_items().match_after_summary(request))
    }

    /// The conversation in memory that a request aligns with best, beside the one that its first items have `found`; `None`
    /// if there is none or several align equally.
    pub fn find_aligned(
        &self,
        request: &mut RequestItems<'_>,
        found: Option<&Arc<Conversation>>,
    ) -> Option<Arc<Conversation>> {
        let in_scope = self.in_scope(request.scope());
        if in_scope.is_empty() && found.is_none() {
            return None;
        }
        let raw_hashes = request.raw_hashes();
        let mut candidates: Vec<(usize, Arc<Conversation>)> = Vec::new();
        for conversation in in_scope {
            let answers = conversation.known_items().newest_answers_in(&raw_hashes);
            let is_found = found.is_some_and(|found| Arc::ptr_eq(found, &conversation));
            if answers > 0 && !is_found {
                candidates.push((answers, conversation));
            }
        }
        candidates.sort_by_key(|(answers, _)| Reverse(*answers));
        candidates.truncate(MAX_ALIGNED);
        let candidates = candidates.into_iter().map(|(_, conversation)| conversation);
        let candidates: Vec<Arc<Conversation>> =
            found.into_iter().cloned().chain(candidates).collect();
        single_best(&candidates, |conversation| Some(conversation.align(request)?.1))
    }

    /// Forgets a key that no conversation has: a first message that changes each time has another key each time.
    pub fn forget_key(&self, key: SeededHash) {
        let mut table = self.table();
        if table.keys.get(&key).is_some_and(|group| group.conversations.is_empty()) {
            table.keys.remove(&key);
        }
    }

    /// The conversations of a scope whose client has asked for a summary and has not continued yet.
    pub fn awaiting_summary(&self, scope: ConversationScope) -> Vec<Arc<Conversation>> {
        let mut conversations = self.in_scope(scope);
        conversations.retain(|conversation| conversation.state().awaits_summary);
        conversations
    }

    /// All conversations of a scope in memory.
    fn in_scope(&self, scope: ConversationScope) -> Vec<Arc<Conversation>> {
        let mut conversations: Vec<_> = self.table().conversations.values().cloned().collect();
        conversations.retain(|conversation| conversation.scope() == scope);
        conversations
    }

    /// Adds a key under which a conversation is found, after its first items have changed.
    pub fn add_key(&self, key: SeededHash, conversation: &Arc<Conversation>, now_ms: i64) {
        conversation.mark_used(now_ms);
        let mut table = self.table();
        let group = table.keys.entry(key).or_default();
        if !group.conversations.iter().any(|known| Arc::ptr_eq(known, conversation)) {
            group.conversations.insert(0, conversation.clone());
            conversation.state().keys.push(key);
        }
    }

    /// Adds a conversation, the newest of its key.
    pub fn add(&self, conversation: Arc<Conversation>, now_ms: i64) {
        conversation.mark_used(now_ms);
        let mut table = self.table();
        table.add(conversation);
        self.update_gauge(&table);
    }

    /// Counts what a conversation takes in memory after a request.
    pub fn record_memory(&self, conversation: &Arc<Conversation>) {
        let bytes = conversation.known_items().memory_bytes();
        let mut table = self.table();
        // It may have been removed meanwhile, and then nothing would subtract it.
        if table.has(conversation) {
            table.count_memory(conversation, bytes);
        }
    }

    /// Writes the index entry of a conversation, unless an equal one was written.
    pub fn index(&self, key: SeededHash, conversation: &Conversation) {
        let Some(entry) = self.new_entry(key, conversation) else { return };
        let folder = self.folder(key);
        // An additional key may have no folder yet.
        let created = SessionFolder::from_path(&folder).create().map_err(|error| error.to_string());
        let written = created
            .and_then(|()| index::append_entry(&folder, &entry).map_err(|error| error.to_string()));
        if let Err(error) = written {
            tracing::warn!(
                session = conversation.id(),
                error,
                "cannot write the index entry: the conversation is found by listing the folder"
            );
        }
    }

    /// The new index entry of a conversation; `None` if the known one is still valid.
    fn new_entry(&self, key: SeededHash, conversation: &Conversation) -> Option<IndexEntry> {
        let mut table = self.table();
        let mut index = table.keys.get_mut(&key).and_then(|group| group.index.as_mut());
        let mut state = conversation.state();
        let written = state
            .index_entry
            .clone()
            .filter(|(written, _)| *written == key)
            .map(|(_, entry)| entry);
        let known = written.or_else(|| index.as_ref()?.entry(conversation.id()));
        // Only the first items are indexed: new items at the end change nothing.
        let is_known = known.as_ref().is_some_and(|known| state.known.has_prefix(known));
        let entry = match known.filter(|_| is_known) {
            Some(entry) => entry,
            None => state.known.index_entry(conversation.key(), conversation.id()),
        };
        state.index_entry = Some((key, entry.clone()));
        if is_known {
            return None;
        }
        if let Some(index) = &mut index {
            index.add(entry.clone());
        }
        Some(entry)
    }

    /// Discards the state of a conversation: it is reloaded from its file, or removed if it has none.
    pub fn invalidate(&self, conversation: &Arc<Conversation>) {
        let mut table = self.table();
        let mut state = conversation.state();
        if state.is_persisted {
            state.location =
                SessionLocation::File(self.path(conversation.key(), conversation.id()));
            return;
        }
        drop(state);
        table.remove(conversation);
        self.update_gauge(&table);
    }

    fn in_memory(&self, key: SeededHash) -> Vec<Arc<Conversation>> {
        self.table().keys.get(&key).map(|group| group.conversations.clone()).unwrap_or_default()
    }

    /// Conversations in files that may match a request; `of_all` returns all of the key if none does.
    fn candidates(
        &self,
        key: SeededHash,
        request: &mut RequestItems<'_>,
        of_all: bool,
    ) -> Vec<(SeededHash, String)> {
        let mut table = self.table();
        let Some(group) = table.keys.get_mut(&key) else { return Vec::new() };
        let Some(index) = &group.index else { return Vec::new() };
        let mut candidates = index.candidates(request);
        if candidates.is_empty() && of_all {
            candidates = index.all();
        }
        let in_memory: HashSet<&str> =
            group.conversations.iter().map(|conversation| conversation.id()).collect();
        candidates.retain(|(_, id)| !in_memory.contains(id.as_str()));
        candidates.truncate(MAX_READ);
        candidates
    }

    /// Reads the index of a key, and the files that it does not list.
    async fn load(&self, key: SeededHash) {
        let folder = self.folder(key);
        let is_new = !folder.is_dir();
        let read = move || {
            let index = ConversationIndex::read(&folder);
            let files = SessionFolder::from_path(&folder).list().into_iter().map(|kept| kept.path);
            let stem = |path: &PathBuf| path.file_stem()?.to_str().map(str::to_owned);
            let others = files.filter(|path| stem(path).is_some_and(|id| !index.contains(&id)));
            let others = others.take(MAX_READ);
            let others =
                others.filter_map(|path| Conversation::from_file(key, &path, None)).collect();
            (index, others)
        };
        // Most keys are new. On a busy machine a pool thread would first wait for a CPU.
        let (index, others): (_, Vec<Conversation>) = if is_new {
            Default::default()
        } else {
            self.read_pool.read(read).await.unwrap_or_default()
        };
        let mut table = self.table();
        let table = &mut *table;
        let group = table.keys.entry(key).or_default();
        if group.index.is_some() {
            return;
        }
        group.index = Some(index);
        let mut new = Vec::new();
        // Another request may have loaded the same key meanwhile.
        for conversation in others.into_iter().map(Arc::new) {
            if !table.conversations.contains_key(conversation.id()) {
                group.conversations.push(conversation.clone());
                new.push(conversation);
            }
        }
        for conversation in new {
            table.insert(conversation);
        }
        self.update_gauge(table);
    }

    /// Reads a conversation from its file; `None` if it is not a conversation any more.
    async fn read(
        &self,
        key: SeededHash,
        home_key: SeededHash,
        id: String,
    ) -> Option<Arc<Conversation>> {
        let (path, evicted) = (self.path(home_key, &id), self.table().evicted.get(&id).cloned());
        let read = self
            .read_pool
            .read(move || Conversation::from_file(home_key, &path, evicted))
            .await
            .ok()??;
        let mut table = self.table();
        let conversation = match table.conversations.get(&id) {
            // Another request was faster.
            Some(conversation) => conversation.clone(),
            None => {
                let conversation = Arc::new(read);
                table.add(conversation.clone());
                self.update_gauge(&table);
                conversation
            }
        };
        drop(table);
        self.add_key(key, &conversation, 0);
        Some(conversation)
    }

    /// Counts a reload, and warns once that the capacity is too small.
    fn record_reload(&self, conversation: &Conversation) {
        let mut table = self.table();
        let Some(evicted) = table.evicted.remove(conversation.id()) else { return };
        table.evicted_order.retain(|id| id != conversation.id());
        if !evicted.is_over_limit {
            return;
        }
        self.counts.read_again.inc();
        let active = table.conversations.len() + table.evicted.len();
        drop(table);
        if !self.is_capacity_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                active,
                conversations = self.limits.conversations,
                max_conversations_bytes = self.limits.bytes,
                "more conversations are active than fit into memory: set gateway.conversations to {active} or more and \
                 gateway.max_conversations_bytes to what they need, or each of the others is reloaded from its file"
            );
        }
    }

    fn update_gauge(&self, table: &TableState) {
        self.counts.in_memory.set(i64::try_from(table.conversations.len()).unwrap_or(i64::MAX));
    }

    fn table(&self) -> MutexGuard<'_, TableState> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
