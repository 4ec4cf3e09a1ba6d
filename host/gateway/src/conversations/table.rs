//! The conversations that are known: those in memory, and those in the folder of their key.
//!
//! Memory is no identity: a conversation leaves it only when it stands in a file and nobody is at work in it, and it is
//! found again by what its requests begin with.

mod eviction;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::conversation::{Conversation, EvictedConversation, SessionLocation};
use super::index::{self, ConversationIndex, IndexEntry};
use super::matching::RequestMatch;
use super::read_pool::ReadPool;
use super::seeded_hash::{ConversationScope, RequestItems, SeededHash};
use ctxhost_session::SessionFolder;

/// Files that are read to find the conversation of one request, those first that have most in common with it. More
/// begin alike only where somebody goes back again and again, or a program greets alike.
const MAX_READ: usize = 128;

/// All conversations.
#[derive(Debug)]
pub struct ConversationTable {
    folder: PathBuf,
    capacity: usize,
    read_pool: ReadPool,
    table: Mutex<TableState>,
    counts: ConversationCounts,
    /// Whether it was told that memory is too small.
    is_capacity_warned: AtomicBool,
}

#[derive(Debug, Default)]
struct TableState {
    /// All in memory, by the ids of their sessions.
    conversations: HashMap<String, Arc<Conversation>>,
    keys: HashMap<SeededHash, KeyGroup>,
    evicted: HashMap<String, EvictedConversation>,
    /// The ids in `evicted`, the oldest first.
    evicted_order: VecDeque<String>,
}

/// The conversations of one key.
#[derive(Debug, Default)]
struct KeyGroup {
    /// Those in memory, the newest first.
    conversations: Vec<Arc<Conversation>>,
    /// Where the others are; `None` until it is read.
    index: Option<ConversationIndex>,
}

/// How many conversations there are.
#[derive(Clone, Debug, Default)]
pub struct ConversationCounts {
    /// Conversations that are in memory.
    pub in_memory: Gauge,
    /// How often one was read again that had left because there were too many.
    pub read_again: Counter,
}

impl TableState {
    fn add(&mut self, conversation: Arc<Conversation>) {
        self.keys
            .entry(conversation.key())
            .or_default()
            .conversations
            .insert(0, conversation.clone());
        self.conversations.insert(conversation.id().to_owned(), conversation);
    }

    fn remove(&mut self, conversation: &Arc<Conversation>) {
        self.conversations.remove(conversation.id());
        for key in &conversation.state().keys {
            let Some(group) = self.keys.get_mut(key) else { continue };
            group.conversations.retain(|known| !Arc::ptr_eq(known, conversation));
            // Its register is on the disk.
            if group.conversations.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    fn remember(&mut self, id: &str, left: EvictedConversation, most: usize) {
        if self.evicted.insert(id.to_owned(), left).is_none() {
            self.evicted_order.push_back(id.to_owned());
        }
        while self.evicted_order.len() > most
            && let Some(oldest) = self.evicted_order.pop_front()
        {
            self.evicted.remove(&oldest);
        }
    }
}

impl ConversationTable {
    /// Those in a folder, of which about `capacity` are kept in memory.
    pub fn new(folder: &Path, most: usize, counts: ConversationCounts) -> ConversationTable {
        ConversationTable {
            folder: folder.to_owned(),
            capacity: most.max(1),
            read_pool: ReadPool::default(),
            table: Mutex::default(),
            counts,
            is_capacity_warned: AtomicBool::default(),
        }
    }

    /// Who reads files of conversations.
    pub fn read_pool(&self) -> &ReadPool {
        &self.read_pool
    }

    /// Where the session of this id is kept, if it is.
    pub fn path(&self, key: SeededHash, id: &str) -> PathBuf {
        self.folder(key).join(format!("{id}.jsonl"))
    }

    /// The folder of the sessions of a key.
    pub fn folder(&self, key: SeededHash) -> PathBuf {
        self.folder.join(key.to_hex())
    }

    /// The conversation that has most in common with a request; `None` where none has anything.
    pub async fn find(
        &self,
        key: SeededHash,
        request: &mut RequestItems<'_>,
        now_ms: i64,
    ) -> Option<Arc<Conversation>> {
        let is_read =
            |table: &TableState| table.keys.get(&key).is_some_and(|it| it.index.is_some());
        let is_known = is_read(&self.table());
        if !is_known {
            self.load(key).await;
        }
        // Whoever is slow to say what it has in common keeps nobody else's requests waiting.
        let known = self.in_memory(key);
        let (mut conversation, mut is_sure) = best_match(&known, request);
        drop(known);
        if !is_sure {
            let is_named = request.scope().is_named;
            let candidates = self.candidates(key, request, conversation.is_none() && is_named);
            for (home, id) in candidates {
                let Some(read) = self.read(key, home, id).await else { continue };
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
        // The one that was asked for last stays longest.
        if let Some(group) = self.table().keys.get_mut(&key) {
            let at = group.conversations.iter().position(|known| Arc::ptr_eq(known, &conversation));
            if let Some(to_first) = at.and_then(|at| group.conversations.get_mut(..=at)) {
                to_first.rotate_right(1);
            }
        }
        Some(conversation)
    }

    /// The conversation that a client has put a summary, or nothing, in the place of most of; `None` where
    /// none is, or several are alike.
    pub fn find_by_summary(
        &self,
        request: &mut RequestItems<'_>,
        has_summary: bool,
    ) -> Option<Arc<Conversation>> {
        let mut best: Option<(usize, Arc<Conversation>)> = None;
        let mut is_single = true;
        for conversation in self.in_scope(request.scope()) {
            let same = conversation.known_items().match_after_summary(request, has_summary);
            let Some(same) = same else { continue };
            let most = best.as_ref().map_or(0, |(most, _)| *most);
            if same > most {
                (best, is_single) = (Some((same, conversation)), true);
            } else if same == most {
                is_single = false;
            }
        }
        best.filter(|_| is_single).map(|(_, conversation)| conversation)
    }

    /// The conversations of a scope whose client has asked for a summary of them, and has not gone on yet.
    pub fn awaiting_summary(&self, scope: ConversationScope) -> Vec<Arc<Conversation>> {
        let mut conversations = self.in_scope(scope);
        conversations.retain(|conversation| conversation.state().awaits_summary);
        conversations
    }

    /// All conversations in memory of one scope.
    fn in_scope(&self, scope: ConversationScope) -> Vec<Arc<Conversation>> {
        let mut conversations: Vec<_> = self.table().conversations.values().cloned().collect();
        conversations.retain(|conversation| conversation.scope() == scope);
        conversations
    }

    /// A conversation is found under another key as well from now on: its first words have changed.
    pub fn add_key(&self, key: SeededHash, conversation: &Arc<Conversation>, now_ms: i64) {
        conversation.mark_used(now_ms);
        let mut table = self.table();
        let group = table.keys.entry(key).or_default();
        if !group.conversations.iter().any(|known| Arc::ptr_eq(known, conversation)) {
            group.conversations.insert(0, conversation.clone());
            conversation.state().keys.push(key);
        }
    }

    /// Puts a conversation before all others of its key.
    pub fn add(&self, conversation: Arc<Conversation>, now_ms: i64) {
        conversation.mark_used(now_ms);
        let mut table = self.table();
        table.add(conversation);
        self.update_gauge(&table);
    }

    /// Writes down where a conversation that is in a file is found by requests of a key, where that is not known yet.
    pub fn index(&self, key: SeededHash, conversation: &Conversation) {
        let Some(entry) = self.new_entry(key, conversation) else { return };
        let folder = self.folder(key);
        // A key under which it is found beside its own may have no folder yet.
        let made = SessionFolder::from_path(&folder).create().map_err(|error| error.to_string());
        let written = made
            .and_then(|()| index::append_entry(&folder, &entry).map_err(|error| error.to_string()));
        if let Err(error) = written {
            tracing::warn!(
                session = conversation.id(),
                error,
                "a conversation is found by its file alone"
            );
        }
    }

    /// The entry of a conversation, which is noted; `None` where its requests begin as they are known to begin.
    fn new_entry(&self, key: SeededHash, conversation: &Conversation) -> Option<IndexEntry> {
        let mut table = self.table();
        let mut register = table.keys.get_mut(&key).and_then(|group| group.index.as_mut());
        let mut state = conversation.state();
        let noted =
            state.index_entry.clone().filter(|(noted, _)| *noted == key).map(|(_, entry)| entry);
        let known = noted.or_else(|| register.as_ref()?.entry(conversation.id()));
        // How it goes on says nothing new; how it begins does.
        let is_known = known.as_ref().is_some_and(|known| state.known.has_prefix(known));
        let entry = match known.filter(|_| is_known) {
            Some(entry) => entry,
            None => index::entry_of(&state.known, conversation.key(), conversation.id()),
        };
        state.index_entry = Some((key, entry.clone()));
        if is_known {
            return None;
        }
        if let Some(register) = &mut register {
            register.add(entry.clone());
        }
        Some(entry)
    }

    /// A conversation cannot be gone on with as it is in memory: where it is in a file, it is read again,
    /// else it is forgotten.
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

    /// Where conversations are that are not in memory and may be that of a request; all of the key where nothing else
    /// tells.
    fn candidates(
        &self,
        key: SeededHash,
        request: &mut RequestItems<'_>,
        of_all: bool,
    ) -> Vec<(SeededHash, String)> {
        let mut table = self.table();
        let Some(group) = table.keys.get_mut(&key) else { return Vec::new() };
        let Some(register) = &group.index else { return Vec::new() };
        let mut candidates = register.candidates(request);
        if candidates.is_empty() && of_all {
            candidates = register.all();
        }
        let here: HashSet<&str> = group.conversations.iter().map(|it| it.id()).collect();
        candidates.retain(|(_, id)| !here.contains(id.as_str()));
        candidates.truncate(MAX_READ);
        candidates
    }

    /// Reads what there is of a key: its register, and files without an entry.
    async fn load(&self, key: SeededHash) {
        let folder = self.folder(key);
        let is_new = !folder.is_dir();
        let read = move || {
            let register = ConversationIndex::read(&folder);
            let files = SessionFolder::from_path(&folder).list().into_iter().map(|kept| kept.path);
            let stem = |path: &PathBuf| path.file_stem()?.to_str().map(str::to_owned);
            let others = files.filter(|path| stem(path).is_some_and(|id| !register.contains(&id)));
            let others = others.take(MAX_READ);
            let others =
                others.filter_map(|path| Conversation::from_file(key, &path, None)).collect();
            (register, others)
        };
        // Most keys are new, and where others keep all processors busy a thread of its own would wait for one.
        let (register, others): (_, Vec<Conversation>) = if is_new {
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
        group.index = Some(register);
        for conversation in others.into_iter().map(Arc::new) {
            if !table.conversations.contains_key(conversation.id()) {
                group.conversations.push(conversation.clone());
                table.conversations.insert(conversation.id().to_owned(), conversation);
            }
        }
        self.update_gauge(table);
    }

    /// Reads a conversation into memory, as one of a key; `None` where it is none any more.
    async fn read(
        &self,
        key: SeededHash,
        home: SeededHash,
        id: String,
    ) -> Option<Arc<Conversation>> {
        let (path, left) = (self.path(home, &id), self.table().evicted.get(&id).cloned());
        let read = self
            .read_pool
            .read(move || Conversation::from_file(home, &path, left))
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

    /// Counts that a conversation is at work again that had left memory, and tells once that there is too little of it.
    fn record_reload(&self, conversation: &Conversation) {
        let mut table = self.table();
        let Some(left) = table.evicted.remove(conversation.id()) else { return };
        table.evicted_order.retain(|id| id != conversation.id());
        if !left.is_over_limit {
            return;
        }
        self.counts.read_again.inc();
        let active = table.conversations.len() + table.evicted.len();
        drop(table);
        if !self.is_capacity_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                active,
                conversations = self.capacity,
                "more conversations are at work at once than stay in memory, so each of the others is read from its file \
                 again; set gateway.conversations to {active} or more where there is memory for them"
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

/// The conversation among these that a request is of, or leaves last, and whether no other can be it.
fn best_match(
    known: &[Arc<Conversation>],
    request: &mut RequestItems<'_>,
) -> (Option<Arc<Conversation>>, bool) {
    let (mut exact, mut rewritten, mut left) = (None, None, None);
    let take = |best: &mut Option<MatchCandidate>, found: MatchCandidate| {
        if best.as_ref().is_none_or(|best| found.items > best.items) {
            *best = Some(found);
        }
    };
    for conversation in known {
        let state = conversation.state();
        let found = |items: usize, is_sure: bool| MatchCandidate {
            items,
            is_sure,
            conversation: conversation.clone(),
        };
        match state.match_request(request) {
            RequestMatch::Continues { .. } => {
                take(&mut exact, found(state.known.len(), state.known.has_answer()));
            }
            RequestMatch::Rewrites(rewrite) => take(&mut rewritten, found(rewrite.kept, true)),
            RequestMatch::Forks { .. } => {
                take(&mut left, found(state.known.common_items(request), true))
            }
            RequestMatch::Within { .. } => {
                take(&mut left, found(state.known.common_items(request), false))
            }
            RequestMatch::Unrelated => {}
        }
    }
    // What says the very same is it, unless that is no more than how many conversations begin.
    let on = match (exact, rewritten) {
        (Some(exact), _) if exact.is_sure => Some(exact),
        (exact, None) => exact,
        (_, rewritten) => rewritten,
    };
    match (on, left) {
        // One that is sent again from its beginning is within the first one all the time: it goes on by itself.
        (Some(on), Some(left)) if !left.is_sure || left.items <= on.items => {
            (Some(on.conversation), on.is_sure)
        }
        (_, Some(left)) => (Some(left.conversation), false),
        (Some(on), None) => (Some(on.conversation), on.is_sure),
        (None, None) => (None, false),
    }
}

/// A conversation that a request may be of.
struct MatchCandidate {
    conversation: Arc<Conversation>,
    /// How many items they have in common.
    items: usize,
    is_sure: bool,
}

#[cfg(test)]
mod tests;
