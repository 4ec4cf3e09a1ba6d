//! A compaction on its way into the session: intended, worked out, recorded.
//!
//! ```text
//!  intend ─► <session>.pending: what is compacted ─► engine, law
//!                                                        │ nothing came of it ─► removed
//!                                                        ▼
//!            <session>.pending: and the finished record ─► record appended ─► removed
//! ```
//!
//! The session file sees the finished record only, as one line; until then it keeps its bytes. What a
//! kill left beside it is looked at when the session is opened: an intent alone is discarded, a finished
//! record is appended where the session still is what it was worked out from, so that nobody pays for
//! the same summary twice. A compaction without this file is less comfortable and never unsafe, so
//! nothing about it stops a compaction or an opening.

use std::io;
use std::path::{Path, PathBuf};

use ctxhost_engine_api::Transcript;
use ctxhost_files::SESSION_FILE_BYTES;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::compaction::NewCompaction;
use super::error::SessionError;
use super::journal::disk::{JournalDisk as _, OsJournalDisk};
use super::journal::io_error;
use super::journal::sidecar::{replace_file, save_copy, sidecar_path};
use super::record::{Record, RecordKind};
use super::{Session, clock};

/// The version of the file.
const PENDING_VERSION: u32 = 1;

/// What became of a compaction that was on its way when a process died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionRecovery {
    /// There was none.
    Nothing,
    /// It was worked out, and is in the session now.
    Applied {
        /// The id of its record.
        id: String,
    },
    /// It was left. The session is as it was.
    Discarded {
        /// Why, as a fragment.
        reason: String,
    },
    /// It is worked out and could not be appended; it waits for the next opening.
    Postponed {
        /// Why, as a fragment.
        reason: String,
    },
}

/// A compaction that is being worked out. Dropping it says that nothing came of it.
#[derive(Debug)]
pub struct CompactionIntent {
    path: Option<PathBuf>,
}

impl CompactionIntent {
    /// There is a result: from here on the session looks after it.
    pub fn complete(mut self) {
        self.path = None;
    }
}

impl Drop for CompactionIntent {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            remove(path);
        }
    }
}

/// What stands in the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PendingFile {
    version: u32,
    /// The id of the session.
    session: String,
    /// The record where it stood.
    leaf: Option<String>,
    /// The hash of the ids of its live transcript.
    live: String,
    trigger: String,
    engine: String,
    /// When the file was written.
    timestamp: String,
    /// The line of the finished record; absent as long as there is only the intent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<String>,
}

/// The file beside a session for a compaction on its way.
pub fn pending_path(session: &Path) -> PathBuf {
    sidecar_path(session, "pending")
}

impl Session {
    /// Notes beside the file that a compaction of `view`, the live transcript, is being worked out.
    /// A session in memory notes nothing.
    pub fn begin_compaction(
        &self,
        view: &Transcript,
        engine: &str,
        trigger: &str,
    ) -> CompactionIntent {
        let path = self.path().map(pending_path);
        if let Some(path) = &path {
            write_or_warn(path, &self.pending(view, engine, trigger));
            tracing::debug!(engine, trigger, "a compaction is intended");
        }
        CompactionIntent { path }
    }

    /// Finishes or leaves a compaction that was on its way when a process died. Call it once, right
    /// after [`open`](Self::open), and [`live`](Self::live) afterwards.
    pub fn recover_compaction(&mut self) -> CompactionRecovery {
        let Some(path) = self.path().map(pending_path) else { return CompactionRecovery::Nothing };
        let recovered = match PendingFile::read(&path) {
            Ok(None) => CompactionRecovery::Nothing,
            Ok(Some(pending)) => self.redo(pending),
            Err(PendingReadError::Io(error)) => {
                CompactionRecovery::Postponed { reason: error.to_string() }
            }
            Err(PendingReadError::Content { why, bytes }) => keep_unreadable(&path, &why, &bytes),
        };
        match &recovered {
            CompactionRecovery::Nothing => {}
            CompactionRecovery::Applied { id } => {
                tracing::info!(id, "a compaction that was cut short is in the session now");
            }
            CompactionRecovery::Discarded { reason: why } => {
                tracing::info!(why, "a compaction that was cut short is discarded");
            }
            CompactionRecovery::Postponed { reason: why } => {
                tracing::warn!(why, "a compaction that was cut short waits beside the session");
                return recovered;
            }
        }
        remove(&path);
        recovered
    }

    /// Puts a finished record beside the file, before it is appended.
    pub(super) fn store_pending(&self, compaction: &NewCompaction<'_>, record: &Record) {
        let Some(path) = self.path().map(pending_path) else { return };
        let intent = self.pending(compaction.view, &compaction.engine, &compaction.trigger);
        write_or_warn(&path, &PendingFile { record: Some(record.line().to_owned()), ..intent });
        tracing::debug!(id = record.id(), "a compaction is worked out");
    }

    /// The record is in the session.
    pub(super) fn remove_pending(&self) {
        if let Some(path) = self.path().map(pending_path) {
            tracing::debug!("a compaction is recorded");
            remove(&path);
        }
    }

    fn pending(&self, view: &Transcript, engine: &str, trigger: &str) -> PendingFile {
        PendingFile {
            version: PENDING_VERSION,
            session: self.header().id().to_owned(),
            leaf: self.leaf().map(|leaf| leaf.id().to_owned()),
            live: digest(view),
            trigger: trigger.to_owned(),
            engine: engine.to_owned(),
            timestamp: clock::format_iso(clock::now_ms()),
            record: None,
        }
    }

    fn redo(&mut self, pending: PendingFile) -> CompactionRecovery {
        let record = match self.still_fits(&pending) {
            Ok(record) => record,
            Err(why) => return CompactionRecovery::Discarded { reason: why.to_owned() },
        };
        let id = record.id().to_owned();
        match self.check_writable().and_then(|()| self.append_record(record)) {
            Ok(()) => CompactionRecovery::Applied { id },
            Err(error) => CompactionRecovery::Postponed { reason: error.to_string() },
        }
    }

    /// The finished record, where the session is what it was worked out from; else why not.
    fn still_fits(&self, pending: &PendingFile) -> Result<Record, &'static str> {
        let line = pending.record.as_deref().ok_or("it had no result yet")?;
        let record = Session::parse_record_line(line).map_err(|_| "its result is no record")?;
        let leaf = self.leaf().map(Record::id);
        if pending.session != self.header().id() || *record.kind() != RecordKind::Compaction {
            return Err("it is no compaction of this session");
        }
        if self.contents.loaded().has_id(record.id()) {
            return Err("it is in the session already");
        }
        if leaf != pending.leaf.as_deref() || leaf != record.parent_id() {
            return Err("the session has gone on since");
        }
        if digest(&self.live(0).snapshot()) != pending.live {
            return Err("the live transcript is another one");
        }
        Ok(record)
    }
}

enum PendingReadError {
    Io(io::Error),
    Content { why: String, bytes: Vec<u8> },
}

impl PendingFile {
    fn read(path: &Path) -> Result<Option<PendingFile>, PendingReadError> {
        let bytes = match ctxhost_files::read(path, SESSION_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(PendingReadError::Io(error)),
        };
        match serde_json::from_slice::<PendingFile>(&bytes) {
            Ok(pending) if pending.version == PENDING_VERSION => Ok(Some(pending)),
            Ok(pending) => {
                let why = format!("it has version {}", pending.version);
                Err(PendingReadError::Content { why, bytes })
            }
            Err(error) => Err(PendingReadError::Content { why: error.to_string(), bytes }),
        }
    }

    fn write(&self, path: &Path) -> Result<(), SessionError> {
        let json = serde_json::to_vec(self)
            .map_err(|error| SessionError::Plan { reason: error.to_string() })?;
        let written = replace_file(&OsJournalDisk, path, &staged(path), None, &json);
        written.map(drop).map_err(io_error("write", path))
    }
}

fn write_or_warn(path: &Path, pending: &PendingFile) {
    if let Err(error) = pending.write(path) {
        tracing::warn!(%error, "a crash of this process would lose the compaction under way");
    }
}

/// The hash of the ids of a live transcript. A record never changes, so its id stands for it.
fn digest(view: &Transcript) -> String {
    let mut hash = Sha256::new();
    for entry in view.iter() {
        hash.update(entry.id().as_bytes());
        hash.update(b"\n");
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What nobody can read is kept for somebody who can, and does not come up again.
fn keep_unreadable(path: &Path, why: &str, bytes: &[u8]) -> CompactionRecovery {
    match save_copy(&OsJournalDisk, path, "unreadable", bytes) {
        Ok(aside) => CompactionRecovery::Discarded {
            reason: format!("{why}; its file is kept as {}", aside.display()),
        },
        Err(error) => CompactionRecovery::Postponed { reason: error.to_string() },
    }
}

/// Removes the file and what a kill may have left of writing it.
fn remove(path: &Path) {
    for path in [path.to_owned(), staged(path)] {
        if let Err(error) = OsJournalDisk.remove(&path) {
            tracing::warn!(%error, file = %path.display(), "a leftover could not be removed");
        }
    }
}

fn staged(path: &Path) -> PathBuf {
    sidecar_path(path, "new")
}
