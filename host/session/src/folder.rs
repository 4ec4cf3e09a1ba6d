//! Where the sessions of a working folder are kept, and which there are.

use std::path::{Path, PathBuf};

use super::journal::disk::{RealDisk, make_folders};
use super::journal::io_error;
use super::{Header, Session, SessionError, clock};

/// A folder of session files, one below it for each working folder.
#[derive(Clone, Debug)]
pub struct SessionFolder {
    path: PathBuf,
}

/// A session that is kept there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its file.
    pub path: PathBuf,
    /// When it was last written to, in milliseconds since 1970.
    pub changed_ms: i64,
}

impl SessionFolder {
    /// The folder below `root` for what is done in `cwd`, named as Pi names it.
    pub fn of(root: &Path, cwd: &Path) -> SessionFolder {
        let cwd = std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned());
        let name = cwd.display().to_string();
        let name = name.trim_start_matches('/').replace(['/', '\\', ':'], "-");
        SessionFolder { path: root.join(format!("--{name}--")) }
    }

    /// A folder that holds session files itself.
    pub fn at(path: &Path) -> SessionFolder {
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
    pub fn create(&self, cwd: &Path) -> Result<Session, SessionError> {
        let header = Header::new(None, &cwd.display().to_string(), clock::now_ms());
        self.keep(Session::in_memory(header))
    }

    /// Keeps a session there that is in memory. The folder is made, for its owner alone.
    ///
    /// # Errors
    ///
    /// [`SessionError`] where folder or file cannot be made.
    pub fn keep(&self, session: Session) -> Result<Session, SessionError> {
        self.make()?;
        let header = session.header();
        let path = self.path.join(header.file_name());
        session.kept_in(&path)
    }

    /// Makes the folder where there is none, for its owner alone.
    ///
    /// # Errors
    ///
    /// [`SessionError`] where it cannot be made.
    pub fn make(&self) -> Result<(), SessionError> {
        make_folders(&RealDisk, &self.path).map_err(io_error("make the folder", &self.path))
    }

    /// The sessions in it, the newest first. None where there is no folder yet.
    pub fn list(&self) -> Vec<Kept> {
        let files = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut kept: Vec<Kept> = files.filter_map(|file| kept(file.path())).collect();
        kept.sort_by(|a, b| b.changed_ms.cmp(&a.changed_ms).then_with(|| b.path.cmp(&a.path)));
        kept
    }
}

fn kept(path: PathBuf) -> Option<Kept> {
    if path.extension()? != "jsonl" {
        return None;
    }
    let changed = path.metadata().ok()?.modified().ok()?;
    let since = changed.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(Kept { path, changed_ms: i64::try_from(since.as_millis()).ok()? })
}
