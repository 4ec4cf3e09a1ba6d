//! Garbage collection of unreferenced blobs, staging files and old sessions.
//!
//! Hosts may run meanwhile: storing a blob updates its time, and the time is checked again under the exclusive
//! lock. So a removed blob was neither referenced nor stored during its minimum age.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use super::dirs::BlobDirs;
use super::folder::{BlobFolder, StoredBlob, paths_in};
use super::trash::{self, OldSession, TrashDay};
use super::{BlobError, references};

/// Minimum age of removed blobs: a host stores a blob before it writes the reference.
pub const GRACE: Duration = Duration::from_secs(60 * 60);

/// What to collect.
#[derive(Clone, Debug)]
pub struct GarbageCollector {
    /// The state folder.
    pub home: BlobDirs,
    /// Minimum age of unreferenced blobs.
    pub blobs_older_than: Duration,
    /// Minimum time without changes of sessions; `None` keeps all sessions.
    pub sessions_older_than: Option<Duration>,
    /// The current time.
    pub now: SystemTime,
}

/// What can be removed.
#[derive(Debug, Default)]
pub struct GarbageReport {
    /// Unreferenced blobs that are old enough.
    pub blobs: Vec<StoredBlob>,
    /// Number of candidates that were referenced by the second scan.
    pub reachable: usize,
    /// Unreferenced blobs that are too new.
    pub recent: Vec<StoredBlob>,
    /// Staging files of interrupted writes.
    pub staging: Vec<StoredBlob>,
    /// Sessions without recent changes.
    pub sessions: Vec<OldSession>,
    /// Expired days of the trash.
    pub trash: Vec<TrashDay>,
}

impl GarbageCollector {
    /// Finds what can be removed.
    ///
    /// # Errors
    ///
    /// If a folder or file cannot be read, because it may contain references.
    pub fn find(&self) -> Result<GarbageReport, BlobError> {
        let Some(state) = self.home.state_dir() else { return Ok(GarbageReport::default()) };
        let mut all = Vec::new();
        let mut staging = Vec::new();
        for folder in self.folders()? {
            all.extend(folder.blobs()?);
            staging.extend(folder.staged_files()?);
        }
        let referenced = self.referenced(&all)?;
        all.retain(|blob| !referenced.contains(&blob.handle));
        let (mut blobs, recent): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|blob| blob.modified < self.cutoff());
        // A second scan: a reference may have been written to a file after the first scan read it.
        let referenced = if blobs.is_empty() { HashSet::new() } else { self.referenced(&blobs)? };
        let candidates = blobs.len();
        blobs.retain(|blob| !referenced.contains(&blob.handle));
        let reachable = candidates - blobs.len();
        staging.retain(|file| file.modified < self.ago(GRACE));
        let old = |older_than| trash::old_sessions(&self.home, self.ago(older_than));
        let sessions = self.sessions_older_than.map_or(Ok(Vec::new()), old)?;
        let expired = |_| trash::expired_days(state, self.now);
        let trash = self.sessions_older_than.map_or(Ok(Vec::new()), expired)?;
        Ok(GarbageReport { blobs, reachable, recent, staging, sessions, trash })
    }

    /// Removes what was found, and leaves in the report what was removed. Sessions that are open and blobs that
    /// were stored meanwhile stay.
    ///
    /// # Errors
    ///
    /// At the first file that cannot be removed; earlier ones are removed.
    pub fn remove(&self, garbage: &mut GarbageReport) -> Result<(), BlobError> {
        let folders = self.folders()?;
        remove_blobs(&folders, &mut garbage.blobs, self.cutoff())?;
        remove_blobs(&folders, &mut garbage.staging, self.ago(GRACE))?;
        for expired in &garbage.trash {
            expired.remove()?;
        }
        if let Some(trash) = self.home.trash_dir() {
            // Sessions go to the trash and not away: they cannot be rebuilt, blobs are only copies of what is referenced.
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

    /// The shared blob folder, and those beside sessions from older versions of ctxhost.
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

    fn referenced(&self, blobs: &[StoredBlob]) -> Result<HashSet<String>, BlobError> {
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

/// Removes blobs that are still old enough, and keeps the removed ones in the list.
fn remove_blobs(
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
