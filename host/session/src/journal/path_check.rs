//! Whether the name of a session still leads to its file, which may be deleted, renamed or replaced while it is
//! open; and the file made again where it does not.

use std::fs::TryLockError;
use std::io;
use std::path::PathBuf;

use super::disk::{DiskFile, OpenMode, create_folders};
use super::lock::{LockHolder, LockNote};
use super::sidecar::{create_file, sidecar_path};
use super::{Journal, io_error};
use crate::error::SessionError;

/// What became of the file of a session since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileCheck {
    /// It stands where it stood.
    Intact,
    /// It was gone from its place, and was made again there with all that it held.
    Recreated {
        /// The file.
        path: PathBuf,
    },
    /// It is gone from its place and cannot be made again; the next look tries once more.
    Lost {
        /// The file.
        path: PathBuf,
        /// Why it cannot be made, as a sentence.
        reason: String,
    },
}

/// What is known of the place of a file.
#[derive(Debug, Default)]
pub(super) struct PathState {
    /// What nobody has asked for yet.
    news: Option<FileCheck>,
    /// It could not be made again when it was tried last.
    is_gone: bool,
}

impl Journal {
    /// What became of the file since the last look. That it is gone is told once.
    pub(crate) fn check_file(&mut self) -> FileCheck {
        if !self.is_broken {
            // What went wrong is among the news.
            let _ = self.check_path();
        }
        self.place.news.take().unwrap_or(FileCheck::Intact)
    }

    /// Makes the file again where its name does not lead to it any more: what is written to the old one would
    /// be lost with this process.
    pub(super) fn check_path(&mut self) -> Result<(), SessionError> {
        if self.file.is_at(&self.path).map_err(io_error("look at", &self.path))? {
            self.place.is_gone = false;
            return Ok(());
        }
        let made = self.make_again();
        if let Err(error) = &made
            && !self.place.is_gone
        {
            tracing::error!(
                file = %self.path.display(), %error,
                "a session file that is open was deleted, renamed or replaced, and cannot be made again; \
                 what is said now is lost when this process ends, unless a later try succeeds"
            );
            let (path, why) = (self.path.clone(), error.to_string());
            self.place.news = Some(FileCheck::Lost { path, reason: why });
        }
        self.place.is_gone = made.is_err();
        made
    }

    fn make_again(&mut self) -> Result<(), SessionError> {
        let failed = io_error("make again", &self.path);
        // The open file has all its bytes, whatever its name.
        let bytes = self.file.read().map_err(io_error("read what was", &self.path))?;
        let folder = self.path.parent().unwrap_or(&self.path);
        create_folders(&*self.disk, folder).map_err(io_error("make the folder", folder))?;
        let replaced = match self.standing_there(&bytes)? {
            PathOccupant::Nothing => None,
            PathOccupant::Same(file) => return self.take_over(file, None),
            PathOccupant::Other => Some(self.set_other_aside()?),
        };
        let file = create_file(&*self.disk, &self.path, &bytes).map_err(failed)?;
        self.take_over(file, replaced)?;
        self.checksums.discard().map_err(io_error("remove the checksums of", &self.path))?;
        self.checksums.add(&bytes);
        Ok(())
    }

    /// Goes on with another file that holds the same.
    fn take_over(
        &mut self,
        file: Box<dyn DiskFile>,
        replaced: Option<PathBuf>,
    ) -> Result<(), SessionError> {
        let replaced =
            replaced.as_deref().map(std::path::Path::display).map(tracing::field::display);
        tracing::error!(
            file = %self.path.display(), replaced,
            "a session file that is open was deleted, renamed or replaced; it was made again with all that it held"
        );
        self.file = file;
        self.synced_bytes = self.length_bytes;
        self.place.news = Some(FileCheck::Recreated { path: self.path.clone() });
        self.note = LockNote::create(self.disk.clone(), &self.path);
        self.sync_folder()
    }

    /// What has the name now.
    fn standing_there(&self, bytes: &[u8]) -> Result<PathOccupant, SessionError> {
        let mut file = match self.disk.open(&self.path, OpenMode::Existing) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(PathOccupant::Nothing);
            }
            // A link, a folder, a pipe: it keeps what it is, under another name.
            Err(_) => return Ok(PathOccupant::Other),
        };
        if let Err(TryLockError::WouldBlock) = file.lock() {
            let holder = LockHolder::read_note(&self.path).map(Box::new);
            return Err(SessionError::Locked { path: self.path.clone(), holder });
        }
        let is_as_long = file.length_bytes().is_ok_and(|length| length == bytes.len() as u64);
        let is_same = is_as_long && file.read().is_ok_and(|there| there == bytes);
        Ok(if is_same { PathOccupant::Same(file) } else { PathOccupant::Other })
    }

    /// Gives another name to what took the place of the file.
    fn set_other_aside(&self) -> Result<PathBuf, SessionError> {
        for number in 1_u32..=999 {
            let suffix = if number == 1 { String::new() } else { format!(".{number}") };
            let aside = sidecar_path(&self.path, &format!("replaced{suffix}"));
            match self.disk.rename_new(&self.path, &aside) {
                Ok(()) => return Ok(aside),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error("rename", &self.path)(error)),
            }
        }
        Err(io_error("rename", &self.path)(io::ErrorKind::AlreadyExists.into()))
    }
}

/// What stands under the name of a session whose file is elsewhere.
enum PathOccupant {
    Nothing,
    /// The same bytes: a copy that somebody put in the place.
    Same(Box<dyn DiskFile>),
    Other,
}
