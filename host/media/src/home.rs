//! Which folder keeps what a session puts away: one for all sessions below a state folder, else one
//! beside the session.

use std::path::{Path, PathBuf};

use super::MediaError;
use super::folder::BlobFolder;

/// Where sessions put bytes away.
#[derive(Clone, Debug, Default)]
pub struct MediaHome {
    state: Option<PathBuf>,
}

impl MediaHome {
    /// Sessions in `<state>/sessions` share the store in `<state>/blobs`. All others, and without a
    /// state folder every session, have a folder of their own beside them.
    pub fn below(state: &Path) -> MediaHome {
        MediaHome { state: Some(state.to_owned()) }
    }

    /// The folder whose files are all searched for the handles that they name.
    pub(super) fn state(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    /// Where the sessions are that share a store: a folder for each folder that somebody worked in.
    pub fn sessions(&self) -> Option<PathBuf> {
        Some(self.state()?.join("sessions"))
    }

    /// Everywhere that sessions are kept: those of this machine's agents, and those of a gateway's clients.
    pub fn all_sessions(&self) -> Vec<PathBuf> {
        let of_clients = self.state().map(|state| state.join("gateway").join("sessions"));
        self.sessions().into_iter().chain(of_clients).collect()
    }

    /// The store that they share.
    pub fn shared(&self) -> Option<BlobFolder> {
        Some(BlobFolder::shared(self.state()?.join("blobs")))
    }

    /// Where sessions lie that were cleared away.
    pub(super) fn trash(&self) -> Option<PathBuf> {
        Some(self.state()?.join("trash"))
    }

    /// The bytes of a session.
    pub fn of_session(&self, session: &Path) -> Blobs {
        let beside = BlobFolder::beside(&head_of(session));
        match self.shared() {
            // Older versions of ctxhost kept them beside every session.
            Some(shared) if self.is_sharing(session) => Blobs { own: shared, others: vec![beside] },
            // It may have been moved here from where it shared.
            shared => Blobs { own: beside, others: shared.into_iter().collect() },
        }
    }

    fn is_sharing(&self, session: &Path) -> bool {
        let root = self.sessions().and_then(|root| root.canonicalize().ok());
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
pub struct Blobs {
    own: BlobFolder,
    others: Vec<BlobFolder>,
}

impl Blobs {
    /// Keeps bytes; see [`BlobFolder::put`].
    ///
    /// # Errors
    ///
    /// [`MediaError::Disk`].
    pub fn put(&self, bytes: &[u8]) -> Result<String, MediaError> {
        self.own.put(bytes)
    }

    /// The bytes of a handle; `None` where there are none.
    ///
    /// # Errors
    ///
    /// The first one of a place, where no other has the bytes.
    pub fn get(&self, handle: &str) -> Result<Option<Vec<u8>>, MediaError> {
        let mut failure = None;
        for place in self.places() {
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
    /// [`MediaError::Disk`].
    pub fn handles(&self, prefix: &str) -> Result<Vec<String>, MediaError> {
        let mut found = Vec::new();
        for place in self.places() {
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
    /// [`MediaError::Disk`].
    pub fn handles_beside(&self) -> Result<Vec<String>, MediaError> {
        let beside = self.places().filter(|place| !place.is_shared());
        Ok(beside.map(|place| place.handles("")).collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// The same, and those of another session, which this one was made from.
    #[must_use]
    pub fn or(mut self, other: Blobs) -> Blobs {
        self.others.push(other.own);
        self.others.extend(other.others);
        self
    }

    /// The places, the own one first.
    pub(super) fn places(&self) -> impl Iterator<Item = &BlobFolder> {
        std::iter::once(&self.own).chain(&self.others)
    }
}
