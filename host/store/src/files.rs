//! Sessions as local files, in one folder per working folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{SessionStore, StoredSession};
use ctxhost_engine::EngineStores;
use ctxhost_session::{Session, SessionError, SessionFile, SessionFolder, SessionHeader};

/// Session files below a root folder.
#[derive(Clone, Debug)]
pub struct FileSessionStore {
    root: PathBuf,
}

impl FileSessionStore {
    /// The sessions below this folder, which is created with the first one.
    pub fn new(root: &Path) -> FileSessionStore {
        FileSessionStore { root: root.to_owned() }
    }

    /// The file of a session.
    fn file(&self, id: &str) -> Result<PathBuf, SessionError> {
        self.find(id)?.ok_or_else(|| SessionError::NotFound { id: id.to_owned() })
    }

    fn find(&self, id: &str) -> Result<Option<PathBuf>, SessionError> {
        let has_id = |path: &PathBuf| header_of(path).is_some_and(|header| header.id() == id);
        // Names of files created by ctxhost contain the id; other files have to be opened.
        let ending = format!("_{id}.jsonl");
        let is_named = |path: &&PathBuf| path.to_string_lossy().ends_with(&ending);
        let files = list_files(&folders(&self.root)?)?;
        let named = || files.iter().filter(is_named);
        let found = named().find(|path| has_id(path));
        let found = found.or_else(|| files.iter().find(|path| has_id(path)));
        // A file with a damaged header is found by its name: opening it reports how to repair it.
        Ok(found.or_else(|| named().find(|path| header_of(path).is_none())).cloned())
    }
}

impl SessionStore for FileSessionStore {
    fn insert(&self, session: Session) -> Result<Session, SessionError> {
        let header = session.header();
        if self.find(header.id())?.is_some() {
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
            None => folders(&self.root)?,
        };
        let mut found: Vec<StoredSession> = list_sessions(&folders)?
            .into_iter()
            .filter_map(|session| {
                // The folder may hold sessions of another working folder, whose name differs in separators only.
                let is_listed = |header: &SessionHeader| cwd.is_none_or(|cwd| header.is_of(cwd));
                let header = session.header().filter(is_listed)?;
                let (id, cwd) = (header.id().to_owned(), header.cwd().to_owned());
                Some(StoredSession { id, cwd, changed_ms: session.changed_ms })
            })
            .collect();
        // Two sessions of one second have equal times; without the id their order would depend on the file system.
        found.sort_by(|a, b| b.changed_ms.cmp(&a.changed_ms).then_with(|| b.id.cmp(&a.id)));
        Ok(found)
    }

    fn engine_stores(&self) -> Option<Arc<dyn EngineStores>> {
        None
    }
}

fn list_files(folders: &[PathBuf]) -> Result<Vec<PathBuf>, SessionError> {
    Ok(list_sessions(folders)?.into_iter().map(|session| session.path).collect())
}

fn list_sessions(folders: &[PathBuf]) -> Result<Vec<SessionFile>, SessionError> {
    let mut sessions = Vec::new();
    for folder in folders {
        sessions.append(&mut SessionFolder::from_path(folder).try_list()?);
    }
    Ok(sessions)
}

fn folders(root: &Path) -> Result<Vec<PathBuf>, SessionError> {
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries.flatten(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => {
            return Err(SessionError::Io { action: "list", path: root.to_owned(), source });
        }
    };
    Ok(entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
}

fn header_of(path: &Path) -> Option<SessionHeader> {
    SessionFile { path: path.to_owned(), changed_ms: 0 }.header()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_working_folder_lists_its_own_sessions() {
        let root = std::env::temp_dir().join(format!("ctxhost-store-{}", std::process::id()));
        let store = FileSessionStore::new(&root);
        for (id, cwd) in [("one", "/x/a-b"), ("two", "/x/a/b")] {
            store.create(SessionHeader::for_cwd(Some(id), Path::new(cwd), 1_000)).unwrap();
        }
        let ids = |cwd: Option<&str>| -> Vec<String> {
            let listed = store.list(cwd.map(Path::new)).unwrap();
            listed.into_iter().map(|session| session.id).collect()
        };
        assert_eq!(ids(Some("/x/a-b")), ["one"]);
        assert_eq!(ids(Some("/x/a/b")), ["two"]);
        assert_eq!(ids(None).len(), 2);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
