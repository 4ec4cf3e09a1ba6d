//! Where the sessions of a working folder are kept, and which there are.

use std::path::{Path, PathBuf};

use super::journal::disk::{OsJournalDisk, create_folders};
use super::journal::io_error;
use super::{Session, SessionError, SessionHeader, clock};

/// A folder of session files, one below it for each working folder.
#[derive(Clone, Debug)]
pub struct SessionFolder {
    path: PathBuf,
}

/// A session that is kept there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFile {
    /// Its file.
    pub path: PathBuf,
    /// When it was last written to, in milliseconds since 1970.
    pub changed_ms: i64,
}

impl SessionFolder {
    /// The folder below `root` for what is done in `cwd`, named as Pi names it.
    pub fn for_cwd(root: &Path, cwd: &Path) -> SessionFolder {
        let cwd = std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
        let name = cwd.display().to_string();
        let name = name.trim_start_matches('/').replace(['/', '\\', ':'], "-");
        SessionFolder { path: root.join(format!("--{name}--")) }
    }

    /// A folder that holds session files itself.
    pub fn from_path(path: &Path) -> SessionFolder {
        SessionFolder { path: path.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a session there. The folder is made, for its owner alone.
    ///
    /// # Errors
    ///
    /// [`SessionError`] where folder or file cannot be made.
    pub fn start_session(&self, cwd: &Path) -> Result<Session, SessionError> {
        let header = SessionHeader::new(None, &cwd.display().to_string(), clock::now_ms());
        self.save(Session::in_memory(header))
    }

    /// Keeps a session there that is in memory. The folder is made, for its owner alone.
    ///
    /// # Errors
    ///
    /// [`SessionError`] where folder or file cannot be made.
    pub fn save(&self, session: Session) -> Result<Session, SessionError> {
        self.create()?;
        let header = session.header();
        let path = self.path.join(header.file_name());
        session.into_file(&path)
    }

    /// Makes the folder where there is none, for its owner alone.
    ///
    /// # Errors
    ///
    /// [`SessionError`] where it cannot be made.
    pub fn create(&self) -> Result<(), SessionError> {
        create_folders(&OsJournalDisk, &self.path).map_err(io_error("make the folder", &self.path))
    }

    /// The sessions in it, the newest first. None where there is no folder yet.
    pub fn list(&self) -> Vec<SessionFile> {
        let files = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut kept: Vec<SessionFile> = files.filter_map(|file| kept(file.path())).collect();
        kept.sort_by(|a, b| b.changed_ms.cmp(&a.changed_ms).then_with(|| b.path.cmp(&a.path)));
        kept
    }
}

fn kept(path: PathBuf) -> Option<SessionFile> {
    if path.extension()? != "jsonl" {
        return None;
    }
    let changed = path.metadata().ok()?.modified().ok()?;
    let since = changed.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(SessionFile { path, changed_ms: i64::try_from(since.as_millis()).ok()? })
}
