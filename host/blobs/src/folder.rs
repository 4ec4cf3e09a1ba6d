//! A folder of content-addressed blobs: atomically written, verified when read, private.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ctxhost_files::{
    FileAccess, FileSystem, OsFileSystem, STAGING_PREFIX, create_folders, replace_file_on,
};
use ctxhost_platform::files::{LinkPolicy, open_options, open_or_create};

use super::{BlobError, disk_error, hash, is_handle};

/// The lock file: shared by writers, exclusive for removal.
const LOCK_NAME: &str = ".lock";

/// A folder of blobs.
#[derive(Clone, Debug)]
pub struct BlobFolder {
    path: PathBuf,
    layout: FolderLayout,
    disk: Arc<dyn FileSystem>,
}

/// The layout of files in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderLayout {
    /// In the folder itself.
    Flat,
    /// In subfolders named after the first two digits, so that no folder becomes too large.
    Fanned,
}

/// A blob in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlob {
    /// The SHA-256 of its content.
    pub handle: String,
    /// Its file.
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// When it was last stored.
    pub modified: SystemTime,
}

impl BlobFolder {
    /// A flat folder, which is created with the first blob.
    pub fn new(path: PathBuf) -> Self {
        BlobFolder { path, layout: FolderLayout::Flat, disk: Arc::new(OsFileSystem) }
    }

    /// A folder shared by many sessions, with subfolders by the first byte of the hash.
    pub fn new_shared(path: PathBuf) -> Self {
        BlobFolder { layout: FolderLayout::Fanned, ..BlobFolder::new(path) }
    }

    /// The folder beside a session file: `<name>.blobs`.
    pub fn beside_session(session: &Path) -> Self {
        let mut name = session.file_name().map_or_else(OsString::new, OsString::from);
        name.push(".blobs");
        BlobFolder::new(session.with_file_name(name))
    }

    #[cfg(test)]
    pub(super) fn on(self, disk: Arc<dyn FileSystem>) -> Self {
        BlobFolder { disk, ..self }
    }

    /// Whether it is shared by many sessions.
    pub(super) fn is_shared(&self) -> bool {
        self.layout == FolderLayout::Fanned
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a blob and returns its SHA-256 in hex. It is durable when this returns, and counts as new for
    /// garbage collection even if it existed.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`]; the folder has no blob with this hash then, or the earlier one.
    pub fn put(&self, bytes: &[u8]) -> Result<String, BlobError> {
        let handle = hash(bytes);
        let path = self.path_of(&handle);
        create_folders(&*self.disk, &self.path)
            .map_err(disk_error("create the folder", &self.path))?;
        let lock = self.open_lock().map_err(disk_error("open the lock in", &self.path))?;
        // On a file system without locks nothing is ever removed, so a failure does not matter.
        let _shared = retry_interrupted(|| lock.lock_shared());
        if self.renew(&path, &handle).is_err() {
            replace_file_on(&*self.disk, &path, bytes, FileAccess::Private)?;
        }
        Ok(handle)
    }

    /// Verifies an existing blob and sets its time to now. If this fails, the blob is written again, which also
    /// repairs a damaged one.
    fn renew(&self, path: &Path, handle: &str) -> io::Result<()> {
        if hash(&fs::read(path)?) != handle {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.disk.touch(path)?;
        // The process that wrote it may not have synced the folder yet.
        self.disk.sync_folder(path.parent().unwrap_or(path))
    }

    /// Reads a blob; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`], and [`BlobError::Damaged`] if the content does not match the hash.
    pub fn get(&self, handle: &str) -> Result<Option<Vec<u8>>, BlobError> {
        if !is_handle(handle) {
            return Ok(None);
        }
        let path = self.path_of(handle);
        match fs::read(&path) {
            Ok(bytes) if hash(&bytes) == handle => Ok(Some(bytes)),
            Ok(_) => Err(BlobError::Damaged { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(disk_error("read", &path)(error)),
        }
    }

    /// The handles that start with `prefix`, sorted.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn handles(&self, prefix: &str) -> Result<Vec<String>, BlobError> {
        let blobs = self.blobs()?.into_iter().map(|blob| blob.handle);
        Ok(blobs.filter(|handle| handle.starts_with(prefix)).collect())
    }

    /// All blobs, sorted by handle.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn blobs(&self) -> Result<Vec<StoredBlob>, BlobError> {
        let mut blobs = self.files(is_handle)?;
        // In another subfolder it would never be read.
        blobs.retain(|blob| blob.path == self.path_of(&blob.handle));
        Ok(blobs)
    }

    /// Staging files of interrupted writes, with their names as handles.
    pub(super) fn staged_files(&self) -> Result<Vec<StoredBlob>, BlobError> {
        self.files(|name| name.starts_with(STAGING_PREFIX))
    }

    /// Removes a blob that was not stored since `before`; returns whether it was removed.
    pub(super) fn remove_if_older(
        &self,
        blob: &StoredBlob,
        before: SystemTime,
    ) -> Result<bool, BlobError> {
        let _exclusive = self.lock_exclusive()?;
        // Checked again under the lock: a host may have stored it since the scan.
        match fs::metadata(&blob.path).and_then(|found| found.modified()) {
            Ok(changed) if changed >= before => Ok(false),
            Ok(_) => {
                self.disk.remove(&blob.path).map_err(disk_error("remove", &blob.path))?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(disk_error("inspect", &blob.path)(error)),
        }
    }

    fn lock_exclusive(&self) -> Result<File, BlobError> {
        let path = self.path.join(LOCK_NAME);
        let locked =
            self.open_lock().and_then(|lock| retry_interrupted(|| lock.lock()).map(|()| lock));
        locked.map_err(|source| BlobError::LockFailed { path, source })
    }

    fn open_lock(&self) -> io::Result<File> {
        let mut options = open_options(LinkPolicy::Follow);
        open_or_create(options.write(true), &self.path.join(LOCK_NAME))
    }

    fn path_of(&self, handle: &str) -> PathBuf {
        match self.layout {
            FolderLayout::Flat => self.path.join(handle),
            FolderLayout::Fanned => {
                self.path.join(handle.get(..2).unwrap_or_default()).join(handle)
            }
        }
    }

    fn files(&self, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<StoredBlob>, BlobError> {
        let mut folders = vec![self.path.clone()];
        if self.layout == FolderLayout::Fanned {
            folders.extend(paths_in(&self.path)?.into_iter().filter(|path| path.is_dir()));
        }
        let mut found = Vec::new();
        for path in folders.iter().map(|folder| paths_in(folder)).collect::<Result<Vec<_>, _>>()? {
            found.extend(path.into_iter().filter_map(|path| blob_at(path, &is_wanted)));
        }
        found.sort_by(|a, b| a.handle.cmp(&b.handle));
        Ok(found)
    }
}

/// Repeats a lock operation that a signal interrupted.
fn retry_interrupted(lock: impl Fn() -> io::Result<()>) -> io::Result<()> {
    loop {
        match lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// The blob at a path; `None` for links and other names.
fn blob_at(path: PathBuf, is_wanted: impl Fn(&str) -> bool) -> Option<StoredBlob> {
    let handle = path.file_name()?.to_str().filter(|name| is_wanted(name))?.to_owned();
    let found = path.symlink_metadata().ok().filter(fs::Metadata::is_file)?;
    Some(StoredBlob { handle, size_bytes: found.len(), modified: found.modified().ok()?, path })
}

/// The paths in a folder; empty if it does not exist.
pub(super) fn paths_in(folder: &Path) -> Result<Vec<PathBuf>, BlobError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(disk_error("list", folder))?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<io::Result<_>>().map_err(disk_error("list", folder))
}
