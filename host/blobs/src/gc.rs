//! Clearing up: bytes that nothing names any more, files whose writing was cut short, old sessions.
//!
//! Hosts may be at work meanwhile. Bytes that they put are young, also where they were there before,
//! and age is looked at again under the lock that whoever puts bytes holds. So what goes was named by
//! nothing for all of its time, and put by nobody since.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use super::dirs::BlobDirs;
use super::folder::{BlobFolder, StoredBlob, paths_in};
use super::trash::{self, OldSession, TrashDay};
use super::{BlobError, references};

/// Nothing younger than this is ever removed: a host puts bytes first and names them then.
pub const GRACE: Duration = Duration::from_secs(60 * 60);

/// What is to be cleared up.
#[derive(Clone, Debug)]
pub struct GarbageCollector {
    /// Where.
    pub home: BlobDirs,
    /// How old bytes are that nothing names, before they go.
    pub blobs_older_than: Duration,
    /// How long nobody has touched a session, before it goes to the trash; `None` leaves all in place.
    pub sessions_older_than: Option<Duration>,
    /// Now.
    pub now: SystemTime,
}

/// What may go.
#[derive(Debug, Default)]
pub struct GarbageReport {
    /// Bytes that nothing names, old enough to go.
    pub blobs: Vec<StoredBlob>,
    /// How many of those that were to go are named after all, by what was written while all was read.
    pub reachable: usize,
    /// Bytes that nothing names, not yet old enough.
    pub recent: Vec<StoredBlob>,
    /// What writes left behind that were cut short.
    pub staging: Vec<StoredBlob>,
    /// Sessions that nobody has touched for long.
    pub sessions: Vec<OldSession>,
    /// Days on which sessions went to the trash, long ago.
    pub trash: Vec<TrashDay>,
}

impl GarbageCollector {
    /// Finds what may go; removes nothing.
    ///
    /// # Errors
    ///
    /// A folder or file that cannot be read, because it might name anything.
    pub fn find(&self) -> Result<GarbageReport, BlobError> {
        let Some(state) = self.home.state_dir() else { return Ok(GarbageReport::default()) };
        let mut all = Vec::new();
        let mut staging = Vec::new();
        for folder in self.folders()? {
            all.extend(folder.blobs()?);
            staging.extend(folder.staged_files()?);
        }
        let named = self.named(&all)?;
        all.retain(|blob| !named.contains(&blob.handle));
        let (mut blobs, young): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|blob| blob.modified < self.cutoff());
        let again = if blobs.is_empty() { HashSet::new() } else { self.named(&blobs)? };
        let before = blobs.len();
        blobs.retain(|blob| !again.contains(&blob.handle));
        let reachable = before - blobs.len();
        staging.retain(|file| file.modified < self.ago(GRACE));
        let old = |older_than| trash::old_sessions(&self.home, self.ago(older_than));
        let sessions = self.sessions_older_than.map_or(Ok(Vec::new()), old)?;
        let expired = |_| trash::expired_days(state, self.now);
        let trash = self.sessions_older_than.map_or(Ok(Vec::new()), expired)?;
        Ok(GarbageReport { blobs, reachable, recent: young, staging, sessions, trash })
    }

    /// Removes what may go, and leaves in `garbage` what went. Sessions that somebody has open and bytes
    /// that somebody put meanwhile stay.
    ///
    /// # Errors
    ///
    /// The first file that could not be removed; what had gone before is gone.
    pub fn remove(&self, garbage: &mut GarbageReport) -> Result<(), BlobError> {
        let folders = self.folders()?;
        remove(&folders, &mut garbage.blobs, self.cutoff())?;
        remove(&folders, &mut garbage.staging, self.ago(GRACE))?;
        for expired in &garbage.trash {
            expired.remove()?;
        }
        if let Some(trash) = self.home.trash_dir() {
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
    fn folders(&self) -> Result<Vec<BlobFolder>, BlobError> {
        let mut folders: Vec<BlobFolder> = self.home.shared_folder().into_iter().collect();
        let Some(root) = self.home.sessions_dir() else { return Ok(folders) };
        for working in paths_in(&root)?.into_iter().filter(|path| path.is_dir()) {
            let beside =
                paths_in(&working)?.into_iter().filter(|path| references::is_blob_folder(path));
            folders.extend(beside.map(BlobFolder::new));
        }
        Ok(folders)
    }

    fn named(&self, blobs: &[StoredBlob]) -> Result<HashSet<String>, BlobError> {
        let Some(state) = self.home.state_dir() else { return Ok(HashSet::new()) };
        let known = blobs.iter().map(|blob| blob.handle.clone()).collect();
        let shared = self.home.shared_folder();
        references::handles_below(state, shared.as_ref().map(BlobFolder::path), &known)
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
    blobs: &mut Vec<StoredBlob>,
    before: SystemTime,
) -> Result<(), BlobError> {
    let mut removed = Vec::new();
    for blob in blobs.drain(..) {
        let folder = folders.iter().find(|folder| blob.path.starts_with(folder.path()));
        if let Some(folder) = folder
            && folder.remove_if_older(&blob, before)?
        {
            removed.push(blob);
        }
    }
    *blobs = removed;
    Ok(())
}
