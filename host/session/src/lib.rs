//! Sessions: a transcript on disk, in Pi's session format, version 3.
//!
//! Nothing is ever deleted from a session. A compaction is one more record, a branch that was left
//! stays, and a line that cannot be read keeps its bytes. The format is written down in `FORMAT.md`
//! beside these files. What a model sees of a session is no matter of this room.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod adoption;
mod appending;
mod body;
mod checkpoint;
pub mod checkup;
mod clock;
mod compacted;
mod compaction;
mod contents;
mod cut_short;
mod delivered;
mod digest;
mod durable;
mod earlier;
mod entry;
mod error;
mod fields;
mod folder;
mod header;
mod identity;
pub mod injected;
mod items;
mod journal;
pub mod keeper;
mod kept;
mod lines;
mod live;
mod migrate;
mod parse;
mod pending;
mod reading;
mod record;
pub mod recording;
mod together;
mod tree;
mod undo;
mod wording;

#[cfg(test)]
mod tests;

use std::path::Path;

use ctxhost_engine_api::Flags;
use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
use serde_json::Value;

pub use body::RecordBody;
pub use compacted::Compacted;
pub use compaction::NewCompaction;
pub use delivered::Delivered;
pub use digest::digest;
pub use entry::{retold, retold_raw, rewritten};
pub use error::{LineFault, LineProblem, SessionError};
pub use folder::{Kept, SessionFolder};
pub use header::{Header, SESSION_VERSION};
pub use journal::{FileCheck, Holder, SyncPolicy};
pub use keeper::{Founding, Keeper};
pub use live::context_edit;
pub use pending::{Intent, Recovered, pending_file};
pub use record::{LETTER_KEY, Record, RecordKind};
pub use undo::UNDO;
pub use wording::compaction_summary;

use checkpoint::Sealed;
use contents::Contents;
use journal::Journal;
use reading::Reading;

/// A session: its header, its tree of records, and the file it is written to, if any.
#[derive(Debug)]
pub struct Session {
    contents: Reading,
    store: Store,
    /// How far the fingerprints beside the file reach.
    sealed: Option<Sealed>,
    /// Whether the checkpoint beside the file has to be written with the next record.
    owes_checkpoint: bool,
    /// Bytes before the newest compaction from which on one is kept.
    checkpoint_from_bytes: u64,
}

#[derive(Debug)]
enum Store {
    Memory,
    ReadOnly,
    File(Box<Journal>),
    Kept(Box<dyn Keeper>),
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
        let excerpt = checkpoint::open(journal.path(), journal.length_bytes());
        if let Some((contents, sealed)) = excerpt {
            let contents = Reading::excerpt(contents, journal.path().to_owned());
            let session = Session::reading(contents, Store::File(Box::new(journal)));
            return Ok(Session { sealed: Some(sealed), ..session });
        }
        let contents = parse::lines(&path.display().to_string(), &journal.read()?)?;
        let session = Session::of(contents, Store::File(Box::new(journal)));
        session.check_writable()?;
        Ok(Session { owes_checkpoint: true, ..session })
    }

    /// Reads a session file; nothing on the disk changes, and appending is refused.
    ///
    /// # Errors
    ///
    /// Where the file cannot be read or is no session.
    pub fn read(path: &Path) -> Result<Session, SessionError> {
        let contents = parse::lines(&path.display().to_string(), &journal::read(path)?)?;
        Ok(Session::of(contents, Store::ReadOnly))
    }

    /// The session of the bytes of a file, in memory. `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// [`SessionError::Header`] where the bytes are no session.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Session, SessionError> {
        Ok(Session::of(parse::contents(name, bytes)?, Store::Memory))
    }

    /// Creates a session file that must not be there yet, readable by its owner only.
    ///
    /// # Errors
    ///
    /// Where the file is there, or cannot be written.
    pub fn create(path: &Path, cwd: &str, id: Option<&str>) -> Result<Session, SessionError> {
        Session::in_memory(Header::new(id, cwd, clock::now_ms())).kept_in(path)
    }

    /// A session that never touches a disk.
    pub fn in_memory(header: Header) -> Session {
        Session::of(Contents::new(header), Store::Memory)
    }

    /// The same session in a file of its own, which must not be there yet. All of it is written at once.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn kept_in(mut self, path: &Path) -> Result<Session, SessionError> {
        self.keep_in(path, SyncPolicy::default())?;
        Ok(self)
    }

    /// [`kept_in`](Self::kept_in) for a session that is in use; where it fails, it is as it was.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn keep_in(&mut self, path: &Path, sync: SyncPolicy) -> Result<(), SessionError> {
        let mut journal = Journal::create(path, &self.contents.complete()?.to_bytes())?;
        journal.set_policy(sync);
        self.store = Store::File(Box::new(journal));
        (self.sealed, self.owes_checkpoint) = (None, true);
        Ok(())
    }

    fn of(contents: Contents, store: Store) -> Session {
        Session::reading(Reading::of(contents), store)
    }

    fn reading(contents: Reading, store: Store) -> Session {
        let checkpoint_from_bytes = checkpoint::LEAST_BYTES;
        Session { contents, store, sealed: None, owes_checkpoint: false, checkpoint_from_bytes }
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.contents.at_hand().header
    }

    /// Whether records of this session were not read yet, because the next turn does not need them.
    pub fn has_unread(&self) -> bool {
        self.contents.is_excerpt()
    }

    /// The file it is written to; `None` for a session in memory or opened for reading.
    pub fn path(&self) -> Option<&Path> {
        match &self.store {
            Store::File(journal) => Some(journal.path()),
            Store::Memory | Store::ReadOnly | Store::Kept(_) => None,
        }
    }

    /// The version of the file where it is an older one that was migrated in memory only.
    pub fn migrated_from(&self) -> Option<u32> {
        self.contents.at_hand().migrated_from
    }

    /// What was wrong with lines when the session was opened, by line.
    pub fn problems(&self) -> &[LineProblem] {
        &self.contents.problems
    }

    /// How many records it has, on whatever branch.
    pub fn record_count(&self) -> usize {
        self.contents.at_hand().record_count()
    }

    /// All records, in file order.
    pub fn records(&self) -> &[Record] {
        &self.contents.records
    }

    /// The record with this id.
    pub fn record(&self, id: &str) -> Option<&Record> {
        self.contents.at_hand().record(id).or_else(|| self.contents.record(id))
    }

    /// The records in which ctxhost keeps state of its own under this custom type, which begins with
    /// `ctxhost.`: on whatever branch, in file order.
    pub fn own_records(&self, custom_type: &str) -> impl Iterator<Item = (&Record, Value)> {
        // Those of other types are not all at hand.
        let is_own = custom_type.starts_with(record::OWN_TYPES);
        let contents = if is_own { self.contents.at_hand() } else { &self.contents };
        let records = contents.records.iter();
        records.filter_map(move |record| Some((record, record.custom_data(custom_type)?)))
    }

    /// The record where the session stands: the next one follows it.
    pub fn leaf(&self) -> Option<&Record> {
        self.contents.at_hand().leaf()
    }

    /// The last records of all branches, in file order.
    pub fn leaves(&self) -> Vec<&Record> {
        self.at(self.contents.tree.leaves())
    }

    /// The records from the root to where the session stands.
    pub fn branch(&self) -> Vec<&Record> {
        self.at(self.contents.tree.path())
    }

    fn at(&self, positions: Vec<usize>) -> Vec<&Record> {
        positions.into_iter().filter_map(|at| self.contents.at(at)).collect()
    }

    /// Goes to another record; the next one appended follows it.
    ///
    /// The file says nothing of this before that: a session opened again stands at its last line.
    ///
    /// # Errors
    ///
    /// [`SessionError::UnknownRecord`].
    pub fn set_leaf(&mut self, id: &str) -> Result<(), SessionError> {
        self.contents.complete()?;
        self.stand_at(Some(self.position(id)?));
        Ok(())
    }

    /// Goes before the first record: the next one appended begins another branch from the root.
    ///
    /// # Errors
    ///
    /// Where the rest of an excerpt cannot be read.
    pub fn leave_branch(&mut self) -> Result<(), SessionError> {
        self.contents.complete()?;
        self.stand_at(None);
        Ok(())
    }

    /// Goes to a record, or before the first one, of a session that was read whole.
    fn stand_at(&mut self, position: Option<usize>) {
        self.contents.at_hand_mut().set_leaf(position);
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
        let contents = self.contents.at_hand();
        live::log(contents, contents.first_task, epoch)
    }

    /// What a record puts into the context, with the first task of the branch marked as pinned.
    pub fn entry(&self, id: &str) -> Option<NewEntry> {
        let contents = self.contents.telling_of(id);
        let position = contents.tree.position(id)?;
        let record = contents.at(position)?;
        let mut entry = adoption::adopt(contents, record, record.to_entry()?);
        if contents.first_task == Some(position) {
            entry.flags = entry.flags.with(Flags::PINNED);
        }
        Some(entry)
    }

    /// The newest model of the current branch: provider and model id.
    pub fn model(&self) -> Option<(String, String)> {
        let contents = self.contents.at_hand();
        let newest_first = contents.tree.path_backwards();
        let of_record = newest_first.filter_map(|at| contents.at(at)).find_map(Record::model);
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
