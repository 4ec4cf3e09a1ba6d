//! Folders of session files, one per working folder.

use std::path::{Path, PathBuf};

use super::error::io_error;
use super::journal::disk::{OsJournalDisk, create_folders};
use super::{Session, SessionError, SessionHeader, clock};

/// A folder of session files.
#[derive(Clone, Debug)]
pub struct SessionFolder {
    path: PathBuf,
}

/// A session file in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFile {
    /// Its path.
    pub path: PathBuf,
    /// When it was last modified, in milliseconds since 1970.
    pub changed_ms: i64,
}

impl SessionFolder {
    /// The folder below `root` for sessions of the working folder `cwd`, with the name that Pi gives it.
    pub fn for_cwd(root: &Path, cwd: &Path) -> SessionFolder {
        let cwd = std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
        let name = cwd.display().to_string();
        let name = name.trim_start_matches('/').replace(['/', '\\', ':'], "-");
        SessionFolder { path: root.join(format!("--{name}--")) }
    }

    /// A folder that contains session files directly.
    pub fn from_path(path: &Path) -> SessionFolder {
        SessionFolder { path: path.to_owned() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a session in it, and the folder if needed.
    ///
    /// # Errors
    ///
    /// [`SessionError`] if folder or file cannot be created.
    pub fn start_session(&self, cwd: &Path) -> Result<Session, SessionError> {
        let header = SessionHeader::new(None, &cwd.display().to_string(), clock::now_ms());
        self.save(Session::in_memory(header))
    }

    /// Moves a session from memory to a new file in it, creating the folder if needed.
    ///
    /// # Errors
    ///
    /// [`SessionError`] if folder or file cannot be created.
    pub fn save(&self, session: Session) -> Result<Session, SessionError> {
        self.create()?;
        let header = session.header();
        let path = self.path.join(header.file_name());
        session.into_file(&path)
    }

    /// Creates the folder with mode 0700 if it does not exist.
    ///
    /// # Errors
    ///
    /// [`SessionError`] if it cannot be created.
    pub fn create(&self) -> Result<(), SessionError> {
        create_folders(&OsJournalDisk, &self.path)
            .map_err(io_error("create the folder", &self.path))
    }

    /// The sessions in it, newest first; empty if there is no folder.
    pub fn list(&self) -> Vec<SessionFile> {
        let files = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut sessions: Vec<SessionFile> =
            files.filter_map(|file| session_file(file.path())).collect();
        // Names begin with the creation time, which orders files that changed at the same time.
        sessions.sort_by(|a, b| b.changed_ms.cmp(&a.changed_ms).then_with(|| b.path.cmp(&a.path)));
        sessions
    }
}

fn session_file(path: PathBuf) -> Option<SessionFile> {
    if path.extension()? != "jsonl" {
        return None;
    }
    let changed = path.metadata().ok()?.modified().ok()?;
    let since = changed.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(SessionFile { path, changed_ms: i64::try_from(since.as_millis()).ok()? })
}
