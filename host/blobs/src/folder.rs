//! A folder of bytes by hash: written beside and renamed, verified when read, for its owner alone.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use ctxhost_files::{
    FileAccess, FileSystem, OsFileSystem, STAGING_PREFIX, create_folders, replace_file_on,
};

use super::{BlobError, disk_error, hash, is_handle};

/// The file that says who is at work: whoever puts bytes shares it, whoever removes some has it alone.
const LOCK_NAME: &str = ".lock";

/// A folder of bytes by hash.
#[derive(Clone, Debug)]
pub struct BlobFolder {
    path: PathBuf,
    layout: FolderLayout,
    disk: Arc<dyn FileSystem>,
}

/// Where in the folder a file stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FolderLayout {
    /// In the folder itself.
    Flat,
    /// In a folder below it, named after the first two digits: no folder grows without bound.
    Fanned,
}

/// Bytes that are kept there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlob {
    /// The hash of the bytes.
    pub handle: String,
    /// The file.
    pub path: PathBuf,
    /// How many there are.
    pub size_bytes: u64,
    /// When they were last put.
    pub modified: SystemTime,
}

impl BlobFolder {
    /// A folder whose files stand in it; made when the first bytes come.
    pub fn new(path: PathBuf) -> Self {
        BlobFolder { path, layout: FolderLayout::Flat, disk: Arc::new(OsFileSystem) }
    }

    /// A folder for many sessions, with a folder below it for each first byte of a hash.
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

    /// Whether it is one for many sessions.
    pub(super) fn is_shared(&self) -> bool {
        self.layout == FolderLayout::Fanned
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps bytes and answers their SHA-256 in hex. On the disk when this returns, and for whoever
    /// clears up as young as if they had never been there before.
    ///
    /// # Errors
    ///
    /// [`BlobError::FileSystem`]; nothing is kept under that hash then, or what was there before.
    pub fn put(&self, bytes: &[u8]) -> Result<String, BlobError> {
        let handle = hash(bytes);
        let path = self.path_of(&handle);
        create_folders(&*self.disk, &self.path)
            .map_err(disk_error("make the folder", &self.path))?;
        let lock = self.open_lock().map_err(disk_error("open the lock in", &self.path))?;
        // Where there are no locks nothing is ever removed, so there is nothing to wait for.
        let _shared = patient(|| lock.lock_shared());
        if self.renew(&path, &handle).is_err() {
            replace_file_on(&*self.disk, &path, bytes, FileAccess::Private)?;
        }
        Ok(handle)
    }

    /// Makes bytes that are there as good as new. Where that fails they have to be written again, and
    /// so what was damaged meanwhile is put right.
    fn renew(&self, path: &Path, handle: &str) -> io::Result<()> {
        if hash(&fs::read(path)?) != handle {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.disk.touch(path)?;
        // Whoever wrote them may not have come to this yet.
        self.disk.sync_folder(path.parent().unwrap_or(path))
    }

    /// The bytes of a handle; `None` where there are none.
    ///
    /// # Errors
    ///
    /// [`BlobError::FileSystem`], and [`BlobError::Damaged`] where the bytes are not those that were put.
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

    /// The handles that begin with `prefix`, sorted.
    ///
    /// # Errors
    ///
    /// [`BlobError::FileSystem`].
    pub fn handles(&self, prefix: &str) -> Result<Vec<String>, BlobError> {
        let blobs = self.blobs()?.into_iter().map(|blob| blob.handle);
        Ok(blobs.filter(|handle| handle.starts_with(prefix)).collect())
    }

    /// All that is kept there, by handle.
    ///
    /// # Errors
    ///
    /// [`BlobError::FileSystem`].
    pub fn blobs(&self) -> Result<Vec<StoredBlob>, BlobError> {
        let mut blobs = self.files(is_handle)?;
        blobs.retain(|blob| blob.path == self.path_of(&blob.handle));
        Ok(blobs)
    }

    /// Files whose writing was cut short; their names stand in the place of handles.
    pub(super) fn staged_files(&self) -> Result<Vec<StoredBlob>, BlobError> {
        self.files(|name| name.starts_with(STAGING_PREFIX))
    }

    /// Removes a file that nobody has put since `before`; whether it was so.
    pub(super) fn remove_if_older(
        &self,
        blob: &StoredBlob,
        before: SystemTime,
    ) -> Result<bool, BlobError> {
        let _alone = self.lock_alone()?;
        match fs::metadata(&blob.path).and_then(|found| found.modified()) {
            Ok(changed) if changed >= before => Ok(false),
            Ok(_) => {
                self.disk.remove(&blob.path).map_err(disk_error("remove", &blob.path))?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(disk_error("look at", &blob.path)(error)),
        }
    }

    fn lock_alone(&self) -> Result<File, BlobError> {
        let path = self.path.join(LOCK_NAME);
        let locked = self.open_lock().and_then(|lock| patient(|| lock.lock()).map(|()| lock));
        locked.map_err(|source| BlobError::LockFailed { path, source })
    }

    fn open_lock(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        options.open(self.path.join(LOCK_NAME))
    }

    fn path_of(&self, handle: &str) -> PathBuf {
        match self.layout {
            FolderLayout::Flat => self.path.join(handle),
            FolderLayout::Fanned => {
                self.path.join(handle.get(..2).unwrap_or_default()).join(handle)
            }
        }
    }

    fn files(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<StoredBlob>, BlobError> {
        let mut folders = vec![self.path.clone()];
        if self.layout == FolderLayout::Fanned {
            folders.extend(paths_in(&self.path)?.into_iter().filter(|path| path.is_dir()));
        }
        let mut found = Vec::new();
        for path in folders.iter().map(|folder| paths_in(folder)).collect::<Result<Vec<_>, _>>()? {
            found.extend(path.into_iter().filter_map(|path| blob_at(path, &wanted)));
        }
        found.sort_by(|a, b| a.handle.cmp(&b.handle));
        Ok(found)
    }
}

/// A signal is no reason to go on without a lock.
fn patient(lock: impl Fn() -> io::Result<()>) -> io::Result<()> {
    loop {
        match lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A file that is there, not a link to one.
fn blob_at(path: PathBuf, wanted: impl Fn(&str) -> bool) -> Option<StoredBlob> {
    let handle = path.file_name()?.to_str().filter(|name| wanted(name))?.to_owned();
    let found = path.symlink_metadata().ok().filter(fs::Metadata::is_file)?;
    Some(StoredBlob { handle, size_bytes: found.len(), modified: found.modified().ok()?, path })
}

/// What is in a folder; nothing where it is not there.
pub(super) fn paths_in(folder: &Path) -> Result<Vec<PathBuf>, BlobError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(disk_error("list", folder))?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<io::Result<_>>().map_err(disk_error("list", folder))
}
