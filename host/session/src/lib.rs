//! Sessions: a transcript on disk, in Pi's session format, version 3.
//!
//! Nothing is ever deleted from a session. A compaction is one more record, a branch that was left
//! stays, and a line that cannot be read keeps its bytes. The format is written down in `FORMAT.md`
//! beside these files. What a model sees of a session is no matter of this room.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod append;
pub mod backend;
mod backend_session;
mod batch;
mod body;
mod checkpoint;
mod clock;
mod compaction;
mod contents;
mod digest;
mod entry;
mod error;
mod folder;
pub mod fsck;
mod header;
mod identity;
pub mod import;
mod inbox_acks;
pub mod injected_text;
mod journal;
mod json_fields;
mod lazy_contents;
mod lines;
mod live_transcript;
mod migration;
mod orphan_results;
mod parse;
mod pending_compaction;
mod point_in_time;
mod projection_items;
mod record;
mod recorded_compaction;
mod render_text;
mod sync;
mod torn_undo;
mod tree;
mod undo;

#[cfg(test)]
mod tests;

use std::path::Path;

use ctxhost_engine_api::Flags;
use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
use serde_json::Value;

pub use backend::{NewSession, SessionBackend};
pub use body::RecordBody;
pub use compaction::NewCompaction;
pub use digest::transcript_digest;
pub use entry::{replace_raw, replace_text, replace_text_in_raw};
pub use error::{LineFault, SessionError, SessionLineProblem};
pub use folder::{SessionFile, SessionFolder};
pub use header::{SESSION_VERSION, SessionHeader};
pub use inbox_acks::DeliveredMessages;
pub use journal::{FileCheck, LockHolder, SyncPolicy};
pub use live_transcript::parse_context_edit;
pub use pending_compaction::{CompactionIntent, CompactionRecovery, pending_path};
pub use record::{INBOX_ID_KEY, Record, RecordKind};
pub use recorded_compaction::RecordedCompaction;
pub use render_text::render_compaction_summary;
pub use undo::UNDO_TYPE;

use checkpoint::FingerprintCoverage;
use contents::SessionContents;
use journal::Journal;
use lazy_contents::LazyContents;

/// A session: its header, its tree of records, and the file it is written to, if any.
#[derive(Debug)]
pub struct Session {
    contents: LazyContents,
    store: SessionStorage,
    /// How far the fingerprints beside the file reach.
    sealed: Option<FingerprintCoverage>,
    /// Whether the checkpoint beside the file has to be written with the next record.
    owes_checkpoint: bool,
    /// Bytes before the newest compaction from which on one is kept.
    checkpoint_from_bytes: u64,
}

#[derive(Debug)]
enum SessionStorage {
    Memory,
    ReadOnly,
    File(Box<Journal>),
    Backend(Box<dyn SessionBackend>),
}

impl Session {
    /// Opens a session file for writing. One writer at a time may have it open.
    ///
    /// Of a long session that was compacted, only what the next turn needs is read; whoever asks for more
    /// reads the rest without noticing, except by the time it takes.
    ///
    /// Nothing in the file changes before the first append. Then the bytes of a torn last line are
    /// moved to `<name>.torn`, and a file of version 1 or 2 is replaced by one of version 3 with the
    /// original kept as `<name>.v1.bak` or `<name>.v2.bak`.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read, is locked or a link, is no session, or is newer than
    /// [`SESSION_VERSION`]. Bad lines are no error: see [`problems`](Self::problems).
    pub fn open(path: &Path) -> Result<Session, SessionError> {
        let mut journal = Journal::open(path)?;
        let excerpt = checkpoint::load(journal.path(), journal.length_bytes());
        if let Some((contents, sealed)) = excerpt {
            let contents = LazyContents::from_excerpt(contents, journal.path().to_owned());
            let session = Session::from_lazy(contents, SessionStorage::File(Box::new(journal)));
            return Ok(Session { sealed: Some(sealed), ..session });
        }
        let contents = parse::parse_lines(&path.display().to_string(), &journal.read()?)?;
        let session = Session::from_contents(contents, SessionStorage::File(Box::new(journal)));
        session.check_writable()?;
        Ok(Session { owes_checkpoint: true, ..session })
    }

    /// Reads a session file; nothing on the disk changes, and appending is refused.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read or is no session.
    pub fn read(path: &Path) -> Result<Session, SessionError> {
        let contents = parse::parse_lines(&path.display().to_string(), &journal::read(path)?)?;
        Ok(Session::from_contents(contents, SessionStorage::ReadOnly))
    }

    /// The session of the bytes of a file, in memory. `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// [`SessionError::SessionHeader`] where the bytes are no session.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Session, SessionError> {
        Ok(Session::from_contents(parse::parse_bytes(name, bytes)?, SessionStorage::Memory))
    }

    /// Creates a session file that must not be there yet, readable by its owner only.
    ///
    /// # Errors
    ///
    /// Where the file is there, or cannot be written.
    pub fn create(path: &Path, cwd: &str, id: Option<&str>) -> Result<Session, SessionError> {
        Session::in_memory(SessionHeader::new(id, cwd, clock::now_ms())).into_file(path)
    }

    /// A session that never touches a disk.
    pub fn in_memory(header: SessionHeader) -> Session {
        Session::from_contents(SessionContents::new(header), SessionStorage::Memory)
    }

    /// The same session in a file of its own, which must not be there yet. All of it is written at once.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn into_file(mut self, path: &Path) -> Result<Session, SessionError> {
        self.save_to(path, SyncPolicy::default())?;
        Ok(self)
    }

    /// [`into_file`](Self::kept_in) for a session that is in use; where it fails, it is as it was.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn save_to(&mut self, path: &Path, sync: SyncPolicy) -> Result<(), SessionError> {
        let mut journal = Journal::create(path, &self.contents.load_all()?.to_bytes())?;
        journal.set_policy(sync);
        self.store = SessionStorage::File(Box::new(journal));
        (self.sealed, self.owes_checkpoint) = (None, true);
        Ok(())
    }

    fn from_contents(contents: SessionContents, store: SessionStorage) -> Session {
        Session::from_lazy(LazyContents::new(contents), store)
    }

    fn from_lazy(contents: LazyContents, store: SessionStorage) -> Session {
        let checkpoint_from_bytes = checkpoint::MIN_CHECKPOINT_BYTES;
        Session { contents, store, sealed: None, owes_checkpoint: false, checkpoint_from_bytes }
    }

    /// The header.
    pub fn header(&self) -> &SessionHeader {
        &self.contents.loaded().header
    }

    /// Whether records of this session were not read yet, because the next turn does not need them.
    pub fn is_partially_loaded(&self) -> bool {
        self.contents.is_excerpt()
    }

    /// The file it is written to; `None` for a session in memory or opened for reading.
    pub fn path(&self) -> Option<&Path> {
        match &self.store {
            SessionStorage::File(journal) => Some(journal.path()),
            SessionStorage::Memory | SessionStorage::ReadOnly | SessionStorage::Backend(_) => None,
        }
    }

    /// The version of the file where it is an older one that was migrated in memory only.
    pub fn migrated_from(&self) -> Option<u32> {
        self.contents.loaded().migrated_from
    }

    /// What was wrong with lines when the session was opened, by line.
    pub fn problems(&self) -> &[SessionLineProblem] {
        &self.contents.problems
    }

    /// How many records it has, on whatever branch.
    pub fn record_count(&self) -> usize {
        self.contents.loaded().record_count()
    }

    /// All records, in file order.
    pub fn records(&self) -> &[Record] {
        &self.contents.records
    }

    /// The record with this id.
    pub fn record(&self, id: &str) -> Option<&Record> {
        self.contents.loaded().record(id).or_else(|| self.contents.record(id))
    }

    /// The records in which ctxhost keeps state of its own under this custom type, which begins with
    /// `ctxhost.`: on whatever branch, in file order.
    pub fn host_records(&self, custom_type: &str) -> impl Iterator<Item = (&Record, Value)> {
        // Those of other types are not all at hand.
        let is_own = custom_type.starts_with(record::HOST_TYPE_PREFIX);
        let contents = if is_own { self.contents.loaded() } else { &self.contents };
        let records = contents.records.iter();
        records.filter_map(move |record| Some((record, record.custom_data(custom_type)?)))
    }

    /// The record where the session stands: the next one follows it.
    pub fn leaf(&self) -> Option<&Record> {
        self.contents.loaded().leaf()
    }

    /// The last records of all branches, in file order.
    pub fn leaves(&self) -> Vec<&Record> {
        self.records_at(self.contents.tree.leaves())
    }

    /// The records from the root to where the session stands.
    pub fn branch(&self) -> Vec<&Record> {
        self.records_at(self.contents.tree.path())
    }

    fn records_at(&self, positions: Vec<usize>) -> Vec<&Record> {
        positions.into_iter().filter_map(|at| self.contents.record_at(at)).collect()
    }

    /// Goes to another record; the next one appended follows it.
    ///
    /// The file says nothing of this before that: a session opened again stands at its last line.
    ///
    /// # Errors
    ///
    /// [`SessionError::UnknownRecord`].
    pub fn set_leaf(&mut self, id: &str) -> Result<(), SessionError> {
        self.contents.load_all()?;
        self.move_leaf(Some(self.position(id)?));
        Ok(())
    }

    /// Goes before the first record: the next one appended begins another branch from the root.
    ///
    /// # Errors
    ///
    /// Where the rest of an excerpt cannot be read.
    pub fn clear_leaf(&mut self) -> Result<(), SessionError> {
        self.contents.load_all()?;
        self.move_leaf(None);
        Ok(())
    }

    /// Goes to a record, or before the first one, of a session that was read whole.
    fn move_leaf(&mut self, position: Option<usize>) {
        self.contents.loaded_mut().set_leaf(position);
    }

    fn position(&self, id: &str) -> Result<usize, SessionError> {
        let unknown = || SessionError::UnknownRecord { id: id.to_owned() };
        self.contents.tree.position(id).ok_or_else(unknown)
    }

    /// The live transcript of the current branch: what a model could see.
    ///
    /// Costs a walk over the branch. Between compactions a caller appends
    /// [`entry`](Self::entry) of each new record instead.
    pub fn live(&self, epoch: u64) -> TranscriptLog {
        let contents = self.contents.loaded();
        live_transcript::build_log(contents, contents.first_task, epoch)
    }

    /// What a record puts into the context, with the first task of the branch marked as pinned.
    pub fn entry(&self, id: &str) -> Option<NewEntry> {
        let contents = self.contents.contents_for(id);
        let position = contents.tree.position(id)?;
        let record = contents.record_at(position)?;
        let mut entry = orphan_results::attach_call(contents, record, record.to_entry()?);
        if contents.first_task == Some(position) {
            entry.flags = entry.flags.with(Flags::PINNED);
        }
        Some(entry)
    }

    /// The newest model of the current branch: provider and model id.
    pub fn model(&self) -> Option<(String, String)> {
        let contents = self.contents.loaded();
        let newest_first = contents.tree.path_backwards();
        let of_record =
            newest_first.filter_map(|at| contents.record_at(at)).find_map(Record::model);
        let of_header = || {
            let (provider, id) = self.header().model()?;
            Some((provider.to_owned(), id.to_owned()))
        };
        of_record.or_else(of_header)
    }

    /// The whole file: for a file of version 3 byte for byte what was read and appended.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.contents.to_bytes()
    }
}
