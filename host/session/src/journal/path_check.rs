//! Detects that a session file was deleted, renamed or replaced while it is open, and recreates it.

use std::fs::TryLockError;
use std::io;
use std::path::{Path, PathBuf};

use super::Journal;
use super::disk::{DiskFile, OpenMode, create_folders};
use super::lock::{LockNote, read_note};
use super::sidecar::{create_file, sidecar_path};
use crate::error::{SessionError, io_error};

/// The state of a session file, with what changed since the last check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileCheck {
    /// The path refers to the open file.
    Intact,
    /// The file was missing or replaced, and was recreated with all its bytes.
    Recreated {
        /// The file.
        path: PathBuf,
    },
    /// The file is missing or replaced and cannot be recreated; the next check tries again.
    Lost {
        /// The file.
        path: PathBuf,
        /// Why it cannot be recreated, as a sentence.
        reason: String,
    },
}

/// The result of checks that no caller has seen, and of the last attempt.
#[derive(Debug, Default)]
pub(super) struct PathState {
    unreported: Option<FileCheck>,
    is_lost: bool,
}

impl Journal {
    /// Checks the file. That it is lost is reported once.
    pub(crate) fn check_file(&mut self) -> FileCheck {
        if !self.is_broken {
            // A failure is in `unreported`.
            let _ = self.check_path();
        }
        self.path_state.unreported.take().unwrap_or(FileCheck::Intact)
    }

    /// Recreates the file if the path does not refer to it any more: bytes written to the open file would
    /// be lost with this process.
    pub(super) fn check_path(&mut self) -> Result<(), SessionError> {
        if self.file.is_at(&self.path).map_err(io_error("inspect", &self.path))? {
            self.path_state.is_lost = false;
            return Ok(());
        }
        let recreated = self.recreate();
        if let Err(error) = &recreated
            && !self.path_state.is_lost
        {
            tracing::error!(
                file = %self.path.display(), %error,
                "an open session file was deleted, renamed or replaced and cannot be recreated; \
                 new messages are lost when this process ends, unless a later attempt succeeds"
            );
            let (path, reason) = (self.path.clone(), error.to_string());
            self.path_state.unreported = Some(FileCheck::Lost { path, reason });
        }
        self.path_state.is_lost = recreated.is_err();
        recreated
    }

    fn recreate(&mut self) -> Result<(), SessionError> {
        let failed = io_error("recreate", &self.path);
        // The open file has all its bytes, even without a name.
        let bytes = self.file.read().map_err(io_error("read the open file of", &self.path))?;
        let found_bytes = bytes.len() as u64;
        if found_bytes != self.length_bytes {
            // What was written is not all there, or there is more: a copy of it would not be this session.
            let (path, expected_bytes) = (self.path.clone(), self.length_bytes);
            return Err(SessionError::Changed { path, expected_bytes, found_bytes });
        }
        let folder = self.path.parent().unwrap_or(&self.path);
        create_folders(&*self.disk, folder).map_err(io_error("create the folder", folder))?;
        let replaced = match self.occupant(&bytes)? {
            PathOccupant::Nothing => None,
            // A tool wrote the same bytes to a new file, for example when it restored a backup.
            PathOccupant::Same(file) => return self.switch_to(file, None),
            PathOccupant::Other => Some(self.rename_occupant()?),
        };
        let file = create_file(&*self.disk, &self.path, &bytes).map_err(failed)?;
        self.switch_to(file, replaced)?;
        self.checksums.discard().map_err(io_error("remove the checksums of", &self.path))?;
        self.checksums.add(&bytes);
        Ok(())
    }

    /// Continues with another file of the same content.
    fn switch_to(
        &mut self,
        file: Box<dyn DiskFile>,
        replaced: Option<PathBuf>,
    ) -> Result<(), SessionError> {
        let replaced = replaced.as_deref().map(Path::display).map(tracing::field::display);
        tracing::error!(
            file = %self.path.display(), replaced,
            "an open session file was deleted, renamed or replaced; it was recreated with all its content"
        );
        self.file = file;
        self.synced_bytes = self.length_bytes;
        self.path_state.unreported = Some(FileCheck::Recreated { path: self.path.clone() });
        // The note may have been removed together with the file.
        self.note = LockNote::create(self.disk.clone(), &self.path);
        self.sync_folder()
    }

    /// What the path refers to now.
    fn occupant(&self, bytes: &[u8]) -> Result<PathOccupant, SessionError> {
        let mut file = match self.disk.open(&self.path, OpenMode::Existing) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(PathOccupant::Nothing);
            }
            // A link, a folder or a pipe, which is kept under another name.
            Err(_) => return Ok(PathOccupant::Other),
        };
        if let Err(TryLockError::WouldBlock) = file.lock() {
            let holder = read_note(&self.path).map(Box::new);
            return Err(SessionError::Locked { path: self.path.clone(), holder });
        }
        // The length first: it decides without reading a large file.
        let has_same_length = file.length_bytes().is_ok_and(|length| length == bytes.len() as u64);
        let is_same = has_same_length && file.read().is_ok_and(|found| found == bytes);
        Ok(if is_same { PathOccupant::Same(file) } else { PathOccupant::Other })
    }

    /// Renames what is at the path; returns its new path.
    fn rename_occupant(&self) -> Result<PathBuf, SessionError> {
        for number in 1_u32..=999 {
            let suffix = if number == 1 { String::new() } else { format!(".{number}") };
            let target = sidecar_path(&self.path, &format!("replaced{suffix}"));
            match self.disk.rename_new(&self.path, &target) {
                Ok(()) => return Ok(target),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error("rename", &self.path)(error)),
            }
        }
        Err(io_error("rename", &self.path)(io::ErrorKind::AlreadyExists.into()))
    }
}

/// What the path of a session refers to when it does not refer to the open file.
enum PathOccupant {
    Nothing,
    /// An identical copy.
    Same(Box<dyn DiskFile>),
    Other,
}
