//! Which folder keeps what a session puts away: one for all sessions below a state folder, else one
//! beside the session.

use std::path::{Path, PathBuf};

use super::BlobError;
use super::folder::BlobFolder;

/// Where sessions put bytes away.
#[derive(Clone, Debug, Default)]
pub struct BlobDirs {
    state: Option<PathBuf>,
}

impl BlobDirs {
    /// Sessions in `<state_dir>/sessions_dir` share the store in `<state_dir>/blobs`. All others, and without a
    /// state folder every session, have a folder of their own beside them.
    pub fn from_state_dir(state: &Path) -> BlobDirs {
        BlobDirs { state: Some(state.to_owned()) }
    }

    /// The folder whose files are all searched for the handles that they name.
    pub(super) fn state_dir(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    /// Where the sessions are that share a store: a folder for each folder that somebody worked in.
    pub fn sessions_dir(&self) -> Option<PathBuf> {
        Some(self.state_dir()?.join("sessions"))
    }

    /// Everywhere that sessions are kept: those of this machine's agents, and those of a gateway's clients.
    pub fn all_session_dirs(&self) -> Vec<PathBuf> {
        let of_clients = self.state_dir().map(|state| state.join("gateway").join("sessions"));
        self.sessions_dir().into_iter().chain(of_clients).collect()
    }

    /// The store that they share.
    pub fn shared_folder(&self) -> Option<BlobFolder> {
        Some(BlobFolder::new_shared(self.state_dir()?.join("blobs")))
    }

    /// Where sessions lie that were cleared away.
    pub(super) fn trash_dir(&self) -> Option<PathBuf> {
        Some(self.state_dir()?.join("trash"))
    }

    /// The bytes of a session.
    pub fn session_blobs(&self, session: &Path) -> SessionBlobs {
        let beside = BlobFolder::beside_session(&head_of(session));
        match self.shared_folder() {
            // Older versions of ctxhost kept them beside every session.
            Some(shared) if self.is_sharing(session) => {
                SessionBlobs { own: shared, others: vec![beside] }
            }
            // It may have been moved here from where it shared.
            shared => SessionBlobs { own: beside, others: shared.into_iter().collect() },
        }
    }

    fn is_sharing(&self, session: &Path) -> bool {
        let root = self.sessions_dir().and_then(|root| root.canonicalize().ok());
        let session = std::path::absolute(session).ok();
        let folder = session.and_then(|session| session.parent()?.canonicalize().ok());
        root.zip(folder).is_some_and(|(root, folder)| folder.starts_with(root))
    }
}

/// Sub-agents keep what they put away with the session that they work for, whose images they may have
/// been given.
fn head_of(session: &Path) -> PathBuf {
    let folder = session.parent().filter(|it| it.extension().is_some_and(|it| it == "agents"));
    let parent = folder.map(|folder| folder.with_extension("jsonl"));
    match parent.filter(|parent| parent.is_file()) {
        Some(parent) => head_of(&parent),
        None => session.to_owned(),
    }
}

/// The bytes of one session: put in one place, found in every place where they may be.
#[derive(Clone, Debug)]
pub struct SessionBlobs {
    own: BlobFolder,
    others: Vec<BlobFolder>,
}

impl SessionBlobs {
    /// Keeps bytes; see [`BlobFolder::put`].
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn put(&self, bytes: &[u8]) -> Result<String, BlobError> {
        self.own.put(bytes)
    }

    /// The bytes of a handle; `None` where there are none.
    ///
    /// # Errors
    ///
    /// The first one of a place, where no other has the bytes.
    pub fn get(&self, handle: &str) -> Result<Option<Vec<u8>>, BlobError> {
        let mut failure = None;
        for place in self.folders() {
            match place.get(handle) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(None), Err)
    }

    /// The handles that begin with `prefix`, sorted, each once.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn handles(&self, prefix: &str) -> Result<Vec<String>, BlobError> {
        let mut found = Vec::new();
        for place in self.folders() {
            found.extend(place.handles(prefix)?);
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// The handles of what stands beside sessions, where nobody else's bytes do.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn handles_beside(&self) -> Result<Vec<String>, BlobError> {
        let beside = self.folders().filter(|place| !place.is_shared());
        Ok(beside.map(|place| place.handles("")).collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// The same, and those of another session, which this one was made from.
    #[must_use]
    pub fn with_fallback(mut self, other: SessionBlobs) -> SessionBlobs {
        self.others.push(other.own);
        self.others.extend(other.others);
        self
    }

    /// The places, the own one first.
    pub(super) fn folders(&self) -> impl Iterator<Item = &BlobFolder> {
        std::iter::once(&self.own).chain(&self.others)
    }
}
