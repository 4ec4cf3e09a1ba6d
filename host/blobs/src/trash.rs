//! Moves old sessions to a trash folder, from which they are removed later.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::dirs::BlobDirs;
use super::folder::paths_in;
use super::references::{is_session, owning_session};
use super::{BlobError, disk_error};
use ctxhost_files::{OsFileSystem, create_folders};

/// Days that sessions stay in the trash: a month to notice that one is missing.
pub const TRASH_DAYS: u64 = 30;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A session without recent changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldSession {
    /// Its file.
    pub path: PathBuf,
    /// Its sidecar files and folders: checksums, queued messages, blobs, sub-agents.
    pub beside: Vec<PathBuf>,
    /// Total size.
    pub size_bytes: u64,
}

/// The sessions moved to the trash on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrashDay {
    /// Its folder.
    pub path: PathBuf,
    /// Total size.
    pub size_bytes: u64,
}

/// The sessions that were last changed before this time, with their sidecar files.
pub(super) fn old_sessions(
    home: &BlobDirs,
    before: SystemTime,
) -> Result<Vec<OldSession>, BlobError> {
    let mut old = Vec::new();
    let roots = home.all_session_dirs();
    let folders = roots.iter().map(|root| paths_in(root)).collect::<Result<Vec<_>, _>>()?.concat();
    for folder in folders {
        let paths = if folder.is_dir() { paths_in(&folder)? } else { Vec::new() };
        for path in paths.iter().filter(|path| is_session(path)) {
            let beside: Vec<_> =
                paths.iter().filter(|other| belongs_to(other, path)).cloned().collect();
            let parts = || beside.iter().chain([path]);
            // A queued message or a running sub-agent changes files beside the session only.
            if parts().all(|part| last_changed(part).is_some_and(|changed| changed < before)) {
                let size_bytes = parts().map(|part| size_of(part)).sum();
                old.push(OldSession { path: path.clone(), beside, size_bytes });
            }
        }
    }
    old.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(old)
}

/// Whether a path is a sidecar file of a session, or the folder of its sub-agents.
fn belongs_to(path: &Path, session: &Path) -> bool {
    owning_session(path).is_some_and(|owner| owner == session)
        || path == session.with_extension("agents")
}

/// When a file, or any file in a folder, was last changed; `None` if unknown.
fn last_changed(path: &Path) -> Option<SystemTime> {
    let found = path.symlink_metadata().ok()?;
    if !found.is_dir() {
        return found.modified().ok();
    }
    let inside = paths_in(path).ok()?;
    let changed: Option<Vec<SystemTime>> = inside.iter().map(|path| last_changed(path)).collect();
    Some(changed?.into_iter().max().unwrap_or(SystemTime::UNIX_EPOCH))
}

impl OldSession {
    /// Moves it to the trash of today; `false` if it is open or cannot be locked.
    pub(super) fn move_to(
        &self,
        trash: &Path,
        home: &BlobDirs,
        now: SystemTime,
    ) -> Result<bool, BlobError> {
        let file = File::open(&self.path).map_err(disk_error("open", &self.path))?;
        // The writer of an open session holds its lock.
        let (Ok(()), Some(name)) = (file.try_lock(), path_in_trash(home, &self.path)) else {
            return Ok(false);
        };
        let target = trash.join(date_of(now)).join(name.parent().unwrap_or(Path::new("")));
        create_folders(&OsFileSystem, &target).map_err(disk_error("create the folder", &target))?;
        // The session last: after a crash in between, the next run moves it.
        for part in self.beside.iter().chain([&self.path]) {
            let Some(name) = part.file_name() else { continue };
            let moved = fs::rename(part, free_name(&target.join(name)));
            moved.map_err(disk_error("move to the trash", part))?;
        }
        Ok(true)
    }
}

/// The path of a session in the trash: relative to the sessions folder, or to the state folder for sessions of
/// gateway clients.
fn path_in_trash<'a>(home: &BlobDirs, session: &'a Path) -> Option<&'a Path> {
    let own = home.sessions_dir().and_then(|root| session.strip_prefix(root).ok());
    own.or_else(|| session.strip_prefix(home.state_dir()?).ok())
}

/// A free name in the trash, so that nothing there is overwritten.
// A session that was restored from the trash and grew old again has the name of the first one.
fn free_name(path: &Path) -> PathBuf {
    let numbered = |number: u32| path.with_added_extension(number.to_string());
    let names = std::iter::once(path.to_owned()).chain((2..).map(numbered));
    names.into_iter().find(|name| !name.exists()).unwrap_or_else(|| path.to_owned())
}

/// The expired days in the trash of a state folder.
pub(super) fn expired_days(state: &Path, now: SystemTime) -> Result<Vec<TrashDay>, BlobError> {
    let last = date_of(now.checked_sub(DAY * TRASH_DAYS as u32).unwrap_or(SystemTime::UNIX_EPOCH));
    let mut days = paths_in(&state.join("trash"))?;
    days.retain(|day| {
        day.file_name()
            .and_then(|name| name.to_str())
            // Dates in this form sort as text.
            .is_some_and(|name| name.parse::<jiff::civil::Date>().is_ok() && name < last.as_str())
    });
    days.sort();
    Ok(days.into_iter().map(|path| TrashDay { size_bytes: size_of(&path), path }).collect())
}

impl TrashDay {
    /// Deletes it.
    pub(super) fn remove(&self) -> Result<(), BlobError> {
        fs::remove_dir_all(&self.path).map_err(disk_error("remove", &self.path))
    }
}

/// The day in UTC, as `2026-11-21`.
fn date_of(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time).unwrap_or_default();
    time.strftime("%Y-%m-%d").to_string()
}

fn size_of(path: &Path) -> u64 {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => {
            paths_in(path).unwrap_or_default().iter().map(|path| size_of(path)).sum()
        }
        Ok(found) => found.len(),
        Err(_) => 0,
    }
}
