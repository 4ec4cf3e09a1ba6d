//! Sessions as files of this machine: a folder for each working folder, as `chat` has always kept them.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{SessionStore, StoredSession};
use ctxhost_engine::EngineStores;
use ctxhost_session::{Session, SessionError, SessionFolder};

/// Session files below a folder.
#[derive(Clone, Debug)]
pub struct FileSessionStore {
    root: PathBuf,
}

impl FileSessionStore {
    /// The sessions below this folder, which is made when the first one begins.
    pub fn new(root: &Path) -> FileSessionStore {
        FileSessionStore { root: root.to_owned() }
    }

    /// The file of a session.
    fn file(&self, id: &str) -> Result<PathBuf, SessionError> {
        self.find(id).ok_or_else(|| SessionError::NotFound { id: id.to_owned() })
    }

    fn find(&self, id: &str) -> Option<PathBuf> {
        let has_id = |path: &PathBuf| header_of(path).is_some_and(|session| session.0 == id);
        // The name says it for all files that were made here; others are looked into.
        let ending = format!("_{id}.jsonl");
        let is_named = |path: &&PathBuf| path.to_string_lossy().ends_with(&ending);
        let files = self.files(&folders(&self.root));
        let named = || files.iter().filter(is_named);
        let found = named().find(|path| has_id(path));
        let found = found.or_else(|| files.iter().find(|path| has_id(path)));
        // One whose header is damaged is found by its name: whoever opens it is told what mends it.
        found.or_else(|| named().find(|path| header_of(path).is_none())).cloned()
    }

    fn files(&self, folders: &[PathBuf]) -> Vec<PathBuf> {
        let kept = folders.iter().flat_map(|folder| SessionFolder::from_path(folder).list());
        kept.map(|kept| kept.path).collect()
    }
}

impl SessionStore for FileSessionStore {
    fn insert(&self, session: Session) -> Result<Session, SessionError> {
        let header = session.header();
        if self.find(header.id()).is_some() {
            return Err(SessionError::AlreadyExists { id: header.id().to_owned() });
        }
        SessionFolder::for_cwd(&self.root, Path::new(header.cwd())).save(session)
    }

    fn open(&self, id: &str) -> Result<Session, SessionError> {
        Session::open(&self.file(id)?)
    }

    fn read(&self, id: &str) -> Result<Session, SessionError> {
        Session::read(&self.file(id)?)
    }

    fn list(&self, cwd: Option<&Path>) -> Result<Vec<StoredSession>, SessionError> {
        let folders = match cwd {
            Some(cwd) => vec![SessionFolder::for_cwd(&self.root, cwd).path().to_owned()],
            None => folders(&self.root),
        };
        let kept = folders.iter().flat_map(|folder| SessionFolder::from_path(folder).list());
        let mut found: Vec<StoredSession> = kept
            .filter_map(|kept| {
                let (id, cwd) = header_of(&kept.path)?;
                Some(StoredSession { id, cwd, changed_ms: kept.changed_ms })
            })
            .collect();
        found.sort_by(|a, b| b.changed_ms.cmp(&a.changed_ms).then_with(|| b.id.cmp(&a.id)));
        Ok(found)
    }

    fn engine_stores(&self) -> Option<Arc<dyn EngineStores>> {
        None
    }
}

fn folders(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Bytes within which a header ends: 64 KiB. It holds an id, a time and a few paths.
const MOST_HEADER_BYTES: u64 = 64 << 10;

/// Id and working folder; `None` for a file that is no session.
fn header_of(path: &Path) -> Option<(String, String)> {
    let file = ctxhost_files::open(path).ok()?;
    let lines = BufReader::new(file.take(MOST_HEADER_BYTES)).lines().map_while(Result::ok);
    let first = lines.into_iter().find(|line| !line.trim().is_empty())?;
    let session = Session::parse(&path.display().to_string(), first.as_bytes()).ok()?;
    Some((session.header().id().to_owned(), session.header().cwd().to_owned()))
}
