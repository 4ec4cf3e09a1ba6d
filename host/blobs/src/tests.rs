//! Helpers of the tests: a file system that fails at a chosen operation.

mod faults;
mod garbage;
mod images;
mod places;
mod usage;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use tempfile::{NamedTempFile, TempDir};

use super::*;
use ctxhost_files::{FileSystem, OsFileSystem};

/// How a write fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The system refuses.
    Refused(i32),
    /// Half of it is done, then the system refuses.
    Short,
    /// The process dies: nothing happens any more, and what was staged stays.
    Killed,
}

/// A disk whose nth step fails.
#[derive(Debug)]
struct FaultyDisk {
    fault: Fault,
    at: usize,
    steps: AtomicUsize,
}

impl FaultyDisk {
    fn new(fault: Fault, at: usize) -> Arc<FaultyDisk> {
        Arc::new(FaultyDisk { fault, at, steps: AtomicUsize::new(0) })
    }

    fn steps(&self) -> usize {
        self.steps.load(Ordering::Relaxed)
    }

    fn is_dead(&self) -> bool {
        self.fault == Fault::Killed && self.steps() > self.at
    }

    fn step<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::Refused(code) if step == self.at => Err(io::Error::from_raw_os_error(code)),
            Fault::Short if step == self.at => Err(io::Error::from_raw_os_error(nix::libc::ENOSPC)),
            Fault::Killed if step >= self.at => Err(io::Error::other("killed")),
            _ => work(),
        }
    }
}

impl FileSystem for FaultyDisk {
    fn create_folder(&self, path: &Path) -> io::Result<()> {
        self.step(|| OsFileSystem.create_folder(path))
    }

    fn stage(&self, folder: &Path, mode: u32) -> io::Result<NamedTempFile> {
        self.step(|| OsFileSystem.stage(folder, mode)).map(|mut staged| {
            staged.disable_cleanup(self.fault == Fault::Killed);
            staged
        })
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        if self.fault != Fault::Refused(0) && self.steps() == self.at {
            file.write_all(&bytes[..bytes.len() / 2])?;
        }
        self.step(|| OsFileSystem.write(file, bytes))
    }

    fn set_mode(&self, file: &File, mode: u32) -> io::Result<()> {
        self.step(|| OsFileSystem.set_mode(file, mode))
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step(|| OsFileSystem.sync(file))
    }

    fn rename(&self, mut staged: NamedTempFile, path: &Path) -> io::Result<()> {
        self.step(|| {
            staged.disable_cleanup(false);
            OsFileSystem.rename(staged, path)
        })
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.step(|| OsFileSystem.sync_folder(folder))
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.step(|| OsFileSystem.touch(path))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step(|| OsFileSystem.remove(path))
    }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A state folder with a session in it.
struct State {
    folder: TempDir,
    home: BlobDirs,
}

impl State {
    fn new() -> State {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("sessions/--work--")).unwrap();
        let home = BlobDirs::from_state_dir(folder.path());
        State { folder, home }
    }

    fn session(&self, name: &str) -> PathBuf {
        self.folder.path().join("sessions/--work--").join(name)
    }

    /// Writes a session with this text.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.session(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn shared(&self) -> BlobFolder {
        self.home.shared_folder().unwrap()
    }

    fn collection(&self) -> GarbageCollector {
        GarbageCollector {
            home: self.home.clone(),
            blobs_older_than: DAY * 90,
            sessions_older_than: None,
            now: SystemTime::now(),
        }
    }
}

/// Makes a file as old as if it had not been touched for so long.
fn age(path: &Path, age: Duration) {
    let time = SystemTime::now() - age;
    File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Stores bytes that were last changed this long ago.
fn put_old(folder: &BlobFolder, bytes: &[u8], since: Duration) -> String {
    let handle = folder.put(bytes).unwrap();
    let blob = folder.blobs().unwrap().into_iter().find(|blob| blob.handle == handle).unwrap();
    age(&blob.path, since);
    handle
}
