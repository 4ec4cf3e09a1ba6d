//! Disk usage of sessions: as stored, and with all blobs inline.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use memchr::memmem;

use super::dirs::BlobDirs;
use super::folder::{BlobFolder, StoredBlob};
use super::images::{BLOB_FIELD, reference_bytes};
use super::references::{HandleScanner, files_below, is_session, owning_session};
use super::{BlobError, HANDLE_CHARS, disk_error};

/// The disk usage of a set of sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskUsage {
    /// Each session, the largest first.
    pub sessions: Vec<SessionUsage>,
    /// Size with all blobs inline.
    pub logical_bytes: u64,
    /// Size on disk, with each shared blob counted once.
    pub stored_bytes: u64,
    /// Blobs that no session references.
    pub unreferenced: Vec<StoredBlob>,
}

/// The disk usage of one session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionUsage {
    /// Its file.
    pub path: PathBuf,
    /// Size with all blobs inline.
    pub logical_bytes: u64,
    /// Size on disk including all referenced blobs, shared or not.
    pub stored_bytes: u64,
}

impl DiskUsage {
    /// Measures the sessions below a folder.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn measure_folder(folder: &Path, home: &BlobDirs) -> Result<DiskUsage, BlobError> {
        DiskUsage::measure(&[folder.to_owned()], home)
    }

    /// Measures all sessions, including those of gateway clients.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn measure_all(home: &BlobDirs) -> Result<DiskUsage, BlobError> {
        DiskUsage::measure(&home.all_session_dirs(), home)
    }

    fn measure(folders: &[PathBuf], home: &BlobDirs) -> Result<DiskUsage, BlobError> {
        let mut index = BlobIndex::default();
        let mut usage = DiskUsage::default();
        let sessions = folders.iter().map(|folder| sessions_in(folder));
        for (path, own_bytes) in sessions.collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            let blob_folders: Vec<BlobFolder> =
                home.session_blobs(&path).folders().cloned().collect();
            index.add_folders(blob_folders.iter())?;
            let references =
                scan_references(&path, |handle| index.find(&blob_folders, handle).is_some())?;
            let blobs = index.add_references(&blob_folders, &references);
            let inline_bytes: u64 = blobs.iter().map(|blob| references.inline_bytes(blob)).sum();
            let blob_bytes: u64 = blobs.iter().map(|blob| blob.size_bytes).sum();
            let stored_bytes = own_bytes + blob_bytes;
            let logical_bytes =
                (own_bytes + inline_bytes).saturating_sub(references.reference_bytes(&blobs));
            usage.logical_bytes += logical_bytes;
            usage.stored_bytes += own_bytes;
            usage.sessions.push(SessionUsage { path, logical_bytes, stored_bytes });
        }
        // Only all sessions together show which shared blobs are unreferenced.
        if home.sessions_dir().is_some_and(|root| folders.contains(&root)) {
            index.add_folders(home.shared_folder().iter())?;
        }
        usage.stored_bytes += index.referenced_bytes();
        usage.unreferenced = index.unreferenced();
        usage
            .sessions
            .sort_by(|a, b| b.stored_bytes.cmp(&a.stored_bytes).then_with(|| a.path.cmp(&b.path)));
        Ok(usage)
    }

    /// Logical size divided by stored size.
    pub fn dedup_factor(&self) -> f64 {
        factor(self.logical_bytes, self.stored_bytes)
    }
}

impl SessionUsage {
    /// Logical size divided by stored size.
    pub fn dedup_factor(&self) -> f64 {
        factor(self.logical_bytes, self.stored_bytes)
    }
}

fn factor(logical_bytes: u64, stored_bytes: u64) -> f64 {
    match stored_bytes {
        0 => 1.0,
        stored => logical_bytes as f64 / stored as f64,
    }
}

/// The sessions below a folder, with the size of their file and its sidecar files.
fn sessions_in(folder: &Path) -> Result<BTreeMap<PathBuf, u64>, BlobError> {
    let files = files_below(folder, None)?;
    let size = |path: &Path| path.metadata().map_or(0, |found| found.len());
    let mut sessions: BTreeMap<PathBuf, u64> = files
        .iter()
        .filter(|path| is_session(path))
        .map(|path| (path.clone(), size(path)))
        .collect();
    for path in files.iter().filter(|path| !is_session(path)) {
        if let Some(own_bytes) = owning_session(path).and_then(|owner| sessions.get_mut(&owner)) {
            *own_bytes += size(path);
        }
    }
    Ok(sessions)
}

/// The blobs that a session references.
#[derive(Debug, Default)]
struct SessionReferences {
    /// All handles.
    handles: HashSet<String>,
    /// Handles of images, with the number of occurrences.
    images: HashMap<String, u64>,
}

impl SessionReferences {
    /// Size of a blob inline: an image at each occurrence, anything else once.
    fn inline_bytes(&self, blob: &StoredBlob) -> u64 {
        match self.images.get(&blob.handle) {
            Some(times) => times * base64_bytes(blob.size_bytes),
            None => blob.size_bytes,
        }
    }

    /// Size of the references that replace images, without the quotes that inline data has too.
    fn reference_bytes(&self, blobs: &[StoredBlob]) -> u64 {
        let times = blobs.iter().filter_map(|blob| self.images.get(&blob.handle));
        // The two quotes of the empty `data` are in the inline form as well.
        times.sum::<u64>() * (reference_bytes() - 2)
    }
}

fn base64_bytes(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(3) * 4
}

fn scan_references(
    session: &Path,
    is_kept: impl Fn(&str) -> bool,
) -> Result<SessionReferences, BlobError> {
    let failed = |error| disk_error("read", session)(error);
    let mut reader = BufReader::new(ctxhost_files::open(session).map_err(failed)?);
    let field = format!("\"{BLOB_FIELD}\":\"");
    let (finder, mut references, mut line) =
        (memmem::Finder::new(&field), SessionReferences::default(), Vec::new());
    while reader.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        HandleScanner::default().scan(&line, |handle| {
            if !references.handles.contains(handle) && is_kept(handle) {
                references.handles.insert(handle.to_owned());
            }
        });
        for at in finder.find_iter(&line).map(|at| at + field.len()) {
            let handle =
                line.get(at..at + HANDLE_CHARS).and_then(|it| std::str::from_utf8(it).ok());
            *references.images.entry(handle.unwrap_or_default().to_owned()).or_default() += 1;
        }
        line.clear();
    }
    Ok(references)
}

/// The blobs of indexed folders, and those that sessions reference.
#[derive(Debug, Default)]
struct BlobIndex {
    folders: HashMap<PathBuf, HashMap<String, StoredBlob>>,
    referenced: HashMap<PathBuf, u64>,
}

impl BlobIndex {
    /// The blobs that a session references, each from the first folder that has it.
    fn add_references(
        &mut self,
        folders: &[BlobFolder],
        references: &SessionReferences,
    ) -> Vec<StoredBlob> {
        let found = references.handles.iter().filter_map(|handle| self.find(folders, handle));
        let found: Vec<StoredBlob> = found.cloned().collect();
        self.referenced.extend(found.iter().map(|blob| (blob.path.clone(), blob.size_bytes)));
        found
    }

    fn find(&self, folders: &[BlobFolder], handle: &str) -> Option<&StoredBlob> {
        let mut indexed = folders.iter().filter_map(|folder| self.folders.get(folder.path()));
        indexed.find_map(|blobs| blobs.get(handle))
    }

    fn add_folders<'a>(
        &mut self,
        folders: impl Iterator<Item = &'a BlobFolder>,
    ) -> Result<(), BlobError> {
        for folder in folders {
            if !self.folders.contains_key(folder.path()) {
                let blobs = folder.blobs()?.into_iter().map(|blob| (blob.handle.clone(), blob));
                self.folders.insert(folder.path().to_owned(), blobs.collect());
            }
        }
        Ok(())
    }

    fn referenced_bytes(&self) -> u64 {
        self.referenced.values().sum()
    }

    fn unreferenced(self) -> Vec<StoredBlob> {
        let blobs = self.folders.into_values().flat_map(HashMap::into_values);
        let mut unreferenced: Vec<StoredBlob> =
            blobs.filter(|blob| !self.referenced.contains_key(&blob.path)).collect();
        unreferenced.sort_by(|a, b| a.path.cmp(&b.path));
        unreferenced
    }
}
