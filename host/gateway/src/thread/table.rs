//! The conversations that are known: those in memory, and those in the folder of their key.
//!
//! Memory is no identity: a conversation leaves it only when it stands in a file and nobody is at work in it, and it is
//! found again by what its requests begin with.

mod departures;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::conversation::{Left, SessionPlace, Thread};
use super::digest::{Asked, Digest, Scope};
use super::matching::Fit;
use super::readings::Readings;
use super::register::{self, Entry, Register};
use ctxhost_session::SessionFolder;

/// Files that are read to find the conversation of one request, those first that have most in common with it. More
/// begin alike only where somebody goes back again and again, or a program greets alike.
const MAX_READ: usize = 128;

/// All conversations.
#[derive(Debug)]
pub struct Threads {
    folder: PathBuf,
    most: usize,
    readings: Readings,
    table: Mutex<Table>,
    counts: Counts,
    /// Whether it was told that memory is too small.
    is_told: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    /// All in memory, by the ids of their sessions.
    threads: HashMap<String, Arc<Thread>>,
    keys: HashMap<Digest, Group>,
    left: HashMap<String, Left>,
    /// The ids in `left`, the oldest first.
    left_order: VecDeque<String>,
}

/// The conversations of one key.
#[derive(Debug, Default)]
struct Group {
    /// Those in memory, the newest first.
    threads: Vec<Arc<Thread>>,
    /// Where the others are; `None` until it is read.
    register: Option<Register>,
}

/// How many conversations there are.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Conversations that are in memory.
    pub in_memory: Gauge,
    /// How often one was read again that had left because there were too many.
    pub read_again: Counter,
}

impl Table {
    fn add(&mut self, thread: Arc<Thread>) {
        self.keys.entry(thread.key()).or_default().threads.insert(0, thread.clone());
        self.threads.insert(thread.id().to_owned(), thread);
    }

    fn remove(&mut self, thread: &Arc<Thread>) {
        self.threads.remove(thread.id());
        for key in &thread.state().keys {
            let Some(group) = self.keys.get_mut(key) else { continue };
            group.threads.retain(|known| !Arc::ptr_eq(known, thread));
            // Its register is on the disk.
            if group.threads.is_empty() {
                self.keys.remove(key);
            }
        }
    }

    fn remember(&mut self, id: &str, left: Left, most: usize) {
        if self.left.insert(id.to_owned(), left).is_none() {
            self.left_order.push_back(id.to_owned());
        }
        while self.left_order.len() > most
            && let Some(oldest) = self.left_order.pop_front()
        {
            self.left.remove(&oldest);
        }
    }
}

impl Threads {
    /// Those in a folder, of which about `most` are kept in memory.
    pub fn new(folder: &Path, most: usize, counts: Counts) -> Threads {
        Threads {
            folder: folder.to_owned(),
            most: most.max(1),
            readings: Readings::default(),
            table: Mutex::default(),
            counts,
            is_told: AtomicBool::default(),
        }
    }

    /// Who reads files of conversations.
    pub fn readings(&self) -> &Readings {
        &self.readings
    }

    /// Where the session of this id is kept, if it is.
    pub fn path(&self, key: Digest, id: &str) -> PathBuf {
        self.folder(key).join(format!("{id}.jsonl"))
    }

    /// The folder of the sessions of a key.
    pub fn folder(&self, key: Digest) -> PathBuf {
        self.folder.join(key.to_hex())
    }

    /// The conversation that has most in common with a request; `None` where none has anything.
    pub async fn find(
        &self,
        key: Digest,
        asked: &mut Asked<'_>,
        now_ms: i64,
    ) -> Option<Arc<Thread>> {
        let is_read = |table: &Table| table.keys.get(&key).is_some_and(|it| it.register.is_some());
        let is_known = is_read(&self.table());
        if !is_known {
            self.load(key).await;
        }
        // Whoever is slow to say what it has in common keeps nobody else's requests waiting.
        let known = self.in_memory(key);
        let (mut thread, mut is_sure) = best_of(&known, asked);
        drop(known);
        if !is_sure {
            let is_named = asked.scope().is_named;
            let candidates = self.candidates(key, asked, thread.is_none() && is_named);
            for (home, id) in candidates {
                let Some(read) = self.read(key, home, id).await else { continue };
                let mut both: Vec<Arc<Thread>> = thread.into_iter().collect();
                both.insert(0, read);
                (thread, is_sure) = best_of(&both, asked);
                if is_sure {
                    break;
                }
            }
        }
        let thread = thread?;
        thread.used(now_ms);
        self.came_back(&thread);
        // The one that was asked for last stays longest.
        if let Some(group) = self.table().keys.get_mut(&key) {
            let at = group.threads.iter().position(|known| Arc::ptr_eq(known, &thread));
            if let Some(to_first) = at.and_then(|at| group.threads.get_mut(..=at)) {
                to_first.rotate_right(1);
            }
        }
        Some(thread)
    }

    /// The conversation that a client has put a summary, or nothing, in the place of most of; `None` where
    /// none is, or several are alike.
    pub fn summarised(&self, asked: &mut Asked<'_>, has_summary: bool) -> Option<Arc<Thread>> {
        let mut best: Option<(usize, Arc<Thread>)> = None;
        let mut is_single = true;
        for thread in self.of_scope(asked.scope()) {
            let same = thread.outline().summarised_by(asked, has_summary);
            let Some(same) = same else { continue };
            let most = best.as_ref().map_or(0, |(most, _)| *most);
            if same > most {
                (best, is_single) = (Some((same, thread)), true);
            } else if same == most {
                is_single = false;
            }
        }
        best.filter(|_| is_single).map(|(_, thread)| thread)
    }

    /// The conversations of a scope whose client has asked for a summary of them, and has not gone on yet.
    pub fn asked_to_summarise(&self, scope: Scope) -> Vec<Arc<Thread>> {
        let mut threads = self.of_scope(scope);
        threads.retain(|thread| thread.state().is_asked_to_summarise);
        threads
    }

    /// All conversations in memory of one scope.
    fn of_scope(&self, scope: Scope) -> Vec<Arc<Thread>> {
        let mut threads: Vec<_> = self.table().threads.values().cloned().collect();
        threads.retain(|thread| thread.scope() == scope);
        threads
    }

    /// A conversation is found under another key as well from now on: its first words have changed.
    pub fn add_under(&self, key: Digest, thread: &Arc<Thread>, now_ms: i64) {
        thread.used(now_ms);
        let mut table = self.table();
        let group = table.keys.entry(key).or_default();
        if !group.threads.iter().any(|known| Arc::ptr_eq(known, thread)) {
            group.threads.insert(0, thread.clone());
            thread.state().keys.push(key);
        }
    }

    /// Puts a conversation before all others of its key.
    pub fn add(&self, thread: Arc<Thread>, now_ms: i64) {
        thread.used(now_ms);
        let mut table = self.table();
        table.add(thread);
        self.count(&table);
    }

    /// Writes down where a conversation that is in a file is found by requests of a key, where that is not known yet.
    pub fn register(&self, key: Digest, thread: &Thread) {
        let Some(entry) = self.new_entry(key, thread) else { return };
        let folder = self.folder(key);
        // A key under which it is found beside its own may have no folder yet.
        let made = SessionFolder::at(&folder).make().map_err(|error| error.to_string());
        let written =
            made.and_then(|()| register::write(&folder, &entry).map_err(|error| error.to_string()));
        if let Err(error) = written {
            tracing::warn!(
                session = thread.id(),
                error,
                "a conversation is found by its file alone"
            );
        }
    }

    /// The entry of a conversation, which is noted; `None` where its requests begin as they are known to begin.
    fn new_entry(&self, key: Digest, thread: &Thread) -> Option<Entry> {
        let mut table = self.table();
        let mut register = table.keys.get_mut(&key).and_then(|group| group.register.as_mut());
        let mut state = thread.state();
        let noted = state.entry.clone().filter(|(noted, _)| *noted == key).map(|(_, entry)| entry);
        let known = noted.or_else(|| register.as_ref()?.entry(thread.id()));
        // How it goes on says nothing new; how it begins does.
        let is_known = known.as_ref().is_some_and(|known| state.outline.begins_as(known));
        let entry = match known.filter(|_| is_known) {
            Some(entry) => entry,
            None => register::entry_of(&state.outline, thread.key(), thread.id()),
        };
        state.entry = Some((key, entry.clone()));
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
    pub fn lost(&self, thread: &Arc<Thread>) {
        let mut table = self.table();
        let mut state = thread.state();
        if state.is_kept {
            state.place = SessionPlace::File(self.path(thread.key(), thread.id()));
            return;
        }
        drop(state);
        table.remove(thread);
        self.count(&table);
    }

    fn in_memory(&self, key: Digest) -> Vec<Arc<Thread>> {
        self.table().keys.get(&key).map(|group| group.threads.clone()).unwrap_or_default()
    }

    /// Where conversations are that are not in memory and may be that of a request; all of the key where nothing else
    /// tells.
    fn candidates(
        &self,
        key: Digest,
        asked: &mut Asked<'_>,
        of_all: bool,
    ) -> Vec<(Digest, String)> {
        let mut table = self.table();
        let Some(group) = table.keys.get_mut(&key) else { return Vec::new() };
        let Some(register) = &group.register else { return Vec::new() };
        let mut candidates = register.candidates(asked);
        if candidates.is_empty() && of_all {
            candidates = register.all();
        }
        let here: HashSet<&str> = group.threads.iter().map(|it| it.id()).collect();
        candidates.retain(|(_, id)| !here.contains(id.as_str()));
        candidates.truncate(MAX_READ);
        candidates
    }

    /// Reads what there is of a key: its register, and files without an entry.
    async fn load(&self, key: Digest) {
        let folder = self.folder(key);
        let is_new = !folder.is_dir();
        let read = move || {
            let register = Register::read(&folder);
            let files = SessionFolder::at(&folder).list().into_iter().map(|kept| kept.path);
            let stem = |path: &PathBuf| path.file_stem()?.to_str().map(str::to_owned);
            let others = files.filter(|path| stem(path).is_some_and(|id| !register.has(&id)));
            let others = others.take(MAX_READ);
            let others = others.filter_map(|path| Thread::of_file(key, &path, None)).collect();
            (register, others)
        };
        // Most keys are new, and where others keep all processors busy a thread of its own would wait for one.
        let (register, others): (_, Vec<Thread>) = match is_new {
            true => Default::default(),
            false => self.readings.read(read).await.unwrap_or_default(),
        };
        let mut table = self.table();
        let table = &mut *table;
        let group = table.keys.entry(key).or_default();
        if group.register.is_some() {
            return;
        }
        group.register = Some(register);
        for thread in others.into_iter().map(Arc::new) {
            if !table.threads.contains_key(thread.id()) {
                group.threads.push(thread.clone());
                table.threads.insert(thread.id().to_owned(), thread);
            }
        }
        self.count(table);
    }

    /// Reads a conversation into memory, as one of a key; `None` where it is none any more.
    async fn read(&self, key: Digest, home: Digest, id: String) -> Option<Arc<Thread>> {
        let (path, left) = (self.path(home, &id), self.table().left.get(&id).cloned());
        let read = self.readings.read(move || Thread::of_file(home, &path, left)).await.ok()??;
        let mut table = self.table();
        let thread = match table.threads.get(&id) {
            // Another request was faster.
            Some(thread) => thread.clone(),
            None => {
                let thread = Arc::new(read);
                table.add(thread.clone());
                self.count(&table);
                thread
            }
        };
        drop(table);
        self.add_under(key, &thread, 0);
        Some(thread)
    }

    /// Counts that a conversation is at work again that had left memory, and tells once that there is too little of it.
    fn came_back(&self, thread: &Thread) {
        let mut table = self.table();
        let Some(left) = table.left.remove(thread.id()) else { return };
        table.left_order.retain(|id| id != thread.id());
        if !left.is_one_too_many {
            return;
        }
        self.counts.read_again.inc();
        let active = table.threads.len() + table.left.len();
        drop(table);
        if !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                active,
                conversations = self.most,
                "more conversations are at work at once than stay in memory, so each of the others is read from its file \
                 again; set gateway.conversations to {active} or more where there is memory for them"
            );
        }
    }

    fn count(&self, table: &Table) {
        self.counts.in_memory.set(i64::try_from(table.threads.len()).unwrap_or(i64::MAX));
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The conversation among these that a request is of, or leaves last, and whether no other can be it.
fn best_of(known: &[Arc<Thread>], asked: &mut Asked<'_>) -> (Option<Arc<Thread>>, bool) {
    let (mut exact, mut rewritten, mut left) = (None, None, None);
    let take = |best: &mut Option<Found>, found: Found| {
        if best.as_ref().is_none_or(|best| found.items > best.items) {
            *best = Some(found);
        }
    };
    for thread in known {
        let state = thread.state();
        let found = |items: usize, is_sure: bool| Found { items, is_sure, thread: thread.clone() };
        match state.fit(asked) {
            Fit::GoesOn { .. } => {
                take(&mut exact, found(state.outline.len(), state.outline.has_answer()));
            }
            Fit::Rewritten(rewrite) => take(&mut rewritten, found(rewrite.kept, true)),
            Fit::Forks { .. } => take(&mut left, found(state.outline.common(asked), true)),
            Fit::Within { .. } => take(&mut left, found(state.outline.common(asked), false)),
            Fit::Nothing => {}
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
            (Some(on.thread), on.is_sure)
        }
        (_, Some(left)) => (Some(left.thread), false),
        (Some(on), None) => (Some(on.thread), on.is_sure),
        (None, None) => (None, false),
    }
}

/// A conversation that a request may be of.
struct Found {
    thread: Arc<Thread>,
    /// How many items they have in common.
    items: usize,
    is_sure: bool,
}

#[cfg(test)]
mod tests;
