//! The file behind a session: appended to, never rewritten but once, when an older version is migrated.
//!
//! An append is one write of one line, then, as the policy says, a sync. When either fails, the file is
//! cut back to what it was, so that memory and file tell the same story. A journal that writes behind
//! holds lines back until somebody has time for them; when it cannot write them then, it takes no more.

pub(super) mod checksums;
pub(super) mod disk;
pub(super) mod lock;
mod path_check;
mod policy;
pub(super) mod sidecar;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use lock::LockHolder;
pub use path_check::FileCheck;
pub use policy::SyncPolicy;

use ctxhost_files::FileLines;

use super::contents::SessionContents;
use super::error::SessionError;
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
    /// How much of it the disk has said to hold.
    synced_bytes: u64,
    /// The file has its name, but the folder has not been synced since.
    owes_folder_sync: bool,
    is_broken: bool,
    writes_behind: bool,
    /// What is held back, as it will be written.
    held: Vec<u8>,
    /// Whether the name leads to the file.
    place: PathState,
}

impl Journal {
    /// Opens a file for writing. Nothing in it changes before the first append.
    pub(super) fn open(path: &Path) -> Result<Journal, SessionError> {
        Journal::open_on(Arc::new(OsJournalDisk), path)
    }

    /// Creates a file that must not be there yet, with its first bytes.
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
        let length_bytes = file.length_bytes().map_err(io_error("look at", &path))?;
        Ok(Journal::on(disk, path, file, length_bytes))
    }

    /// All of the file, as long as it is now, but for lines that are too long to be held.
    pub(super) fn read(&mut self) -> Result<FileLines, SessionError> {
        let lines = self.file.read_lines().map_err(io_error("read", &self.path))?;
        let long_bytes: u64 = lines.long.iter().map(|line| line.length_bytes).sum();
        self.length_bytes = lines.bytes.len() as u64 + long_bytes;
        self.synced_bytes = self.length_bytes;
        Ok(lines)
    }

    /// How long it is.
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
        let mut journal = Journal::on(disk, path, file, bytes.len() as u64);
        journal.checksums.add(bytes);
        if let Err(error) = journal.sync_folder() {
            // Nothing was promised, and a half-made file would keep the name from the next try.
            let _ = journal.disk.remove(&journal.path);
            let _ = journal.checksums.discard();
            return Err(error);
        }
        Ok(journal)
    }

    fn on(
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
            held: Vec::new(),
            place: PathState::default(),
        }
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// When appends are made durable from now on.
    pub(super) fn set_policy(&mut self, policy: SyncPolicy) {
        self.policy = policy;
    }

    /// When appends are made durable.
    pub(super) fn policy(&self) -> SyncPolicy {
        self.policy
    }

    /// Appends a line. Before the first one, what is torn or old about the file is put right.
    pub(super) fn append(
        &mut self,
        contents: &mut SessionContents,
        line: &str,
    ) -> Result<(), SessionError> {
        self.put(contents, line, SyncDemand::ByPolicy)
    }

    /// Appends lines that have to last, whatever the policy says of single ones. It is one write: if it
    /// fails, none of them is there.
    pub(super) fn append_milestone(
        &mut self,
        contents: &mut SessionContents,
        lines: &[&str],
    ) -> Result<(), SessionError> {
        self.put(contents, &lines.join("\n"), SyncDemand::Required)
    }

    /// Appends lines of which the last makes the others count; they are held back where the journal
    /// writes behind.
    pub(super) fn append_batch(
        &mut self,
        contents: &mut SessionContents,
        lines: &[&str],
    ) -> Result<(), SessionError> {
        if !self.writes_behind {
            return self.append_milestone(contents, lines);
        }
        self.check_not_broken()?;
        if contents.torn().is_some() || contents.migrated_from.is_some() {
            self.begin(contents)?;
        }
        for line in lines {
            self.hold(contents.lacks_final_newline(), line);
        }
        Ok(())
    }

    /// Holds lines back from now on that are appended together, until [`flush`](Self::write_out).
    pub(super) fn enable_write_behind(&mut self) {
        self.writes_behind = true;
    }

    /// Whether lines wait for [`flush`](Self::write_out).
    pub(super) fn has_buffered_lines(&self) -> bool {
        !self.held.is_empty()
    }

    /// Writes what is held back. Where that fails, nothing more is appended: nobody could tell what the
    /// file holds.
    pub(super) fn flush(&mut self) -> Result<(), SessionError> {
        if self.held.is_empty() {
            return Ok(());
        }
        self.check_unchanged()?;
        self.write(SyncDemand::Required)
    }

    fn put(
        &mut self,
        contents: &mut SessionContents,
        line: &str,
        wait: SyncDemand,
    ) -> Result<(), SessionError> {
        self.begin(contents)?;
        self.hold(contents.lacks_final_newline(), line);
        self.write(wait)
    }

    fn hold(&mut self, is_unfinished: bool, line: &str) {
        if is_unfinished && self.held.is_empty() {
            self.held.push(b'\n');
        }
        self.held.extend_from_slice(line.as_bytes());
        self.held.push(b'\n');
    }

    /// Waits until all that was appended is on the disk, where the policy leaves that to us.
    pub(super) fn sync(&mut self) -> Result<(), SessionError> {
        self.flush()?;
        if self.policy == SyncPolicy::Os || self.synced_bytes == self.length_bytes {
            return Ok(());
        }
        self.check_not_broken()?;
        let synced = self.file.sync();
        // After a failed sync the system may count pages as written that are not; only those who read
        // the file again know.
        self.is_broken = synced.is_err();
        synced.map_err(io_error("sync", &self.path))?;
        self.synced_bytes = self.length_bytes;
        Ok(())
    }

    /// Moves the bytes of a torn last line to a file of their own, and answers where they are.
    pub(super) fn move_torn_line(
        &mut self,
        contents: &mut SessionContents,
    ) -> Result<Option<PathBuf>, SessionError> {
        let Some(torn) = contents.torn() else { return Ok(None) };
        let aside = save_copy(&*self.disk, &self.path, "torn", torn)?;
        tracing::warn!(file = %aside.display(), "the last line was cut short, its bytes are set aside");
        let length_bytes = self.length_bytes - torn.len() as u64;
        let cut = || io_error("cut the torn line off", &self.path);
        self.file.truncate(length_bytes).map_err(cut())?;
        (self.length_bytes, self.synced_bytes) = (length_bytes, length_bytes);
        contents.drop_torn();
        self.file.sync().map_err(cut())?;
        Ok(Some(aside))
    }

    /// Puts right what is torn or old about the file, which nobody else may have changed.
    fn begin(&mut self, contents: &mut SessionContents) -> Result<(), SessionError> {
        self.check_unchanged()?;
        self.move_torn_line(contents)?;
        self.migrate(contents)
    }

    fn check_unchanged(&mut self) -> Result<(), SessionError> {
        self.check_not_broken()?;
        let found_bytes = self.file.length_bytes().map_err(io_error("look at", &self.path))?;
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

    /// Writes what is held.
    fn write(&mut self, wait: SyncDemand) -> Result<(), SessionError> {
        let bytes = std::mem::take(&mut self.held);
        self.file
            .append(&bytes)
            .map_err(|source| self.truncate_failed_write(source, "append to"))?;
        let waits = self.policy.needs_sync(wait);
        if waits {
            self.file.sync().map_err(|source| self.truncate_failed_write(source, "sync"))?;
        }
        self.length_bytes += bytes.len() as u64;
        if waits {
            self.synced_bytes = self.length_bytes;
        }
        self.checksums.add(&bytes);
        Ok(())
    }

    /// Cuts a failed write off. Where earlier lines waited for the same sync, nobody knows whether they
    /// are on the disk.
    fn truncate_failed_write(&mut self, source: io::Error, action: &'static str) -> SessionError {
        let is_back = self.file.truncate(self.length_bytes).is_ok();
        let is_unsure = action == "sync" && self.synced_bytes < self.length_bytes;
        // What was held back counts as said already.
        self.is_broken = !is_back || is_unsure || self.writes_behind;
        io_error(action, &self.path)(source)
    }

    /// Puts a file with these bytes in the place of the old one, which the caller has kept. The folder is
    /// not synced yet.
    fn rewrite(&mut self, action: &'static str, bytes: &[u8]) -> Result<(), SessionError> {
        let staged = sidecar_path(&self.path, STAGED_SUFFIX);
        let file = (self.file.mode())
            .and_then(|mode| replace_file(&*self.disk, &self.path, &staged, Some(mode), bytes))
            .map_err(io_error(action, &self.path))?;
        // From here on the name leads to the new file, whatever else fails.
        self.file = file;
        (self.length_bytes, self.synced_bytes) = (bytes.len() as u64, bytes.len() as u64);
        self.owes_folder_sync = true;
        Ok(())
    }

    /// Writes the file anew with lines that were mended, after the damaged ones are safe in a file beside
    /// it, whose path is the answer. `rows` are the checksums of the mended lines.
    pub(super) fn repair(
        &mut self,
        bytes: &[u8],
        damaged: &[u8],
        rows: &[checksums::ChecksumRow],
    ) -> Result<PathBuf, SessionError> {
        let aside = save_copy(&*self.disk, &self.path, "damaged", damaged)?;
        // Before the file: rows without their line are a fault that the next check names.
        checksums::replace(self.disk.clone(), &self.path, rows)
            .map_err(io_error("write the checksums of", &self.path))?;
        self.rewrite("mend", bytes)?;
        self.sync_folder()?;
        Ok(aside)
    }

    /// Puts the migrated file in the place of an older one, which stays beside it.
    fn migrate(&mut self, contents: &mut SessionContents) -> Result<(), SessionError> {
        let Some(from_version) = contents.migrated_from else { return Ok(()) };
        let original = self.file.read().map_err(io_error("read", &self.path))?;
        let suffix = format!("v{from_version}.bak");
        let aside = save_copy(&*self.disk, &self.path, &suffix, &original)?;
        self.checksums.discard().map_err(io_error("remove the checksums of", &self.path))?;
        let bytes = contents.to_bytes();
        self.rewrite("migrate", &bytes)?;
        contents.migrated_from = None;
        self.checksums.add(&bytes);
        tracing::info!(original = %aside.display(), from_version, "session migrated");
        self.sync_folder()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if !self.is_broken
            && let Err(error) = self.sync()
        {
            tracing::warn!(%error, "a session was closed before all of it was on the disk");
        }
        // Before the lock: later it could be the note of the next holder.
        self.note.remove();
        // Closing is not enough while a command that is being started elsewhere has a copy of the file.
        if let Err(error) = self.file.unlock() {
            tracing::debug!(%error, "the lock of a session goes when its file is closed");
        }
    }
}

/// Opens the file that the name leads to and locks it.
fn open_locked(disk: &dyn JournalDisk, path: &Path) -> Result<Box<dyn DiskFile>, SessionError> {
    /// Openings while others replace the file; a migration happens once in the life of a file.
    const ATTEMPTS: u32 = 8;
    for _ in 0..ATTEMPTS {
        let file = match disk.open(path, OpenMode::Existing) {
            Err(_) if path.is_symlink() => {
                return Err(SessionError::Link { path: path.to_owned() });
            }
            opened => opened.map_err(io_error("open", path))?,
        };
        lock::lock(&*file, path)?;
        // Whoever had the lock may have put another file in its place before letting go.
        if file.is_at(path).map_err(io_error("look at", path))? {
            return Ok(file);
        }
    }
    Err(io_error("open", path)(io::ErrorKind::ResourceBusy.into()))
}

/// The path with links followed up to its folder. The file itself must be none: one that was planted
/// would lead what is said into any file of its owner.
fn in_real_folder(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok(folder.unwrap_or(Path::new(".")).canonicalize()?.join(name))
}

/// The lines in the first bytes of a file, without any claim on it.
pub(super) fn read_prefix(path: &Path, length_bytes: u64) -> Result<FileLines, SessionError> {
    let file = ctxhost_files::open(path).map_err(io_error("read", path))?;
    let found_bytes = file.metadata().map_err(io_error("look at", path))?.len();
    if found_bytes < length_bytes {
        let (path, expected_bytes) = (path.to_owned(), length_bytes);
        return Err(SessionError::Changed { path, expected_bytes, found_bytes });
    }
    ctxhost_files::read_open_lines(&file, length_bytes).map_err(io_error("read", path))
}

/// Reads the lines of a file without any claim on it.
pub(super) fn read(path: &Path) -> Result<FileLines, SessionError> {
    ctxhost_files::read_lines(path).map_err(io_error("read", path))
}

pub(super) fn io_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> SessionError + use<> {
    let path = path.to_owned();
    move |source| SessionError::Io { action, path, source }
}
