//! Sessions: append-only transcripts in Pi's session format, version 3.
//!
//! Nothing is removed from a session: a compaction is a record, abandoned branches stay, and unreadable lines
//! keep their bytes. `FORMAT.md` beside these files specifies the format.

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
mod foreign_compaction;
pub mod fsck;
mod header;
mod identity;
mod inbox_acks;
mod journal;
mod json_fields;
mod lazy_contents;
mod lenient;
mod lines;
mod live_slots;
mod live_transcript;
mod lock_holder;
mod migration;
mod orphan_results;
mod parse;
mod pending_compaction;
mod point_in_time;
pub mod projection_items;
mod readable;
mod record;
mod recorded_compaction;
mod render_text;
mod sync;
mod text_results;
mod torn_undo;
mod tree;
mod undo;
mod unread_message;

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
pub use folder::{SessionFile, SessionFolder, remove_unused};
pub use foreign_compaction::ForeignCompaction;
pub use header::{SESSION_VERSION, SessionHeader};
pub use inbox_acks::DeliveredMessages;
pub use journal::{FileCheck, SyncPolicy};
pub use live_transcript::parse_context_edit;
pub use lock_holder::LockHolder;
pub use pending_compaction::{CompactionIntent, CompactionRecovery, pending_path};
pub use record::{INBOX_ID_KEY, Record, RecordKind, has_session_record_fields};
pub use recorded_compaction::RecordedCompaction;
pub use render_text::render_compaction_summary;
pub use sync::FileMigration;
pub use undo::UNDO_TYPE;

use checkpoint::FingerprintCoverage;
use contents::SessionContents;
use journal::Journal;
use lazy_contents::LazyContents;

/// A session: its header, its tree of records, and its storage.
#[derive(Debug)]
pub struct Session {
    contents: LazyContents,
    store: SessionStorage,
    /// The records whose id fingerprints are on disk.
    coverage: Option<FingerprintCoverage>,
    /// Whether the next append has to write the checkpoint, because the file was opened without one.
    owes_checkpoint: bool,
    /// Size of the file from which a checkpoint is written.
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
    /// Opens a session file for writing; only one writer may have it open.
    ///
    /// Of a long compacted session only the records of the next turn are read. Methods that need more load
    /// the rest.
    ///
    /// The file does not change before the first append. That append moves an incomplete last line to
    /// `<name>.torn`, and migrates a file of version 1 or 2, keeping the original as `<name>.v1.bak` or
    /// `<name>.v2.bak`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is locked, is a link, is not a session, or is newer than
    /// [`SESSION_VERSION`]. Invalid lines are not an error: see [`problems`](Self::problems).
    pub fn open(path: &Path) -> Result<Session, SessionError> {
        let mut journal = Journal::open(path)?;
        let partial = checkpoint::load(journal.path(), journal.length_bytes());
        if let Some((contents, coverage)) = partial {
            let contents = LazyContents::from_partial(contents, journal.path().to_owned());
            let session = Session::from_lazy(contents, SessionStorage::File(Box::new(journal)));
            // No check of the version: a checkpoint is only used for the current one.
            return Ok(Session { coverage: Some(coverage), ..session });
        }
        let contents = parse::parse_lines(&path.display().to_string(), &journal.read()?)?;
        let session = Session::from_contents(contents, SessionStorage::File(Box::new(journal)));
        session.check_writable()?;
        Ok(Session { owes_checkpoint: true, ..session })
    }

    /// Reads a session file; appending to it fails.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is not a session.
    pub fn read(path: &Path) -> Result<Session, SessionError> {
        let contents = parse::parse_lines(&path.display().to_string(), &journal::read(path)?)?;
        Ok(Session::from_contents(contents, SessionStorage::ReadOnly))
    }

    /// Parses the bytes of a session file into a session in memory. Errors mention `name`.
    ///
    /// # Errors
    ///
    /// [`SessionError::Header`] if the bytes are not a session.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Session, SessionError> {
        Ok(Session::from_contents(parse::parse_bytes(name, bytes)?, SessionStorage::Memory))
    }

    /// Creates a session file, readable by its owner only.
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be written.
    pub fn create(path: &Path, cwd: &str, id: Option<&str>) -> Result<Session, SessionError> {
        Session::in_memory(SessionHeader::new(id, cwd, clock::now_ms())).into_file(path)
    }

    /// Creates a session in memory.
    pub fn in_memory(header: SessionHeader) -> Session {
        Session::from_contents(SessionContents::new(header), SessionStorage::Memory)
    }

    /// Moves the session to a new file, which is written at once.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn into_file(mut self, path: &Path) -> Result<Session, SessionError> {
        self.save_to(path, SyncPolicy::default())?;
        Ok(self)
    }

    /// [`into_file`](Self::into_file) for a session in use; on failure it is unchanged.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and for a session of a newer version.
    pub fn save_to(&mut self, path: &Path, sync: SyncPolicy) -> Result<(), SessionError> {
        self.check_version()?;
        let mut journal = Journal::create(path, &self.contents.load_all()?.to_bytes())?;
        journal.set_policy(sync);
        self.store = SessionStorage::File(Box::new(journal));
        (self.coverage, self.owes_checkpoint) = (None, true);
        Ok(())
    }

    fn from_contents(contents: SessionContents, store: SessionStorage) -> Session {
        Session::from_lazy(LazyContents::new(contents), store)
    }

    fn from_lazy(contents: LazyContents, store: SessionStorage) -> Session {
        let checkpoint_from_bytes = checkpoint::MIN_CHECKPOINT_BYTES;
        Session { contents, store, coverage: None, owes_checkpoint: false, checkpoint_from_bytes }
    }

    /// The header.
    pub fn header(&self) -> &SessionHeader {
        &self.contents.loaded().header
    }

    /// Whether records of the file are not loaded yet.
    pub fn is_partially_loaded(&self) -> bool {
        self.contents.is_partial()
    }

    /// The version of the file, if it is older and was migrated in memory only.
    pub fn migrated_from(&self) -> Option<u32> {
        self.contents.loaded().migrated_from
    }

    /// Problems found with lines when the session was read, by line.
    pub fn problems(&self) -> &[SessionLineProblem] {
        &self.contents.problems
    }

    /// Number of records on all branches.
    pub fn record_count(&self) -> usize {
        self.contents.loaded().record_count()
    }

    /// All records, in file order.
    pub fn records(&self) -> &[Record] {
        &self.contents.records
    }

    /// The record with this id.
    pub fn record(&self, id: &str) -> Option<&Record> {
        // The loaded part first: looking up a record of the next turn must not load the whole file.
        self.contents.loaded().record(id).or_else(|| self.contents.record(id))
    }

    /// Records with state of the host under this custom type, which starts with `ctxhost.`: on all
    /// branches, in file order.
    pub fn host_records(&self, custom_type: &str) -> impl Iterator<Item = (&Record, Value)> {
        // A partial load includes all host state, but not the records of other extensions.
        let is_host_type = custom_type.starts_with(record::HOST_TYPE_PREFIX);
        let contents = if is_host_type { self.contents.loaded() } else { &self.contents };
        let records = contents.records.iter();
        records.filter_map(move |record| Some((record, record.custom_data(custom_type)?)))
    }

    /// The leaf, which the next record follows.
    pub fn leaf(&self) -> Option<&Record> {
        self.contents.loaded().leaf()
    }

    /// The last records of all branches, in file order.
    pub fn leaves(&self) -> Vec<&Record> {
        self.records_at(self.contents.tree.leaves())
    }

    /// The records from the root to the leaf.
    pub fn branch(&self) -> Vec<&Record> {
        self.records_at(self.contents.tree.path())
    }

    fn records_at(&self, positions: Vec<usize>) -> Vec<&Record> {
        positions.into_iter().filter_map(|at| self.contents.record_at(at)).collect()
    }

    /// Makes another record the leaf.
    ///
    /// This is not stored until the next append: after opening, the leaf is the last line.
    ///
    /// # Errors
    ///
    /// [`SessionError::UnknownRecord`].
    pub fn set_leaf(&mut self, id: &str) -> Result<(), SessionError> {
        self.contents.load_all()?;
        self.move_leaf(Some(self.position(id)?));
        Ok(())
    }

    /// Moves the leaf before the first record, so that the next append starts a branch at the root.
    ///
    /// # Errors
    ///
    /// If the rest of a partially loaded session cannot be read.
    pub fn clear_leaf(&mut self) -> Result<(), SessionError> {
        self.contents.load_all()?;
        self.move_leaf(None);
        Ok(())
    }

    /// Sets the leaf of a completely loaded session.
    fn move_leaf(&mut self, position: Option<usize>) {
        self.contents.loaded_mut().set_leaf(position);
    }

    fn position(&self, id: &str) -> Result<usize, SessionError> {
        let unknown = || SessionError::UnknownRecord { id: id.to_owned() };
        self.contents.tree.position(id).ok_or_else(unknown)
    }

    /// The newest compaction of the current branch.
    pub fn newest_compaction(&self) -> Option<&Record> {
        let contents = self.contents.loaded();
        let mut newest_first =
            contents.tree.path_backwards().filter_map(|at| contents.record_at(at));
        newest_first.find(|record| *record.kind() == RecordKind::Compaction)
    }

    /// The live transcript of the current branch.
    ///
    /// This walks the branch. Between compactions, callers append [`entry`](Self::entry) of each new
    /// record instead.
    pub fn live(&self, epoch: u64) -> TranscriptLog {
        let contents = self.contents.loaded();
        live_transcript::build_log(contents, contents.first_task, epoch)
    }

    /// The entry of a record, with the first task of the branch pinned.
    pub fn entry(&self, id: &str) -> Option<NewEntry> {
        let contents = self.contents.contents_for(id);
        let position = contents.tree.position(id)?;
        let record = contents.record_at(position)?;
        let entry = orphan_results::attach_call(contents, record, record.to_entry()?);
        let mut entry = text_results::set_kind(contents, record, entry);
        if contents.first_task == Some(position) {
            entry.flags = entry.flags.with(Flags::PINNED);
        }
        Some(entry)
    }

    /// The newest model of the current branch: provider and model id.
    pub fn model(&self) -> Option<(String, String)> {
        let contents = self.contents.loaded();
        let mut newest_first =
            contents.tree.path_backwards().filter_map(|at| contents.record_at(at));
        newest_first.find_map(Record::model).or_else(|| {
            let (provider, id) = self.header().model()?;
            Some((provider.to_owned(), id.to_owned()))
        })
    }

    /// The whole file; for version 3, byte for byte what was read and appended.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.contents.to_bytes()
    }
}
