//! What sessions take: with everything inline, and as they are.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use memchr::memmem;

use super::dirs::BlobDirs;
use super::folder::{BlobFolder, StoredBlob};
use super::images::{BLOB_FIELD, reference_bytes};
use super::references::{HandleScanner, files_below, is_session, owning_session};
use super::{BlobError, HANDLE_CHARS, disk_error};

/// What the sessions of a folder take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskUsage {
    /// Each of them, the largest first.
    pub sessions: Vec<SessionUsage>,
    /// What they would take with everything inline, in bytes.
    pub logical_bytes: u64,
    /// What they take, in bytes: each file once, whoever names it.
    pub stored_bytes: u64,
    /// Files by hash that none of them names.
    pub unreferenced: Vec<StoredBlob>,
}

/// What one session takes.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionUsage {
    /// Its file.
    pub path: PathBuf,
    /// What it would take with everything inline, in bytes.
    pub logical_bytes: u64,
    /// What it takes with all that it names, in bytes, shared with others or not.
    pub stored_bytes: u64,
}

impl DiskUsage {
    /// What the sessions below a folder take.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn measure_folder(folder: &Path, home: &BlobDirs) -> Result<DiskUsage, BlobError> {
        DiskUsage::of(&[folder.to_owned()], home)
    }

    /// What all sessions of a home take, those of a gateway's clients among them.
    ///
    /// # Errors
    ///
    /// [`BlobError::Disk`].
    pub fn measure_all(home: &BlobDirs) -> Result<DiskUsage, BlobError> {
        DiskUsage::of(&home.all_session_dirs(), home)
    }

    fn of(folders: &[PathBuf], home: &BlobDirs) -> Result<DiskUsage, BlobError> {
        let mut shelf = BlobIndex::default();
        let mut usage = DiskUsage::default();
        let sessions = folders.iter().map(|folder| sessions_in(folder));
        for (path, own_bytes) in sessions.collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            let places: Vec<BlobFolder> = home.session_blobs(&path).folders().cloned().collect();
            shelf.look_into(places.iter())?;
            let named = named_in(&path, |handle| shelf.find(&places, handle).is_some())?;
            let blobs = shelf.take(&places, &named);
            let inline_bytes: u64 = blobs.iter().map(|blob| named.inline_bytes(blob)).sum();
            let blob_bytes: u64 = blobs.iter().map(|blob| blob.size_bytes).sum();
            let stored_bytes = own_bytes + blob_bytes;
            let logical_bytes =
                (own_bytes + inline_bytes).saturating_sub(named.reference_bytes(&blobs));
            usage.logical_bytes += logical_bytes;
            usage.stored_bytes += own_bytes;
            usage.sessions.push(SessionUsage { path, logical_bytes, stored_bytes });
        }
        if home.sessions_dir().is_some_and(|root| folders.contains(&root)) {
            shelf.look_into(home.shared_folder().iter())?;
        }
        usage.stored_bytes += shelf.taken_bytes();
        usage.unreferenced = shelf.untaken();
        usage
            .sessions
            .sort_by(|a, b| b.stored_bytes.cmp(&a.stored_bytes).then_with(|| a.path.cmp(&b.path)));
        Ok(usage)
    }

    /// How many times more they would take with everything inline.
    pub fn dedup_factor(&self) -> f64 {
        factor(self.logical_bytes, self.stored_bytes)
    }
}

impl SessionUsage {
    /// How many times more it would take with everything inline.
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

/// The sessions below a folder, with what their files and those beside them take.
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

/// The handles that a session names.
#[derive(Debug, Default)]
struct SessionReferences {
    /// Anywhere.
    handles: HashSet<String>,
    /// In the place of an image, and how often.
    images: HashMap<String, u64>,
}

impl SessionReferences {
    /// What bytes would take in the session: an image wherever it is, anything else once.
    fn inline_bytes(&self, blob: &StoredBlob) -> u64 {
        match self.images.get(&blob.handle) {
            Some(times) => times * base64_bytes(blob.size_bytes),
            None => blob.size_bytes,
        }
    }

    /// What stands in the place of those images now, beside the quotes that would stand there anyway.
    fn reference_bytes(&self, blobs: &[StoredBlob]) -> u64 {
        let times = blobs.iter().filter_map(|blob| self.images.get(&blob.handle));
        times.sum::<u64>() * (reference_bytes() - 2)
    }
}

fn base64_bytes(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(3) * 4
}

fn named_in(
    session: &Path,
    is_kept: impl Fn(&str) -> bool,
) -> Result<SessionReferences, BlobError> {
    let failed = |error| disk_error("read", session)(error);
    let mut reader = BufReader::new(ctxhost_files::open(session).map_err(failed)?);
    let field = format!("\"{BLOB_FIELD}\":\"");
    let (finder, mut named, mut line) =
        (memmem::Finder::new(&field), SessionReferences::default(), Vec::new());
    while reader.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        HandleScanner::default().scan(&line, |handle| {
            if !named.handles.contains(handle) && is_kept(handle) {
                named.handles.insert(handle.to_owned());
            }
        });
        for at in finder.find_iter(&line).map(|at| at + field.len()) {
            let handle =
                line.get(at..at + HANDLE_CHARS).and_then(|it| std::str::from_utf8(it).ok());
            *named.images.entry(handle.unwrap_or_default().to_owned()).or_default() += 1;
        }
        line.clear();
    }
    Ok(named)
}

/// The stores that were looked into, and which of their files somebody names.
#[derive(Debug, Default)]
struct BlobIndex {
    stores: HashMap<PathBuf, HashMap<String, StoredBlob>>,
    taken: HashMap<PathBuf, u64>,
}

impl BlobIndex {
    /// The bytes that a session names, each from the first place that has them.
    fn take(&mut self, places: &[BlobFolder], named: &SessionReferences) -> Vec<StoredBlob> {
        let found = named.handles.iter().filter_map(|handle| self.find(places, handle));
        let found: Vec<StoredBlob> = found.cloned().collect();
        self.taken.extend(found.iter().map(|blob| (blob.path.clone(), blob.size_bytes)));
        found
    }

    fn find(&self, places: &[BlobFolder], handle: &str) -> Option<&StoredBlob> {
        let mut stores = places.iter().filter_map(|place| self.stores.get(place.path()));
        stores.find_map(|store| store.get(handle))
    }

    fn look_into<'a>(
        &mut self,
        places: impl Iterator<Item = &'a BlobFolder>,
    ) -> Result<(), BlobError> {
        for place in places {
            if !self.stores.contains_key(place.path()) {
                let blobs = place.blobs()?.into_iter().map(|blob| (blob.handle.clone(), blob));
                self.stores.insert(place.path().to_owned(), blobs.collect());
            }
        }
        Ok(())
    }

    fn taken_bytes(&self) -> u64 {
        self.taken.values().sum()
    }

    fn untaken(self) -> Vec<StoredBlob> {
        let blobs = self.stores.into_values().flat_map(HashMap::into_values);
        let mut untaken: Vec<StoredBlob> =
            blobs.filter(|blob| !self.taken.contains_key(&blob.path)).collect();
        untaken.sort_by(|a, b| a.path.cmp(&b.path));
        untaken
    }
}
