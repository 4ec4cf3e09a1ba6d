//! Clearing up: bytes that nothing names any more, files whose writing was cut short, old sessions.
//!
//! Hosts may be at work meanwhile. Bytes that they put are young, also where they were there before,
//! and age is looked at again under the lock that whoever puts bytes holds. So what goes was named by
//! nothing for all of its time, and put by nobody since.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use super::folder::{Blob, BlobFolder, paths_in};
use super::home::MediaHome;
use super::trash::{self, OldSession, Trash};
use super::{MediaError, mention};

/// Nothing younger than this is ever removed: a host puts bytes first and names them then.
pub const GRACE: Duration = Duration::from_secs(60 * 60);

/// What is to be cleared up.
#[derive(Clone, Debug)]
pub struct Collection {
    /// Where.
    pub home: MediaHome,
    /// How old bytes are that nothing names, before they go.
    pub blobs_older_than: Duration,
    /// How long nobody has touched a session, before it goes to the trash; `None` leaves all in place.
    pub sessions_older_than: Option<Duration>,
    /// Now.
    pub now: SystemTime,
}

/// What may go.
#[derive(Debug, Default)]
pub struct Garbage {
    /// Bytes that nothing names, old enough to go.
    pub blobs: Vec<Blob>,
    /// How many of those that were to go are named after all, by what was written while all was read.
    pub reachable: usize,
    /// Bytes that nothing names, not yet old enough.
    pub young: Vec<Blob>,
    /// What writes left behind that were cut short.
    pub staging: Vec<Blob>,
    /// Sessions that nobody has touched for long.
    pub sessions: Vec<OldSession>,
    /// Days on which sessions went to the trash, long ago.
    pub trash: Vec<Trash>,
}

impl Collection {
    /// Finds what may go; removes nothing.
    ///
    /// # Errors
    ///
    /// A folder or file that cannot be read, because it might name anything.
    pub fn look(&self) -> Result<Garbage, MediaError> {
        let Some(state) = self.home.state() else { return Ok(Garbage::default()) };
        let mut all = Vec::new();
        let mut staging = Vec::new();
        for folder in self.folders()? {
            all.extend(folder.blobs()?);
            staging.extend(folder.leftovers()?);
        }
        let named = self.named(&all)?;
        all.retain(|blob| !named.contains(&blob.handle));
        let (mut blobs, young): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|blob| blob.changed < self.cutoff());
        let again = if blobs.is_empty() { HashSet::new() } else { self.named(&blobs)? };
        let before = blobs.len();
        blobs.retain(|blob| !again.contains(&blob.handle));
        let reachable = before - blobs.len();
        staging.retain(|file| file.changed < self.ago(GRACE));
        let old = |older_than| trash::old_sessions(&self.home, self.ago(older_than));
        let sessions = self.sessions_older_than.map_or(Ok(Vec::new()), old)?;
        let expired = |_| trash::expired(state, self.now);
        let trash = self.sessions_older_than.map_or(Ok(Vec::new()), expired)?;
        Ok(Garbage { blobs, reachable, young, staging, sessions, trash })
    }

    /// Removes what may go, and leaves in `garbage` what went. Sessions that somebody has open and bytes
    /// that somebody put meanwhile stay.
    ///
    /// # Errors
    ///
    /// The first file that could not be removed; what had gone before is gone.
    pub fn sweep(&self, garbage: &mut Garbage) -> Result<(), MediaError> {
        let folders = self.folders()?;
        remove(&folders, &mut garbage.blobs, self.cutoff())?;
        remove(&folders, &mut garbage.staging, self.ago(GRACE))?;
        for expired in &garbage.trash {
            expired.empty()?;
        }
        if let Some(trash) = self.home.trash() {
            let mut moved = Vec::new();
            for session in garbage.sessions.drain(..) {
                if session.move_to(&trash, &self.home, self.now)? {
                    moved.push(session);
                }
            }
            garbage.sessions = moved;
        }
        Ok(())
    }

    /// The shared store, and those that older versions of ctxhost made beside its sessions.
    fn folders(&self) -> Result<Vec<BlobFolder>, MediaError> {
        let mut folders: Vec<BlobFolder> = self.home.shared().into_iter().collect();
        let Some(root) = self.home.sessions() else { return Ok(folders) };
        for working in paths_in(&root)?.into_iter().filter(|path| path.is_dir()) {
            let beside = paths_in(&working)?.into_iter().filter(|path| mention::is_store(path));
            folders.extend(beside.map(BlobFolder::at));
        }
        Ok(folders)
    }

    fn named(&self, blobs: &[Blob]) -> Result<HashSet<String>, MediaError> {
        let Some(state) = self.home.state() else { return Ok(HashSet::new()) };
        let known = blobs.iter().map(|blob| blob.handle.clone()).collect();
        let shared = self.home.shared();
        mention::below(state, shared.as_ref().map(BlobFolder::path), &known)
    }

    fn cutoff(&self) -> SystemTime {
        self.ago(self.blobs_older_than.max(GRACE))
    }

    fn ago(&self, age: Duration) -> SystemTime {
        self.now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// Removes files that are older still, and keeps the list of those that went.
fn remove(
    folders: &[BlobFolder],
    blobs: &mut Vec<Blob>,
    before: SystemTime,
) -> Result<(), MediaError> {
    let mut removed = Vec::new();
    for blob in blobs.drain(..) {
        let folder = folders.iter().find(|folder| blob.path.starts_with(folder.path()));
        if let Some(folder) = folder
            && folder.remove_older(&blob, before)?
        {
            removed.push(blob);
        }
    }
    *blobs = removed;
    Ok(())
}
