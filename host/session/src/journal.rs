//! The append-only file of a session: one write per append, then a sync depending on the policy.
//!
//! If either fails, the file is truncated to its previous length, so that memory and file agree. With
//! write-behind, batches are buffered until a flush; if its write fails, they stay in the buffer for the next one.

pub(super) mod checksums;
pub(super) mod disk;
pub(super) mod lock;
mod path_check;
mod policy;
pub(super) mod sidecar;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

pub use path_check::FileCheck;
pub use policy::SyncPolicy;

use ctxhost_files::FileLines;

use super::contents::SessionContents;
use super::error::{SessionError, io_error};
use checksums::ChecksumWriter;
use disk::{DiskFile, JournalDisk, OpenMode, OsJournalDisk};
use lock::LockNote;
use path_check::PathState;
use policy::SyncDemand;
use sidecar::{STAGED_SUFFIX, create_file, replace_file, save_copy, sidecar_path};

/// A session file that is open for writing.
#[derive(Debug)]
pub(super) struct Journal {
    note: LockNote,
    path: PathBuf,
    disk: Arc<dyn JournalDisk>,
    file: Box<dyn DiskFile>,
    checksums: ChecksumWriter,
    policy: SyncPolicy,
    length_bytes: u64,
    /// Length up to which the file was synced.
    synced_bytes: u64,
    /// Whether the folder has to be synced, because the name of the file is new.
    owes_folder_sync: bool,
    is_broken: bool,
    writes_behind: bool,
    /// Lines to be written.
    buffer: Vec<u8>,
    path_state: PathState,
    /// The copy of the original, once this journal has migrated the file.
    migration_copy: Arc<OnceLock<PathBuf>>,
}

impl Journal {
    /// Opens a file for writing. Nothing in it changes before the first append.
    pub(super) fn open(path: &Path) -> Result<Journal, SessionError> {
        Journal::open_on(Arc::new(OsJournalDisk), path)
    }

    /// Creates a file with its first bytes; it must not exist.
    pub(super) fn create(path: &Path, bytes: &[u8]) -> Result<Journal, SessionError> {
        Journal::create_on(Arc::new(OsJournalDisk), path, bytes)
    }

    /// [`open`](Self::open) on any disk.
    pub(super) fn open_on(
        disk: Arc<dyn JournalDisk>,
        path: &Path,
    ) -> Result<Journal, SessionError> {
        let path = in_real_folder(path).map_err(io_error("open", path))?;
        let file = open_locked(&*disk, &path)?;
        let length_bytes = file.length_bytes().map_err(io_error("inspect", &path))?;
        Ok(Journal::new(disk, path, file, length_bytes))
    }

    /// Reads the file as long as it is now, without lines above the length limit.
    pub(super) fn read(&mut self) -> Result<FileLines, SessionError> {
        let lines = self.file.read_lines().map_err(io_error("read", &self.path))?;
        let long_bytes: u64 = lines.long.iter().map(|line| line.length_bytes).sum();
        self.length_bytes = lines.bytes.len() as u64 + long_bytes;
        self.synced_bytes = self.length_bytes;
        Ok(lines)
    }

    /// The copy of the original, once this journal has migrated the file.
    pub(super) fn migration_copy(&self) -> Arc<OnceLock<PathBuf>> {
        self.migration_copy.clone()
    }

    /// Length of the file.
    pub(super) fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// [`create`](Self::create) on any disk.
    pub(super) fn create_on(
        disk: Arc<dyn JournalDisk>,
        path: &Path,
        bytes: &[u8],
    ) -> Result<Journal, SessionError> {
        let path = in_real_folder(path).map_err(io_error("create", path))?;
        let file = create_file(&*disk, &path, bytes).map_err(io_error("create", &path))?;
        let mut journal = Journal::new(disk, path, file, bytes.len() as u64);
        journal.checksums.add(bytes);
        if let Err(error) = journal.sync_folder() {
            // Nothing was acknowledged, and the file would make the next attempt fail.
            let _ = journal.disk.remove(&journal.path);
            let _ = journal.checksums.discard();
            return Err(error);
        }
        Ok(journal)
    }

    fn new(
        disk: Arc<dyn JournalDisk>,
        path: PathBuf,
        file: Box<dyn DiskFile>,
        length_bytes: u64,
    ) -> Journal {
        Journal {
            note: LockNote::create(disk.clone(), &path),
            checksums: ChecksumWriter::new(disk.clone(), &path),
            path,
            disk,
            file,
            policy: SyncPolicy::default(),
            length_bytes,
            synced_bytes: length_bytes,
            owes_folder_sync: false,
            is_broken: false,
            writes_behind: false,
            buffer: Vec::new(),
            path_state: PathState::default(),
            migration_copy: Arc::default(),
        }
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets when appends are synced.
    pub(super) fn set_policy(&mut self, policy: SyncPolicy) {
        self.policy = policy;
    }

    /// When appends are synced.
    pub(super) fn policy(&self) -> SyncPolicy {
        self.policy
    }

    /// Appends a line. The first append also moves a torn line away and migrates an older file.
    pub(super) fn append(
        &mut self,
        contents: &mut SessionContents,
        line: &str,
    ) -> Result<(), SessionError> {
        self.append_lines(contents, line, SyncDemand::ByPolicy)
    }

    /// Appends lines with one write and a sync unless the policy is `os`. If it fails, none is in the file.
    pub(super) fn append_milestone(
        &mut self,
        contents: &mut SessionContents,
        lines: &[&str],
    ) -> Result<(), SessionError> {
        self.append_lines(contents, &lines.join("\n"), SyncDemand::Required)
    }

    /// Appends lines that belong together; with write-behind they are buffered.
    pub(super) fn append_batch(
        &mut self,
        contents: &mut SessionContents,
        lines: &[&str],
    ) -> Result<(), SessionError> {
        if !self.writes_behind {
            return self.append_milestone(contents, lines);
        }
        self.check_not_broken()?;
        // Not at the flush: both change the contents, which a flush does not have.
        if contents.torn().is_some() || contents.migrated_from.is_some() {
            self.prepare_file(contents)?;
        }
        for line in lines {
            self.buffer_line(contents.lacks_final_newline(), line);
        }
        Ok(())
    }

    /// Buffers batches from now on until [`flush`](Self::flush).
    pub(super) fn enable_write_behind(&mut self) {
        self.writes_behind = true;
    }

    /// Whether lines are buffered.
    pub(super) fn has_buffered_lines(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Writes buffered lines. After [`SessionError::Unwritten`] they stay buffered; after another error, further appends
    /// are rejected.
    pub(super) fn flush(&mut self) -> Result<(), SessionError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.check_unchanged()?;
        self.write(SyncDemand::Required)
    }

    fn append_lines(
        &mut self,
        contents: &mut SessionContents,
        lines: &str,
        demand: SyncDemand,
    ) -> Result<(), SessionError> {
        self.prepare_file(contents)?;
        self.buffer_line(contents.lacks_final_newline(), lines);
        match self.write(demand) {
            // As for a batch: the next flush reports it.
            Err(SessionError::Unwritten { .. }) => Ok(()),
            written => written,
        }
    }

    fn buffer_line(&mut self, lacks_final_newline: bool, line: &str) {
        // Only the first buffered line follows the unterminated one.
        if lacks_final_newline && self.buffer.is_empty() {
            self.buffer.push(b'\n');
        }
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
    }

    /// Flushes, and syncs the file unless the policy is `os`.
    pub(super) fn sync(&mut self) -> Result<(), SessionError> {
        self.flush()?;
        if self.policy == SyncPolicy::Os || self.synced_bytes == self.length_bytes {
            return Ok(());
        }
        self.check_not_broken()?;
        let synced = self.file.sync();
        // After a failed fsync, Linux marks the dirty pages as clean: a later sync succeeds without
        // writing them. Only reopening shows what the file holds.
        self.is_broken = synced.is_err();
        synced.map_err(io_error("sync", &self.path))?;
        self.synced_bytes = self.length_bytes;
        Ok(())
    }

    /// Moves the bytes of a torn last line to a sidecar file and returns its path.
    pub(super) fn move_torn_line(
        &mut self,
        contents: &mut SessionContents,
    ) -> Result<Option<PathBuf>, SessionError> {
        let Some(torn) = contents.torn() else { return Ok(None) };
        // The copy first: its bytes are removed from the file next.
        let copy = save_copy(&*self.disk, &self.path, "torn", torn)?;
        tracing::warn!(file = %copy.display(), "moved the incomplete last line of a session to another file");
        let length_bytes = self.length_bytes - torn.len() as u64;
        let failed = || io_error("remove the incomplete last line of", &self.path);
        self.file.truncate(length_bytes).map_err(failed())?;
        (self.length_bytes, self.synced_bytes) = (length_bytes, length_bytes);
        contents.drop_torn();
        self.file.sync().map_err(failed())?;
        Ok(Some(copy))
    }

    /// Prepares the file for appending, if no other program changed it.
    fn prepare_file(&mut self, contents: &mut SessionContents) -> Result<(), SessionError> {
        self.check_unchanged()?;
        self.move_torn_line(contents)?;
        self.migrate(contents)
    }

    fn check_unchanged(&mut self) -> Result<(), SessionError> {
        self.check_not_broken()?;
        let found_bytes = self.file.length_bytes().map_err(io_error("inspect", &self.path))?;
        // Detects writers that take no lock, such as Pi.
        if found_bytes != self.length_bytes {
            let (path, expected_bytes) = (self.path.clone(), self.length_bytes);
            return Err(SessionError::Changed { path, expected_bytes, found_bytes });
        }
        self.check_path()?;
        if self.owes_folder_sync { self.sync_folder() } else { Ok(()) }
    }

    fn check_not_broken(&self) -> Result<(), SessionError> {
        if self.is_broken {
            return Err(SessionError::Broken { path: self.path.clone() });
        }
        Ok(())
    }

    fn sync_folder(&mut self) -> Result<(), SessionError> {
        let synced = self.disk.sync_folder(&self.path);
        self.owes_folder_sync = synced.is_err();
        synced.map_err(io_error("sync the folder of", &self.path))
    }

    /// Writes the buffer.
    fn write(&mut self, demand: SyncDemand) -> Result<(), SessionError> {
        let bytes = std::mem::take(&mut self.buffer);
        if let Err(source) = self.file.append(&bytes) {
            return Err(self.revert_append(source, bytes));
        }
        let needs_sync = self.policy.needs_sync(demand);
        if needs_sync {
            self.file.sync().map_err(|source| self.revert_sync(source))?;
        }
        self.length_bytes += bytes.len() as u64;
        if needs_sync {
            self.synced_bytes = self.length_bytes;
        }
        // After the line is safe: a row without its line would be reported as damage.
        self.checksums.add(&bytes);
        Ok(())
    }

    /// Truncates the file to its length before a failed append of `bytes`.
    fn revert_append(&mut self, source: io::Error, bytes: Vec<u8>) -> SessionError {
        self.is_broken = self.file.truncate(self.length_bytes).is_err();
        if self.writes_behind && !self.is_broken {
            // These lines are in memory as appended already. The file lacks them until the disk has room.
            self.buffer = bytes;
            return SessionError::Unwritten { path: self.path.clone(), source };
        }
        io_error("append to", &self.path)(source)
    }

    /// Truncates the file to its length before an append that was not synced.
    fn revert_sync(&mut self, source: io::Error) -> SessionError {
        let is_truncated = self.file.truncate(self.length_bytes).is_ok();
        // Earlier lines waited for the same sync, and may not be on disk.
        let lost_earlier_lines = self.synced_bytes < self.length_bytes;
        // Buffered lines are in memory as appended already, so memory and file would differ.
        self.is_broken = !is_truncated || lost_earlier_lines || self.writes_behind;
        io_error("sync", &self.path)(source)
    }

    /// Replaces the file by one with these bytes; the caller has saved the old ones. The folder is not
    /// synced yet.
    fn rewrite(&mut self, action: &'static str, bytes: &[u8]) -> Result<(), SessionError> {
        let staged = sidecar_path(&self.path, STAGED_SUFFIX);
        let file = (self.file.mode())
            .and_then(|mode| replace_file(&*self.disk, &self.path, &staged, Some(mode), bytes))
            .map_err(io_error(action, &self.path))?;
        // The path refers to the new file now, even if a later step fails.
        self.file = file;
        (self.length_bytes, self.synced_bytes) = (bytes.len() as u64, bytes.len() as u64);
        self.owes_folder_sync = true;
        Ok(())
    }

    /// Rewrites the file with repaired lines, whose checksums are `rows`, after saving the damaged ones to a
    /// sidecar file. Returns its path.
    pub(super) fn repair(
        &mut self,
        bytes: &[u8],
        damaged: &[u8],
        rows: &[checksums::ChecksumRow],
    ) -> Result<PathBuf, SessionError> {
        let copy = save_copy(&*self.disk, &self.path, "damaged", damaged)?;
        // Before the file: after a crash in between, the damage is found and repaired again. In the other
        // order the old rows would report the repaired lines as changed.
        checksums::replace(self.disk.clone(), &self.path, rows)
            .map_err(io_error("write the checksums of", &self.path))?;
        self.rewrite("repair", bytes)?;
        self.sync_folder()?;
        Ok(copy)
    }

    /// Replaces a file of an older version by the migrated contents, keeping the original.
    fn migrate(&mut self, contents: &mut SessionContents) -> Result<(), SessionError> {
        let Some(from_version) = contents.migrated_from else { return Ok(()) };
        let original = self.file.read().map_err(io_error("read", &self.path))?;
        let suffix = format!("v{from_version}.bak");
        let copy = save_copy(&*self.disk, &self.path, &suffix, &original)?;
        // Before the lines change: the old rows would report all of them as changed.
        self.checksums.discard().map_err(io_error("remove the checksums of", &self.path))?;
        let bytes = contents.to_bytes();
        self.rewrite("migrate", &bytes)?;
        contents.migrated_from = None;
        self.checksums.add(&bytes);
        tracing::info!(original = %copy.display(), from_version, "session migrated");
        // A journal migrates its file at most once.
        let _ = self.migration_copy.set(copy);
        self.sync_folder()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.is_broken
            && let Err(error) = self.sync()
        {
            tracing::warn!(%error, "cannot sync a session that is being closed");
        }
        // Before the lock: afterwards it could be the note of the next holder.
        self.note.remove();
        // Explicitly: a child process that is being spawned may have inherited the file, so that closing
        // it would not release the lock.
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "cannot unlock a session; its lock ends when the file is closed");
        }
    }
}

/// Opens and locks the file at a path.
fn open_locked(disk: &dyn JournalDisk, path: &Path) -> Result<Box<dyn DiskFile>, SessionError> {
    /// Attempts while other processes replace the file, which a migration does once per file.
    const ATTEMPTS: u32 = 8;
    for _ in 0..ATTEMPTS {
        let file = match disk.open(path, OpenMode::Existing) {
            Err(_) if path.is_symlink() => {
                return Err(SessionError::Link { path: path.to_owned() });
            }
            opened => opened.map_err(io_error("open", path))?,
        };
        lock::lock(&*file, path)?;
        // The previous holder may have replaced the file before it released the lock.
        if file.is_at(path).map_err(io_error("inspect", path))? {
            return Ok(file);
        }
    }
    Err(io_error("open", path)(io::ErrorKind::ResourceBusy.into()))
}

/// The path with links in its folder resolved.
fn in_real_folder(path: &Path) -> io::Result<PathBuf> {
    // Not in its last part: a planted link could direct messages into any file of the user.
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok(folder.unwrap_or(Path::new(".")).canonicalize()?.join(name))
}

/// Reads the lines in the first bytes of a file without locking it.
pub(super) fn read_prefix(path: &Path, length_bytes: u64) -> Result<FileLines, SessionError> {
    let file = ctxhost_files::open(path).map_err(io_error("read", path))?;
    let found_bytes = file.metadata().map_err(io_error("inspect", path))?.len();
    if found_bytes < length_bytes {
        let (path, expected_bytes) = (path.to_owned(), length_bytes);
        return Err(SessionError::Changed { path, expected_bytes, found_bytes });
    }
    ctxhost_files::read_open_lines(&file, length_bytes).map_err(io_error("read", path))
}

/// Reads the lines of a file without locking it.
pub(super) fn read(path: &Path) -> Result<FileLines, SessionError> {
    ctxhost_files::read_lines(path).map_err(io_error("read", path))
}
