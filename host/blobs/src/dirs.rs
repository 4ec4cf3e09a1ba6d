//! The blob folders of a session: one shared by all sessions of a state folder, or one beside the session.

use std::path::{Path, PathBuf};

use super::BlobError;
use super::folder::BlobFolder;

/// The locations of sessions and blobs below a state folder.
#[derive(Clone, Debug, Default)]
pub struct BlobDirs {
    state: Option<PathBuf>,
}

impl BlobDirs {
    /// Sessions in `<state>/sessions` share the folder `<state>/blobs`. All others, and all sessions without a
    /// state folder, have a folder beside them.
    pub fn from_state_dir(state: &Path) -> BlobDirs {
        BlobDirs { state: Some(state.to_owned()) }
    }

    /// The state folder, which garbage collection searches for references.
    pub(super) fn state_dir(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    /// The folder of sessions that share blobs, with one folder per working folder.
    pub fn sessions_dir(&self) -> Option<PathBuf> {
        Some(self.state_dir()?.join("sessions"))
    }

    /// The folders of all sessions: those of local agents, and those of gateway clients.
    pub fn all_session_dirs(&self) -> Vec<PathBuf> {
        self.sessions_dir().into_iter().chain(self.client_sessions_dir()).collect()
    }

    /// The folder of the sessions of gateway clients, with one folder per key.
    pub fn client_sessions_dir(&self) -> Option<PathBuf> {
        Some(self.state_dir()?.join("gateway").join("sessions"))
    }

    /// The shared blob folder.
    pub fn shared_folder(&self) -> Option<BlobFolder> {
        Some(BlobFolder::new_shared(self.state_dir()?.join("blobs")))
    }

    /// The folder of removed sessions.
    pub(super) fn trash_dir(&self) -> Option<PathBuf> {
        Some(self.state_dir()?.join("trash"))
    }

    /// The blobs of a session.
    pub fn session_blobs(&self, session: &Path) -> SessionBlobs {
        let beside = BlobFolder::beside_session(&root_session(session));
        match self.shared_folder() {
            // Older versions of ctxhost stored blobs beside every session.
            Some(shared) if self.shares_blobs(session) => {
                SessionBlobs { own: shared, others: vec![beside] }
            }
            // The session may have been moved out of the state folder.
            shared => SessionBlobs { own: beside, others: shared.into_iter().collect() },
        }
    }

    fn shares_blobs(&self, session: &Path) -> bool {
        // Resolved, because either may be named through a link. The folder of the session instead of
        // its file, which may not exist yet.
        let root = self.sessions_dir().and_then(|root| root.canonicalize().ok());
        let session = std::path::absolute(session).ok();
        let folder = session.and_then(|session| session.parent()?.canonicalize().ok());
        root.zip(folder).is_some_and(|(root, folder)| folder.starts_with(root))
    }
}

/// The session whose blobs a session uses. Sub-agents use those of their parent, from which they may have
/// received images.
fn root_session(session: &Path) -> PathBuf {
    let folder = session
        .parent()
        .filter(|folder| folder.extension().is_some_and(|extension| extension == "agents"));
    let parent = folder.map(|folder| folder.with_extension("jsonl"));
    match parent.filter(|parent| parent.is_file()) {
        Some(parent) => root_session(&parent),
        None => session.to_owned(),
    }
}

/// The blobs of one session: written to one folder, read from several.
#[derive(Clone, Debug)]
pub struct SessionBlobs {
    own: BlobFolder,
    others: Vec<BlobFolder>,
}

impl SessionBlobs {
    /// Stores a blob; see [`BlobFolder::put`].
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn put(&self, bytes: &[u8]) -> Result<String, BlobError> {
        self.own.put(bytes)
    }

    /// Reads a blob; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// The first error of a folder, if no other folder has the blob.
    pub fn get(&self, handle: &str) -> Result<Option<Vec<u8>>, BlobError> {
        let mut failure = None;
        for folder in self.folders() {
            match folder.get(handle) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                // Another folder may have an intact copy.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(None), Err)
    }

    /// The handles that start with `prefix`, sorted, without duplicates.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn handles(&self, prefix: &str) -> Result<Vec<String>, BlobError> {
        let mut found = Vec::new();
        for folder in self.folders() {
            found.extend(folder.handles(prefix)?);
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// The handles of blobs in folders beside sessions, which are not shared.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn handles_beside(&self) -> Result<Vec<String>, BlobError> {
        let beside = self.folders().filter(|folder| !folder.is_shared());
        Ok(beside.map(|folder| folder.handles("")).collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Also reads the blobs of another session, such as the one that this was forked from.
    #[must_use]
    pub fn with_fallback(mut self, other: SessionBlobs) -> SessionBlobs {
        self.others.push(other.own);
        self.others.extend(other.others);
        self
    }

    /// The folders, the one for writing first.
    pub(super) fn folders(&self) -> impl Iterator<Item = &BlobFolder> {
        std::iter::once(&self.own).chain(&self.others)
    }
}
