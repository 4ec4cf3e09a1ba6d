//! The write-ahead file of a compaction, `<session>.pending`.
//!
//! ```text
//!  begin ─► <session>.pending: intent ─► engine, invariants
//!                                             │ no result ─► removed
//!                                             ▼
//!           <session>.pending: intent and record ─► record appended ─► removed
//! ```
//!
//! Only the finished record reaches the session file, as one line. When a session is opened after a crash, an
//! intent is discarded, and a record is appended if the session is unchanged since, so that a summary is not
//! paid for twice. The file is optional: no failure around it stops a compaction or an open.

use std::io;
use std::path::{Path, PathBuf};

use ctxhost_engine_api::Transcript;
use ctxhost_files::SESSION_FILE_BYTES;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::compaction::NewCompaction;
use super::error::SessionError;
use super::error::io_error;
use super::journal::disk::{JournalDisk as _, OsJournalDisk};
use super::journal::sidecar::{replace_file, save_copy, sidecar_path};
use super::record::{Record, RecordKind};
use super::{Session, clock, projection_items};

/// The version of the file.
const PENDING_VERSION: u32 = 1;

/// The outcome of recovering an interrupted compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionRecovery {
    /// There was no interrupted compaction.
    Nothing,
    /// It had a result, which is in the session now.
    Applied {
        /// The id of its record.
        id: String,
    },
    /// It was discarded. The session is unchanged.
    Discarded {
        /// The reason, as a fragment.
        reason: String,
    },
    /// It has a result that could not be appended; the next open tries again.
    Postponed {
        /// The reason, as a fragment.
        reason: String,
    },
}

/// A compaction in progress. Dropping it without [`complete`](Self::complete) removes its file.
#[derive(Debug)]
pub struct CompactionIntent {
    path: Option<PathBuf>,
}

impl CompactionIntent {
    /// There is a result, which [`Session::compact`] stores.
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

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PendingFile {
    version: u32,
    /// The id of the session.
    session: String,
    /// The leaf.
    leaf: Option<String>,
    /// Hash of the ids of its live transcript.
    live: String,
    trigger: String,
    engine: String,
    /// When the file was written.
    timestamp: String,
    /// The line of the finished record; absent for an intent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<String>,
}

/// The path of the file beside a session.
pub fn pending_path(session: &Path) -> PathBuf {
    sidecar_path(session, "pending")
}

impl Session {
    /// Stores the intent to compact `view`, the live transcript. A session without a file stores nothing.
    pub fn begin_compaction(
        &self,
        view: &Transcript,
        engine: &str,
        trigger: &str,
    ) -> CompactionIntent {
        let path = self.path().map(pending_path);
        if let Some(path) = &path {
            write_or_warn(path, &self.pending(view, engine, trigger));
            tracing::debug!(engine, trigger, "compaction started");
        }
        CompactionIntent { path }
    }

    /// Applies or discards an interrupted compaction. Call it once after [`open`](Self::open), and
    /// [`live`](Self::live) afterwards.
    pub fn recover_compaction(&mut self) -> CompactionRecovery {
        let Some(path) = self.path().map(pending_path) else { return CompactionRecovery::Nothing };
        let recovered = match PendingFile::read(&path) {
            Ok(None) => CompactionRecovery::Nothing,
            Ok(Some(pending)) => self.apply_pending(pending),
            Err(PendingReadError::Io(error)) => {
                CompactionRecovery::Postponed { reason: error.to_string() }
            }
            Err(PendingReadError::Content { reason, bytes }) => {
                save_unreadable(&path, &reason, &bytes)
            }
        };
        match &recovered {
            CompactionRecovery::Nothing => {}
            CompactionRecovery::Applied { id } => {
                tracing::info!(id, "recovered an interrupted compaction");
            }
            CompactionRecovery::Discarded { reason } => {
                tracing::info!(reason, "discarded an interrupted compaction");
            }
            CompactionRecovery::Postponed { reason } => {
                tracing::warn!(
                    reason,
                    "cannot apply an interrupted compaction yet; the next open tries again"
                );
                // The file stays for the next open.
                return recovered;
            }
        }
        remove(&path);
        recovered
    }

    /// Stores a finished record before it is appended.
    pub(super) fn store_pending(&self, compaction: &NewCompaction<'_>, record: &Record) {
        let Some(path) = self.path().map(pending_path) else { return };
        let intent = self.pending(compaction.view, &compaction.engine, &compaction.trigger);
        let pending = PendingFile { record: Some(record.line().to_owned()), ..intent };
        // Its intent was reported if it cannot be written.
        if let Err(error) = pending.write(&path) {
            tracing::debug!(%error, "cannot store the computed compaction");
        }
        tracing::debug!(id = record.id(), "compaction computed");
    }

    /// Removes the file once the record is in the session.
    pub(super) fn remove_pending(&self) {
        if let Some(path) = self.path().map(pending_path) {
            tracing::debug!("compaction recorded");
            remove(&path);
        }
    }

    fn pending(&self, view: &Transcript, engine: &str, trigger: &str) -> PendingFile {
        PendingFile {
            version: PENDING_VERSION,
            session: self.header().id().to_owned(),
            leaf: self.leaf().map(|leaf| leaf.id().to_owned()),
            live: hash_ids(view),
            trigger: trigger.to_owned(),
            engine: engine.to_owned(),
            timestamp: clock::format_iso(clock::now_ms()),
            record: None,
        }
    }

    fn apply_pending(&mut self, pending: PendingFile) -> CompactionRecovery {
        let record = match self.applicable_record(&pending) {
            Ok(record) => record,
            Err(reason) => return CompactionRecovery::Discarded { reason: reason.to_owned() },
        };
        let id = record.id().to_owned();
        match self.check_writable().and_then(|()| self.append_record(record)) {
            Ok(()) => CompactionRecovery::Applied { id },
            Err(error) => CompactionRecovery::Postponed { reason: error.to_string() },
        }
    }

    /// The finished record if the session is unchanged since, else the reason to discard it.
    fn applicable_record(&self, pending: &PendingFile) -> Result<Record, &'static str> {
        let line = pending.record.as_deref().ok_or("it had no result yet")?;
        let record = Session::parse_record_line(line).map_err(|_| "its result is not a record")?;
        let leaf = self.leaf().map(Record::id);
        if pending.session != self.header().id() || *record.kind() != RecordKind::Compaction {
            return Err("it is not a compaction of this session");
        }
        if self.contents.loaded().has_id(record.id()) {
            return Err("it is already in the session");
        }
        if leaf != pending.leaf.as_deref() || leaf != record.parent_id() {
            return Err("the session was extended since");
        }
        let projection = projection_items::read_projection(&record);
        let ignored = projection.map(|projection| projection.ignored_compactions);
        let live = match ignored.filter(|ignored| !ignored.is_empty()) {
            Some(ignored) => self.live_without(&ignored, 0),
            None => self.live(0),
        };
        if hash_ids(&live.snapshot()) != pending.live {
            return Err("the live transcript changed since");
        }
        Ok(record)
    }
}

enum PendingReadError {
    Io(io::Error),
    Content { reason: String, bytes: Vec<u8> },
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
                let reason = format!("it has version {}", pending.version);
                Err(PendingReadError::Content { reason, bytes })
            }
            Err(error) => Err(PendingReadError::Content { reason: error.to_string(), bytes }),
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
        tracing::warn!(%error, "cannot store the compaction in progress; a crash would lose it");
    }
}

/// Hash of the ids of a live transcript. Records never change, so their ids suffice.
fn hash_ids(view: &Transcript) -> String {
    let mut hash = Sha256::new();
    for entry in view.iter() {
        hash.update(entry.id().as_bytes());
        hash.update(b"\n");
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Saves an unreadable file, perhaps of a newer version, under another name.
fn save_unreadable(path: &Path, reason: &str, bytes: &[u8]) -> CompactionRecovery {
    match save_copy(&OsJournalDisk, path, "unreadable", bytes) {
        Ok(copy) => CompactionRecovery::Discarded {
            reason: format!("{reason}; saved its file as {}", copy.display()),
        },
        Err(error) => CompactionRecovery::Postponed { reason: error.to_string() },
    }
}

/// Removes the file and its staging file.
fn remove(path: &Path) {
    for path in [path.to_owned(), staged(path)] {
        if let Err(error) = OsJournalDisk.remove(&path) {
            tracing::warn!(%error, file = %path.display(), "cannot remove a leftover of a compaction");
        }
    }
}

fn staged(path: &Path) -> PathBuf {
    sidecar_path(path, "new")
}
