//! A disk whose operations fail as a test has planned it.

use std::fs::TryLockError;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::journal::disk::{DiskFile, JournalDisk, OpenMode, OsJournalDisk};

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum How {
    /// Half of a write fits, nothing of anything else.
    Short,
    /// The disk is full.
    Full,
    /// The device answers nothing.
    Io,
}

impl How {
    fn error(self) -> io::Error {
        match self {
            How::Short | How::Full => io::ErrorKind::StorageFull.into(),
            How::Io => io::Error::other("input/output error"),
        }
    }
}

/// Which operations fail.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) how: How,
    /// The number of the first one.
    pub(super) from: usize,
    /// Whether all after it fail as well.
    pub(super) stays: bool,
    /// Operations so far.
    pub(super) seen: usize,
    /// What failed first.
    pub(super) failed: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct FaultyDisk(pub(super) Arc<Mutex<Plan>>);

impl FaultyDisk {
    pub(super) fn new(how: How, from: usize, stays: bool) -> FaultyDisk {
        FaultyDisk(Arc::new(Mutex::new(Plan { how, from, stays, seen: 0, failed: None })))
    }

    /// Counts an operation; fails if it is its turn.
    pub(super) fn step(&self, what: &str) -> io::Result<()> {
        let mut plan = self.0.lock().unwrap();
        let number = plan.seen;
        plan.seen += 1;
        if number == plan.from || (plan.stays && number > plan.from) {
            plan.failed.get_or_insert_with(|| what.to_owned());
            return Err(plan.how.error());
        }
        Ok(())
    }

    pub(super) fn heal(&self) {
        self.0.lock().unwrap().from = usize::MAX;
    }

    pub(super) fn failed(&self) -> Option<String> {
        self.0.lock().unwrap().failed.clone()
    }

    pub(super) fn named(what: &str, path: &Path) -> String {
        format!("{what} {}", path.extension().unwrap_or_default().to_string_lossy())
    }
}

impl JournalDisk for FaultyDisk {
    fn open(&self, path: &Path, opening: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        if opening != OpenMode::Existing {
            self.step(&FaultyDisk::named("create", path))?;
        }
        let name = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Box::new(FaultyFile {
            file: OsJournalDisk.open(path, opening)?,
            disk: self.clone(),
            name,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(&FaultyDisk::named("rename", from))?;
        OsJournalDisk.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step(&FaultyDisk::named("name", from))?;
        OsJournalDisk.rename_new(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step(&FaultyDisk::named("remove", path))?;
        OsJournalDisk.remove(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.step(&FaultyDisk::named("sync folder of", path))?;
        OsJournalDisk.sync_folder(path)
    }

    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.step("make folder")?;
        OsJournalDisk.create_folder(path)
    }
}

#[derive(Debug)]
pub(super) struct FaultyFile {
    file: Box<dyn DiskFile>,
    disk: FaultyDisk,
    name: String,
}

impl FaultyFile {
    fn step(&self, what: &str) -> io::Result<()> {
        self.disk.step(&format!("{what} {}", self.name))
    }
}

impl DiskFile for FaultyFile {
    fn read(&mut self) -> io::Result<Vec<u8>> {
        self.file.read()
    }

    fn read_lines(&mut self) -> io::Result<ctxhost_files::FileLines> {
        self.file.read_lines()
    }

    fn length_bytes(&self) -> io::Result<u64> {
        self.file.length_bytes()
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.step("append") {
            if self.disk.0.lock().unwrap().how == How::Short {
                self.file.append(&bytes[..bytes.len() / 2])?;
            }
            return Err(error);
        }
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.step("sync")?;
        self.file.sync()
    }

    fn truncate(&mut self, length_bytes: u64) -> io::Result<()> {
        self.step("truncate")?;
        self.file.truncate(length_bytes)
    }

    fn mode(&self) -> io::Result<u32> {
        self.file.mode()
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.step("set mode")?;
        self.file.set_mode(mode)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }

    fn lock(&self) -> Result<(), TryLockError> {
        self.file.lock()
    }

    fn unlock(&self) -> io::Result<()> {
        self.file.unlock()
    }
}
